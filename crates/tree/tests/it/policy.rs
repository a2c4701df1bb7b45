//! Policies applied to trees.

use kiln_format::inode::{FileType, Rdev};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::snapshot::{Record, Snapshot, of_tree};
use kiln_tree::policy::{
    FileContexts, IdBase, IdMap, IdPolicy, Labels, NameGlobs, Policy, PolicyError, Times, XattrPolicy, apply,
    parse_xattr,
};
use kiln_tree::{Kind, NodeId, Tree};

const ROOT: NodeId = NodeId::ROOT;

fn file(tree: &mut MemTree, dir: NodeId, name: &str) -> NodeId {
    tree.file(dir, name.as_bytes(), MemFile::whole(name.into()))
}

/// A tree with one of each: `a` with a second name, `d/b`, a link, a device.
fn some() -> Tree {
    let mut tree = MemTree::default();
    let a = file(&mut tree, ROOT, "a");
    let dir = tree.dir(ROOT, b"d");
    file(&mut tree, dir, "b");
    tree.name(dir, b"a2", a);
    tree.name(dir, b"a3", a);
    let link = tree.add(ROOT, b"link", Kind::Symlink(b"a".as_slice().into()));
    tree.add(ROOT, b"null", Kind::CharDevice(Rdev { major: 1, minor: 3 }));
    tree.xattr(a, b"user.x", b"1");
    tree.xattr(a, b"security.selinux", b"host\0");
    tree.meta(a).uid = 1000;
    tree.meta(dir).gid = 1000;
    tree.meta(link).permissions = 0o777;
    tree.finish().unwrap()
}

fn changed(tree: Tree, policy: &Policy) -> Snapshot {
    of_tree(&apply(tree, policy).unwrap()).unwrap()
}

fn listing(snapshot: &Snapshot) -> Vec<String> {
    let line = |(path, record): (&Vec<u8>, &Record)| {
        let mark = match record.file_type {
            FileType::Directory => "/",
            FileType::CharDevice if record.rdev == (0, 0) => "!",
            _ => "",
        };
        let xattrs: Vec<String> =
            record.xattrs.iter().map(|(n, v)| format!(" {}={}", n.escape_ascii(), v.escape_ascii())).collect();
        format!("{}{mark}{}", path.escape_ascii(), xattrs.concat())
    };
    snapshot.iter().map(line).collect()
}

#[test]
fn nothing_changes_by_default() {
    assert!(changed(some(), &Policy::default()) == of_tree(&some()).unwrap());
}

#[test]
fn hard_links_become_files() {
    let before = of_tree(&some()).unwrap();
    let after = changed(some(), &Policy { hard_dereference: true, ..Policy::default() });
    assert_eq!((before[&b"a"[..]].nlink, before[&b"d/a3"[..]].nlink), (3, 3));
    for path in [&b"a"[..], b"d/a2", b"d/a3"] {
        let expected = Record { nlink: 1, first_name: path.to_vec(), ..before[path].clone() };
        assert!(after[path] == expected, "{}", path.escape_ascii());
    }
    assert_eq!(listing(&after), listing(&before));
}

#[test]
fn permissions_times_and_owners_change() {
    let policy = Policy {
        chmod: "D700,F-rwx,u+r".parse().unwrap(),
        times: Times::All(5, 6),
        uid: IdPolicy { base: IdBase::All(7), offset: 1 },
        gid: IdPolicy { base: IdBase::Keep, offset: 2 },
        ..Policy::default()
    };
    for (path, record) in changed(some(), &policy) {
        let permissions = match record.file_type {
            FileType::Directory => 0o700,
            FileType::Symlink => 0o777,
            _ => 0o400,
        };
        let gid = if path == b"d" { 1002 } else { 2 };
        let found = (record.permissions, record.uid, record.gid, record.mtime);
        assert_eq!(found, (permissions, 8, gid, (5, 6)), "{}", path.escape_ascii());
    }
}

#[test]
fn owners_without_an_id_are_reported() {
    let map = |ranges: &[&str]| {
        let ranges: Vec<_> = ranges.iter().map(|range| range.parse().unwrap()).collect();
        IdMap::inward(&ranges).unwrap()
    };
    let uid = IdPolicy { base: IdBase::Map(map(&["0:0:1"])), offset: 0 };
    let error = apply(some(), &Policy { uid, ..Policy::default() }).err().unwrap();
    assert!(matches!(&error, PolicyError::Unmapped { path, id: 1000, .. } if path == b"a"));
    assert_eq!(error.to_string(), "a: uid 1000 is in no range of the map");
    let gid = IdPolicy { base: IdBase::Map(map(&["5:0:1001"])), offset: -6 };
    let error = apply(some(), &Policy { gid, ..Policy::default() }).err().unwrap();
    assert_eq!(error.to_string(), "/: gid 0 with the offset -6 is not in 0..=4294967294");
}

#[test]
fn attributes_and_labels_change_together() {
    let contexts = FileContexts::parse(b"/m(/.*)? u:r:all\n/m/d -d u:r:dir\n/m/link <<none>>\n", "fc").unwrap();
    let policy = Policy {
        xattrs: XattrPolicy {
            exclude: NameGlobs::new([&b"user.*"[..]]).unwrap(),
            set: vec![parse_xattr(b"user.set=y").unwrap()],
            ..XattrPolicy::default()
        },
        labels: Some(Labels { contexts, mount_point: b"/m".into() }),
        ..Policy::default()
    };
    let all = "security.selinux=u:r:all\\x00";
    let expected = [
        format!("/ {all} user.set=y"),
        format!("a {all} user.set=y"),
        "d/ security.selinux=u:r:dir\\x00 user.set=y".into(),
        format!("d/a2 {all} user.set=y"),
        format!("d/a3 {all} user.set=y"),
        format!("d/b {all} user.set=y"),
        "link".into(),
        format!("null {all}"),
    ];
    assert_eq!(listing(&changed(some(), &policy)), expected);
}

/// Returns a layer with the marks of aufs.
fn layer() -> Tree {
    let mut tree = MemTree::default();
    let gone = file(&mut tree, ROOT, ".wh.gone");
    tree.meta(gone).uid = 3;
    tree.name(ROOT, b".wh.also", gone);
    // Replaced by a file, and by a directory.
    file(&mut tree, ROOT, ".wh.file");
    file(&mut tree, ROOT, "file");
    file(&mut tree, ROOT, ".wh.new");
    let new = tree.dir(ROOT, b"new");
    file(&mut tree, new, "inside");
    let opaque = tree.dir(ROOT, b"opaque");
    file(&mut tree, opaque, ".wh..wh..opq");
    tree.xattr(opaque, b"user.keep", b"1");
    // Names that only aufs uses.
    file(&mut tree, ROOT, ".wh..wh.aufs");
    let links = tree.dir(ROOT, b".wh..wh.plnk");
    file(&mut tree, links, "1.2");
    // Not marks: a directory, and names that look similar.
    tree.dir(ROOT, b".wh.dir");
    file(&mut tree, ROOT, ".whx");
    tree.finish().unwrap()
}

#[test]
fn marks_of_aufs_become_those_of_overlayfs() {
    let aufs = Policy { aufs: true, ..Policy::default() };
    let after = changed(layer(), &aufs);
    let opaque = "trusted.overlay.opaque=y";
    let expected = [
        // It has whiteouts, which overlayfs then hides even if no other layer has the directory.
        "/ trusted.overlay.origin=".to_owned(),
        ".wh.dir/".into(),
        ".whx".into(),
        "also!".into(),
        "file".into(),
        "gone!".into(),
        format!("new/ {opaque}"),
        "new/inside".into(),
        format!("opaque/ {opaque} user.keep=1"),
    ];
    assert_eq!(listing(&after), expected);
    assert_eq!((after[&b"gone"[..]].uid, after[&b"gone"[..]].nlink), (3, 1));
    assert_eq!(after[&b"gone"[..]].permissions, 0);
    let mut bad = MemTree::default();
    file(&mut bad, ROOT, ".wh.");
    assert!(matches!(apply(bad.finish().unwrap(), &aufs), Err(PolicyError::Tree(_))));
}

#[test]
fn marks_of_overlayfs_can_be_removed() {
    let strip = Policy { strip_overlay: true, ..Policy::default() };
    let both = Policy { aufs: true, ..strip.clone() };
    let expected = ["/", ".wh.dir/", ".whx", "file", "new/", "new/inside", "opaque/ user.keep=1"];
    assert_eq!(listing(&changed(layer(), &both)), expected);
    let mut tree = MemTree::default();
    let dir = tree.dir(ROOT, b"d");
    tree.xattr(dir, b"user.overlay.origin", b"1");
    tree.xattr(dir, b"user.overlayed", b"1");
    let whiteout = tree.add(dir, b"gone", Kind::CharDevice(Rdev::default()));
    tree.name(ROOT, b"gone", whiteout);
    tree.add(dir, b"null", Kind::CharDevice(Rdev { major: 1, minor: 3 }));
    assert_eq!(listing(&changed(tree.finish().unwrap(), &strip)), ["/", "d/ user.overlayed=1", "d/null"]);
}
