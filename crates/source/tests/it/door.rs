//! Opening of sources, and the implementation of a new kind.

use crate::archive::ARCHIVE;
use crate::common::{GOING, changes};
use kiln_builder::BuildOptions;
use kiln_source::{KINDS, ScanOptions, SourceError, SourceOptions, open, open_as};
use kiln_tests::image::{build, open as open_image, scan_dir};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::snapshot::{assert_same, of_image, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tree::filter::{Filter, PathList, Rule, Rules};
use kiln_tree::{Kind, Metadata, Node, ThinSlice, Tree};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Type, mode, path, contents or target.
type Entry<'a> = (char, u16, &'a str, &'a [u8]);

/// Hard links before their targets, parents that are implied or come later, and entries that
/// override others.
const ENTRIES: &[Entry<'_>] = &[
    ('f', 0o644, "./usr/share//doc", b"documentation"),
    ('h', 0, "bin/sh", b"usr/bin/sh"),
    ('d', 0o750, "usr", b""),
    ('f', 0o755, "usr/bin/sh", b"#! nothing"),
    ('h', 0, "usr/bin/bash", b"/bin/sh"),
    ('l', 0o777, "lib", b"usr/lib"),
    ('f', 0o600, "etc/passwd", b"old"),
    ('f', 0o640, "etc/passwd", b"new\n"),
    ('f', 0o600, "opt/gone", b"x"),
    ('f', 0o600, "opt", b"a file where a directory was"),
    ('f', 0o600, "var/log/a", b"x"),
    ('o', 0, "var/log", b""),
    ('f', 0o600, "var/log/b", b"y"),
    ('f', 0o600, "var/tmp", b"z"),
    ('w', 0, "var/tmp", b""),
];

fn write_archive(dir: &TempDir, entries: &[Entry<'_>]) -> PathBuf {
    let mut bytes = b"KAR1\n".to_vec();
    for (kind, mode, path, data) in entries {
        bytes.extend(format!("{kind} {mode:o} {} {path}\n", data.len()).bytes());
        bytes.extend_from_slice(data);
    }
    let path = dir.path().join("a.kar");
    fs::write(&path, bytes).unwrap();
    path
}

fn scan_archive(path: &Path, filter: &Filter) -> Result<Tree, SourceError> {
    // Registering a kind: its name in a list.
    let kinds = [KINDS, &[ARCHIVE]].concat();
    let source = open_as(&kinds, path, &SourceOptions::default())?;
    assert_eq!(source.path(), path);
    source.scan(&ScanOptions { filter, ..ScanOptions::new(&GOING) }).map(|scan| scan.tree)
}

/// Returns the expected tree of the archive of [`ENTRIES`].
fn expected() -> Tree {
    let mut mem = MemTree::default();
    let mut put = |path: &str, permissions, kind: Kind| {
        let meta = Metadata { permissions, ..Metadata::default() };
        mem.builder().insert(path.as_bytes(), Node { meta, xattrs: ThinSlice::default(), kind }).unwrap();
    };
    for path in ["", "bin", "etc", "usr/bin", "usr/share", "var", "var/log"] {
        put(path, 0o755, Kind::Directory(Box::default()));
    }
    put("usr", 0o750, Kind::Directory(Box::default()));
    put("lib", 0o777, Kind::Symlink(b"usr/lib"[..].into()));
    let files: [(&str, u16, &[u8]); 5] = [
        ("usr/share/doc", 0o644, b"documentation"),
        ("bin/sh", 0o755, b"#! nothing"),
        ("etc/passwd", 0o640, b"new\n"),
        ("opt", 0o600, b"a file where a directory was"),
        ("var/log/b", 0o600, b"y"),
    ];
    for (path, permissions, bytes) in files {
        let kind = mem.contents(MemFile::whole(bytes.to_vec()));
        let meta = Metadata { permissions, ..Metadata::default() };
        mem.builder().insert(path.as_bytes(), Node { meta, xattrs: ThinSlice::default(), kind }).unwrap();
    }
    for path in [&b"usr/bin/sh"[..], b"usr/bin/bash"] {
        mem.builder().hard_link(path, b"bin/sh").unwrap();
    }
    mem.finish().unwrap()
}

#[test]
fn an_archive_is_a_source_in_150_lines() {
    assert!(include_str!("archive.rs").lines().count() <= 150);
    let dir = TempDir::new("door").unwrap();
    let tree = scan_archive(&write_archive(&dir, ENTRIES), &Filter::default()).unwrap();
    let expected = expected();
    let (changes, summary) = changes(&expected, &tree);
    assert!(changes.is_empty(), "{changes:?}");
    assert_eq!(summary.same, 16);
    let (packed, _) = build(&tree, &BuildOptions::default()).unwrap();
    assert_same(&of_tree(&expected).unwrap(), &of_image(&open_image(packed.clone()).unwrap()).unwrap(), "packed");
    assert!(packed == build(&expected, &BuildOptions::default()).unwrap().0, "equal trees give equal bytes");
}

#[test]
fn filters_apply_to_archives() {
    let dir = TempDir::new("door").unwrap();
    let entries: Vec<Entry<'_>> =
        [("a/x.o", &b""[..]), ("a/x.c", b""), ("a/.ig", b"!x.o"), (".ig", b"*.o\n"), ("b.o", b"")]
            .map(|(path, data)| ('f', 0o644, path, data))
            .into();
    let archive = write_archive(&dir, &entries);
    let root = dir.path().join("tree");
    fs::create_dir_all(root.join("a")).unwrap();
    entries.iter().for_each(|(_, _, path, data)| fs::write(root.join(path), data).unwrap());
    let rules =
        |lines: &[&str]| Rules::new(lines.iter().map(|line| Rule::new(line.as_bytes()).unwrap()).collect()).unwrap();
    let ignore_files = vec![c".ig".into()];
    let only = Some(PathList::parse(b"a/x.c\nb.o\n", "list").unwrap());
    let filters: [(Filter, &[&str]); 4] = [
        (Filter::default(), &["", ".ig", "a", "a/.ig", "a/x.c", "a/x.o", "b.o"]),
        (Filter { rules: vec![rules(&["*.o", ".ig"])], ..Filter::default() }, &["", "a", "a/x.c"]),
        (Filter { ignore_files, ..Filter::default() }, &["", ".ig", "a", "a/.ig", "a/x.c", "a/x.o"]),
        (Filter { only, ..Filter::default() }, &["", "a", "a/x.c", "b.o"]),
    ];
    for (filter, paths) in filters {
        let of_archive = scan_archive(&archive, &filter).unwrap();
        let of_dir = open(&root, &SourceOptions::default()).unwrap();
        let of_dir = of_dir.scan(&ScanOptions { filter: &filter, ..ScanOptions::new(&GOING) }).unwrap().tree;
        for tree in [of_archive, of_dir] {
            let found: Vec<_> =
                of_tree(&tree).unwrap().into_keys().map(|path| String::from_utf8(path).unwrap()).collect();
            assert_eq!(found, paths);
        }
    }
}

#[test]
fn errors_name_the_archive_and_the_place() {
    let dir = TempDir::new("door").unwrap();
    let error = |entries: &[Entry<'_>]| {
        let path = write_archive(&dir, entries);
        let message = scan_archive(&path, &Filter::default()).map(drop).unwrap_err().to_string();
        message.strip_prefix(&format!("{}: ", path.display())).map(str::to_owned).unwrap()
    };
    assert_eq!(error(&[('x', 0, "a", b"")]), "at byte 13: TYPE = x: unknown");
    assert_eq!(error(&[('f', 0, "a\nb", b"")]), "at byte 13: no field MODE");
    assert_eq!(error(&[('f', 0, "../a", b"")]), "../a: `..` has no meaning here");
    assert_eq!(error(&[('h', 0, "a", b"b")]), "a: a hard link to b, which does not exist");
    assert_eq!(error(&[('f', 0, "a", b""), ('f', 0, "a/b", b"")]), "a/b: a is no directory");
}

#[test]
fn content_decides_what_something_is() {
    let dir = TempDir::new("door").unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    fs::write(dir.path().join("tree/file"), "contents").unwrap();
    let tree = scan_dir(&dir.path().join("tree"), 1).unwrap().tree;
    let (image, _) = build(&tree, &BuildOptions::default()).unwrap();
    let with_front = [vec![0; 8192], image.clone()].concat();
    fs::write(dir.path().join("image.tar"), image).unwrap();
    fs::write(dir.path().join("inner"), with_front).unwrap();
    fs::write(dir.path().join("text"), "nothing that is known").unwrap();
    std::os::unix::fs::symlink("tree", dir.path().join("link")).unwrap();
    let scan = |name: &str, options: &SourceOptions| {
        let source = open(&dir.path().join(OsStr::from_bytes(name.as_bytes())), options)?;
        source.scan(&ScanOptions::new(&GOING)).map(|scan| of_tree(&scan.tree).unwrap())
    };
    let expected = of_tree(&tree).unwrap();
    let plain = SourceOptions::default();
    let at = |offset| SourceOptions { offset, ..SourceOptions::default() };
    for (name, options) in [("tree", &plain), ("link", &plain), ("image.tar", &plain), ("inner", &at(8192))] {
        assert_same(&expected, &scan(name, options).unwrap(), name);
    }
    let error = |name, options: &SourceOptions| scan(name, options).map(drop).unwrap_err();
    assert!(matches!(error("text", &plain), SourceError::Unknown { .. }));
    assert!(matches!(error("inner", &plain), SourceError::Unknown { .. }));
    assert!(matches!(error("inner", &at(u64::MAX)), SourceError::Unreadable(_)));
    assert!(matches!(error("nothing", &plain), SourceError::Unreadable(_)));
    assert!(matches!(error("tree", &at(1)), SourceError::Options { .. }));
}
