//! Archives that programs do not write. Each case is one that readers of tar have got wrong.

use super::records::{Archive, header, patch, record};
use super::{error_of, scan_bytes, scan_leaving_out};
use kiln_source::archive::tar::{DotDot, TarOptions, TarSource};
use kiln_source::{Scan, ScanOptions, Source, SourceOptions, open};
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use kiln_tests::snapshot::of_tree;
use kiln_tests::temp::TempDir;
use kiln_tree::{Implied, Kind, Metadata, Tree};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::io::Write;

fn paths(tree: &Tree) -> Vec<String> {
    of_tree(tree).unwrap().into_keys().map(|path| path.escape_ascii().to_string()).collect()
}

fn contents(tree: &Tree, path: &str) -> Vec<u8> {
    let id = tree.find(path.split('/').map(str::as_bytes)).unwrap();
    let Kind::File { len, .. } = tree.node(id).kind else { panic!("{path} is no file") };
    let mut bytes = vec![0xA5; len as usize];
    tree.open(id).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// A member whose data look like a member.
fn smuggled() -> Vec<u8> {
    Archive::default().member("smuggled", b'0', b"evil").0
}

#[test]
fn the_size_of_an_extended_header_counts() {
    // The header says 0, so a reader that uses it finds a member in the data.
    let data = smuggled();
    let size = data.len().to_string();
    let outer = Archive::default().pax(&[("size", size.as_bytes())]);
    let mut archive = outer.raw(&header("outer", b'0', 0), &data);
    archive = archive.member("next", b'0', b"n");
    let tree = scan_bytes(&archive.end()).unwrap();
    assert_eq!(paths(&tree), ["", "next", "outer"]);
    assert_eq!(contents(&tree, "outer"), data);
    // The record applies to the file, and not to a header in between.
    let archive = Archive::default().pax(&[("size", b"1024")]);
    let archive = archive.member("long", b'L', b"name\0").raw(&header("x", b'0', 0), &data);
    assert_eq!(paths(&scan_bytes(&archive.end()).unwrap()), ["", "name"]);
    // It does not apply to links and directories either, which have no data.
    for flag in [b'1', b'2', b'5', b'6'] {
        let archive = Archive::default().member("a", b'0', b"").pax(&[("size", b"512")]);
        let archive = archive.link("b", flag, "a").member("c", b'0', b"c");
        assert_eq!(paths(&scan_bytes(&archive.end()).unwrap()), ["", "a", "b", "c"]);
    }
    let global = record("size", b"1024");
    let archive = Archive::default().member("g", b'g', &global).member("a", b'0', b"");
    assert_eq!(error_of(&archive.end()), "at byte 512: size in a global extended header");
}

#[test]
fn attributes_may_hold_any_byte() {
    let value = b"1\n\0 20 path=evil\n";
    let archive = Archive::default().pax(&[("SCHILY.xattr.user.a", value), ("path", b"b")]);
    let snapshot = of_tree(&scan_bytes(&archive.member("a", b'0', b"").end()).unwrap()).unwrap();
    assert_eq!(snapshot[&b"b"[..]].xattrs[&b"user.a"[..]], value);
}

/// Scans the archive `bytes`, continuing after damage.
fn scan_going_on(bytes: &[u8]) -> Scan {
    let dir = TempDir::in_memory("tar").unwrap();
    fs::write(dir.join("a.tar"), bytes).unwrap();
    let source = open(&dir.join("a.tar"), &SourceOptions::default()).unwrap();
    source.scan(&ScanOptions { keep_going: true, ..ScanOptions::new(&crate::common::GOING) }).unwrap()
}

/// Invalid attributes are left out, but their files are not.
#[test]
fn damaged_attributes_cost_no_file() {
    let ok: (&str, &[u8]) = ("SCHILY.xattr.user.ok", b"yes");
    let path: (&str, &[u8]) = ("path", b"name-of-the-extended-header");
    for (keyword, value, reason) in [
        ("LIBARCHIVE.xattr.user.a", &b"*"[..], "at byte 5"),
        ("SCHILY.xattr.", b"", "at byte 5"),
        ("SCHILY.acl.access", b"user::rwx,users::r--", "at byte 0: name-of-the-extended-header: invalid ACL entry"),
        ("SCHILY.acl.default", b"user::rwx", "at byte 0: name-of-the-extended-header: an ACL without"),
    ] {
        let archive = Archive::default().pax(&[ok, (keyword, value), path]).member("short", b'0', b"data").end();
        let error = error_of(&archive);
        assert!(error.starts_with(reason), "{keyword}: {error}");
        let scan = scan_going_on(&archive);
        assert_eq!((paths(&scan.tree).len(), scan.skipped.len()), (2, 1), "{keyword}");
        let snapshot = of_tree(&scan.tree).unwrap();
        assert_eq!(snapshot[path.1].xattrs.len(), 1, "{keyword}");
        assert_eq!(contents(&scan.tree, "name-of-the-extended-header"), b"data");
    }
}

/// GNU tar writes names only. The archive's own lists have their ids, wherever they are and even if
/// links lead to them.
#[test]
fn names_in_acls_are_looked_up_in_the_archive() {
    const ACL: &[u8] = b"user::rw-,user:daemon:rw-,user:nobody-knows:r--,group::r--,group:adm:r-x,mask::rwx,other::---";
    let file = |name: &str| Archive::default().pax(&[("SCHILY.acl.access", ACL)]).member(name, b'0', b"").0;
    let passwd = b"root:x:0:0::/root:/bin/sh\n# comment\ndaemon:x:2001:1::\nodd:x:-1:\ndaemon:x:9:1::\n";
    let lists = Archive::default().member("usr/etc/passwd", b'0', passwd).member("etc/group", b'0', b"adm:x:77:a,b");
    let lists = lists.link("etc/passwd", b'2', "../usr/../usr/etc/passwd").0;
    let hard = Archive::default().link("etc/passwd", b'1', "p").member("p", b'0', passwd);
    let hard = hard.member("etc/group", b'0', b"adm:x:77:").0;
    let (acl, other) = (file("f"), file("other"));
    for parts in
        [[&acl[..], &lists, &other], [&lists[..], &acl, &other], [&acl[..], &other, &lists], [&acl, &hard, &other]]
    {
        let scan = scan_going_on(&Archive(parts.concat()).end());
        assert_eq!(scan.skipped.len(), 0);
        let snapshot = of_tree(&scan.tree).unwrap();
        for name in [&b"f"[..], b"other"] {
            let xattrs = &snapshot[name].xattrs;
            assert_eq!(xattrs.len(), 1);
            let entries: Vec<[u8; 8]> = xattrs[kiln_format::acl::ACCESS][4..].as_chunks().0.to_vec();
            let of_id =
                |tag: u8, id: u32| entries.iter().find(|e| e[0] == tag && e[4..] == id.to_le_bytes()).map(|e| e[2]);
            assert_eq!((of_id(2, 2001), of_id(8, 77), entries.len()), (Some(6), Some(5), 6));
            assert_eq!(snapshot[name].permissions, 0o670);
        }
        let left_out: Vec<_> =
            scan.left_out_xattrs.iter().map(|one| (&one.entry[..], one.count, &one.path[..])).collect();
        assert_eq!(left_out, [(&b"user:nobody-knows"[..], 2, &b"f"[..])]);
    }
    // Without lists, or with invalid ones.
    let circle = Archive::default().link("etc/passwd", b'2', "passwd").link("etc/group", b'2', "/nothing").0;
    for parts in [&acl[..], &[&acl[..], &circle].concat()] {
        let scan = scan_going_on(&Archive(parts.to_vec()).end());
        let entries: Vec<_> = scan.left_out_xattrs.iter().map(|one| one.entry.escape_ascii().to_string()).collect();
        assert_eq!(entries, ["group:adm", "user:daemon", "user:nobody-knows"]);
        assert_eq!(of_tree(&scan.tree).unwrap()[&b"f"[..]].xattrs[kiln_format::acl::ACCESS].len(), 4 + 4 * 8);
    }
    // A later member of the same name has its own ACL, or none.
    let scan = scan_going_on(&Archive([&acl[..], &Archive::default().member("f", b'0', b"").0].concat()).end());
    assert!(scan.left_out_xattrs.is_empty() && of_tree(&scan.tree).unwrap()[&b"f"[..]].xattrs.is_empty());
    // An attribute with complete entries is used as it is.
    let both: [(&str, &[u8]); 2] = [("SCHILY.acl.access", ACL), ("SCHILY.xattr.system.posix_acl_access", b"raw")];
    let scan = scan_going_on(&Archive::default().pax(&both).member("f", b'0', b"").end());
    assert_eq!(of_tree(&scan.tree).unwrap()[&b"f"[..]].xattrs[kiln_format::acl::ACCESS], b"raw");
}

#[test]
fn sizes_that_are_none_are_refused() {
    let with = |at, bytes: &[u8]| {
        let mut header = header("a", b'0', 0);
        patch(&mut header, at, bytes);
        error_of(&Archive::default().member("first", b'0', b"1").raw(&header, b"data").end())
    };
    let at = "at byte 1024: a: ";
    assert_eq!(with(124, b"00000000009\0"), format!("{at}size = \"00000000009\\x00\": not a number"));
    assert_eq!(with(124, b"-0000000001\0"), format!("{at}size = \"-0000000001\\x00\": not a number"));
    assert_eq!(with(124, &[0xFF; 12]), format!("{at}size = -1: out of range"));
    assert!(with(124, &[0x80, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]).starts_with(&format!("{at}size = ")));
    let huge = with(124, b"\x80\0\0\0\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF");
    assert_eq!(huge, "at byte 1536: a: the archive ends 1536 bytes into a file of 9223372036854775807 bytes");
    assert_eq!(with(108, b"12x"), format!("{at}uid = \"12x0007\\x00\": not a number"));
    assert_eq!(with(108, &[0xFF; 8]), format!("{at}uid = -1: out of range"));
    assert_eq!(with(136, b"garbage!"), format!("{at}mtime = \"garbage!144\\x00\": not a number"));
    let pax = Archive::default().pax(&[("size", b"18446744073709551615")]).member("a", b'0', b"");
    assert_eq!(error_of(&pax.end()), "at byte 0: a: size = 18446744073709551615: out of range");
}

#[test]
fn numbers_have_all_forms() {
    let mut header = header("a", b'0', 0);
    patch(&mut header, 100, b"   755 ");
    patch(&mut header, 108, b"\x80\0\0\0\x12\x34\x56\x78");
    patch(&mut header, 136, b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFB");
    let tree = scan_bytes(&Archive::default().raw(&header, b"").end()).unwrap();
    let expected = Metadata { permissions: 0o755, uid: 0x1234_5678, gid: 8, mtime: -5, mtime_nsec: 0 };
    assert_eq!(tree.node(tree.find([&b"a"[..]]).unwrap()).meta, expected);
}

#[test]
fn checksums_are_checked() {
    let archive = Archive::default().member("a", b'0', b"a").member("b", b'0', b"b").end();
    let mut damaged = archive.clone();
    damaged[1024] ^= 1;
    assert!(error_of(&damaged).starts_with("at byte 1024: chksum = "));
    assert_eq!(error_of(&archive[..1100]), "at byte 1024: the archive ends within a header");
    // The sum of signed bytes, which some programs wrote.
    let mut signed = header("\u{e9}", b'0', 0);
    signed[148..156].fill(b' ');
    let sum: i32 = signed.iter().map(|&byte| i32::from(byte as i8)).sum();
    signed[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    assert_eq!(paths(&scan_bytes(&Archive::default().raw(&signed, b"").end()).unwrap()), ["", "\\xc3\\xa9"]);
}

#[test]
fn records_of_extended_headers_are_checked() {
    for (payload, reason) in [
        (&b"0 path=x\n"[..], "a PAX record that does not end"),
        (b"600 path=x\n", "a PAX record that is longer than its header"),
        (b"99999999999999999999 path=x\n", "a PAX record without a length"),
        (b"9 path=x\n5 a\n\n", "a PAX record without an equals sign"),
    ] {
        let error = error_of(&Archive::default().member("x", b'x', payload).member("a", b'0', b"").end());
        assert!(error.starts_with("at byte 5") && error.contains(reason), "{error}");
    }
    assert_eq!(
        error_of(&Archive::default().pax(&[("path", b"x")]).end()),
        "at byte 0: an extended header that no file follows"
    );
}

#[test]
fn long_names_are_bounded() {
    let header = header("long", b'L', 1 << 30);
    let error = error_of(&Archive::default().raw(&header, b"name").end());
    assert_eq!(error, "at byte 0: size = 1073741824 of a header of type L: more than 1048576");
    let archive = Archive::default().member("l", b'L', b"long/name\0rest").member("k", b'K', b"target\0");
    let tree = scan_bytes(&archive.member("x", b'2', b"").end()).unwrap();
    assert_eq!(of_tree(&tree).unwrap()[&b"long/name"[..]].target, b"target");
}

#[test]
fn paths_that_lead_out_are_refused() {
    for path in ["../a", "a/../b", "/..", "a/.."] {
        let error = error_of(&Archive::default().member(path, b'0', b"x").end());
        assert!(error.starts_with("at byte 0: ") && error.ends_with("`..` has no meaning here"), "{error}");
    }
    let archive = Archive::default().member("/etc//./passwd", b'0', b"x").member(".", b'5', b"");
    assert_eq!(paths(&scan_bytes(&archive.end()).unwrap()), ["", "etc", "etc/passwd"]);
    let through = Archive::default().link("a", b'2', "/etc").member("a/b", b'0', b"x");
    assert_eq!(error_of(&through.end()), "at byte 512: a/b: a is no directory");
}

/// `..` as containerd treats it: it cannot lead out of the root.
#[test]
fn steps_up_can_be_taken_within_the_root() {
    let options = TarOptions { dot_dot: DotDot::Up, ..TarOptions::default() };
    let scanned = |archive: Archive| {
        let dir = TempDir::in_memory("tar").unwrap();
        fs::write(dir.join("a.tar"), archive.end()).unwrap();
        let source = TarSource::open(&dir.join("a.tar"), &SourceOptions::default(), options).unwrap();
        source.scan(&ScanOptions::new(&crate::common::GOING)).map(|scan| scan.tree)
    };
    let archive = Archive::default().member("a/../etc/dd", b'0', b"x").member("./a/b/../../c/", b'5', b"");
    let archive =
        archive.link("c/link", b'1', "c/../etc/dd").link("symlink", b'2', "a/../..").member("b/..", b'5', b"");
    let tree = scanned(archive).unwrap();
    assert_eq!(paths(&tree), ["", "c", "c/link", "etc", "etc/dd", "symlink"]);
    let snapshot = of_tree(&tree).unwrap();
    assert_eq!((snapshot[&b"c/link"[..]].nlink, &*snapshot[&b"symlink"[..]].target), (2, &b"a/../.."[..]));
    for path in ["../a", "a/../../b", "/..", "./../c"] {
        for archive in [Archive::default().member(path, b'0', b"x"), Archive::default().link("l", b'1', path)] {
            let error = scanned(archive).map(drop).unwrap_err().to_string();
            assert!(error.ends_with("`..` has no meaning here"), "{error}");
        }
    }
}

#[test]
fn hard_links_lead_to_files() {
    let early = Archive::default().link("a", b'1', "b").link("c", b'1', "./a").member("b", b'0', b"data");
    let snapshot = of_tree(&scan_bytes(&early.end()).unwrap()).unwrap();
    assert!(["a", "b", "c"].iter().all(|path| snapshot[path.as_bytes()].nlink == 3));
    let itself = Archive::default().link("a", b'1', "a");
    assert!(error_of(&itself.clone().end()).ends_with("a: a hard link to a, which leads back to it"));
    let directory = Archive::default().member("d", b'5', b"").link("a", b'1', "d");
    assert_eq!(error_of(&directory.clone().end()), "at byte 512: a: a hard link to d, which is a directory");
    let nothing = Archive::default().link("a", b'1', "b");
    assert!(error_of(&nothing.clone().end()).ends_with("a: a hard link to b, which does not exist"));
    for archive in [itself, directory, nothing] {
        let (tree, left_out) = scan_leaving_out(&archive.member("z", b'0', b"").end());
        assert_eq!(left_out, ["a"]);
        assert!(paths(&tree).contains(&"z".to_owned()) && !paths(&tree).contains(&"a".to_owned()));
    }
}

#[test]
fn later_members_replace_earlier_ones() {
    let archive = Archive::default().member("d/f", b'0', b"old").member("d/f", b'0', b"new").member("e", b'0', b"");
    let archive = archive.member("e/", b'5', b"").member("d", b'5', b"").member("old-directory/", b'0', b"");
    let tree = scan_bytes(&archive.end()).unwrap();
    assert_eq!(paths(&tree), ["", "d", "d/f", "e", "old-directory"]);
    assert_eq!(contents(&tree, "d/f"), b"new");
    assert_eq!(tree.node(tree.find([&b"d"[..]]).unwrap()).meta.uid, 7);
}

/// Returns an old sparse file of GNU tar with this map.
fn sparse(real_len: u64, map: &[(u64, u64)], data: &[u8]) -> Vec<u8> {
    let mut header = header("s", b'S', data.len() as u64);
    patch(&mut header, 257, b"ustar  \0");
    for (at, (off, len)) in map.iter().enumerate() {
        patch(&mut header, 386 + 24 * at, format!("{off:011o}\0{len:011o}\0").as_bytes());
    }
    patch(&mut header, 483, format!("{real_len:011o}\0").as_bytes());
    Archive::default().raw(&header, data).member("next", b'0', b"").end()
}

#[test]
fn maps_of_sparse_files_go_forward_within_them() {
    let data = [1; 20];
    let good = scan_bytes(&sparse(100, &[(10, 10), (50, 10), (100, 0)], &data)).unwrap();
    let expected = [vec![0; 10], vec![1; 10], vec![0; 30], vec![1; 10], vec![0; 40]].concat();
    assert_eq!(contents(&good, "s"), expected);
    for (real_len, map, reason) in [
        (100, &[(10, 10), (15, 10)][..], "10 bytes at 15: it starts before byte 20"),
        (100, &[(50, 10), (10, 10)], "10 bytes at 10: it starts before byte 60"),
        (100, &[(95, 20)], "20 bytes at 95: the file is 100 bytes long"),
        (10, &[(0, 20)], "20 bytes at 0: the file is 10 bytes long"),
        (100, &[(0, 10)], "a sparse map of 10 bytes of data, where the archive has 20"),
    ] {
        let error = error_of(&sparse(real_len, map, &data));
        assert!(error.starts_with("at byte 0: ") && error.contains(reason), "{error}");
        let pairs: Vec<_> = map.iter().flat_map(|(off, len)| [off.to_string(), len.to_string()]).collect();
        let said = real_len.to_string();
        let text = pairs.join(",");
        let pax = Archive::default().pax(&[("GNU.sparse.size", said.as_bytes()), ("GNU.sparse.map", text.as_bytes())]);
        let error = error_of(&pax.member("s", b'0', &data).end());
        assert!(error.starts_with("at byte 0: ") && error.contains(reason), "{error}");
        let mut text = format!("{}\n{}\n", map.len(), pairs.join("\n")).into_bytes();
        text.resize(512, 0);
        text.extend(data);
        let version = [("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.minor", b"0")];
        let said = [&version[..], &[("GNU.sparse.realsize", said.as_bytes()), ("GNU.sparse.name", b"s")]].concat();
        let error = error_of(&Archive::default().pax(&said).member("x", b'0', &text).end());
        assert!(error.starts_with("at byte 0: ") && error.contains(reason), "{error}");
        let endless = Archive::default().pax(&said).member("x", b'0', b"99\n1\n1\n").end();
        assert!(error_of(&endless).contains("a sparse map that is longer than the 7 bytes of its file"));
    }
}

#[test]
fn unknown_types_are_reported_and_can_be_left_out() {
    let archive = |flag| Archive::default().member("a", flag, b"data").member("b", b'0', b"b").end();
    for (flag, reason) in [(b'M', "another volume"), (b'N', "1.10"), (b'A', "Solaris"), (b'Z', "unknown type")] {
        let error = error_of(&archive(flag));
        assert!(
            error.starts_with(&format!("at byte 0: a: type {}: ", char::from(flag))) && error.contains(reason),
            "{error}"
        );
        let (tree, left_out) = scan_leaving_out(&archive(flag));
        assert_eq!((paths(&tree), left_out), (vec![String::new(), "b".into()], vec!["a".into()]));
    }
    let (tree, left_out) = scan_leaving_out(&archive(b'V'));
    assert_eq!((paths(&tree), left_out.len()), (vec![String::new(), "b".into()], 0));
    assert_eq!(contents(&scan_bytes(&archive(b'7')).unwrap(), "a"), b"data");
}

#[test]
fn archives_are_recognised() {
    let archive = Archive::default().member("a", b'0', b"a");
    for end in [0, 512, 1024, 10240] {
        assert_eq!(paths(&scan_bytes(&[archive.0.clone(), vec![0; end]].concat()).unwrap()), ["", "a"]);
    }
    for len in [1024, 10240] {
        assert_eq!(paths(&scan_bytes(&vec![0; len]).unwrap()), [""]);
    }
    for other in [vec![0; 512], vec![0; 1025], vec![0; 1 << 20], b"text ".repeat(500), archive.0[..511].to_vec()] {
        assert!(error_of(&other).starts_with("it is not a directory"), "{} bytes", other.len());
    }
}

/// Returns the paths in the archive `bytes` and the notes about it, without its name, or its error.
fn scanned(bytes: &[u8], concatenated: bool) -> Result<(Vec<String>, Vec<String>), String> {
    let dir = TempDir::in_memory("tar").unwrap();
    let path = dir.join("a.tar");
    fs::write(&path, bytes).unwrap();
    let options = SourceOptions { concatenated, ..SourceOptions::default() };
    let scan = open(&path, &options).unwrap().scan(&ScanOptions::new(&crate::common::GOING));
    let scan = scan.map_err(|error| error.to_string().split_once(": ").unwrap().1.to_owned())?;
    assert!(scan.notes.iter().all(|note| note.path == path));
    Ok((paths(&scan.tree), scan.notes.into_iter().map(|note| note.text).collect()))
}

/// Checks that bytes after the end mark are ignored: GNU tar, bsdtar, Python, Go and mkfs.erofs
/// ignore them, too.
#[test]
fn an_archive_ends_at_its_end_mark() {
    let first = Archive::default().member("a", b'0', b"a").end();
    let second = Archive::default().member("a", b'0', b"other").member("hidden", b'0', b"").end();
    let padded = [&first[..], &[0; 512 * 17]].concat();
    for (front, behind) in [(&first, &second[..]), (&padded, &second), (&first, b"junk\n"), (&padded, &[7; 100_000])] {
        let whole = [front, behind].concat();
        let packed = zstd::encode_all(&whole[..], 1).unwrap();
        let note = format!("ignored {} bytes after the end mark, from byte {} on", behind.len(), front.len());
        for bytes in [&whole, &packed] {
            assert_eq!(scanned(bytes, false).unwrap(), (vec![String::new(), "a".into()], vec![note.clone()]));
        }
    }
    assert_eq!(contents(&scan_bytes(&[&first[..], &second].concat()).unwrap(), "a"), b"a");
    assert_eq!(scanned(&padded, false).unwrap().1, [""; 0]);
}

#[test]
fn concatenated_archives_are_read_on_request() {
    let first = Archive::default().member("a", b'0', b"a").end();
    let second = Archive::default().member("b", b'0', b"b");
    for between in [0, 512, 9216] {
        let whole = [&first[..], &vec![0; between], &second.clone().end()].concat();
        for bytes in [&whole, &zstd::encode_all(&whole[..], 1).unwrap()] {
            assert_eq!(scanned(bytes, true).unwrap(), (vec![String::new(), "a".into(), "b".into()], Vec::new()));
        }
    }
    let error = scanned(&[&first[..], &[b'j'; 512]].concat(), true).unwrap_err();
    assert!(error.starts_with(&format!("at byte {}: ", first.len())), "{error}");
    // The last one has an end mark, too.
    assert_eq!(scanned(&[first, second.0].concat(), true).unwrap().1, [NO_MARK]);
}

const NO_MARK: &str = "it has no end mark, so it may be truncated";

/// Programs differ: GNU tar, bsdtar and Python end there, mkfs.erofs 1.9.4 reads on, Go fails.
#[test]
fn a_lone_record_of_zeros_is_refused() {
    let (first, second) = (Archive::default().member("a", b'0', b"a").0, Archive::default().member("b", b'0', b"b"));
    let whole = [&first[..], &[0; 512], &second.end()].concat();
    let reason = "a single record of zeros followed by more data; the end of an archive is two such records";
    assert_eq!(scanned(&whole, false).unwrap_err(), format!("at byte 1024: {reason}"));
    let (tree, left_out) = scan_leaving_out(&whole);
    assert_eq!((paths(&tree), left_out), (vec![String::new(), "a".into(), "b".into()], vec![String::new()]));
    // At the end of the input it is an end mark.
    assert_eq!(scanned(&[&first[..], &[0; 512]].concat(), false).unwrap().1, [""; 0]);
    let within = Archive::default().pax(&[("path", b"x")]).0;
    let within = [&within[..], &[0; 512], &Archive::default().member("a", b'0', b"").end()].concat();
    assert_eq!(scanned(&within, false).unwrap_err(), "at byte 0: an extended header that no file follows");
}

/// An archive consists of whole records up to its end mark. A cut at any byte is detected; between
/// two members, it is reported as a missing end mark.
#[test]
fn truncated_archives_are_reported() {
    let archive = Archive::default().member("a", b'0', &[1; 700]).pax(&[("mtime", b"1.5")]).member("b", b'0', b"b");
    let whole = archive.member("c", b'5', b"").end();
    // After `a`, after `b`, after `c`.
    let member_ends = [1536, 3584, 4096];
    for len in (512..whole.len()).step_by(64).chain([513, 1211, 1212, 1213, 1300, 1535, 3073, 3074]) {
        let found = scanned(&whole[..len], false);
        let ends_with_record = len % 512 == 0;
        match found {
            Ok((_, notes)) if len == whole.len() - 512 => assert_eq!(notes, [""; 0], "{len}"),
            Ok((_, notes)) => {
                assert!(member_ends.contains(&len), "{len}");
                assert_eq!(notes, [NO_MARK], "{len}");
            }
            Err(error) => assert!(!ends_with_record || !member_ends.contains(&len), "{len}: {error}"),
        }
        // A truncated archive is not complete if it is compressed again.
        let again = zstd::encode_all(&whole[..len], 1).unwrap();
        assert_eq!(scanned(&again, false).is_ok(), scanned(&whole[..len], false).is_ok(), "{len}");
    }
    let error = scanned(&whole[..1300], false).unwrap_err();
    assert_eq!(error, "at byte 1212: a: the archive ends within a record, after its 700 bytes of data");
}

/// The checksum of a stream comes last: damage after the end mark is damage of the stream.
#[test]
fn streams_are_read_to_their_end() {
    let archive = [Archive::default().member("a", b'0', b"a").end(), vec![0; 8192]].concat();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&archive).unwrap();
    let mut packed = packed.finish().unwrap();
    assert_eq!(scanned(&packed, false).unwrap().1, [""; 0]);
    let crc_at = packed.len() - 8;
    packed[crc_at] ^= 1;
    assert!(scanned(&packed, false).is_err());
    let (tree, left_out) = scan_leaving_out(&packed);
    assert_eq!((paths(&tree), left_out.len()), (vec![String::new(), "a".into()], 1));
}

/// Checks that a program that writes to a pipe can write all of it.
#[test]
fn pipes_are_read_to_their_end() {
    let dir = TempDir::in_memory("tar").unwrap();
    let path = dir.join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let whole = [Archive::default().member("a", b'0', b"a").end(), vec![0; 1 << 20], b"junk".to_vec()].concat();
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| fs::write(&path, &whole));
        let scan = open(&path, &SourceOptions::default()).unwrap().scan(&ScanOptions::new(&crate::common::GOING));
        let scan = scan.unwrap();
        assert_eq!(paths(&scan.tree), ["", "a"]);
        assert!(scan.notes[0].text.starts_with("ignored 4 bytes after the end mark"), "{}", scan.notes[0]);
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn missing_parents_can_inherit() {
    let dir = TempDir::new("tar").unwrap();
    let mut parent = header("d", b'5', 0);
    patch(&mut parent, 100, b"0000775\0");
    let archive = Archive::default().raw(&parent, b"").member("d/e/f", b'0', b"").end();
    fs::write(dir.join("a.tar"), archive).unwrap();
    let stop = &crate::common::GOING;
    let implied = Implied::Inherited(Metadata { permissions: 0o755, ..Metadata::default() });
    let source =
        TarSource::open(&dir.join("a.tar"), &SourceOptions::default(), TarOptions { implied, ..TarOptions::default() })
            .unwrap();
    let tree = source.scan(&ScanOptions::new(stop)).unwrap().tree;
    let expected = Metadata { permissions: 0o755, uid: 0, gid: 0, mtime: 100, mtime_nsec: 0 };
    assert_eq!(tree.node(tree.find([&b"d"[..], b"e"]).unwrap()).meta, expected);
}

/// Returns a small archive with members of all types and extended headers of all kinds.
fn everything() -> Vec<u8> {
    let old = sparse(3000, &[(0, 10), (1000, 10)], &[2; 20]);
    let archive = Archive(old[..1024].to_vec()).member("dir", b'5', b"").member("g", b'g', &record("mtime", b"-1.5"));
    let pax: [(&str, &[u8]); 6] = [
        ("path", b"dir/a"),
        ("size", b"4"),
        ("uid", b"70000"),
        ("SCHILY.xattr.user.a", b"1\n2"),
        ("LIBARCHIVE.xattr.user.b", b"YQ=="),
        ("SCHILY.acl.access", b"user::rw-,user:1:r--,group::r--,mask::r--,other::---"),
    ];
    let archive = archive.pax(&pax).member("x", b'0', b"data").link("link", b'1', "dir/a").link("early", b'1', "late");
    let archive = archive.member("l", b'L', b"late\0").member("x", b'7', b"late").member("k", b'K', b"target\0");
    let archive = archive.member("symlink", b'2', b"").member("device", b'3', b"").member("fifo", b'6', b"");
    let map = [b"1\n5\n4\n", &[0; 506][..], b"data"].concat();
    let sparse: [(&str, &[u8]); 4] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.realsize", b"100"),
        ("GNU.sparse.name", b"new-sparse"),
    ];
    archive.pax(&sparse).member("x", b'0', &map).member("V", b'V', b"").end()
}

#[test]
fn damaged_archives_do_no_harm() {
    let archive = everything();
    assert_eq!(paths(&scan_bytes(&archive).unwrap()).len(), 11);
    let dir = TempDir::in_memory("tar").unwrap();
    let path = dir.join("a.tar");
    let mut rng = Rng::new(0x7A12);
    let mut whole = 0;
    for round in 0..rounds("KILN_TAR_ROUNDS", 3000, 100_000) {
        let mut damaged = archive.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(damaged.len() as u64) as usize;
            damaged[at] = if rng.below(2) == 0 { damaged[at] ^ 1 << rng.below(8) } else { rng.word() as u8 };
        }
        // Mostly with correct checksums; otherwise the damage would not get past them.
        if round % 4 > 0 {
            for header in damaged.as_chunks_mut::<512>().0 {
                if header[257..262] == *b"ustar" {
                    patch(header, 0, b"");
                }
            }
        }
        if rng.below(8) == 0 {
            damaged.truncate(rng.below(damaged.len() as u64) as usize);
        }
        fs::write(&path, &damaged).unwrap();
        let source = TarSource::open(&path, &SourceOptions::default(), TarOptions::default()).unwrap();
        let options = ScanOptions { keep_going: round % 2 == 0, ..ScanOptions::new(&crate::common::GOING) };
        let Ok(scan) = source.scan(&options) else { continue };
        whole += 1;
        for (id, node) in scan.tree.nodes() {
            if let Kind::File { len, .. } = node.kind {
                let mut buf = vec![0; len.min(1 << 16) as usize];
                let mut file = scan.tree.open(id).unwrap();
                let off = len - buf.len() as u64;
                file.read_exact_at(&mut buf, off).unwrap();
                assert!(file.next_data(0).unwrap().is_none_or(|run| run.end <= len));
            }
        }
    }
    assert!(whole > 100, "{whole} of all archives could be read");
}
