//! Conversion of trees of other sources.

use super::common::{image, read, write};
use kiln_composefs::from_tree::{HardLinks, TreeOptions, XattrChoice, contents};
use kiln_composefs::image::Version;
use kiln_digest::Algorithm;
use kiln_digest::fsverity::digest;
use kiln_format::inode::Rdev;
use kiln_parallel::Threads;
use kiln_tests::mem::{Fault, MemFile, MemTree};
use kiln_tree::{Kind, NodeId, Tree};

/// Returns a tree with every type of file.
fn tree() -> Tree {
    let mut tree = MemTree::default();
    let dir = tree.dir(NodeId::ROOT, b"z");
    let file = tree.file(dir, b"file", MemFile::whole(b"x".repeat(65)));
    tree.name(NodeId::ROOT, b"again", file);
    let small = tree.file(NodeId::ROOT, b"small", MemFile::whole(b"y".repeat(64)));
    tree.xattr(small, b"user.a", b"b");
    tree.xattr(small, b"security.selinux", b"s");
    tree.file(NodeId::ROOT, b"empty", MemFile::default());
    tree.add(NodeId::ROOT, b"link", Kind::Symlink(b"z/file"[..].into()));
    tree.add(NodeId::ROOT, b"null", Kind::CharDevice(Rdev { major: 1, minor: 3 }));
    tree.add(NodeId::ROOT, b"disk", Kind::BlockDevice(Rdev { major: 259, minor: 1 << 19 }));
    tree.add(NodeId::ROOT, b"pipe", Kind::Fifo);
    tree.add(NodeId::ROOT, b"socket", Kind::Socket);
    let gone = tree.add(NodeId::ROOT, b"gone", Kind::CharDevice(Rdev::default()));
    tree.name(dir, b"gone", gone);
    let all = [dir, file, small, gone, NodeId::ROOT];
    all.into_iter().for_each(|node| (tree.meta(node).mtime, tree.meta(node).mtime_nsec) = (7, 5));
    tree.finish().unwrap()
}

fn dump_of(tree: &Tree, options: &TreeOptions, algorithm: Algorithm) -> String {
    let contents = contents::read(tree, algorithm, Threads::at_least_one(3)).unwrap();
    let converted = kiln_composefs::from_tree(tree, options, |id| contents.of(id)).unwrap();
    let text = write(&converted);
    assert_eq!(write(&read(&text)), text);
    // The dump gives the same image.
    assert!(image(&read(&text), Version::V1) == image(&converted, Version::V1));
    String::from_utf8(text).unwrap()
}

/// Returns path, mode, link count and payload of each line.
fn summary(text: &str) -> Vec<String> {
    let of = |line: &str| {
        let fields: Vec<_> = line.split(' ').collect();
        [0, 2, 3, 8].map(|field| fields[field]).join(" ")
    };
    text.lines().map(of).collect()
}

#[test]
fn trees_become_dumps() {
    for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
        let hex = digest(algorithm, &b"x".repeat(65)).to_string();
        let object = format!("{}/{}", &hex[..2], &hex[2..]);
        let text = dump_of(&tree(), &TreeOptions::default(), algorithm);
        assert_eq!(
            summary(&text),
            [
                "/ 40644 3 -".to_owned(),
                format!("/again 100644 2 {object}"),
                "/disk 60644 1 -".into(),
                "/empty 100644 1 -".into(),
                "/gone 20644 1 -".into(),
                "/link 120644 1 z/file".into(),
                "/null 20644 1 -".into(),
                "/pipe 10644 1 -".into(),
                "/small 100644 1 -".into(),
                "/socket 140644 1 -".into(),
                "/z 40644 2 -".into(),
                "/z/file @100644 2 /again".into(),
                "/z/gone 20644 1 -".into(),
            ]
        );
        assert!(text.contains(&format!(" - {hex}\n")) && text.contains("/null 0 20644 1 0 0 259 "));
        let small = format!("7.5 - {} - security.selinux=s user.a=b\n", "y".repeat(64));
        assert!(text.contains(&small), "{text}");
    }
}

#[test]
fn options_leave_out_and_change() {
    let lines = |options: &TreeOptions| dump_of(&tree(), options, Algorithm::Sha256);
    let broken = lines(&TreeOptions { hard_links: HardLinks::Broken, ..TreeOptions::default() });
    assert!(!broken.contains('@') && broken.contains("/z/file 65 100644 1 "));
    let skipped = lines(&TreeOptions { skip_devices: true, ..TreeOptions::default() });
    assert!(["disk", "null", "gone"].iter().all(|name| !skipped.contains(name)));
    let epoch = lines(&TreeOptions { use_epoch: true, ..TreeOptions::default() });
    assert!(epoch.lines().all(|line| line.split(' ').nth(7) == Some("0.0")));
    let user = lines(&TreeOptions { xattrs: XattrChoice::User, ..TreeOptions::default() });
    assert!(user.contains(" user.a=b") && !user.contains("security."));
    let none = lines(&TreeOptions { xattrs: XattrChoice::None, ..TreeOptions::default() });
    assert!(!none.contains('='));
}

#[test]
fn what_no_image_can_have_is_an_error_with_its_path() {
    let mut tree = MemTree::default();
    let dir = tree.dir(NodeId::ROOT, b"d");
    tree.add(dir, b"link", Kind::Symlink(b"t".repeat(4096)[..].into()));
    let tree = tree.finish().unwrap();
    let contents = contents::read(&tree, Algorithm::Sha256, Threads::ONE).unwrap();
    let error = kiln_composefs::from_tree(&tree, &TreeOptions::default(), |id| contents.of(id)).unwrap_err();
    let expected = "/d/link: a symbolic link of 4096 bytes: its target has 1 to 4095, and no zero byte";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn unreadable_contents_are_an_error_with_their_path() {
    let mut tree = MemTree::default();
    let file = tree.file(NodeId::ROOT, b"file", MemFile::whole(vec![1; 100]));
    tree.fault(file, Fault::Open);
    let error = contents::read(&tree.finish().unwrap(), Algorithm::Sha256, Threads::PROCESSORS).unwrap_err();
    assert_eq!(error.path, b"file");
}
