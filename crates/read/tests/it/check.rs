//! `check` finds nothing in good images, and what is wrong in damaged ones.

use crate::common::handmade::{DATA_OFF, FILE_NID, HELPER_NID, Handmade, META_OFF, encode, text};
use crate::common::noting::Noting;
use crate::common::{Rng, manifest, named, regular_files};
use kiln_format::compr_cfg::Algorithm;
use kiln_format::inode::{DataLayout, FileType, Inode as Meta, InodeData};
use kiln_format::superblock::{SUPERBLOCK_OFF, checksum, checksum_len};
use kiln_format::xattr::{encode_entry, filter_bit, icount};
use kiln_format::zmap::{HeadKind, Lcluster};
use kiln_format::{Blkaddr, BlockBits, Compat, Incompat, Nid};
use kiln_read::{CheckReport, ExtentKind, Finding, Image, ImageOptions, MemorySource, Threads};
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn golden_images_have_no_problems() {
    for golden in manifest() {
        let report = golden.open().check(Threads::at_least_one(2)).unwrap();
        assert_eq!(messages(&report), Vec::<String>::new(), "{}", golden.name);
        let names = golden.expected().len() as u64;
        assert!(report.inodes >= names / 2 && report.directories > 0 && report.bytes > 0, "{report:?}");
    }
}

/// Plain data has nothing that could be wrong, but the disk under it may be.
#[test]
fn plain_data_is_read() {
    let golden = named("flat");
    let bytes = golden.bytes();
    let mut is_read = vec![false; bytes.len()];
    let source = Noting::new(bytes);
    let image = Image::open(source.clone(), vec![], &ImageOptions::default()).unwrap();
    source.take();
    image.check(Threads::ONE).unwrap();
    source.take().into_iter().for_each(|read| is_read[read.start as usize..read.end as usize].fill(true));
    let mut plain_len = 0;
    for (path, inode) in regular_files(&image) {
        for extent in image.extents(&inode).map(Result::unwrap) {
            let ExtentKind::Raw { pa, .. } = extent.kind else { continue };
            let range = pa as usize..(pa + extent.llen) as usize;
            assert!(is_read[range].iter().all(|&is_read| is_read), "{}", path.escape_ascii());
            plain_len += extent.llen;
        }
    }
    assert!(plain_len > 500_000, "{plain_len}");
}

/// Counts do not depend on the number of threads.
#[test]
fn any_number_of_threads_finds_the_same() {
    for name in ["lz4hc-64k", "zstd-1m-frag"] {
        let golden = named(name);
        let mut bytes = golden.bytes();
        for at in (20_000..bytes.len()).step_by(30_000) {
            bytes[at] ^= 0x55;
        }
        let image = open(bytes);
        let mut reports = [1, 3, 8].map(|count| image.check(Threads::at_least_one(count)).unwrap()).map(|report| {
            let mut messages = messages(&report);
            messages.sort();
            (report.inodes, report.extents, report.bytes, report.problem_count, messages)
        });
        assert!(reports[0].3 > 0, "the damage is found");
        let first = reports[0].clone();
        assert!(reports.iter_mut().all(|report| *report == first));
    }
}

fn messages(report: &CheckReport) -> Vec<String> {
    report.problems.iter().map(ToString::to_string).collect()
}

fn open(bytes: Vec<u8>) -> Image {
    let options = ImageOptions::default().with_any_checksum();
    Image::open(Arc::new(MemorySource::new(bytes)), vec![], &options).unwrap()
}

/// An image with one file in two pclusters and one attribute, without problems.
fn good() -> Handmade {
    let mut image = Handmade::new(12);
    let contents = text(&mut Rng(1), 20_000);
    let mut entries = Vec::new();
    for (idx, plain) in [&contents[..9000], &contents[9000..18_000]].into_iter().enumerate() {
        let mut stream = encode(Algorithm::Zstd, plain);
        assert!(stream.len() <= 4096);
        stream.splice(0..0, vec![0; 4096 - stream.len()]);
        let (lcn, clusterofs) = ((9000 * idx) / 4096, (9000 * idx) % 4096);
        let blkaddr = Blkaddr(image.append(&stream) >> 12);
        let head = Lcluster::Head { kind: HeadKind::Head1, clusterofs: clusterofs as u32, blkaddr, partial: false };
        entries.resize(lcn, Lcluster::Nonhead { back: 1, forward: 1, cblkcnt: None });
        entries.push(head);
    }
    entries.resize(5, Lcluster::Nonhead { back: 1, forward: 1, cblkcnt: None });
    let mut body = vec![0; 12];
    encode_entry(1, b"name", b"value", &mut body).unwrap();
    body[..4].copy_from_slice(&(!filter_bit(1, b"name")).to_le_bytes());
    let xattr_icount = icount(body.len()).unwrap();
    body.resize(body.len().next_multiple_of(8), 0);
    body.extend([0, 0, 0, 0, 0, 0, Algorithm::Zstd as u8, 0]);
    body.resize(body.len() + 8, 0);
    body.extend(entries.iter().flat_map(|entry| entry.encode_full().unwrap()));
    image.sb.compat |= Compat::XATTR_FILTER;
    let inode = Meta { xattr_icount, ..image.file(DataLayout::CompressedFull, 18_000, 0) };
    image.inode(FILE_NID, &inode, &body);
    image
}

/// Give the superblock the checksum that its bytes ask for.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let start = SUPERBLOCK_OFF as usize;
    let sum = checksum(&bytes[start..start + checksum_len(BlockBits::DEFAULT)]);
    bytes[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The one problem of the good image with `patch` at byte `at`.
fn problem(at: u64, patch: &[u8]) -> String {
    let mut bytes = good().finish();
    bytes[at as usize..at as usize + patch.len()].copy_from_slice(patch);
    let report = open(sealed(bytes)).check(Threads::ONE).unwrap();
    let messages = messages(&report);
    assert_eq!(messages.len(), 1, "{messages:#?}");
    messages.into_iter().next().unwrap()
}

#[test]
fn the_handmade_image_has_no_problems() {
    assert_eq!(messages(&open(good().finish()).check(Threads::ONE).unwrap()), Vec::<String>::new());
}

#[test]
fn each_damage_is_named() {
    let file = Handmade::inode_off(FILE_NID);
    let dir = META_OFF;
    let dirent = |idx: u64| dir + 64 + 12 * idx;
    let index = file + 64 + 32 + 16;
    let u32 = u32::to_le_bytes;
    for (at, patch, expected) in [
        // Link counts: of the file, of the directory.
        (file + 44, &u32(2)[..], "/f (nid 16): i_nlink = 2, should be 1"),
        (dir + 44, &u32(7), "/ (nid 0): i_nlink = 7, should be 2"),
        // Entries: the type, the dots.
        (dirent(2) + 10, &[3], "/ (nid 0): entry f: file_type is not the inode's"),
        (dirent(1), &[16], "/ (nid 0): entry ..: names the wrong directory"),
        (dirent(0), &[16], "/ (nid 0): entry .: names the wrong directory"),
        // Names: "f" becomes "!".
        (dirent(3) + 3, b"!", "/ (nid 0): entry !: not in ascending order: lookups will miss names"),
        // The inode: an impossible type, a layout from the future.
        (
            file + 4,
            &[0, 0],
            "corrupt image: /f (nid 16): erofs_inode_extended at byte 66048: i_mode = 0: no such file type",
        ),
        (file, &[0x0F, 0], "unsupported image: /f (nid 16): erofs_inode_extended at byte 66048: i_format"),
        // Attributes: the filter denies the one that is there.
        (file + 64, &u32(u32::MAX), "/f (nid 16): attribute user.name: hidden by the inode's name filter"),
        (file + 64 + 12, &[200], "corrupt image: /f (nid 16): erofs_xattr_entry at byte 66124"),
        // The index: an address behind the end, one in the metadata, a first entry that is no head.
        (index + 4, &u32(9_999_999), "/f (nid 16): pcluster at byte 40959995904"),
        (index, &[2], "corrupt image: /f (nid 16): z_erofs_lcluster_index"),
        // The superblock.
        (SUPERBLOCK_OFF + 36, &u32(9_999_999), "superblock: blocks = 9999999, should be 1026"),
        (SUPERBLOCK_OFF + 16, &u32(1), "superblock: inos = 1, should be 2"),
    ] {
        let message = problem(at, patch);
        assert!(message.contains(expected), "{message}\nhas not: {expected}");
    }
}

#[test]
fn damaged_streams_are_found() {
    // In the middle of the second pcluster.
    let message = problem(DATA_OFF + 4096 + 3000, &[0xFF; 64]);
    assert!(message.contains("/f (nid 16): pcluster of 4096 bytes at byte 4198400"), "{message}");
}

#[test]
fn overlaps_are_found() {
    // The second pcluster in the block of the first inode.
    let index = Handmade::inode_off(FILE_NID) + 64 + 32 + 16;
    let mut bytes = good().finish();
    bytes[(index + 8 * 2 + 4) as usize..][..4].copy_from_slice(&((META_OFF >> 12) as u32).to_le_bytes());
    let report = open(bytes).check(Threads::ONE).unwrap();
    let overlap =
        report.problems.iter().any(|problem| matches!(problem.error, Finding::Overlap { device: Some(0), .. }));
    assert!(overlap, "{:?}", messages(&report));
}

/// Linux 6.18 maps what is not announced: such images are sound. `mkfs.erofs -Ededupe` makes some.
#[test]
fn features_that_are_not_announced_are_noted_and_no_problem() {
    let without = |bit: Incompat, make: &dyn Fn(&mut Handmade)| {
        let mut image = good();
        make(&mut image);
        image.sb.incompat.remove(bit);
        let report = open(image.finish()).check(Threads::ONE).unwrap();
        assert_eq!(messages(&report), Vec::<String>::new());
        assert_eq!(report.notes.len(), 1, "{:?}", report.notes);
        report.notes[0].to_string()
    };
    let chunks = |image: &mut Handmade| {
        let inode = image.file(DataLayout::ChunkBased, 4096, 0);
        image.inode(FILE_NID, &inode, &u32::MAX.to_le_bytes());
    };
    assert!(without(Incompat::CHUNKED_FILE, &chunks).contains("lacks CHUNKED_FILE: chunk-based inode"));
    let hole = |image: &mut Handmade| {
        let inode = image.file(DataLayout::FlatPlain, 4096, u32::MAX);
        image.inode(FILE_NID, &inode, &[]);
    };
    assert!(without(Incompat::ADDR_48BIT, &hole).contains("lacks ADDR_48BIT"));
    let head2 = |image: &mut Handmade| {
        let index = Handmade::inode_off(FILE_NID) + 64 + 32;
        let algorithms = (Algorithm::Zstd as u8) << 4 | Algorithm::Zstd as u8;
        image.put(index + 6, &[algorithms]);
        image.put(index + 16, &[3]);
    };
    assert!(without(Incompat::DEVICE_TABLE, &head2).contains("lacks DEVICE_TABLE: lcluster of type HEAD2"));
}

/// Fragments are counted where they are read, and not again in the packed inode; hard links are one
/// file.
#[test]
fn contents_are_counted_once() {
    for name in ["zstd-1m-frag", "lz4-dedupe-frag-tail", "metabox-zstd", "inline"] {
        let image = named(name).open();
        let root = image.inode(image.root_nid()).unwrap();
        let inodes: BTreeMap<_, _> =
            image.walk(&root, b"").map(Result::unwrap).map(|entry| (entry.inode.nid, entry.inode)).collect();
        let sum = |wanted: &[FileType]| -> u64 {
            inodes.values().filter(|i| wanted.contains(&i.meta.file_type)).map(|i| i.meta.size).sum()
        };
        let report = image.check(Threads::at_least_one(2)).unwrap();
        assert_eq!(report.bytes, sum(&[FileType::Regular, FileType::Directory, FileType::Symlink]), "{name}");
        assert_eq!((report.file_bytes, report.digested_bytes), (sum(&[FileType::Regular]), 0), "{name}");
    }
}

#[test]
fn a_superblock_without_checksum_is_told() {
    assert!(open(good().finish()).check(Threads::ONE).unwrap().has_checksum);
    let mut image = good();
    image.sb.compat.remove(Compat::SB_CHKSUM);
    assert!(!open(image.finish()).check(Threads::ONE).unwrap().has_checksum);
}

#[test]
fn nodes_and_links_have_sensible_sizes() {
    for (file_type, size) in [(FileType::Fifo, 5), (FileType::Symlink, 0), (FileType::Symlink, 4096)] {
        let mut image = Handmade::new(12);
        let plain = image.append(&[b'x'; 4096]) >> 12;
        let inode = image.file(DataLayout::FlatPlain, size, plain as u32);
        let data = if file_type == FileType::Fifo { InodeData::Nothing } else { inode.data };
        image.inode(FILE_NID, &Meta { file_type, data, ..inode }, &[]);
        let mut bytes = image.finish();
        bytes[(META_OFF + 64 + 12 * 2 + 10) as usize] = file_type.dirent_number();
        let messages = messages(&open(bytes).check(Threads::ONE).unwrap());
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].contains("i_size"), "{messages:?}");
    }
}

/// A directory that contains itself: the walk and the check end.
#[test]
fn directory_cycles_end() {
    let mut bytes = good().finish();
    let entry = (META_OFF + 64 + 12 * 2) as usize;
    bytes[entry..entry + 8].copy_from_slice(&0u64.to_le_bytes());
    bytes[entry + 10] = FileType::Directory.dirent_number();
    let image = open(bytes);
    let root = image.inode(Nid(0)).unwrap();
    let entries: Vec<_> = image.walk(&root, b"/").collect();
    assert_eq!(entries.len(), 2);
    assert!(entries[1].as_ref().is_err_and(|error| error.is_corrupt()));
    assert!(messages(&image.check(Threads::ONE).unwrap()).iter().any(|m| m.contains("a directory with another name")));
}

/// Special inodes that refer to each other or to themselves are refused, not followed for ever.
#[test]
fn the_packed_inode_has_no_fragments() {
    let mut image = good();
    image.sb.incompat |= Incompat::FRAGMENTS;
    image.sb.packed_nid = Some(HELPER_NID);
    let whole_fragment = (1u64 << 63).to_le_bytes();
    for nid in [FILE_NID, HELPER_NID] {
        let inode = image.file(DataLayout::CompressedFull, 100, 0);
        image.inode(nid, &inode, &whole_fragment);
    }
    let image = open(image.finish());
    let inode = image.inode(FILE_NID).unwrap();
    let error = image.read_at(&inode, &mut [0; 10], 0).unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("inside the packed inode"), "{error}");
    let packed = image.inode(HELPER_NID).unwrap();
    assert!(image.read_at(&packed, &mut [0; 10], 0).unwrap_err().is_corrupt());
    assert!(image.check(Threads::ONE).unwrap().problem_count > 0);
}
