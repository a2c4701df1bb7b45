//! Concatenated archives, as in an initramfs.

use super::{Archive, FILE, SYMLINK, contents, error_of, paths, scan, scan_bytes};
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use kiln_tests::temp::TempDir;
use kiln_tree::Tree;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::io::Write;

const DIR: u32 = 0o040_755;

fn microcode() -> Vec<u8> {
    let archive = Archive::default().member("kernel", DIR, b"").member("kernel/microcode", FILE, &[1; 4099]);
    archive.member("both", FILE, b"of the first").end()
}

fn main_archive() -> Vec<u8> {
    let archive = Archive::default().member("bin", DIR, b"").member("bin/init", FILE, &b"init ".repeat(50_000));
    archive.member("both", FILE, b"of the second").member("link", SYMLINK, b"bin/init").end()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xz(bytes: &[u8], stream: liblzma::stream::Stream) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Compresses like `lz4 -l`.
fn lz4_legacy(bytes: &[u8]) -> Vec<u8> {
    let mut frame = b"\x02\x21\x4C\x18".to_vec();
    for part in bytes.chunks(8 << 20) {
        let block = lz4_flex::block::compress(part);
        frame.extend((block.len() as u32).to_le_bytes());
        frame.extend(block);
    }
    frame
}

/// Returns the second archive, plain and in all compressed forms.
fn forms() -> [(&'static str, Vec<u8>); 7] {
    use liblzma::stream::{Check, LzmaOptions, Stream};
    let main = main_archive();
    let lzma = LzmaOptions::new_preset(1).unwrap();
    [
        ("gzip", gzip(&main)),
        ("zstd", zstd::encode_all(&main[..], 1).unwrap()),
        ("xz", xz(&main, Stream::new_easy_encoder(1, Check::Crc32).unwrap())),
        ("lzma", xz(&main, Stream::new_lzma_encoder(&lzma).unwrap())),
        ("bzip2", bzip2(&main)),
        ("legacy LZ4", lz4_legacy(&main)),
        ("plain", main),
    ]
}

fn assert_both(tree: &Tree, what: &str) {
    assert_eq!(paths(tree), ["", "bin", "bin/init", "both", "kernel", "kernel/microcode", "link"], "{what}");
    assert_eq!(contents(tree, "both"), b"of the second", "{what}");
    assert_eq!(contents(tree, "kernel/microcode"), [1; 4099], "{what}");
    assert!(contents(tree, "bin/init") == b"init ".repeat(50_000), "{what}");
}

#[test]
fn a_compressed_archive_follows_a_plain_one() {
    for (what, packed) in forms() {
        for padding in [0, 4, 512, 200_000] {
            let whole = [&microcode()[..], &vec![0; padding], &packed].concat();
            assert_both(&scan_bytes(&whole).unwrap(), &format!("{what}, {padding}"));
        }
    }
}

#[test]
fn a_pipe_is_decompressed_from_its_middle_on() {
    let dir = TempDir::in_memory("cpio").unwrap();
    for (what, packed) in forms() {
        let path = dir.join(what);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let whole = [&microcode()[..], &[0; 512], &packed].concat();
        let tree = std::thread::scope(|threads| {
            threads.spawn(|| fs::write(&path, &whole).unwrap());
            scan(&path).unwrap()
        });
        assert_both(&tree, what);
    }
}

#[test]
fn a_source_is_read_again() {
    let dir = TempDir::in_memory("cpio").unwrap();
    let path = dir.join("initrd");
    fs::write(&path, [microcode(), gzip(&main_archive())].concat()).unwrap();
    let source = kiln_source::open(&path, &kiln_source::SourceOptions::default()).unwrap();
    for _ in 0..3 {
        let tree = source.scan(&kiln_source::ScanOptions::new(&crate::common::GOING)).unwrap().tree;
        assert_eq!(contents(&tree, "both"), b"of the second");
        assert_eq!(contents(&tree, "kernel/microcode"), [1; 4099]);
    }
}

#[test]
fn inode_numbers_count_in_one_archive() {
    let first = Archive::default().link("a", FILE, (1, 2), b"").link("b", FILE, (1, 2), b"data").end();
    let second = Archive::default().link("c", FILE, (1, 2), b"").link("d", FILE, (1, 2), b"other").end();
    let tree = scan_bytes(&[first, second].concat()).unwrap();
    for (path, data) in [("a", "data"), ("b", "data"), ("c", "other"), ("d", "other")] {
        assert_eq!(contents(&tree, path), data.as_bytes(), "{path}");
    }
}

/// The kernel's grammar: any number of zeros, plain archives and compressed ones, in any order.
#[test]
fn segments_follow_one_another_in_any_order() {
    let small = |name: &str| Archive::default().member(name, FILE, name.as_bytes()).end();
    let pack = |form: usize, bytes: &[u8]| -> Vec<u8> {
        use liblzma::stream::{Check, LzmaOptions, Stream};
        match form {
            0 => bytes.to_vec(),
            1 => gzip(bytes),
            2 => zstd::encode_all(bytes, 1).unwrap(),
            3 => xz(bytes, Stream::new_easy_encoder(1, Check::Crc32).unwrap()),
            4 => xz(bytes, Stream::new_lzma_encoder(&LzmaOptions::new_preset(1).unwrap()).unwrap()),
            5 => bzip2(bytes),
            _ => lz4_legacy(bytes),
        }
    };
    let dir = TempDir::in_memory("cpio").unwrap();
    let mut rng = Rng::new(0x0070_7010);
    for round in 0..rounds("KILN_INITRAMFS_ROUNDS", 150, 3000) {
        let count = 1 + rng.below(4) as usize;
        let (mut whole, mut expected) = (Vec::new(), vec![String::new()]);
        for at in 0..count {
            let form = rng.below(7) as usize;
            let name = format!("segment-{at}");
            whole.extend(pack(form, &small(&name)));
            expected.push(name);
            // Joined as ukify and boot loaders do. Legacy LZ4 has no end mark: a block of length 0
            // ends it, as in the kernel.
            whole.resize(whole.len().next_multiple_of(4) + if form == 6 { 4 } else { 0 }, 0);
            if rng.below(3) == 0 {
                whole.resize(whole.len() + 4 * rng.below(1000) as usize, 0);
            }
        }
        let path = dir.join(&format!("initrd-{round}"));
        fs::write(&path, &whole).unwrap();
        let tree = scan(&path).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(paths(&tree), expected, "round {round}");
        for name in &expected[1..] {
            assert_eq!(contents(&tree, name), name.as_bytes(), "round {round}");
        }
        fs::remove_file(&path).unwrap();
    }
}

/// Joined as in a user's report, without padding, and with padding that no program writes.
#[test]
fn segments_need_no_padding() {
    let (one, other) = (Archive::default().member("one", FILE, b"1").end(), main_archive());
    let (packed, packed_other) = (zstd::encode_all(&one[..], 1).unwrap(), zstd::encode_all(&other[..], 1).unwrap());
    for whole in [
        [&packed[..], b"\0\0", &packed_other].concat(),
        [&gzip(&one)[..], &packed_other].concat(),
        [&one[..], &packed_other, b"\0\0"].concat(),
        [&gzip(&one)[..], &other].concat(),
        [&packed_other[..], &packed].concat(),
        // One archive in two streams, as pzstd and pigz write.
        [&gzip(&one[..50])[..], &gzip(&one[50..]), b"\0", &packed_other].concat(),
        // A file that is compressed once more as a whole.
        gzip(&[&one[..], &packed_other, &gzip(&one)].concat()),
    ] {
        let tree = scan_bytes(&whole).unwrap();
        assert_eq!(contents(&tree, "one"), b"1");
        assert!(contents(&tree, "bin/init") == b"init ".repeat(50_000));
    }
}

#[test]
fn errors_tell_the_segment() {
    let (one, mut bad) = (Archive::default().member("one", FILE, b"1"), main_archive());
    let len = one.0.len();
    let (front, packed) = (gzip(&one.clone().end()), zstd::encode_all(&one.clone().end()[..], 1).unwrap());
    let at = (front.len() + packed.len()).next_multiple_of(4);
    let mut whole = [&front[..], &packed].concat();
    whole.resize(at, 0);
    bad[..6].copy_from_slice(b"070703");
    // In a plain archive, in a compressed one, between them, and at the truncated end of a stream.
    let plain = [&whole[..], &one.0, &bad].concat();
    let magic = "magic = \"070703\": not the magic number of a member";
    assert_eq!(error_of(&plain), format!("at byte {}: {magic}", at + len));
    let inner = xz(
        &[&one.0[..], &bad].concat(),
        liblzma::stream::Stream::new_easy_encoder(1, liblzma::stream::Check::Crc32).unwrap(),
    );
    let compressed = [&whole[..], &inner].concat();
    assert_eq!(error_of(&compressed), format!("at byte {at}: in the xz segment there, at byte {len}: {magic}"));
    let between = [&whole[..], b"garbage"].concat();
    assert_eq!(error_of(&between), format!("at byte {at}: expected an archive, found \"garbage\""));
    let inner = gzip(&main_archive());
    let cut = [&whole[..], &inner[..inner.len() / 2]].concat();
    let error = error_of(&cut);
    let place = format!("at byte {at}: bin/init: in the gzip segment there, at byte ");
    assert!(error.starts_with(&place) && error.ends_with("the compressed data are truncated"), "{error}");
}

#[test]
fn only_archives_follow_archives() {
    let at = microcode().len();
    assert_eq!(
        error_of(&[&microcode()[..], b"\0\0\0\0garbage"].concat()),
        format!("at byte {}: expected an archive, found \"garbage\"", at + 4)
    );
    let cut = gzip(&main_archive());
    let cut = &cut[..cut.len() / 2];
    assert!(error_of(&[&microcode()[..], cut].concat()).ends_with("the compressed data are truncated"));
    // Compressed data contain archives, and nothing that is compressed again.
    let twice = gzip(&gzip(&main_archive()));
    assert!(error_of(&[microcode(), twice].concat()).contains("expected an archive"));
}
