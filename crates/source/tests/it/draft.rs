//! Trees that a program builds.

use crate::common::GOING;
use kiln_source::dir::DirSource;
use kiln_source::merge::{Draft, DraftSource};
use kiln_source::{ScanOptions, Source, SourceError, SourceOptions, SpoolLimit, open_bytes};
use kiln_tests::temp::TempDir;
use kiln_tree::{Kind, Metadata, NodeId, Tree, TreeProblem, Xattr};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const FILE: Metadata = Metadata { permissions: 0o644, uid: 0, gid: 0, mtime: 0, mtime_nsec: 0 };

fn draft() -> Draft {
    Draft::new("draft", &SourceOptions::default())
}

/// Returns the regular files by path, with their contents.
fn files(tree: &Tree) -> Vec<(String, Vec<u8>)> {
    let regular = |id: &NodeId| matches!(tree.node(*id).kind, Kind::File { .. });
    let read = |id: NodeId| {
        let Kind::File { len, .. } = tree.node(id).kind else { unreachable!("only files are left") };
        let mut bytes = vec![0; len as usize];
        let mut content = tree.open(id).unwrap();
        content.read_exact_at(&mut bytes, 0).unwrap();
        content.verify_unchanged().unwrap();
        (String::from_utf8(tree.path(id)).unwrap(), bytes)
    };
    tree.walk().filter(regular).map(read).collect()
}

fn named(pairs: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    pairs.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect()
}

#[test]
fn bytes_files_and_sources_are_one_tree() {
    let tmp = TempDir::new("draft").unwrap();
    let dir = tmp.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(dir.join(name), format!("of the directory: {name}")).unwrap();
    }
    let long = vec![7; (2 << 20) + 5];
    let mut draft = draft();
    draft.add_bytes(b"one", FILE, b"1").unwrap();
    draft.add_file(b"host/a", &dir.join("a")).unwrap();
    draft.add_bytes(b"long", FILE, &long).unwrap();
    assert!(draft.add_source(&DirSource::new(&dir), b"/at//dir/", &ScanOptions::new(&GOING)).unwrap().is_empty());
    draft.add_bytes(b"at/dir/b", FILE, b"over it").unwrap();
    draft.add_bytes(b"empty", FILE, b"").unwrap();
    // The directory knows its file by a path that is no longer the first.
    draft.link(b"!", b"./at/dir/c").unwrap();
    draft.link(b"!!", b"!").unwrap();
    let tree = draft.finish().unwrap();
    let expected: &[(&str, &[u8])] = &[
        ("!", b"of the directory: c"),
        ("at/dir/a", b"of the directory: a"),
        ("at/dir/b", b"over it"),
        ("empty", b""),
        ("host/a", b"of the directory: a"),
        ("long", &long),
        ("one", b"1"),
    ];
    assert_eq!(files(&tree), named(expected));
    assert_eq!(tree.names_of(tree.find([&b"!!"[..]]).unwrap()), 3);
}

#[test]
fn errors_change_nothing_and_name_the_path() {
    let mut draft = draft();
    draft.add_bytes(b"file", FILE, b"1").unwrap();
    draft.add_dir(b"dir", FILE).unwrap();
    let problem = |result: Result<(), SourceError>| match result {
        Err(SourceError::Tree { source, .. }) => (String::from_utf8(source.path).unwrap(), source.problem),
        other => panic!("{other:?}"),
    };
    let (path, found) = problem(draft.add_bytes(b"file/below", FILE, b""));
    assert_eq!((&*path, found), ("file/below", TreeProblem::ParentNotADirectory(b"file".to_vec())));
    assert_eq!(problem(draft.add_dir(b"a/../b", FILE)).1, TreeProblem::DotDot);
    assert_eq!(problem(draft.link(b"name", b"nothing")).1, TreeProblem::DanglingLink(b"nothing".to_vec()));
    assert_eq!(problem(draft.link(b"name", b"dir")).1, TreeProblem::LinkToDirectory(b"dir".to_vec()));
    let xattr = Xattr { name: b"user.a"[..].into(), value: b"1"[..].into() };
    assert_eq!(problem(draft.set_xattr(b"nothing", xattr)).1, TreeProblem::NoSuchNode);
    assert!(matches!(draft.add_file(b"name", Path::new("/nothing")), Err(SourceError::Unreadable(_))));
    assert!(matches!(draft.add_file(b"name", Path::new("/")), Err(SourceError::Unreadable(_))));
    assert_eq!(files(&draft.finish().unwrap()), named(&[("file", b"1")]));
}

#[test]
fn attributes_replace_those_of_their_name() {
    let mut draft = draft();
    draft.add_bytes(b"dir/file", FILE, b"").unwrap();
    for value in ["1", "2"] {
        let xattr = || Xattr { name: b"user.a"[..].into(), value: value.as_bytes().into() };
        draft.set_xattr(b"dir/file", xattr()).unwrap();
        draft.set_xattr(b"dir", xattr()).unwrap();
    }
    let tree = draft.finish().unwrap();
    for path in [&[&b"dir"[..]][..], &[b"dir", b"file"]] {
        let node = tree.node(tree.find(path.iter().copied()).unwrap());
        assert_eq!(node.xattrs.iter().map(|xattr| &*xattr.value).collect::<Vec<_>>(), [b"2"]);
    }
    assert!(tree.is_implied(tree.find([&b"dir"[..]]).unwrap()), "an attribute says nothing about owner and time");
}

#[test]
fn the_spool_has_a_limit() {
    let options = SourceOptions { spool_limit: SpoolLimit::new(10), ..SourceOptions::default() };
    let mut draft = Draft::new("draft", &options);
    draft.add_bytes(b"a", FILE, b"123456").unwrap();
    let error = draft.add_bytes(b"b", FILE, b"123456").unwrap_err();
    assert!(error.to_string().contains("more than 10 bytes"), "{error}");
    draft.add_bytes(b"c", FILE, b"1234").unwrap();
    assert_eq!(files(&draft.finish().unwrap()), named(&[("a", b"123456"), ("c", b"1234")]));
}

#[test]
fn a_draft_is_read_once() {
    let source = DraftSource::from(draft());
    let options = ScanOptions::new(&GOING);
    assert!(source.scan(&options).is_ok());
    assert!(matches!(source.scan(&options), Err(SourceError::Options { .. })));
    assert!(source.into_draft().is_none());
    assert!(DraftSource::from(draft()).into_draft().is_some());
}

#[test]
fn archives_in_memory_are_sources() {
    // One record of a cpio archive that is empty except for its end.
    let mut cpio = b"070701".to_vec();
    let fields = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 11, 0];
    fields.iter().for_each(|field: &u32| cpio.extend(format!("{field:08X}").bytes()));
    cpio.extend(b"TRAILER!!!\0\0\0\0");
    let bytes = |bytes: &[u8]| Arc::new(kiln_read::MemorySource::new(bytes.to_vec()));
    let source = open_bytes(bytes(&cpio), Path::new("memory"), &SourceOptions::default()).unwrap();
    assert_eq!(source.scan(&ScanOptions::new(&GOING)).unwrap().tree.len(), 1);
    let error = open_bytes(bytes(b"noise"), Path::new("memory"), &SourceOptions::default());
    assert!(matches!(error, Err(SourceError::Unknown { .. })));
}
