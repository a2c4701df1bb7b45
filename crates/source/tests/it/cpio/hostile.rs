//! Archives that programs do not write.

use super::{Archive, FILE, SYMLINK, contents, error_of, paths, scan_bytes};
use crate::common::GOING;
use kiln_source::{ScanOptions, SourceOptions, open};
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use kiln_tests::snapshot::of_tree;
use kiln_tests::temp::TempDir;
use std::fs;

/// The fields of a newc header of a file.
fn fields(size: u32, name_len: u32, check: u32) -> [u32; 13] {
    [5, FILE, 0, 0, 1, 0, size, 0, 0, 0, 0, name_len, check]
}

#[test]
fn errors_name_the_field_and_its_value() {
    let raw = |fields: [u32; 13], name: &[u8], data: &[u8]| Archive::default().raw("070701", &fields, name, data);
    let mut bad_digits = raw(fields(0, 2, 0), b"a\0", b"").end();
    bad_digits[54..62].copy_from_slice(b"0000+01g");
    let mut bad_odc = [&b"070707"[..], &[b'0'; 70]].concat();
    bad_odc[6 + 6 + 3] = b'8';
    let cases = [
        (bad_digits, "at byte 0: filesize = \"0000+01g\": not a hexadecimal number"),
        (bad_odc, "at byte 0: ino = \"000800\": not an octal number"),
        (raw(fields(0, 0, 0), b"", b"").end(), "at byte 0: namesize = 0: not in the range 1 to 65536"),
        (raw(fields(0, 65537, 0), b"a\0", b"").end(), "at byte 0: namesize = 65537: not in the range 1 to 65536"),
        (raw(fields(0, 65536, 0), b"a\0", b"").end(), "at byte 0: namesize = 65536: beyond the end of the archive"),
        (raw(fields(0, 2, 0), b"ab", b"").end(), "at byte 0: name = \"ab\": does not end with a zero byte"),
        (raw(fields(0, 1, 0), b"\0", b"").end(), "at byte 0: it has no name"),
        (
            raw(fields(u32::MAX, 2, 0), b"a\0", b"data").end(),
            "at byte 0: a: filesize = 4294967295: beyond the end of the archive",
        ),
        (
            Archive::default().raw("070702", &fields(4, 2, 5), b"a\0", b"data").end(),
            "at byte 0: a: check = 0x00000005: the bytes of the file add up to 0x0000019a",
        ),
        (
            Archive::default().raw("070702", &fields(9, 2, 5), b"a\0", b"data").0,
            "at byte 0: a: filesize = 9: beyond the end of the archive",
        ),
        (Archive::default().member("a", 0o110_000, b"").end(), "at byte 0: a: mode = 0o110000: not a file type"),
        (Archive::default().member("a", SYMLINK, b"").end(), "at byte 0: a: invalid target of a symbolic link: \"\""),
        (
            Archive::default().member("a", FILE, b"").0,
            "at byte 112: TRAILER!!!: the archive ends without this member, so it may be truncated",
        ),
        (
            [&Archive::default().member("a", FILE, b"").0[..], b"070703"].concat(),
            "at byte 112: magic = \"070703\": not the magic number of a member",
        ),
        (b"07070100".to_vec(), "at byte 0: the archive ends within a member"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(error_of(&bytes), expected);
    }
}

#[test]
fn names_and_data_of_hard_links() {
    // The data with the first name, with the last, and with each.
    for sizes in [[4, 0, 0], [0, 0, 4], [0, 4, 0], [4, 4, 4], [0, 4, 4]] {
        let mut archive = Archive::default();
        for (name, size) in ["a", "b", "c"].into_iter().zip(sizes) {
            archive = archive.link(name, FILE, (9, 3), &b"data"[..size]);
        }
        let tree = scan_bytes(&archive.end()).unwrap();
        for (path, record) in of_tree(&tree).unwrap().into_iter().skip(1) {
            assert_eq!((record.nlink, &record.first_name[..], record.size), (3, &b"a"[..], 4), "{sizes:?}");
            assert_eq!(contents(&tree, str::from_utf8(&path).unwrap()), b"data");
        }
    }
    // A name taken by another file stays with that file.
    let archive = Archive::default().link("a", FILE, (9, 3), b"").link("b", FILE, (9, 3), b"");
    let tree = scan_bytes(&archive.member("b", FILE, b"own").link("c", FILE, (9, 3), b"data").end()).unwrap();
    assert_eq!((contents(&tree, "a"), contents(&tree, "b")), (b"data".to_vec(), b"own".to_vec()));
    // Other data belong to another file.
    let archive = Archive::default().link("a", FILE, (9, 2), b"one").link("b", FILE, (9, 2), b"other");
    let tree = scan_bytes(&archive.end()).unwrap();
    assert_eq!((contents(&tree, "a"), contents(&tree, "b")), (b"one".to_vec(), b"other".to_vec()));
}

#[test]
fn names_may_be_padded_with_zeros() {
    let archive =
        Archive::default().raw("070701", &fields(4, 20, 0), b"a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", b"data");
    let tree = scan_bytes(&archive.end()).unwrap();
    assert_eq!(paths(&tree), ["", "a"]);
    assert_eq!(contents(&tree, "a"), b"data");
}

#[test]
fn unreadable_members_are_left_out() {
    let archive = Archive::default().member("a", FILE, b"a").member("b", 0o110_000, b"xy").member("../c", FILE, b"c");
    let archive = archive.raw("070702", &fields(1, 2, 0), b"d\0", b"d").member("e", FILE, b"e");
    let dir = TempDir::in_memory("cpio").unwrap();
    let path = dir.join("a.cpio");
    fs::write(&path, &archive.0).unwrap();
    let source = open(&path, &SourceOptions::default()).unwrap();
    let scan = source.scan(&ScanOptions { keep_going: true, ..ScanOptions::new(&GOING) }).unwrap();
    assert_eq!(paths(&scan.tree), ["", "a", "e"]);
    let left_out = scan.skipped.iter().map(|left_out| left_out.path.strip_prefix(&path).unwrap().to_str().unwrap());
    assert_eq!(left_out.collect::<Vec<_>>(), ["b", "../c", "d", "TRAILER!!!"]);
}

#[test]
fn damaged_archives_do_no_harm() {
    let odc = "070707000001000005100644000007000010000001000000000000000000000020000000000041\0data";
    let crc = Archive::default().raw("070702", &fields(4, 2, 0x19A), b"a\0", b"data").end();
    let newc =
        Archive::default().member("d", 0o040_755, b"").link("d/a", FILE, (9, 2), b"").link("b", FILE, (9, 2), b"x");
    let newc = newc.member("l", SYMLINK, b"d/a").end();
    let whole = [&newc[..], &crc, &[0; 8], &zstd::encode_all(&newc[..], 1).unwrap()].concat();
    scan_bytes(&whole).unwrap();
    let seeds = [whole, newc, crc, odc.as_bytes().to_vec()];
    let mut rng = Rng::new(70701);
    for _ in 0..rounds("KILN_CPIO_ROUNDS", 500, 20_000) {
        let mut bytes = seeds[rng.below(seeds.len() as u64) as usize].clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = match rng.below(3) {
                0 => b"0123456789abcdefF"[rng.below(17) as usize],
                1 => bytes[at] ^ 1 << rng.below(8),
                _ => 0,
            };
        }
        if rng.below(4) == 0 {
            bytes.truncate(rng.below(bytes.len() as u64) as usize);
        }
        if let Ok(tree) = scan_bytes(&bytes) {
            of_tree(&tree).unwrap();
        }
    }
}
