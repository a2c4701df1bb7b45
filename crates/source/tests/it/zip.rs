//! Zip archives as sources, written here and by other programs.

mod writer;

use crate::common::GOING;
use kiln_source::{Scan, ScanOptions, SourceError, SourceOptions, open};
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tests::{rounds, without};
use kiln_tree::{Kind, Tree};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use writer::{DOS_TIME_AS_UTC, Entry, by_all_methods, crc, deflate, entry, extra, packed, write_zip};

fn scan_with(path: &Path, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
    open(path, &SourceOptions::default())?.scan(options)
}

fn scan(path: &Path) -> Result<Scan, SourceError> {
    scan_with(path, &ScanOptions::new(&GOING))
}

fn zip_file(dir: &TempDir, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join("a.zip");
    fs::write(&path, bytes).unwrap();
    path
}

fn tree(dir: &TempDir, entries: &[Entry]) -> Tree {
    scan(&zip_file(dir, &write_zip(entries))).unwrap().tree
}

/// Reads a whole file as builders do: in parts, starting in the middle.
fn contents(tree: &Tree, path: &str) -> Result<Vec<u8>, String> {
    let id = tree.find(path.split('/').map(str::as_bytes)).expect(path);
    let Kind::File { len, .. } = tree.node(id).kind else { panic!("{path} is no file") };
    let mut content = tree.open(id).map_err(|error| error.to_string())?;
    let mut buf = vec![0; len as usize];
    let (front, back) = buf.split_at_mut(len as usize / 2);
    content.read_exact_at(back, len / 2).map_err(|error| error.to_string())?;
    content.read_exact_at(front, 0).map_err(|error| error.to_string())?;
    Ok(buf)
}

#[test]
fn contents_of_all_methods_are_read_short_and_long() {
    let dir = TempDir::new("zip").unwrap();
    for len in [0, 5, 70_000, 3 << 20] {
        let plain: Vec<u8> = (0..len as u32).map(|at| (at.wrapping_mul(at) >> 9) as u8).collect();
        let entries = by_all_methods(&plain);
        let tree = tree(&dir, &entries);
        for entry in &entries {
            let name = str::from_utf8(&entry.name).unwrap();
            for _ in 0..2 {
                assert!(contents(&tree, name).unwrap() == plain, "{name}, {len} bytes");
            }
        }
    }
}

#[test]
fn metadata_come_from_modes_and_extra_fields() {
    let dir = TempDir::new("zip").unwrap();
    let unix_time = extra(0x5455, &[1, 0x15, 0xCD, 0x5B, 0x07]);
    let ids = extra(0x7875, &[1, 4, 0xE8, 3, 0, 0, 4, 100, 0, 0, 0]);
    let ntfs = [&[0, 0, 0, 0, 1, 0, 24, 0][..], &(116_444_736_000_000_000_u64 + 15).to_le_bytes(), &[0; 16]].concat();
    let old_local = extra(0x7855, &[5, 0, 6, 0]);
    let unicode = [&[1][..], &crc(b"raw").to_le_bytes(), "räw".as_bytes()].concat();
    let mut link = entry("d/link", 0o120777, b"../target");
    (link.method, link.packed) = (8, deflate(b"../target"));
    let entries = [
        Entry { central_extra: [unix_time, ids].concat(), ..entry("d/suid", 0o104755, b"x") },
        Entry { central_extra: extra(10, &ntfs), ..entry("ntfs", 0o100600, b"") },
        Entry { central_extra: extra(0x7855, &[]), local_extra: old_local, ..entry("old", 0o100600, b"") },
        Entry { made_by: 20, attributes: 0x21, ..entry("dos", 0, b"") },
        Entry { made_by: 20, attributes: 0x10, ..entry("dosdir", 0, b"") },
        entry("dir/", 0o41711, b""),
        entry("dir/", 0o41711, b""),
        entry("d/fifo", 0o10644, b""),
        entry("socket", 0o140600, b""),
        Entry { central_extra: extra(0x7075, &unicode), ..entry("raw", 0o100600, b"") },
        Entry { name: b"bytes\xFF".into(), ..entry("", 0o100600, b"") },
        link,
    ];
    let found = of_tree(&tree(&dir, &entries)).unwrap();
    let names: Vec<_> = found.keys().map(|name| name.escape_ascii().to_string()).collect();
    let expected = [
        "",
        "bytes\\xc2\\xa0",
        "d",
        "d/fifo",
        "d/link",
        "d/suid",
        "dir",
        "dos",
        "dosdir",
        "ntfs",
        "old",
        "r\\xc3\\xa4w",
        "socket",
    ];
    assert_eq!(names, expected);
    let of = |name: &str| &found[name.as_bytes()];
    let record = of("d/suid");
    assert_eq!((record.permissions, record.uid, record.gid, record.mtime), (0o4755, 1000, 100, (123_456_789, 0)));
    assert_eq!(of("ntfs").mtime, (0, 1500));
    assert_eq!((of("old").uid, of("old").gid), (5, 6));
    assert_eq!((of("dos").permissions, of("dos").mtime), (0o644, (DOS_TIME_AS_UTC, 0)));
    assert_eq!((of("dosdir").permissions, of("dir").permissions, of("d").permissions), (0o755, 0o1711, 0o755));
    assert_eq!(of("d/link").target, b"../target");
    let types = ["d/fifo", "socket", "dosdir", "dos"].map(|name| of(name).file_type.mode_bits());
    assert_eq!(types, [0o10000, 0o140000, 0o40000, 0o100000]);
}

#[test]
fn unreadable_members_are_refused_and_can_be_left_out() {
    let dir = TempDir::new("zip").unwrap();
    let file = |name: &str| entry(name, 0o100644, b"some contents");
    let cases: [(&[Entry], &str); 13] = [
        (&[Entry { flags: 1, ..file("a") }], "a: it is encrypted"),
        (&[Entry { method: 9, ..file("a") }], "a: compression method 9 (DEFLATE64)"),
        (&[Entry { method: 77, ..file("a") }], "method 77 (UNKNOWN)"),
        (&[file("a"), file("a")], "a: the record at byte "),
        (&[file("a"), file("./a")], "./a: the record at byte "),
        (&[file("a/b"), file("a")], "a: other members are below this path"),
        (&[file("a"), file("a/b")], "a is no directory"),
        (&[file("../a")], "`..` has no meaning here"),
        (
            &[file("a"), Entry { shares: Some(0), ..file("b") }],
            "b: its data overlap those of the member with the record",
        ),
        (&[entry("a/", 0o40755, b"x")], "a/: a directory with 1 bytes of contents"),
        (&[entry("a", 0o20644, b"")], "a: a device"),
        (&[entry("a", 0o120777, &[b'x'; 4096])], "a: a symbolic link with a target of 4096 bytes"),
        (&[Entry { len: 12, ..file("a") }], "a: it is not compressed, but its 12 bytes are stored in 13"),
    ];
    for (entries, reason) in cases {
        let path = zip_file(&dir, &write_zip(&[entries, &[file("good")]].concat()));
        let error = scan(&path).map(drop).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("at byte "), "{error}\nnot {reason}");
        let kept = scan_with(&path, &ScanOptions { keep_going: true, ..ScanOptions::new(&GOING) }).unwrap();
        assert_eq!(kept.skipped.len(), 1, "{reason}");
        assert_eq!(contents(&kept.tree, "good").unwrap(), b"some contents");
    }
}

#[test]
fn contents_that_are_not_what_the_archive_says_are_errors() {
    let dir = TempDir::new("zip").unwrap();
    for plain in [b"text ".repeat(100), b"text ".repeat(500_000)] {
        let entries = by_all_methods(&plain);
        for (idx, entry) in entries.iter().enumerate() {
            let wrong_len = |by: i32| Entry { len: entry.len.wrapping_add_signed(by), ..entry.clone() };
            let cut = Entry { packed: entry.packed[..entry.packed.len() / 2].into(), ..entry.clone() };
            let mut wrong = vec![Entry { crc: entry.crc ^ 1, ..entry.clone() }];
            if idx > 0 {
                wrong.extend([wrong_len(1), wrong_len(-1), cut]);
            }
            for wrong in wrong {
                let tree = tree(&dir, &[wrong]);
                let name = str::from_utf8(&entry.name).unwrap();
                let id = tree.find([name.as_bytes()]).unwrap();
                let mut all = vec![0; plain.len()];
                let is_read = tree.open(id).is_ok_and(|mut content| content.read_exact_at(&mut all, 0).is_ok());
                assert!(!is_read, "{name}");
            }
        }
    }
}

#[test]
fn parts_of_contents_are_read_and_verified() {
    let dir = TempDir::new("zip").unwrap();
    let plain: Vec<u8> = (0..100_000_u32).map(|at| (at / 9) as u8).collect();
    for entry in by_all_methods(&plain) {
        let (name, wrong) = (entry.name.clone(), Entry { crc: entry.crc ^ 1, ..entry.clone() });
        let good = tree(&dir, &[entry]);
        let mut content = good.open(good.find([&name[..]]).unwrap()).unwrap();
        for range in [10..20, 0..plain.len(), 99_999..100_000, 100_000..100_000] {
            let mut part = vec![0; range.len()];
            content.read_exact_at(&mut part, range.start as u64).unwrap();
            assert!(part == plain[range.clone()], "{range:?}");
        }
        assert!(content.read_exact_at(&mut [0], 100_000).is_err());
        let wrong = tree(&dir, &[wrong]);
        let mut content = wrong.open(wrong.find([&name[..]]).unwrap()).unwrap();
        for _ in 0..2 {
            let told = content.read_exact_at(&mut [0], 10).unwrap_err().to_string();
            assert!(told.contains("CRC-32"), "{told}");
        }
    }
}

#[test]
fn bytes_in_front_and_pipes_are_no_hindrance() {
    let dir = TempDir::new("zip").unwrap();
    let zip = write_zip(&[entry("a", 0o100644, b"stored"), packed("b", 8, b"packed", deflate(b"packed"))]);
    let expected = of_tree(&scan(&zip_file(&dir, &zip)).unwrap().tree).unwrap();
    let with_front = [b"#!/bin/sh\nexec unzip\n".to_vec(), zip.clone()].concat();
    let path = zip_file(&dir, &with_front);
    assert_same(&expected, &of_tree(&scan(&path).unwrap().tree).unwrap(), "behind a script");
    let with_text = [b"text in front".to_vec(), zip.clone()].concat();
    let path = zip_file(&dir, &with_text);
    assert!(matches!(scan(&path), Err(SourceError::Unknown { .. })));
    let kind = *kiln_source::KINDS.iter().find(|kind| kind.name == "zip").unwrap();
    let source = kiln_source::open_as(&[kind], &path, &SourceOptions::default()).unwrap();
    assert_same(&expected, &of_tree(&source.scan(&ScanOptions::new(&GOING)).unwrap().tree).unwrap(), "in front");
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| fs::write(&fifo, &zip).unwrap());
        assert_same(&expected, &of_tree(&scan(&fifo).unwrap().tree).unwrap(), "a pipe");
    });
    assert_eq!(scan(&zip_file(&dir, &write_zip(&[]))).unwrap().tree.len(), 1, "an archive without members");
}

#[test]
fn damage_is_an_error_or_other_contents_but_no_panic() {
    let dir = TempDir::in_memory("zip").unwrap();
    let entries = [by_all_methods(&b"text ".repeat(20)), vec![entry("d/", 0o40755, b""), entry("l", 0o120777, b"d")]];
    let zip = write_zip(&entries.concat());
    let options = ScanOptions { keep_going: true, ..ScanOptions::new(&GOING) };
    let read = |bytes: &[u8]| {
        if let Ok(scan) = scan_with(&zip_file(&dir, bytes), &options) {
            for (id, node) in scan.tree.nodes() {
                if matches!(node.kind, Kind::File { .. }) {
                    let _ = scan.tree.open(id).map(|mut content| content.read_exact_at(&mut [0], 3));
                }
            }
        }
    };
    for at in 0..zip.len() {
        let mut damaged = zip.clone();
        damaged[at] ^= 1 << (at % 8);
        read(&damaged);
        if at % 16 == 0 {
            read(&zip[..at]);
        }
    }
    let mut rng = Rng::new(7);
    for _ in 0..rounds("KILN_MUTATIONS", 300, 20_000) {
        let mut damaged = zip.clone();
        for _ in 0..4 {
            let at = rng.below(zip.len() as u64) as usize;
            let other = rng.below(256) as u8;
            damaged[at] = *rng.pick(&[0, 1, 0x7F, 0x80, 0xFF, other]);
        }
        read(&damaged);
    }
}

/// Removes what a zip archive does not store: sizes and times of directories, fractions of seconds,
/// links.
fn as_zip(snapshot: Snapshot) -> Snapshot {
    let mut snapshot = snapshot;
    for (path, record) in &mut snapshot {
        (record.mtime.1, record.nlink, record.first_name) = (0, 1, path.clone());
        record.xattrs.clear();
    }
    snapshot.get_mut(&b""[..]).unwrap().mtime = (0, 0);
    snapshot
}

#[test]
fn archives_of_info_zip_are_what_was_packed() {
    if Command::new("zip").arg("-v").output().is_err() {
        return without("zip");
    }
    let dir = TempDir::new("zip").unwrap();
    let root = dir.path().join("tree");
    fs::create_dir_all(root.join("some/deep/directory")).unwrap();
    fs::write(root.join("some/deep/directory/text"), b"text ".repeat(1000)).unwrap();
    fs::write(root.join("some/noise"), (0..5000_u32).map(|at| ((at * at) >> 5) as u8).collect::<Vec<_>>()).unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("ünï"), b"name").unwrap();
    symlink("some/deep", root.join("link")).unwrap();
    let chmod = |path: &str, mode: u32| {
        fs::set_permissions(root.join(path), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    chmod("empty", 0o4750);
    chmod("some/deep", 0o711);
    chmod("", 0o755);
    let mut expected = as_zip(of_dir(&root).unwrap());
    for (method, args) in [("deflate", &["-r", "-y", "-q"][..]), ("bzip2", &["-r", "-y", "-q", "-Z", "bzip2"])] {
        let zip = dir.path().join(format!("{method}.zip"));
        assert!(Command::new("zip").args(args).arg(&zip).arg(".").current_dir(&root).status().unwrap().success());
        let mut found = as_zip(of_tree(&scan(&zip).unwrap().tree).unwrap());
        let own = |snapshot: &mut Snapshot| {
            let root = snapshot.get_mut(&b""[..]).unwrap();
            (root.uid, root.gid) = (0, 0);
        };
        own(&mut found);
        own(&mut expected);
        assert_same(&expected, &found, method);
    }
}

#[test]
fn archives_of_python_are_what_was_packed() {
    let dir = TempDir::new("zip").unwrap();
    let zip = dir.path().join("a.zip");
    let script = r#"
import sys, zipfile
z = zipfile.ZipFile(sys.argv[1], "w")
text = b"text " * 300000
for name, method in [("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED), ("bzip2", zipfile.ZIP_BZIP2), ("lzma", zipfile.ZIP_LZMA)]:
    z.writestr(name, text, method)
    with z.open(zipfile.ZipInfo("zip64-" + name), "w", force_zip64=True) as member:
        member.write(text)
link = zipfile.ZipInfo("link")
link.create_system = 3
link.external_attr = 0o120777 << 16
z.writestr(link, "stored")
z.close()
"#;
    match Command::new("python3").args(["-c", script]).arg(&zip).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => return without("python3"),
    }
    let tree = scan(&zip).unwrap().tree;
    assert_eq!(tree.len(), 10);
    for name in ["stored", "deflated", "bzip2", "lzma"] {
        for name in [name.to_owned(), format!("zip64-{name}")] {
            assert!(contents(&tree, &name).unwrap() == b"text ".repeat(300_000), "{name}");
        }
    }
    assert_eq!(of_tree(&tree).unwrap()[&b"link"[..]].target, b"stored");
}

/// Returns the names in a tree's root, and the notes.
fn root_names(dir: &TempDir, entries: &[Entry]) -> (Vec<String>, Vec<String>) {
    let Scan { tree, notes, .. } = scan(&zip_file(dir, &write_zip(entries))).unwrap();
    let names = tree.entries(kiln_tree::NodeId::ROOT).iter().map(|entry| String::from_utf8_lossy(entry.name).into());
    (names.collect(), notes.into_iter().map(|note| note.text).collect())
}

fn named(name: &[u8]) -> Entry {
    Entry { name: name.to_vec(), ..entry("", 0o100644, b"") }
}

#[test]
fn names_of_code_page_437_become_utf_8() {
    let dir = TempDir::in_memory("zip").unwrap();
    let unicode =
        |raw: &[u8], name: &str| extra(0x7075, &[&[1][..], &crc(raw).to_le_bytes(), name.as_bytes()].concat());
    let by_dos = Entry { made_by: 20, ..named(b"\x9Aber") };
    let entries = [
        named(b"caf\x82"),
        by_dos,
        Entry { flags: 1 << 11, ..named("flag\u{E9}".as_bytes()) },
        Entry { central_extra: unicode(b"path\x82", "path\u{2603}"), ..named(b"path\x82") },
        // As macOS writes them, without the flag.
        named("utf\u{E9}".as_bytes()),
        named(b"plain"),
    ];
    let (mut names, notes) = root_names(&dir, &entries);
    names.sort();
    let mut expected = ["caf\u{E9}", "\u{DC}ber", "flag\u{E9}", "path\u{2603}", "utf\u{E9}", "plain"];
    expected.sort();
    assert_eq!(names, expected);
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn backslashes_are_kept_with_a_note() {
    let dir = TempDir::in_memory("zip").unwrap();
    let (names, notes) = root_names(&dir, &[named(b"dir\\file"), named(b"dir\\other"), named(b"plain")]);
    assert_eq!(names, ["dir\\file", "dir\\other", "plain"]);
    assert!(
        matches!(&*notes, [note] if note.starts_with("2 names contain backslashes, such as dir\\\\file")),
        "{notes:?}"
    );
}

#[test]
fn archives_appended_to_programs_are_recognised() {
    let dir = TempDir::in_memory("zip").unwrap();
    let zip = write_zip(&[entry("__main__.py", 0o100644, b"print(1)"), entry("d/", 0o40755, b"")]);
    for front in [&b"#!/usr/bin/env python3\n"[..], b"MZ\x90\0 and a program", b"\x7FELF\x02\x01\x01", b"PK00"] {
        let tree = scan(&zip_file(&dir, &[front, &zip].concat())).unwrap().tree;
        assert_eq!(contents(&tree, "__main__.py").unwrap(), b"print(1)");
    }
    let message = |bytes: &[u8]| scan(&zip_file(&dir, bytes)).map(drop).unwrap_err().to_string();
    let script = message(b"#!/bin/sh\necho nothing behind\n");
    assert!(script.contains("this is a script without a zip archive appended"), "{script}");
    // Parts of a split archive: the first one begins with a mark, the last one ends with the
    // directory and its own number.
    let first = message(&[b"PK\x07\x08", &zip[..40]].concat());
    assert!(first.contains("the first part of a split zip archive: join"), "{first}");
    let mut last = zip.clone();
    let end = last.len() - 22;
    last[end + 4] = 2;
    for bytes in [&last[..], &last[20..]] {
        let last = message(bytes);
        assert!(last.contains("part 3 of a split zip archive; join"), "{last}");
    }
}
