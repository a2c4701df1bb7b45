//! Several devices, and metadata inside the metabox: where addresses lead. And how much of them
//! metadata costs.

use crate::common::handmade::{FILE_NID, HELPER_NID, Handmade, META_OFF, encode, text};
use crate::common::noting::Noting;
use crate::common::{Rng, read_whole};
use kiln_format::compr_cfg::Algorithm;
use kiln_format::inode::{CompactTimes, DataLayout, Inode as Meta};
use kiln_format::xattr::{encode_entry, icount};
use kiln_format::{BlockBits, Compat, Incompat, Nid};
use kiln_read::{
    ExtentKind, FollowLast, Image, ImageOptions, MemorySource, RangeMut, ReadAt, ReadError, ReadPolicy, Threads, Xattr,
    conformance,
};
use std::ops::Range;
use std::sync::Arc;

fn open(primary: Vec<u8>, devices: Vec<Vec<u8>>) -> Result<Image, ReadError> {
    let source = |bytes| Arc::new(MemorySource::new(bytes)) as Arc<dyn ReadAt>;
    Image::open(source(primary), devices.into_iter().map(source).collect(), &ImageOptions::default())
}

fn contents(image: &Image) -> Result<Vec<u8>, ReadError> {
    read_whole(image, &image.resolve(b"f", FollowLast::Keep)?)
}

/// Byte offset of the device table, and blocks of the primary device and of each extra one.
const TABLE_OFF: u64 = 8192;
const PRIMARY_BLOCKS: u32 = 2048;
const DEVICE_BLOCKS: u32 = 4;

/// An image with two extra devices of four blocks. `make` gives the file.
fn with_devices(make: impl FnOnce(&Handmade) -> (Meta, Vec<u8>)) -> Vec<u8> {
    let mut image = Handmade::new(12);
    image.sb.extra_devices = 2;
    image.sb.devt_off = TABLE_OFF;
    for slot in 0..2u32 {
        let uniaddr = PRIMARY_BLOCKS + DEVICE_BLOCKS * slot;
        let fields = [DEVICE_BLOCKS.to_le_bytes(), uniaddr.to_le_bytes()].concat();
        image.put(TABLE_OFF + 128 * u64::from(slot) + 64, &fields);
    }
    image.put(u64::from(PRIMARY_BLOCKS) * 4096 - 1, &[0]);
    let (inode, body) = make(&image);
    image.inode(FILE_NID, &inode, &body);
    image.finish()
}

fn devices() -> Vec<Vec<u8>> {
    (0..2).map(|seed| text(&mut Rng(seed + 1), 4 * 4096)).collect()
}

/// With the devices apart, and with all in one file.
fn both_ways(primary: Vec<u8>, devices: Vec<Vec<u8>>, expected: &[u8]) {
    let apart = open(primary.clone(), devices.clone()).unwrap();
    assert!(contents(&apart).unwrap() == expected);
    let flat = open([primary, devices.concat()].concat(), vec![]).unwrap();
    assert!(contents(&flat).unwrap() == expected);
    for image in [apart, flat] {
        assert_eq!(image.check(Threads::ONE).unwrap().problem_count, 0);
    }
}

#[test]
fn flat_files_go_on_over_the_border_of_devices() {
    // From the last block of the primary device over all of the first into the second.
    let primary = with_devices(|image| (image.file(DataLayout::FlatPlain, 7 * 4096 - 5, PRIMARY_BLOCKS - 1), vec![]));
    let all = [vec![0; 4096], devices().concat()].concat();
    both_ways(primary.clone(), devices(), &all[..7 * 4096 - 5]);
    let image = open(primary, devices()).unwrap();
    let inode = image.resolve(b"f", FollowLast::Keep).unwrap();
    let at = |off| image.extent_at(&inode, off).unwrap();
    assert_eq!(at(4095).kind, ExtentKind::Raw { device: 0, pa: u64::from(PRIMARY_BLOCKS - 1) * 4096 });
    assert_eq!((at(9000).la, at(9000).kind), (4096, ExtentKind::Raw { device: 1, pa: 0 }));
    assert_eq!((at(26_000).la, at(26_000).kind), (5 * 4096, ExtentKind::Raw { device: 2, pa: 0 }));
}

#[test]
fn chunks_name_their_device() {
    // The id is masked with 3: 5 is device 1.
    let entry = |device: u16, block: u32| [&[0, 0][..], &device.to_le_bytes(), &block.to_le_bytes()].concat();
    let body = [entry(2, 1), entry(1, 3), entry(5, 0), entry(0, PRIMARY_BLOCKS + 2)].concat();
    let primary = with_devices(|image| (image.file(DataLayout::ChunkBased, 4 * 4096, 0x20), body));
    let block = |device: usize, idx: usize| devices()[device - 1][idx * 4096..][..4096].to_vec();
    both_ways(primary, devices(), &[block(2, 1), block(1, 3), block(1, 0), block(1, 2)].concat());
}

#[test]
fn pclusters_lie_on_devices() {
    let plain = text(&mut Rng(9), 9000);
    let stream = encode(Algorithm::Zstd, &plain);
    let mut devices = devices();
    devices[1][4096 + 17..][..stream.len()].copy_from_slice(&stream);
    let pa = u64::from(PRIMARY_BLOCKS + DEVICE_BLOCKS + 1) * 4096 + 17;
    // One record of 16 bytes.
    let word = stream.len() as u32 | (Algorithm::Zstd as u32 + 1) << 28;
    let body = [&[1, 0, 0, 0, 5, 0, 0, 0][..], &[0; 8], &word.to_le_bytes(), &pa.to_le_bytes(), &[0; 4]].concat();
    let primary = with_devices(|image| (image.file(DataLayout::CompressedFull, 9000, 0), body));
    both_ways(primary, devices, &plain);
}

#[test]
fn a_device_that_does_not_exist_is_corrupt() {
    let body = [0, 0, 3, 0, 0, 0, 0, 0].to_vec();
    let primary = with_devices(|image| (image.file(DataLayout::ChunkBased, 4096, 0x20), body));
    let image = open(primary, devices()).unwrap();
    assert!(contents(&image).unwrap_err().to_string().contains("device_id = 3"));
    assert_eq!(image.check(Threads::ONE).unwrap().problem_count, 1);
}

#[test]
fn devices_that_overlap_are_refused() {
    let mut primary = with_devices(|image| (image.file(DataLayout::FlatPlain, 0, 0), vec![]));
    let uniaddr = TABLE_OFF as usize + 128 + 68;
    primary[uniaddr..uniaddr + 4].copy_from_slice(&(PRIMARY_BLOCKS + 1).to_le_bytes());
    assert!(open(primary, devices()).unwrap_err().is_corrupt());
}

const IN_METABOX: u64 = 1 << 63;

/// The good bytes of a metabox: an inode in slot 1 with a shared and an inline attribute and an
/// inline tail.
fn metabox(image: &Handmade) -> Vec<u8> {
    let mut metabox = vec![0; 512];
    let mut shared = Vec::new();
    encode_entry(4, b"shared", b"one for all", &mut shared).unwrap();
    metabox[256..256 + shared.len()].copy_from_slice(&shared);
    // The header, the id of the shared entry, an inline entry.
    let mut body = vec![0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0];
    encode_entry(1, b"own", b"1", &mut body).unwrap();
    let xattr_icount = icount(body.len()).unwrap();
    let inode = Meta { xattr_icount, ..image.file(DataLayout::FlatInline, 5, 0) };
    let epoch = kiln_format::inode::Epoch { secs: image.sb.epoch, nsec: image.sb.fixed_nsec };
    let inode = [&inode.encode(epoch, CompactTimes::Shared, BlockBits::DEFAULT).unwrap(), &body[..], b"hello"].concat();
    metabox[32..32 + inode.len()].copy_from_slice(&inode);
    metabox
}

/// An image whose file lies in the metabox, which is inline data of an ordinary inode.
fn with_metabox(change: impl FnOnce(&mut Handmade)) -> Vec<u8> {
    let mut image = Handmade::new(12);
    image.sb.incompat |= Incompat::METABOX;
    image.sb.compat |= Compat::SHARED_EA_IN_METABOX;
    image.sb.record_len = 144;
    image.sb.metabox_nid = Some(HELPER_NID);
    let contents = metabox(&image);
    let inode = image.file(DataLayout::FlatInline, contents.len() as u64, 0);
    image.inode(HELPER_NID, &inode, &contents);
    // Something at the file's ordinary place, so that the test can fail.
    let inode = image.file(DataLayout::FlatPlain, 0, 0);
    image.inode(FILE_NID, &inode, &[]);
    change(&mut image);
    let mut bytes = image.finish();
    let entry = (META_OFF + 64 + 24) as usize;
    bytes[entry..entry + 8].copy_from_slice(&(IN_METABOX | 1).to_le_bytes());
    bytes
}

#[test]
fn inodes_and_shared_attributes_in_the_metabox() {
    let image = open(with_metabox(|_| {}), vec![]).unwrap();
    let inode = image.resolve(b"/f", FollowLast::Keep).unwrap();
    assert_eq!(inode.nid, Nid(IN_METABOX | 1));
    assert_eq!(image.st_ino(inode.nid), 1 << 31 | 1);
    assert_eq!(contents(&image).unwrap(), b"hello");
    let xattr = |name: &[u8], value: &[u8]| Xattr { name: name.to_vec(), value: value.to_vec() };
    let expected = [xattr(b"user.own", b"1"), xattr(b"trusted.shared", b"one for all")];
    assert_eq!(image.list_xattrs(&inode).unwrap(), expected);
    let report = image.check(Threads::ONE).unwrap();
    assert_eq!(report.problem_count, 0, "{:?}", report.problems);
}

#[test]
fn the_metabox_is_not_inside_itself() {
    let mut bytes = with_metabox(|_| {});
    bytes[1024 + 128..][..8].copy_from_slice(&(IN_METABOX | 1).to_le_bytes());
    let options = ImageOptions::default().with_any_checksum();
    let opened = Image::open(Arc::new(MemorySource::new(bytes)), vec![], &options);
    assert!(opened.unwrap_err().is_corrupt());
}

#[test]
fn a_metabox_far_larger_than_the_image_is_refused() {
    let bytes = with_metabox(|image| {
        let hole = image.file(DataLayout::FlatPlain, 1 << 50, u32::MAX);
        image.inode(HELPER_NID, &hole, &[]);
    });
    let error = open(bytes, vec![]).unwrap_err();
    assert!(matches!(error, ReadError::Unsupported { .. }), "{error}");
}

/// Without the bit in the superblock, such a nid leads nowhere.
#[test]
fn nids_need_their_metabox() {
    let mut bytes = with_metabox(|_| {});
    bytes[1024 + 81] &= !1;
    let options = ImageOptions::default().with_any_checksum();
    let image = Image::open(Arc::new(MemorySource::new(bytes)), vec![], &options).unwrap();
    assert!(image.resolve(b"f", FollowLast::Keep).unwrap_err().is_corrupt());
}

/// A wrapper that forwards everything, as caches and counters do.
struct Forward(Arc<dyn ReadAt>);

impl ReadAt for Forward {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> std::io::Result<()> {
        self.0.read_exact_at(buf, off)
    }
    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> std::io::Result<()> {
        self.0.read_ranges(ranges)
    }
    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        self.0.borrow(off, len)
    }
    fn will_need(&self, off: u64, len: u64) {
        self.0.will_need(off, len);
    }
}

#[test]
fn conformance_is_open_to_other_crates() {
    let bytes = text(&mut Rng(4), 150_000);
    conformance::assert_conforms(&Forward(Arc::new(MemorySource::new(bytes.clone()))), &bytes);
}

/// Inodes of files in [`inodes`], and the length of their contents: with 64 bytes of inode, a block
/// of metadata for each.
const INODES: u64 = 4000;
const TAIL_LEN: usize = 3000;

fn inode_nid(idx: u64) -> Nid {
    Nid((1 + idx) * 4096 / 32)
}

fn tail(idx: u64) -> Vec<u8> {
    vec![idx as u8 | 1; TAIL_LEN]
}

/// An image of many files whose contents lie beside their inodes.
fn inodes() -> Vec<u8> {
    let mut image = Handmade::new(12);
    let inode = image.file(DataLayout::FlatInline, TAIL_LEN as u64, 0);
    (0..INODES).for_each(|idx| image.inode(inode_nid(idx), &inode, &tail(idx)));
    image.finish()
}

/// [`inodes`], and what is read of them. Opening reads some, which is forgotten.
fn noted(policy: ReadPolicy, cache_bytes: u64) -> (Arc<Noting>, Image) {
    let source = Noting::new(inodes());
    let options = ImageOptions::default().with_policy(policy).with_cache_bytes(cache_bytes);
    let image = Image::open(source.clone(), vec![], &options).unwrap();
    source.take();
    (source, image)
}

fn read_file(image: &Image, idx: u64) {
    let inode = image.inode(inode_nid(idx)).unwrap();
    assert!(read_whole(image, &inode).unwrap() == tail(idx), "{idx}");
}

fn sum(reads: &[Range<u64>]) -> u64 {
    reads.iter().map(|read| read.end - read.start).sum()
}

#[test]
fn files_here_and_there_cost_their_blocks_of_metadata() {
    for policy in [ReadPolicy::for_page_cache(), ReadPolicy::default()] {
        let (source, image) = noted(policy, 64 << 20);
        let mut rng = Rng(3);
        (0..200).for_each(|_| read_file(&image, rng.below(INODES)));
        let reads = source.take();
        assert!(reads.len() <= 200 && sum(&reads) < 200 * 4096 * 13 / 10, "{} in {}", sum(&reads), reads.len());
        assert!(source.announced.lock().unwrap().is_empty());
    }
}

#[test]
fn a_walk_over_all_inodes_fetches_metadata_once_in_large_reads() {
    let (source, image) = noted(ReadPolicy::for_page_cache(), 64 << 20);
    (0..INODES).for_each(|idx| read_file(&image, idx));
    let reads = source.take();
    // Each a quarter as long as what came before, up to 512 KiB.
    assert!(sum(&reads) <= (INODES + 128) * 4096, "{}", sum(&reads));
    assert!(reads.len() as u64 <= INODES / 128 + 32, "{}", reads.len());
    // In no order, all of it comes in fewer reads than there are inodes, and no more.
    let (source, image) = noted(ReadPolicy::for_page_cache(), 64 << 20);
    (0..INODES).for_each(|idx| read_file(&image, idx * 1009 % INODES));
    let reads = source.take();
    assert!(sum(&reads) <= (INODES + 128) * 4096, "{}", sum(&reads));
    assert!((reads.len() as u64) < INODES / 2, "{}", reads.len());
}

#[test]
fn metadata_is_kept_within_the_budget() {
    for (cache_bytes, budget) in [(64 << 20, 32 << 20), (8 << 20, 4 << 20), (1 << 20, 512 << 10), (0, 256 << 10)] {
        let (source, image) = noted(ReadPolicy::for_page_cache(), cache_bytes);
        (0..INODES).for_each(|idx| read_file(&image, idx));
        source.take();
        // Cached files cost no read, and no others are cached.
        let kept = (0..INODES).filter(|&idx| {
            let view = image.server().get_if_cached(inode_nid(idx), u64::MAX).unwrap();
            view.is_some_and(|view| *view == *tail(idx))
        });
        let kept = kept.count() as u64;
        assert_eq!(source.take(), []);
        assert!(kept * 4096 <= budget, "{kept} of {cache_bytes}");
        assert!(kept * 4096 >= budget.min(INODES * 4096) / 10 * 7, "{kept} of {cache_bytes}");
        (0..INODES).for_each(|idx| read_file(&image, idx));
        assert_eq!(source.take().is_empty(), kept == INODES, "{cache_bytes}");
    }
}

#[test]
fn tails_of_other_blocks_are_read_alone_and_not_kept() {
    let mut image = Handmade::new(12);
    let inode = image.file(DataLayout::FlatInline, TAIL_LEN as u64, 0);
    // The inode ends its block; the tail begins the next one.
    let nid = |idx: u64| Nid(((1 + idx * 64) * 4096 - 64) / 32);
    (1..20).for_each(|idx| image.inode(nid(idx), &inode, &tail(idx)));
    let source = Noting::new(image.finish());
    let image = Image::open(source.clone(), vec![], &ImageOptions::default()).unwrap();
    source.take();
    for idx in 1..20 {
        let at = Handmade::inode_off(nid(idx));
        let tail_read = at + 64..at + 64 + TAIL_LEN as u64;
        let inode = image.inode(nid(idx)).unwrap();
        let inode_read = at + 64 - 4096..at + 64;
        assert_eq!(source.take(), std::slice::from_ref(&inode_read));
        // The second time, the inode is known.
        for _ in 0..2 {
            let inode_again = image.inode(nid(idx)).unwrap();
            assert_eq!(inode_again, inode);
            assert!(read_whole(&image, &inode).unwrap() == tail(idx));
            assert_eq!(source.take(), std::slice::from_ref(&tail_read));
        }
    }
}
