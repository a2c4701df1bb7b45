//! EROFS images as sources: the tree equals the image and builds another one.

use crate::common::changes;
use kiln_builder::{BuildError, BuildOptions};
use kiln_codec::Method;
use kiln_read::{FollowLast, Image, ImageOptions, MemorySource, ReadError};
use kiln_source::image::erofs::ImageSource;
use kiln_source::{ScanOptions, Source, SourceError};
use kiln_tests::golden::{file, golden_images, open as open_golden};
use kiln_tests::image::{build, open, options, scan_image};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{assert_same, of_image, of_tree};
use kiln_tree::{Kind, NodeId, Tree};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns all golden images by name.
fn golden() -> Vec<(String, Image)> {
    let names = golden_images().unwrap().into_iter().map(|image| image.name);
    let list: Vec<_> = names.map(|name| (name.clone(), open_golden(&name))).collect();
    assert!(list.len() >= 36);
    list
}

fn scan_whole(image: &Image) -> Tree {
    scan_image(image).unwrap()
}

#[test]
fn a_scanned_image_is_the_image() {
    for (name, image) in golden() {
        let tree = scan_whole(&image);
        assert_same(&of_image(&image).unwrap(), &of_tree(&tree).unwrap(), &name);
    }
}

#[test]
fn an_image_built_from_an_image_is_equal() {
    let zstd = options(Some((Method::Zstd, 1)), 16 << 10, 2);
    for (name, image) in golden() {
        let tree = scan_whole(&image);
        for options in [&BuildOptions::default(), &zstd] {
            let rebuilt = open(build(&tree, options).unwrap().0).unwrap();
            let (list, summary) = changes(&tree, &scan_whole(&rebuilt));
            assert!(list.is_empty(), "{name}: {list:?}");
            assert!(summary.same > 10 && (summary.bytes > 0) == (tree_bytes(&tree) > 0), "{name}: {summary:?}");
            assert_same(&of_image(&image).unwrap(), &of_image(&rebuilt).unwrap(), &name);
        }
    }
}

fn tree_bytes(tree: &Tree) -> u64 {
    let len = |kind: &Kind| if let Kind::File { len, .. } = kind { *len } else { 0 };
    tree.nodes().map(|(_, node)| len(&node.kind)).sum()
}

#[test]
fn golden_images_of_one_tree_are_equal() {
    let (list, summary) = changes(&scan_whole(&open_golden("flat")), &scan_whole(&open_golden("lz4-dedupe-frag-tail")));
    assert!(list.is_empty(), "{list:?}");
    assert!(summary.bytes > 300_000, "{summary:?}");
}

#[test]
fn holes_survive() {
    let mut mem = MemTree::default();
    let mut file = MemFile::default();
    for _ in 0..3 {
        file.push(vec![7; 200_000]);
        file.push_hole(5 << 20);
    }
    mem.file(NodeId::ROOT, b"sparse", file);
    let tree = mem.finish().unwrap();
    let (bytes, first) = build(&tree, &BuildOptions::default()).unwrap();
    assert!(first.hole_bytes > 14 << 20);
    let scanned = scan_whole(&open(bytes.clone()).unwrap());
    let node = scanned.entries(NodeId::ROOT).at(0).node;
    let mut content = scanned.open(node).unwrap();
    let hole = content.next_data(1 << 20).unwrap().unwrap();
    assert!(hole.start > 5 << 20 && hole.start <= (5 << 20) + 200_000, "{hole:?}");
    assert_eq!(content.next_data(16 << 20).unwrap(), None);
    let (rebuilt, second) = build(&scanned, &BuildOptions::default()).unwrap();
    assert_eq!(second.hole_bytes, first.hole_bytes);
    assert!(rebuilt == bytes);
}

#[test]
fn hard_links_are_one_node() {
    let mut mem = MemTree::default();
    let file = mem.file(NodeId::ROOT, b"a", MemFile::whole(b"abc".to_vec()));
    let dir = mem.dir(NodeId::ROOT, b"b");
    mem.name(dir, b"a", file);
    let tree = scan_whole(&open(build(&mem.finish().unwrap(), &BuildOptions::default()).unwrap().0).unwrap());
    assert_eq!(tree.len(), 3);
    assert_eq!(tree.entries(NodeId::ROOT).at(0).node, tree.entries(tree.entries(NodeId::ROOT).at(1).node).at(0).node);
}

/// Returns an image with the directories `a` and `b`, whose entry for `b` has the nid of the file
/// at `to`.
fn with_dir_moved(to: &[u8]) -> Image {
    let mut mem = MemTree::default();
    mem.dir(NodeId::ROOT, b"a");
    mem.dir(NodeId::ROOT, b"b");
    mem.file(NodeId::ROOT, b"c", MemFile::whole(b"c".to_vec()));
    let (mut bytes, _) = build(&mem.finish().unwrap(), &BuildOptions::default()).unwrap();
    let image = open(bytes.clone()).unwrap();
    let nid = |path: &[u8]| image.resolve(path, FollowLast::Keep).unwrap().nid.0.to_le_bytes();
    let (old, new) = (nid(b"b"), nid(to));
    // A dirent: nid, offset of the name, type, zero.
    let is_dirent = |at: &usize| bytes[*at..*at + 8] == old && bytes[*at + 10..*at + 12] == [2, 0];
    let dirents: Vec<_> = (4096..bytes.len() - 12).filter(is_dirent).collect();
    for at in dirents {
        bytes[at..at + 8].copy_from_slice(&new);
    }
    open(bytes).unwrap()
}

#[test]
fn directories_have_one_name() {
    for to in [&b"a"[..], b""] {
        let error = scan_image(&with_dir_moved(to)).map(drop).unwrap_err();
        assert!(matches!(error, SourceError::Image { source: ReadError::Corrupt { .. }, .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("b (nid") && message.contains("several names"), "{message}");
    }
    // A wrong type in an entry is only a hint.
    let tree = scan_whole(&with_dir_moved(b"c"));
    assert!(matches!(tree.node(tree.entries(NodeId::ROOT).at(1).node).kind, Kind::File { .. }));
}

#[test]
fn a_damaged_file_is_an_error_of_its_contents() {
    let bytes = std::fs::read(file("zstd.erofs")).unwrap();
    let image = open(bytes.clone()).unwrap();
    let inode = image.resolve(b"big/text", FollowLast::Keep).unwrap();
    let extent = image.extent_at(&inode, 0).unwrap();
    let kiln_read::ExtentKind::Encoded { pa, plen, .. } = extent.kind else { panic!("{extent:?}") };
    let mut damaged = bytes;
    damaged[pa as usize..(pa + u64::from(plen)) as usize].fill(0xA5);
    let image = Image::open(Arc::new(MemorySource::new(damaged)), Vec::new(), &ImageOptions::default()).unwrap();
    let tree = scan_whole(&image);
    let error = of_tree(&tree).unwrap_err();
    let BuildError::Read { path, .. } = &error else { panic!("{error}") };
    assert_eq!(path, b"big/text");
    assert!(error.to_string().contains("corrupt image"), "{error}");
}

fn failed(source: ReadError) -> SourceError {
    SourceError::Image { path: PathBuf::new(), offset: 0, source }
}

#[test]
fn damaged_images_give_trees_or_errors() {
    let whole = |name| std::fs::read(file(&format!("{name}.erofs"))).unwrap();
    let options = ImageOptions::default().with_any_checksum();
    let (mut rng, mut trees, mut errors) = (Rng::new(3), 0, 0);
    for name in ["inline", "xattrs-shared", "metabox", "lz4-dedupe-frag-tail"] {
        let (bytes, original) = (whole(name), scan_whole(&open_golden(name)));
        for _ in 0..100 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + rng.below(200) {
                let at = rng.below(damaged.len() as u64) as usize;
                damaged[at] = rng.word() as u8;
            }
            let image = Image::open(Arc::new(MemorySource::new(damaged)), Vec::new(), &options);
            match image.map_err(failed).and_then(|image| scan_image(&image)) {
                Ok(tree) => {
                    trees += 1;
                    let summary = changes(&original, &tree).1;
                    let paths = summary.same + summary.removed + summary.changed + summary.unreadable;
                    assert!(paths >= original.len() as u64, "{summary:?}");
                }
                Err(error) => {
                    errors += 1;
                    assert!(!matches!(error, SourceError::Image { source: ReadError::Internal { .. }, .. }), "{error}");
                }
            }
        }
    }
    assert!(trees > 20 && errors > 20, "{trees} trees, {errors} errors");
}

#[test]
fn an_interruption_is_one() {
    let stop = AtomicBool::new(true);
    let source = ImageSource::new(open_golden("flat"), Path::new("flat"));
    assert!(matches!(source.scan(&ScanOptions::new(&stop)), Err(SourceError::Interrupted)));
}
