//! The reading library as its users see it, with images that need a builder.

use kiln_builder::{BuildOptions, Fragments};
use kiln_codec::Method;
use kiln_read::{FileRangeMut, FileTable, Image, ImageOptions, Nid, ReadAt, ScanFilter, Threads};
use kiln_tests::image::{build, open, options};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tree::{NodeId, Tree};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

const ROOT: NodeId = NodeId::ROOT;

/// Returns a dataset: `dirs` directories of `files` small files.
fn dataset(dirs: usize, files: usize, contents: impl Fn(usize) -> Vec<u8>) -> Tree {
    let mut tree = MemTree::default();
    for nth in 0..dirs {
        let dir = tree.dir(ROOT, format!("class-{nth:03}").as_bytes());
        for file in 0..files {
            let name = format!("sample-{file:06}.{}", if file % 4 == 0 { "JPG" } else { "json" });
            tree.file(dir, name.as_bytes(), MemFile::whole(contents(nth * files + file)));
        }
    }
    tree.finish().unwrap()
}

fn line(nth: usize) -> Vec<u8> {
    format!("sample {nth} of the set\n").repeat(1 + nth % 50).into_bytes()
}

fn packed() -> BuildOptions {
    options(Some((Method::Zstd, 3)), 65536, 2).with(|o| o.packing.fragments = Fragments::UpTo(u64::MAX))
}

fn scan(image: &Image, filter: &ScanFilter) -> FileTable {
    image.scan(&image.inode(image.root_nid()).unwrap(), filter, Threads::at_least_one(2)).table().unwrap()
}

#[test]
fn an_image_in_an_image_opens() {
    let (inner, _) = build(&dataset(2, 20, line), &packed()).unwrap();
    for compression in [None, Some((Method::Lz4, 1))] {
        let mut tree = MemTree::default();
        tree.file(ROOT, b"inner.erofs", MemFile::whole(inner.clone()));
        let (outer, _) = build(&tree.finish().unwrap(), &options(compression, 65536, 1)).unwrap();
        let file = open(outer).unwrap().open_file("inner.erofs").unwrap();
        assert_eq!(file.borrow(0, 4096).is_some(), compression.is_none(), "plain data in memory is lent");
        let image = Image::open(Arc::new(file), Vec::new(), &ImageOptions::default()).unwrap();
        assert_eq!(image.check(Threads::ONE).unwrap().problem_count, 0);
        let nested = image.open_file("class-001/sample-000003.json").unwrap();
        assert_eq!(image.read_bytes(nested.inode(), 0..u64::MAX).unwrap(), line(23));
    }
}

#[test]
fn long_directories_come_in_batches() {
    let (bytes, _) = build(&dataset(1, 1000, |_| Vec::new()), &options(None, 4096, 1)).unwrap();
    let image = open(bytes).unwrap();
    let mut entries = image.open_dir("class-000").unwrap();
    let mut expected = Vec::new();
    image
        .server()
        .read_dir(&entries.dir().clone(), 0, &mut |entry, _| {
            expected.extend((!entry.is_dot()).then_some(entry));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(expected.len(), 1000);
    let mut copy = entries.by_ref().take(300).map(Result::unwrap).collect::<Vec<_>>();
    let rest = entries.clone().map(Result::unwrap).collect::<Vec<_>>();
    copy.extend(rest.clone());
    assert_eq!((copy, rest), (expected, entries.map(Result::unwrap).collect()));
}

/// A loader of training data: a table read once, and batches that are read in stored order into one
/// buffer.
#[test]
fn a_dataset_is_read_in_stored_order() {
    let (bytes, _) = build(&dataset(10, 500, line), &packed()).unwrap();
    let image = open(bytes).unwrap();
    let table = scan(&image, &ScanFilter::regular_files().ending_in([".jpg"]));
    assert_eq!(table.len(), 10 * 125);
    assert_eq!(table.path(126), b"class-001/sample-000004.JPG");
    let positions = table.positions(&image, Threads::at_least_one(2)).unwrap();
    assert!(positions.iter().all(|position| position.shared_cluster.is_some() && position.stored_len > 0));
    let mut order: Vec<usize> = (0..table.len()).collect();
    order.sort_by_key(|&row| positions[row]);
    assert!(order.windows(2).all(|pair| positions[pair[0]] < positions[pair[1]]), "no two files at one position");
    let mut data = vec![0; table.sizes.iter().sum::<u64>() as usize];
    let (mut rest, mut reads) = (&mut data[..], Vec::new());
    for row in 0..table.len() {
        let (buf, behind) = rest.split_at_mut(table.sizes[row] as usize);
        reads.push(FileRangeMut { inode: image.inode(Nid(table.nids[row])).unwrap(), off: 0, buf });
        rest = behind;
    }
    // Backwards, because the caller's order does not matter.
    reads.reverse();
    let before = image.stats().decodes();
    assert!(image.read_many_into(&mut reads, Threads::ONE).into_iter().all(|len| len.is_ok()));
    let clusters: BTreeSet<_> = positions.iter().map(|position| position.shared_cluster).collect();
    let decodes = image.stats().decodes() - before;
    assert!(decodes <= clusters.len() as u64 + 1, "{decodes} decodes of {} shared clusters", clusters.len());
    let expected: Vec<u8> = (0..5000).filter(|nth| nth % 500 % 4 == 0).flat_map(line).collect();
    assert!(data == expected);
}

#[test]
fn scans_are_in_the_order_of_names() {
    let (bytes, _) = build(&dataset(30, 1000, |_| Vec::new()), &options(None, 4096, 2)).unwrap();
    let image = open(bytes).unwrap();
    let table = scan(&image, &ScanFilter::regular_files());
    assert_eq!((table.len(), table.directories.len()), (30_000, 31));
    let paths: Vec<Vec<u8>> = (0..table.len()).map(|row| table.path(row)).collect();
    assert!(paths.is_sorted_by(|a, b| a < b));
    assert!((0..table.len()).all(|row| paths[row].ends_with(table.name(row))));
}
