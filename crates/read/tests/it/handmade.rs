//! Random compressed files in every index format, written by the naive writer beside and read back.

use crate::common::handmade::{FILE_NID, HELPER_NID, Handmade, encode, text};
use crate::common::{Rng, read_whole};
use kiln_format::compr_cfg::Algorithm;
use kiln_format::inode::{DataLayout, Inode as Meta};
use kiln_format::zmap::{Advise, COMPACT_INDEX_OFF, CompactLayout, FULL_INDEX_OFF, HeadKind, Lcluster, MapHeader};
use kiln_format::{Blkaddr, Incompat};
use kiln_read::{ExtentKind, FollowLast, Image, ImageOptions, MemorySource, Threads};
use std::sync::Arc;

/// One extent of a file to be written.
struct Part {
    la: u64,
    plain: Vec<u8>,
    kind: HeadKind,
    partial: bool,
    /// The pcluster: whole blocks, or the bytes of an inline one.
    stored: Vec<u8>,
}

/// Properties of a random file.
struct Shape {
    block_bits: u8,
    lcluster_bits: u8,
    full: bool,
    advise: Advise,
    algorithms: [Algorithm; 2],
}

fn shape(rng: &mut Rng) -> Shape {
    let block_bits = [12, 9 + rng.below(8) as u8][rng.below(2) as usize];
    let full = rng.below(2) == 0;
    // Offsets in an lcluster have 16 bits, in a dense pack 12.
    let lcluster_bits = if full { (block_bits + rng.below(3) as u8).min(16) } else { block_bits.min(12) };
    let block_bits = if full { block_bits } else { lcluster_bits };
    let mut advise = Advise::empty();
    if rng.below(3) > 0 {
        advise |= Advise::BIG_PCLUSTER_1 | Advise::BIG_PCLUSTER_2;
    }
    if rng.below(3) == 0 {
        advise |= Advise::INTERLACED_PCLUSTER;
    }
    if !full && rng.below(3) > 0 {
        advise |= Advise::COMPACTED_2B_OR_EXTENTS;
    }
    let algorithms = [(); 2].map(|()| Algorithm::ALL[rng.below(4) as usize]);
    Shape { block_bits, lcluster_bits, full, advise, algorithms }
}

impl Shape {
    fn is_big(&self) -> bool {
        self.advise.contains(Advise::BIG_PCLUSTER_1)
    }

    /// The extent that starts at `la`.
    fn part(&self, rng: &mut Rng, la: u64) -> Part {
        let (block, lcluster) = (1usize << self.block_bits, 1usize << self.lcluster_bits);
        let kind = [HeadKind::Plain, HeadKind::Head1, HeadKind::Head2, HeadKind::Head1][rng.below(4) as usize];
        let algorithm = match kind {
            // Without big pclusters a plain extent has one block, and must reach the next lcluster.
            HeadKind::Plain if self.is_big() || lcluster == block => return self.plain_part(rng, la),
            HeadKind::Plain | HeadKind::Head1 => self.algorithms[0],
            HeadKind::Head2 => self.algorithms[1],
        };
        let kind = if kind == HeadKind::Plain { HeadKind::Head1 } else { kind };
        // Three lclusters, so that a nonhead follows the head and can say how many blocks there
        // are.
        let len = 3 * lcluster + rng.below(5 * lcluster as u64) as usize;
        let partial = self.full && rng.below(4) == 0;
        let plain = if self.is_big() { text(rng, len + 1000) } else { vec![b'a' + rng.below(26) as u8; len + 1000] };
        let stream = encode(algorithm, if partial { &plain } else { &plain[..len] });
        let stored = padded(stream, block);
        assert!(self.is_big() || stored.len() == block);
        Part { la, plain: plain[..len].to_vec(), kind, partial, stored }
    }

    fn plain_part(&self, rng: &mut Rng, la: u64) -> Part {
        let (block, lcluster) = (1u64 << self.block_bits, 1u64 << self.lcluster_bits);
        let len = match self.is_big() {
            true => 3 * lcluster + rng.below(2 * lcluster),
            false => {
                let least = lcluster - la % lcluster;
                least + rng.below(block - least + 1)
            }
        };
        let plain = text(rng, len as usize);
        let stored = if self.advise.contains(Advise::INTERLACED_PCLUSTER) {
            let rotated = block - la % block;
            let first = rotated.min(len) as usize;
            let plen = len.next_multiple_of(block);
            let mut stored = vec![0; plen as usize];
            stored[(plen - rotated) as usize..][..first].copy_from_slice(&plain[..first]);
            stored[..plain.len() - first].copy_from_slice(&plain[first..]);
            stored
        } else {
            let mut stored = plain.clone();
            stored.resize(plain.len().next_multiple_of(block as usize), 0);
            stored
        };
        Part { la, plain, kind: HeadKind::Plain, partial: false, stored }
    }

    fn header(&self, advise: Advise, fragment_off: u32, idata_len: u16) -> [u8; 8] {
        let header = MapHeader {
            advise: self.advise | advise,
            algorithms: self.algorithms.map(|algorithm| algorithm as u8),
            lcluster_bits: self.lcluster_bits,
            fragment_off,
            idata_len,
            extent_count: 0,
        };
        header.encode(kiln_format::BlockBits::new(self.block_bits).unwrap()).unwrap()
    }

    /// An entry for each lcluster; `addrs` are the blocks of the parts.
    fn entries(&self, rng: &mut Rng, parts: &[Part], addrs: &[u64], size: u64) -> Vec<Lcluster> {
        let lcluster = 1u64 << self.lcluster_bits;
        let count = size.div_ceil(lcluster);
        let head_lcn = |part: &Part| part.la / lcluster;
        let entry = |lcn: u64| {
            if let Some(k) = parts.iter().position(|part| head_lcn(part) == lcn) {
                let clusterofs = (parts[k].la % lcluster) as u32;
                let (kind, partial) = (parts[k].kind, parts[k].partial);
                return Lcluster::Head { kind, clusterofs, blkaddr: Blkaddr(addrs[k]), partial };
            }
            let next = parts.partition_point(|part| head_lcn(part) < lcn);
            let head = &parts[next - 1];
            let back = (lcn - head_lcn(head)) as u32;
            let blocks = (head.stored.len() >> self.block_bits) as u32;
            let forward = parts.get(next).map_or(count, head_lcn) - lcn;
            let cblkcnt = (self.is_big() && back == 1).then_some(blocks);
            Lcluster::Nonhead { back, forward: forward as u32, cblkcnt }
        };
        let mut entries: Vec<_> = (0..count).map(entry).collect();
        // The marker at the end is what builders write; kernels need it only behind plain extents.
        // A count of blocks may be in its place.
        let last = parts.last().unwrap();
        let is_free = head_lcn(last) + 2 < count || (head_lcn(last) + 1 < count && !self.is_big());
        if !size.is_multiple_of(lcluster) && is_free && (last.kind == HeadKind::Plain || rng.below(3) > 0) {
            let clusterofs = (size % lcluster) as u32;
            let marker = Lcluster::Head { kind: HeadKind::Plain, clusterofs, blkaddr: Blkaddr(0), partial: false };
            *entries.last_mut().unwrap() = marker;
            for (lcn, entry) in entries.iter_mut().enumerate().skip(head_lcn(last) as usize) {
                if let Lcluster::Nonhead { forward, .. } = entry {
                    *forward = (count - 1) as u32 - lcn as u32;
                }
            }
        }
        entries
    }

    /// Put the index behind the inode; returns where it ends.
    fn index(&self, entries: Vec<Lcluster>, header: [u8; 8], size: u64) -> Vec<u8> {
        let mut body = header.to_vec();
        if self.full {
            body.resize(FULL_INDEX_OFF as usize, 0);
            body.extend(entries.iter().flat_map(|entry| entry.encode_full().unwrap()));
        } else {
            let table = Handmade::inode_off(FILE_NID) + 64 + COMPACT_INDEX_OFF;
            let (blocks, count) = (size.div_ceil(1 << self.block_bits), entries.len() as u64);
            CompactLayout::new(table, blocks, count, self.lcluster_bits, self.advise)
                .unwrap()
                .encode(entries.into_iter(), &mut body)
                .unwrap();
        }
        body
    }

    fn layout(&self) -> DataLayout {
        if self.full { DataLayout::CompressedFull } else { DataLayout::CompressedCompact }
    }
}

/// A stream, right-aligned in whole blocks.
fn padded(stream: Vec<u8>, block: usize) -> Vec<u8> {
    let padding = stream.len().next_multiple_of(block) - stream.len();
    [vec![0; padding], stream].concat()
}

fn open(bytes: Vec<u8>) -> Image {
    Image::open(Arc::new(MemorySource::new(bytes)), vec![], &ImageOptions::default()).unwrap()
}

/// The file reads as `expected`, whole and in pieces, and the image has no problems.
fn reads_as(image: &Image, expected: &[u8], rng: &mut Rng) {
    let inode = image.resolve(b"/f", FollowLast::Keep).unwrap();
    assert_eq!(inode.meta.size, expected.len() as u64);
    let whole = read_whole(image, &inode).unwrap();
    assert!(whole == expected, "differs at {:?}", whole.iter().zip(expected).position(|(a, b)| a != b));
    for _ in 0..20 {
        let off = rng.below(expected.len() as u64) as usize;
        let mut buf = vec![0; rng.below(30_000) as usize];
        let len = image.read_at(&inode, &mut buf, off as u64).unwrap();
        assert!(buf[..len] == expected[off..off + len], "range {off}+{len} differs");
        let extent = image.extent_at(&inode, off as u64).unwrap();
        assert_eq!(extent, image.extent_at(&inode, extent.la).unwrap());
        assert_eq!(extent, image.extent_at(&inode, extent.end() - 1).unwrap());
    }
    let report = image.check(Threads::ONE).unwrap();
    assert_eq!(report.problem_count, 0, "{:?}", report.problems.iter().map(ToString::to_string).collect::<Vec<_>>());
}

/// Form in which the last extent of a file is stored.
#[derive(Clone, Copy, PartialEq)]
enum Tail {
    Pcluster,
    Inline,
    Fragment,
}

fn random_file(seed: u64, tail: Tail) {
    let rng = &mut Rng(seed);
    let shape = shape(rng);
    let mut parts = Vec::new();
    let mut size = 0;
    for _ in 0..1 + rng.below(12) {
        let part = shape.part(rng, size);
        size += part.plain.len() as u64;
        parts.push(part);
    }
    let mut image = Handmade::new(shape.block_bits);
    if tail != Tail::Pcluster && parts.last().unwrap().kind == HeadKind::Plain {
        // A fragment has the type of an encoded extent, and an inline plain one does not go with
        // rotation.
        return;
    }
    let expected: Vec<u8> = parts.iter().flat_map(|part| part.plain.clone()).collect();
    let last = parts.last_mut().unwrap();
    let stream = match tail {
        Tail::Pcluster => Vec::new(),
        Tail::Inline => {
            let padding = last.stored.iter().position(|&byte| byte != 0).unwrap();
            let stream = last.stored.split_off(padding);
            last.stored = vec![0; 1 << shape.block_bits];
            stream
        }
        Tail::Fragment => last.plain.clone(),
    };
    let mut addrs = Vec::new();
    for (idx, part) in parts.iter().enumerate() {
        let is_special = tail != Tail::Pcluster && idx + 1 == parts.len();
        if shape.full && rng.below(4) == 0 {
            image.append(&vec![0xEE; 1 << shape.block_bits]);
        }
        addrs.push(image.next >> shape.block_bits);
        if !is_special {
            image.append(&part.stored);
        }
    }
    let entries = shape.entries(rng, &parts, &addrs, size);
    let fragment_off = rng.below(5000);
    let mut body = match tail {
        Tail::Pcluster => shape.index(entries, shape.header(Advise::empty(), 0, 0), size),
        Tail::Inline => shape.index(entries, shape.header(Advise::INLINE_PCLUSTER, 0, stream.len() as u16), size),
        Tail::Fragment => {
            let high = if shape.full { 3u64 } else { 0 };
            packed(&mut image, high << 32 | fragment_off, &stream);
            let mut entries = entries;
            let head = entries
                .iter_mut()
                .rev()
                .find(|entry| matches!(entry, Lcluster::Head { kind: HeadKind::Head1 | HeadKind::Head2, .. }));
            if let (Some(Lcluster::Head { blkaddr, .. }), true) = (head, shape.full) {
                *blkaddr = Blkaddr(high);
            }
            shape.index(entries, shape.header(Advise::FRAGMENT_PCLUSTER, fragment_off as u32, 0), size)
        }
    };
    if tail == Tail::Inline {
        let at = Handmade::inode_off(FILE_NID) + 64 + body.len() as u64;
        if at % image.block_len() + stream.len() as u64 > image.block_len() {
            return;
        }
        body.extend(&stream);
    }
    if shape.advise.contains(Advise::INTERLACED_PCLUSTER) || parts.iter().any(|part| part.partial) {
        image.sb.incompat |= Incompat::FRAGMENTS;
    }
    let inode = image.file(shape.layout(), size, 0);
    image.inode(FILE_NID, &inode, &body);
    reads_as(&open(image.finish()), &expected, rng);
}

/// A packed inode that holds `contents` at `off`: chunks of 2 GiB, with holes in front.
fn packed(image: &mut Handmade, off: u64, contents: &[u8]) {
    const CHUNK_BITS: u8 = 31;
    image.sb.incompat |= Incompat::FRAGMENTS;
    image.sb.packed_nid = Some(HELPER_NID);
    let chunk = off >> CHUNK_BITS;
    image.align();
    let start = (image.next >> image.sb.block_bits.bits()) as u32;
    image.append(&vec![0x77; (off % (1 << CHUNK_BITS)) as usize]);
    image.append(contents);
    image.align();
    let mut table = vec![0xFF; 4 * chunk as usize];
    table.extend(start.to_le_bytes());
    let format = u32::from(CHUNK_BITS - image.sb.block_bits.bits());
    let inode = image.file(DataLayout::ChunkBased, off + contents.len() as u64, format);
    image.inode(HELPER_NID, &inode, &table);
}

#[test]
fn lcluster_indexes() {
    for seed in 1..100 {
        random_file(seed, Tail::Pcluster);
    }
}

#[test]
fn lcluster_indexes_with_inline_pclusters() {
    for seed in 1000..1060 {
        random_file(seed, Tail::Inline);
    }
}

#[test]
fn lcluster_indexes_with_fragments() {
    for seed in 2000..2060 {
        random_file(seed, Tail::Fragment);
    }
}

/// One record of encoded extents, all fields.
struct Record {
    la: u64,
    word: u32,
    pa: u64,
}

/// The map of a file in encoded extents.
struct RecordTable<'a> {
    /// Bytes of a record.
    rec: u64,
    lcluster_bits: u8,
    advise: u16,
    records: &'a [Record],
}

/// Write a file with this table and read it.
fn encoded_file(mut image: Handmade, table: RecordTable<'_>, expected: &[u8], rng: &mut Rng) {
    let RecordTable { rec, lcluster_bits, advise, records } = table;
    let count = if rec >= 16 { records.len() as u32 } else { 0 };
    let size_bits = (rec / 4).ilog2() as u16;
    let mut body = count.to_le_bytes().to_vec();
    body.extend((1 | size_bits << 1 | advise).to_le_bytes());
    // With larger records these are the high bits of the count.
    body.extend(if rec <= 8 { [0, lcluster_bits - image.sb.block_bits.bits()] } else { [0, 0] });
    let start = Handmade::inode_off(FILE_NID) + 64;
    body.resize(((start + 8).next_multiple_of(rec) - start) as usize, 0);
    if rec == 4 {
        body.extend(records.iter().find(|r| r.pa != 0).map_or(0, |r| r.pa).to_le_bytes());
    }
    for record in records {
        body.extend(record.word.to_le_bytes());
        match rec {
            4 => {}
            8 => body.extend((record.pa as u32).to_le_bytes()),
            _ => {
                body.extend(record.pa.to_le_bytes());
                body.extend((record.la as u32).to_le_bytes());
                if rec == 32 {
                    body.extend(((record.la >> 32) as u32).to_le_bytes());
                    body.extend([0; 12]);
                }
            }
        }
    }
    let inode = image.file(DataLayout::CompressedFull, expected.len() as u64, 0);
    image.inode(FILE_NID, &inode, &body);
    reads_as(&open(image.finish()), expected, rng);
}

fn random_records(seed: u64, rec: u64) {
    let rng = &mut Rng(seed);
    let mut image = Handmade::new(9 + rng.below(8) as u8);
    let lcluster_bits = image.sb.block_bits.bits() + rng.below(3) as u8;
    let (mut expected, mut records) = (Vec::new(), Vec::new());
    let count = 1 + rng.below(40);
    for idx in 0..count {
        let la = expected.len() as u64;
        let is_last = idx + 1 == count;
        let fixed = 1u64 << lcluster_bits;
        let len = if rec > 8 {
            1 + rng.below(50_000)
        } else if is_last {
            1 + rng.below(fixed)
        } else {
            fixed
        } as usize;
        let plain = text(rng, len);
        if rec > 4 && rng.below(3) == 0 {
            // Addresses are bytes; in tables of 4-byte records one pcluster follows the other.
            image.append(&[0xEE; 13]);
        }
        // Streams of next to nothing are longer than what they encode.
        match rng.below(if len < 100 { 2 } else { 5 }) {
            0 => {
                records.push(Record { la, word: 0, pa: 0 });
                expected.extend(vec![0; len]);
            }
            1 => {
                let pa = image.append(&plain);
                records.push(Record { la, word: len as u32, pa });
                expected.extend(&plain);
            }
            _ => {
                let algorithm = Algorithm::ALL[rng.below(4) as usize];
                let partial = rng.below(4) == 0;
                let more = if partial { text(rng, 100) } else { Vec::new() };
                let stream = encode(algorithm, &[&plain[..], &more].concat());
                let word = stream.len() as u32 | u32::from(partial) << 27 | (algorithm as u32 + 1) << 28;
                let pa = image.append(&stream);
                records.push(Record { la, word, pa });
                expected.extend(&plain);
            }
        }
    }
    // Partial references are announced by this bit.
    image.sb.incompat |= Incompat::FRAGMENTS;
    let table = RecordTable { rec, lcluster_bits, advise: 0, records: &records };
    encoded_file(image, table, &expected, rng);
}

#[test]
fn encoded_extents_of_every_record_size() {
    for rec in [4, 8, 16, 32] {
        for seed in 1..25 {
            random_records(rec * 1000 + seed, rec);
        }
    }
}

/// The address of a 4-byte record is a sum: behind several strides of sums it is still right, in
/// any order of lookups.
#[test]
fn many_short_records() {
    let rng = &mut Rng(5);
    let mut image = Handmade::new(9);
    let (mut records, mut expected) = (Vec::new(), Vec::new());
    for idx in 0..20_000u64 {
        let plain = vec![idx as u8 | 1; 512];
        let len = if idx % 3 == 0 { 0 } else { 512 };
        let pa = if len > 0 { image.append(&plain) } else { 0 };
        records.push(Record { la: 512 * idx, word: len, pa });
        expected.extend(if len > 0 { plain } else { vec![0; 512] });
    }
    encoded_file(image, RecordTable { rec: 4, lcluster_bits: 9, advise: 0, records: &records }, &expected, rng);
}

#[test]
fn encoded_extents_with_a_fragment() {
    for rec in [4, 8, 16, 32] {
        let rng = &mut Rng(rec);
        let mut image = Handmade::new(12);
        let first = text(rng, 8192);
        let pa = image.append(&first);
        let tail = text(rng, 3000);
        let off = if rec == 4 { 4000 } else { 5 << 32 | 4000 };
        packed(&mut image, off, &tail);
        let records = [Record { la: 0, word: 8192, pa }, Record { la: 8192, word: off as u32, pa: off >> 32 }];
        let table = RecordTable { rec, lcluster_bits: 13, advise: Advise::FRAGMENT_PCLUSTER.bits(), records: &records };
        encoded_file(image, table, &[first, tail].concat(), rng);
    }
}

/// Before the first record, and without any, there is a hole.
#[test]
fn missing_records_are_holes() {
    let rng = &mut Rng(9);
    let mut image = Handmade::new(12);
    let plain = text(rng, 5000);
    let pa = image.append(&plain);
    let expected = [&vec![0; 7000][..], &plain].concat();
    let records = [Record { la: 7000, word: 5000, pa }];
    encoded_file(image, RecordTable { rec: 16, lcluster_bits: 12, advise: 0, records: &records }, &expected, rng);
    let table = RecordTable { rec: 32, lcluster_bits: 12, advise: 0, records: &[] };
    encoded_file(Handmade::new(12), table, &[0; 10_000], rng);
}

/// A file stored in encoded extents of this many bytes of zeros.
fn plain_image(make: impl FnOnce(&mut Handmade) -> (Meta, Vec<u8>), expected: &[u8]) {
    let mut image = Handmade::new(12);
    let (inode, body) = make(&mut image);
    image.inode(FILE_NID, &inode, &body);
    reads_as(&open(image.finish()), expected, &mut Rng(3));
}

#[test]
fn flat_files_with_holes_and_wide_addresses() {
    // A hole over all of the file.
    let hole = |image: &mut Handmade| {
        let inode = image.file(DataLayout::FlatPlain, 100_000, u32::MAX);
        (inode, Vec::new())
    };
    plain_image(hole, &[0; 100_000]);
    // Whole-file fragments.
    let contents = text(&mut Rng(8), 9000);
    let fragment = |image: &mut Handmade| {
        packed(image, 7 << 31 | 123, &contents);
        (image.file(DataLayout::CompressedFull, 9000, 0), (1u64 << 63 | 7 << 31 | 123).to_le_bytes().to_vec())
    };
    plain_image(fragment, &contents);
    // Chunks with 48-bit indexes: data, hole, data.
    let chunks = |image: &mut Handmade| {
        let first = image.append(&contents[..4096]) >> 12;
        let second = image.append(&contents[4096..]) >> 12;
        let entry = |blkaddr: u64| {
            [&((blkaddr >> 32) as u16).to_le_bytes()[..], &[7, 0], &(blkaddr as u32).to_le_bytes()].concat()
        };
        let body = [entry(first), entry((1 << 48) - 1), entry(second), entry(second + 1)].concat();
        (image.file(DataLayout::ChunkBased, 4096 * 2 + (9000 - 4096), 0x60), body)
    };
    plain_image(chunks, &[&contents[..4096], &[0; 4096], &contents[4096..]].concat());
}

/// Images from before Linux 5.4: the stream lies at the front of its block.
#[test]
fn lz4_without_padding_in_front() {
    let contents = text(&mut Rng(8), 9000);
    let mut image = Handmade::new(12);
    image.sb.incompat = Incompat::ADDR_48BIT;
    image.sb.compr_info = kiln_format::superblock::ComprInfo::Lz4MaxDistance(65535);
    let mut expected = Vec::new();
    let mut body = vec![0; 16];
    for (idx, plain) in [&contents[..6000], &contents[6000..]].into_iter().enumerate() {
        let stream = encode(Algorithm::Lz4, plain);
        assert!(stream.len() <= 4096);
        let blkaddr = Blkaddr(image.append(&stream) >> 12);
        image.align();
        let clusterofs = (idx * (6000 - 4096)) as u32;
        let head = Lcluster::Head { kind: HeadKind::Head1, clusterofs, blkaddr, partial: false };
        body.extend(head.encode_full().unwrap());
        expected.extend(plain);
    }
    body.extend(Lcluster::Nonhead { back: 1, forward: 1, cblkcnt: None }.encode_full().unwrap());
    let inode = image.file(DataLayout::CompressedFull, 9000, 0);
    image.inode(FILE_NID, &inode, &body);
    reads_as(&open(image.finish()), &expected, &mut Rng(3));
}

/// A count of 0 blocks counts as 1.
#[test]
fn a_pcluster_of_no_blocks_has_one() {
    let contents = vec![b'x'; 20_000];
    let mut image = Handmade::new(12);
    let blkaddr = Blkaddr(image.append(&padded(encode(Algorithm::Zstd, &contents), 4096)) >> 12);
    let head = Lcluster::Head { kind: HeadKind::Head1, clusterofs: 0, blkaddr, partial: false };
    let mut body = vec![0; 16];
    body[4] = Advise::BIG_PCLUSTER_1.bits() as u8;
    body[6] = Algorithm::Zstd as u8;
    body.extend(head.encode_full().unwrap());
    for back in 1..5u16 {
        let delta0 = if back == 1 { 0x800 } else { back };
        body.extend([&[2, 0, 0, 0][..], &delta0.to_le_bytes(), &(5 - back).to_le_bytes()].concat());
    }
    let inode = image.file(DataLayout::CompressedFull, 20_000, 0);
    image.inode(FILE_NID, &inode, &body);
    let image = open(image.finish());
    let inode = image.resolve(b"f", FollowLast::Keep).unwrap();
    let extent = image.extent_at(&inode, 12345).unwrap();
    assert!(matches!(extent.kind, ExtentKind::Encoded { plen: 4096, .. }), "{extent:?}");
    reads_as(&image, &contents, &mut Rng(3));
}

/// Without a marker, a plain extent at the end of a file reaches the end of its lcluster. Linux
/// 6.18 refuses to read one that is then longer than its pcluster.
#[test]
fn a_plain_end_needs_its_marker() {
    for marked in [true, false] {
        let contents = text(&mut Rng(8), 8192 + 100);
        let mut image = Handmade::new(12);
        let stream = encode(Algorithm::Lz4, &contents[..5000]);
        let blocks = [image.append(&padded(stream, 4096)), image.append(&contents[5000..])].map(|at| Blkaddr(at >> 12));
        let head = |kind, clusterofs, blkaddr| Lcluster::Head { kind, clusterofs, blkaddr, partial: false };
        let end = match marked {
            true => head(HeadKind::Plain, 100, Blkaddr(0)),
            false => Lcluster::Nonhead { back: 1, forward: 1, cblkcnt: None },
        };
        let entries = [head(HeadKind::Head1, 0, blocks[0]), head(HeadKind::Plain, 5000 - 4096, blocks[1]), end];
        let body = [vec![0; 16], entries.iter().flat_map(|entry| entry.encode_full().unwrap()).collect()].concat();
        let inode = image.file(DataLayout::CompressedFull, 8292, 0);
        image.inode(FILE_NID, &inode, &body);
        let image = open(image.finish());
        if marked {
            reads_as(&image, &contents, &mut Rng(3));
            continue;
        }
        let inode = image.resolve(b"f", FollowLast::Keep).unwrap();
        assert!(image.extent_at(&inode, 5000).unwrap_err().is_corrupt());
        assert_eq!(image.extent_at(&inode, 4999).unwrap().llen, 5000);
    }
}
