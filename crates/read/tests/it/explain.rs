//! Explained costs of reads, compared with the real ones: a source that notes each read, and a
//! naive recount.

use crate::common::handmade::{DATA_OFF, FILE_NID, Handmade, encode};
use crate::common::noting::Noting;
use crate::common::{Golden, Rng, manifest, named, regular_files};
use kiln_format::chunk::ChunkEntry;
use kiln_format::compr_cfg::Algorithm;
use kiln_format::inode::{DataLayout, IndexKind, InodeData};
use kiln_format::zmap::{HeadKind, Lcluster};
use kiln_format::{Blkaddr, Incompat};
use kiln_read::{
    Cost, Decoding, Extent, ExtentKind, FileRange, Image, ImageOptions, Inode, ReadAt, ReadPiece, Threads,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// An image whose reads are noted, by device.
struct Noted {
    image: Image,
    sources: Vec<Arc<Noting>>,
}

/// Block numbers by device.
type Blocks = BTreeSet<(usize, u64)>;

impl Noted {
    fn open(golden: &Golden, cache_bytes: u64) -> Self {
        let mut sources = vec![Noting::new(golden.bytes())];
        sources.extend(golden.device_paths().iter().map(|path| Noting::new(std::fs::read(path).unwrap())));
        let extra = sources[1..].iter().map(|source| source.clone() as Arc<dyn ReadAt>).collect();
        let options = ImageOptions::default().with_cache_bytes(cache_bytes);
        let image = Image::open(sources[0].clone(), extra, &options).unwrap();
        Self { image, sources }
    }

    fn block_len(&self) -> u64 {
        self.image.superblock().block_bits.len()
    }

    /// The blocks that were read since this was last asked.
    fn fetched(&self) -> Blocks {
        let of_device = |(device, source): (usize, &Arc<Noting>)| {
            source.take().into_iter().flat_map(move |read| blocks(device, read, self.block_len()))
        };
        self.sources.iter().enumerate().flat_map(of_device).collect()
    }

    fn read(&self, inode: &Inode, range: &Range<u64>) {
        let mut buf = vec![0; range.end.saturating_sub(range.start) as usize];
        self.image.read_at(inode, &mut buf, range.start).unwrap();
    }

    fn explain(&self, inode: &Inode, range: &Range<u64>) -> (Vec<ReadPiece>, Cost) {
        let mut explanation = self.image.explain(inode, range.clone()).unwrap();
        let pieces: Vec<_> = explanation.by_ref().map(Result::unwrap).collect();
        assert!(explanation.next().is_none());
        (pieces, explanation.cost())
    }
}

fn blocks(device: usize, range: Range<u64>, block_len: u64) -> impl Iterator<Item = (usize, u64)> {
    (range.start / block_len..range.end.div_ceil(block_len)).map(move |block| (device, block))
}

fn some_range(rng: &mut Rng, size: u64) -> Range<u64> {
    let start = rng.below(size + 2);
    match rng.below(4) {
        0 => 0..size,
        1 => start..start + rng.below(200),
        _ => start..start + rng.below(100_000),
    }
}

fn is_inline(piece: &ReadPiece) -> bool {
    match piece.extent.kind {
        ExtentKind::Meta { .. } => true,
        ExtentKind::Plain { inline, .. } | ExtentKind::Encoded { inline, .. } => inline.is_some(),
        _ => false,
    }
}

/// The inline blocks of pieces in the image itself.
fn inline_blocks(noted: &Noted, pieces: &[ReadPiece]) -> Option<Blocks> {
    let mut found = Blocks::new();
    for piece in pieces.iter().filter(|piece| is_inline(piece)) {
        let (pa, len) = match piece.extent.kind {
            ExtentKind::Meta { in_metabox: true, .. } => return None,
            ExtentKind::Meta { pa, .. } => {
                let skip = piece.fragment.unwrap_or(piece.wanted.start) - piece.extent.la;
                (pa + skip, piece.wanted.end - piece.wanted.start)
            }
            ExtentKind::Encoded { inline: Some(kiln_read::MetadataSpace::Metabox), .. } => return None,
            ExtentKind::Encoded { pa, plen, .. } => (pa, plen.into()),
            _ => return None,
        };
        found.extend(blocks(0, pa..pa + len, noted.block_len()));
    }
    Some(found)
}

/// Returns true if a front of the pcluster may be enough.
fn is_lz4_front(piece: &ReadPiece) -> bool {
    matches!(piece.extent.kind, ExtentKind::Encoded { algorithm: Algorithm::Lz4, .. })
        && matches!(piece.decoding, Decoding::Prefix { .. })
}

/// Without a cache of decoded data, and with metadata in memory, a read fetches the blocks of data,
/// and nothing else; of LZ4 pclusters at most these.
#[test]
fn fetched_blocks_are_those_that_a_source_sees() {
    let (mut rng, mut fetches, mut inline, mut fronts) = (Rng(11), 0, 0, 0);
    for golden in manifest() {
        let noted = Noted::open(&golden, 0);
        for (path, inode) in regular_files(&noted.image) {
            for _ in 0..3 {
                let range = some_range(&mut rng, inode.meta.size);
                noted.read(&inode, &range);
                noted.fetched();
                let (pieces, cost) = noted.explain(&inode, &range);
                assert_eq!(noted.fetched(), Blocks::new(), "explaining reads no data");
                noted.read(&inode, &range);
                let seen = noted.fetched();
                let data: u64 = pieces.iter().filter(|piece| !is_inline(piece)).map(|piece| piece.fetched).sum();
                let at = || format!("{}: {} {range:?}: {pieces:?}", golden.name, path.escape_ascii());
                let seen_len = seen.len() as u64 * noted.block_len();
                fetches += u64::from(data > 0);
                if pieces.iter().any(is_lz4_front) {
                    assert!(seen_len <= data, "{seen_len}: {}", at());
                    fronts += u64::from(seen_len < data);
                    continue;
                }
                assert_eq!(data, seen_len, "{}", at());
                if let Some(beside) = inline_blocks(&noted, &pieces) {
                    assert_eq!(cost.fetched, (&seen | &beside).len() as u64 * noted.block_len(), "{}", at());
                    inline += u64::from(!beside.is_empty());
                }
            }
        }
    }
    assert!(fetches > 1000 && inline > 100 && fronts > 0, "{fetches} {inline} {fronts}");
}

/// The decoder's choice that `explain` reports shows in the hits of the next read.
#[test]
fn the_decoder_chooses_as_explained() {
    let (mut rng, mut whole, mut prefix, mut cached) = (Rng(12), 0, 0, 0);
    for name in ["lz4hc-64k", "zstd", "lzma", "deflate", "zstd-1m-frag", "48bit-zstd", "lz4-frag"] {
        let golden = named(name);
        for cache_bytes in [64 << 20, 300 << 10] {
            let plain = golden.open();
            let is_encoded = |inode: &Inode| {
                let mut extents = plain.extents(inode).map(Result::unwrap);
                extents.any(|e| matches!(e.kind, ExtentKind::Encoded { .. } | ExtentKind::Fragment { .. }))
            };
            for (_, inode) in regular_files(&plain).into_iter().filter(|(_, inode)| is_encoded(inode)) {
                let noted = Noted::open(&golden, cache_bytes);
                let range = some_range(&mut rng, inode.meta.size);
                let (pieces, _) = noted.explain(&inode, &range);
                let is_data = |piece: &&ReadPiece| !is_inline(piece) && piece.decoded > 0;
                let Some(piece) = pieces.iter().rfind(is_data) else { continue };
                noted.read(&inode, &range);
                noted.fetched();
                noted.read(&inode, &(piece.wanted.end - 1..piece.wanted.end));
                let is_kept = noted.fetched().is_empty();
                let is_all = piece.wanted.end - piece.wanted.start == piece.extent.llen;
                let is_front = piece.fragment.unwrap_or(piece.wanted.start) == piece.extent.la;
                let expected = match piece.decoding {
                    // A cache keeps nothing that is longer than a quarter of it.
                    Decoding::Whole => is_front && !is_all && piece.extent.llen <= cache_bytes / 4,
                    Decoding::Prefix { len } => {
                        prefix += 1;
                        assert_eq!(len, piece.decoded);
                        false
                    }
                    other => panic!("{other:?} with {} decoded bytes", piece.decoded),
                };
                (whole, cached) = (whole + u32::from(is_all), cached + u32::from(expected));
                assert_eq!(is_kept, expected, "{name}: {range:?} {piece:?}");
            }
        }
    }
    assert!(whole > 20 && prefix > 20 && cached > 4, "{whole} {prefix} {cached}");
}

/// The cost of decoding, and the pieces, recounted with the plainest means.
#[test]
fn pieces_cover_the_range_and_add_up() {
    let mut rng = Rng(13);
    for golden in manifest() {
        let image = golden.open();
        for (_, inode) in regular_files(&image) {
            let size = inode.meta.size;
            let mut ranges: Vec<_> = (0..6).map(|_| some_range(&mut rng, size)).collect();
            ranges.extend([0..0, 0..u64::MAX, size..size, u64::MAX..u64::MAX, size / 2..size / 2]);
            #[allow(clippy::reversed_empty_ranges)] // that is the test
            ranges.push(size..0);
            for range in ranges {
                let mut explanation = image.explain(&inode, range.clone()).unwrap();
                let pieces: Vec<_> = explanation.by_ref().map(Result::unwrap).collect();
                let cost = explanation.cost();
                let clipped = range.start.min(size)..range.end.min(size);
                assert_eq!(cost.wanted, clipped.end.saturating_sub(clipped.start));
                assert_eq!(cost.wanted, pieces.iter().map(|p| p.wanted.end - p.wanted.start).sum::<u64>());
                assert_eq!(cost.fetched, pieces.iter().map(|p| p.fetched).sum::<u64>());
                assert_eq!(cost.decoded, pieces.iter().map(|p| p.decoded).sum::<u64>());
                assert_eq!(cost.pieces, pieces.len() as u64);
                let encoded = pieces.iter().filter(|p| matches!(p.extent.kind, ExtentKind::Encoded { .. }));
                assert_eq!(cost.wanted_encoded, encoded.map(|p| p.wanted.end - p.wanted.start).sum::<u64>());
                assert!(cost.wasted() <= cost.decoded);
                assert_eq!(image.explain(&inode, range).unwrap().total().unwrap(), cost);
                let mut off = clipped.start;
                for piece in &pieces {
                    assert_eq!(piece.wanted.start, off);
                    off = piece.wanted.end;
                    check_piece(&image, &inode, piece);
                }
            }
        }
    }
}

fn check_piece(image: &Image, inode: &Inode, piece: &ReadPiece) {
    let len = piece.wanted.end - piece.wanted.start;
    match piece.fragment {
        None => assert_eq!(image.extent_at(inode, piece.wanted.start).unwrap(), piece.extent),
        Some(off) => {
            let extent = image.extent_at(inode, piece.wanted.start).unwrap();
            let ExtentKind::Fragment { off: start } = extent.kind else { panic!("{extent:?}") };
            assert_eq!(off, start + piece.wanted.start - extent.la);
            assert!(piece.extent.la <= off && off + len <= piece.extent.end());
        }
    }
    let skip = piece.fragment.unwrap_or(piece.wanted.start) - piece.extent.la;
    let expected = match piece.extent.kind {
        ExtentKind::Hole => (Decoding::Zeros, 0),
        ExtentKind::Raw { .. } | ExtentKind::Meta { .. } => (Decoding::Copy, 0),
        ExtentKind::Plain { .. } => (Decoding::Plain, 0),
        ExtentKind::Encoded { .. } if piece.decoding == Decoding::Cached => (Decoding::Cached, 0),
        ExtentKind::Encoded { .. } => {
            let front = skip + len;
            // Somewhere inside, or a small front: so far and no further. The front: more will be
            // wanted.
            let is_prefix = skip > 0 || front * 8 <= piece.extent.llen;
            match is_prefix && front < piece.extent.llen {
                true => (Decoding::Prefix { len: front }, front),
                false => (Decoding::Whole, piece.extent.llen),
            }
        }
        kind => panic!("a fragment is told as extents of the packed inode: {kind:?}"),
    };
    // Metadata in a compressed metabox adds what that decodes.
    match is_inline(piece) && inode.nid.in_metabox() {
        true => assert!(piece.decoding == expected.0 && piece.decoded >= expected.1),
        false => assert_eq!((piece.decoding, piece.decoded), expected),
    }
}

#[test]
fn extents_agree_with_lookups() {
    for golden in manifest() {
        let image = golden.open();
        let root = image.inode(image.root_nid()).unwrap();
        for entry in image.walk(&root, b"").map(Result::unwrap) {
            let inode = entry.inode;
            let mut extents = image.extents(&inode);
            if !inode.has_contents() {
                assert!(extents.next().unwrap().is_err());
            } else {
                let (mut off, mut expected) = (0, Vec::new());
                while off < inode.meta.size {
                    expected.push(image.extent_at(&inode, off).unwrap());
                    off = expected.last().map_or(off, Extent::end);
                }
                assert_eq!(extents.by_ref().map(Result::unwrap).collect::<Vec<_>>(), expected);
            }
            assert!(extents.next().is_none(), "nothing follows the end or an error");
        }
    }
}

/// Index bytes of whole files, from the layout's own rules.
#[test]
fn index_bytes_are_those_of_the_layout() {
    let mut seen = BTreeSet::new();
    for golden in manifest() {
        let image = golden.open();
        let block_len = image.superblock().block_bits.len();
        let has_records = image.superblock().incompat.contains(Incompat::ADDR_48BIT);
        for (_, inode) in regular_files(&image) {
            let meta = &inode.meta;
            let cost = image.explain(&inode, 0..meta.size).unwrap().total().unwrap();
            let blocks = meta.size.div_ceil(block_len);
            let has_fragment =
                image.extents(&inode).any(|extent| matches!(extent.unwrap().kind, ExtentKind::Fragment { .. }));
            let index = cost.metadata - meta.form.len() as u64;
            let name = (golden.name.as_str(), meta.layout().name());
            match meta.data {
                _ if has_fragment || meta.size == 0 => continue,
                InodeData::FlatPlain(_) | InodeData::FlatInline(_) => assert_eq!(index, 0),
                InodeData::ChunkBased(format) => {
                    let format = format.unwrap();
                    let entry = if format.entry == ChunkEntry::BlockMap { 4 } else { 8 };
                    assert_eq!(index, entry * meta.size.div_ceil(1 << format.chunk_bits));
                }
                // Perhaps encoded extents: a record for each.
                InodeData::Compressed { index: IndexKind::Full, .. } if has_records => {
                    assert!(index >= 8 + 4, "{name:?}")
                }
                InodeData::Compressed { index: IndexKind::Full, .. } => assert_eq!(index, 8 + 8 * blocks, "{name:?}"),
                InodeData::Compressed { index: IndexKind::Compact, .. } => {
                    assert!((8 + 2 * blocks..=8 + 4 * (blocks + 1)).contains(&index), "{name:?}: {index} for {blocks}");
                }
                InodeData::Device(_) | InodeData::Nothing => unreachable!("regular files"),
            }
            seen.insert(meta.layout().name());
        }
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}

/// A part of a file touches a part of its index.
#[test]
fn a_part_touches_less_than_the_whole() {
    for name in ["lz4", "lz4-legacy", "chunk-4k"] {
        let golden = named(name);
        let image = golden.open();
        let (_, inode) = regular_files(&image).into_iter().max_by_key(|(_, inode)| inode.meta.size).unwrap();
        let cost = |range| image.explain(&inode, range).unwrap().total().unwrap();
        let (whole, part) = (cost(0..inode.meta.size), cost(5000..5001));
        assert!(part.metadata < whole.metadata && part.fetched < whole.fetched, "{name}: {part:?} {whole:?}");
        assert!(part.fetch_amplification().unwrap() >= 4096.0);
        assert_eq!(cost(3..3).fetch_amplification(), None);
    }
}

/// A file of lclusters, of which each head names the same pcluster.
fn one_pcluster(entries: &[Lcluster], blkaddr_at: impl Fn(&mut Handmade) -> Blkaddr) -> Noted {
    let mut image = Handmade::new(12);
    let shared = blkaddr_at(&mut image);
    let mut body = vec![0; 16];
    body[6] = Algorithm::Zstd as u8;
    for entry in entries {
        let entry = match *entry {
            Lcluster::Head { kind, clusterofs, partial, .. } => {
                Lcluster::Head { kind, clusterofs, partial, blkaddr: shared }
            }
            nonhead => nonhead,
        };
        body.extend(entry.encode_full().unwrap());
    }
    let inode = image.file(DataLayout::CompressedFull, 4096 * entries.len() as u64, 0);
    image.inode(FILE_NID, &inode, &body);
    let source = Noting::new(image.finish());
    let image = Image::open(source.clone(), vec![], &ImageOptions::default()).unwrap();
    Noted { image, sources: vec![source] }
}

fn stream_block(image: &mut Handmade, contents: &[u8]) -> Blkaddr {
    let stream = encode(Algorithm::Zstd, contents);
    Blkaddr(image.append(&[vec![0; 4096 - stream.len()], stream].concat()) >> 12)
}

const HEAD: Lcluster = Lcluster::Head { kind: HeadKind::Head1, clusterofs: 0, blkaddr: Blkaddr(0), partial: true };

fn nonhead(back: u32, forward: u32) -> Lcluster {
    Lcluster::Nonhead { back, forward, cblkcnt: None }
}

/// Two extents that name one pcluster: who reads the end of the first and the front of the second
/// has two pieces of it.
#[test]
fn equal_neighbours_are_no_single_piece() {
    let contents: Vec<u8> = (0..20_000u32).map(|at| (at / 100) as u8).collect();
    let entries = [HEAD, nonhead(1, 1), HEAD, nonhead(1, 1)];
    let noted = one_pcluster(&entries, |image| stream_block(image, &contents));
    let inode = noted.image.inode(FILE_NID).unwrap();
    let expected = [&contents[8000..8192], &contents[..108]].concat();
    noted.image.read_many(&[FileRange { inode, range: 8000..8300 }], Threads::ONE, &|part| {
        assert_eq!(part.bytes.unwrap(), expected)
    });
    let mut buf = Vec::new();
    assert_eq!(*noted.image.view(&inode, 8000, 300, &mut buf).unwrap(), expected);
}

#[test]
fn a_shared_pcluster_is_fetched_and_kept_once() {
    let entries = [HEAD, nonhead(1, 1), HEAD, nonhead(1, 1)];
    let noted = one_pcluster(&entries, |image| stream_block(image, &[b'x'; 20_000]));
    let inode = noted.image.inode(FILE_NID).unwrap();
    let (pieces, cost) = noted.explain(&inode, &(100..16_000));
    let decodings = |pieces: Vec<ReadPiece>| pieces.into_iter().map(|p| p.decoding).collect::<Vec<_>>();
    // The first touch keeps nothing, the second does.
    assert_eq!(decodings(pieces), [Decoding::Whole, Decoding::Whole]);
    assert_eq!((cost.fetched, cost.decoded, cost.wasted()), (4096, 16_384, 484));
    noted.fetched();
    let data_reads = |noted: &Noted| {
        noted.read(&inode, &(100..16_000));
        noted.sources[0].take().iter().filter(|read| read.start >= DATA_OFF).count()
    };
    assert_eq!([data_reads(&noted), data_reads(&noted)], [2, 0]);
    // Whole extents go past the cache: fetched once by a device that keeps its blocks, decoded
    // each.
    let (_, cost) = noted.explain(&inode, &(0..16_384));
    assert_eq!((cost.fetched, cost.decoded), (4096, 16_384));
}

/// An index that leads back beyond a head would give an extent that ends before the byte that was
/// asked for.
#[test]
fn an_index_without_progress_is_an_error() {
    let noted = one_pcluster(&[HEAD, HEAD, nonhead(2, 1)], |image| stream_block(image, &[b'x'; 4096]));
    let inode = noted.image.inode(FILE_NID).unwrap();
    assert!(noted.image.explain(&inode, 9000..9001).unwrap().total().unwrap_err().is_corrupt());
}
