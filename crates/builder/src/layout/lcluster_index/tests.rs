//! Laws of the index: the plainest possible reader gets back what was encoded.

use super::*;
use kiln_format::inode::IndexKind;
use kiln_format::zmap::{DELTA_MAX, ZmapHeader};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

const BITS: BlockBits = BlockBits::DEFAULT;
const BLOCK: u32 = 4096;

/// An extent of a shape that the builder makes.
#[derive(Clone, Copy, Debug)]
enum Made {
    /// Saves at least a block: number of blocks stored, and bytes of text beyond their length.
    Encoded { blocks: u16, more: u32 },
    /// A block, or less at the end of the file.
    Plain,
    /// Whole blocks of zeros, all in the same pcluster.
    Zeros { blocks: u32, partial: bool },
}

fn encoded(most: u16) -> impl Strategy<Value = Made> {
    // The longest are beyond the distances that an entry holds.
    let more = prop_oneof![4 => 1..20_000_u32, 2 => 1..300_000_u32, 1 => 8_000_000..11_000_000_u32];
    let more = prop_oneof![5 => more, 1 => select(vec![1, 4095, 4096, 4097])];
    (1..=most, more).prop_map(|(blocks, more)| Made::Encoded { blocks, more })
}

/// Generates the shape of a file's index, and its extents.
fn file() -> impl Strategy<Value = (IndexShape, Vec<ZExtent>)> {
    (any::<bool>(), any::<bool>()).prop_flat_map(|(big, scattered)| {
        let most = if big { 256 } else { 1 };
        let zeros = (1..300_u32, any::<bool>()).prop_map(|(blocks, partial)| Made::Zeros { blocks, partial });
        let one = match scattered {
            true => prop_oneof![4 => encoded(most), 2 => Just(Made::Plain), 2 => zeros].boxed(),
            false => prop_oneof![2 => encoded(most), 1 => Just(Made::Plain)].boxed(),
        };
        let list = prop_oneof![vec(one.clone(), 1..5), vec(one, 1..100)];
        (list, 1..=BLOCK, 8..u32::MAX - 100_000).prop_map(move |(made, last, start)| {
            let (extents, len) = place(&made, last, start);
            (IndexShape { len, block_bits: BITS, big, scattered, end: MapEnd::Stored }, extents)
        })
    })
}

/// Places extents in sequence, their blocks from `start` on. A plain one at the end has `last` bytes.
fn place(made: &[Made], last: u32, start: u32) -> (Vec<ZExtent>, u64) {
    let (mut extents, mut next, mut len) = (Vec::new(), start, 0);
    let mut put = |llen, blocks, kind| {
        let (pa, plen) = (u64::from(next) * u64::from(BLOCK), u32::from(blocks) * BLOCK);
        extents.push(ZExtent { la: len, llen, plen, pa, kind, partial: false });
        next += u32::from(blocks);
        len += u64::from(llen);
        len
    };
    let mut end = 0;
    let mut zeros = Vec::new();
    for (idx, one) in made.iter().enumerate() {
        end = match *one {
            Made::Encoded { blocks, more } => put(u32::from(blocks) * BLOCK + more, blocks, HeadKind::Head1),
            Made::Plain => put(if idx + 1 == made.len() { last } else { BLOCK }, 1, HeadKind::Plain),
            Made::Zeros { blocks, partial } => {
                // Text before a hole ends at a block boundary.
                let within = BITS.within(end) as u32;
                if within > 0 {
                    end = put(2 * BLOCK - within, 1, HeadKind::Head1);
                }
                zeros.push((end, partial));
                put(blocks * BLOCK, 1, HeadKind::Head1)
            }
        };
    }
    for extent in &mut extents {
        if let Ok(idx) = zeros.binary_search_by_key(&extent.la, |(start, _)| *start) {
            (extent.pa, extent.partial) = (7 * u64::from(BLOCK), zeros[idx].1);
        }
    }
    (extents, end)
}

/// Reads the entries of an index behind the body at `body_off` one by one.
fn entries(bytes: &[u8], body_off: usize, shape: IndexShape) -> Vec<Lcluster> {
    let header_off = body_off.next_multiple_of(8);
    let header = bytes[header_off..][..8].try_into().unwrap();
    let header =
        ZmapHeader::decode(&header, 0, BITS, if shape.scattered { IndexKind::Full } else { IndexKind::Compact })
            .unwrap();
    let ZmapHeader::Map(MapHeader { advise, lcluster_bits, algorithms, .. }) = header else { panic!("a fragment") };
    assert_eq!((lcluster_bits, algorithms[0]), (BITS.bits(), Algorithm::Zstd as u8));
    assert_eq!(advise.contains(Advise::BIG_PCLUSTER_1), shape.big);
    let count = shape.len.div_ceil(BLOCK.into());
    if shape.scattered {
        assert!(!advise.contains(Advise::COMPACTED_2B_OR_EXTENTS));
        let table = &bytes[header_off + FULL_INDEX_OFF as usize..];
        return (0..count as usize)
            .map(|lcn| Lcluster::decode_full(table[8 * lcn..][..8].try_into().unwrap()))
            .collect();
    }
    let table_off = header_off as u64 + COMPACT_INDEX_OFF;
    let layout = CompactLayout::new(table_off, count, count, lcluster_bits, advise).unwrap();
    assert_eq!(layout.end_off(), bytes.len() as u64);
    let entry = |lcn| {
        let pack = layout.pack_of(lcn);
        let bytes = &bytes[pack.off as usize..][..pack.len];
        layout.decode_pack(pack, bytes).unwrap().get((lcn - pack.first) as usize)
    };
    (0..count).map(entry).collect()
}

/// Derives extents from the heads alone: each ends at the start of the next one, and has the blocks that its head
/// names.
fn extents_of(entries: &[Lcluster], len: u64) -> Vec<ZExtent> {
    let mut heads = Vec::new();
    for (lcn, entry) in entries.iter().enumerate() {
        if let Lcluster::Head { kind, clusterofs, blkaddr, partial } = *entry {
            let blocks = match entries.get(lcn + 1) {
                Some(Lcluster::Nonhead { cblkcnt: Some(blocks), .. }) => *blocks,
                _ => 1,
            };
            let la = lcn as u64 * u64::from(BLOCK) + u64::from(clusterofs);
            let (pa, plen) = (blkaddr.0 * u64::from(BLOCK), blocks * BLOCK);
            heads.push((la, ZExtent { la, llen: 0, plen, pa, kind, partial }));
        }
    }
    // The end marker is not an extent.
    heads.retain(|(la, _)| *la < len);
    let ends: Vec<u64> = heads.iter().skip(1).map(|(la, _)| *la).chain([len]).collect();
    let extents = heads.iter().zip(ends).map(|((la, extent), end)| ZExtent { llen: (end - la) as u32, ..*extent });
    extents.collect()
}

/// Checks that distances lead from every entry to its head, and never beyond the next one.
fn distances_lead_to_heads(entries: &[Lcluster], scattered: bool) {
    let is_head = |lcn: usize| matches!(entries[lcn], Lcluster::Head { .. });
    let mut head = 0;
    for (lcn, entry) in entries.iter().enumerate() {
        match *entry {
            Lcluster::Head { .. } => head = lcn,
            Lcluster::Nonhead { back, forward, cblkcnt } => {
                assert_eq!(cblkcnt.is_some(), cblkcnt.is_some() && lcn == head + 1);
                assert!(back >= 1 && back as usize <= lcn - head, "{back} back from {lcn}, head {head}");
                assert!(back >= DELTA_MAX || lcn - back as usize == head, "{back} back from {lcn}, head {head}");
                // Compact packs hold it for their last entry only; elsewhere it is a lower bound.
                let way = (lcn + 1..lcn + forward as usize).all(|lcn| lcn < entries.len() && !is_head(lcn));
                assert!(forward >= 1 && way, "{forward} forward from {lcn}");
                let lands =
                    entries.get(lcn + forward as usize).is_none_or(|entry| matches!(entry, Lcluster::Head { .. }));
                assert!(!scattered || forward == DELTA_MAX || lands, "{forward} forward from {lcn}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500, rng_seed: RngSeed::Fixed(0x21DE), failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn extents_come_back(
        (shape, extents) in file(),
        form in select(vec![32_usize, 64]),
        xattrs in prop_oneof![Just(0_usize), (0..300_usize).prop_map(|n| 12 + 4 * n)],
    ) {
        let body_off = form + xattrs;
        let mut bytes = vec![0xEE; body_off];
        encode(shape, Algorithm::Zstd, &extents, &mut bytes).unwrap();
        prop_assert_eq!(len_behind(body_off as u64, shape).unwrap(), (bytes.len() - body_off) as u64);
        let behind_body = bytes.len() - body_off.next_multiple_of(8);
        prop_assert!(behind_body <= index_len(shape).unwrap() as usize, "{behind_body} bytes");
        let entries = entries(&bytes, body_off, shape);
        prop_assert_eq!(extents_of(&entries, shape.len), extents);
        distances_lead_to_heads(&entries, shape.scattered);
    }
}

#[test]
fn pclusters_may_lie_elsewhere_where_a_pack_starts() {
    let bits = BlockBits::DEFAULT;
    for (len, expected) in [(0, 0), (1, 2), (8192, 2), (8193, 4), (24576, 6), (24577, 22), (90_112, 22), (90_113, 38)] {
        assert_eq!(pack_start(len, bits).unwrap(), expected * 4096, "{len}");
    }
    let extent = |lcn: u64, pa: u64, partial| {
        let (la, llen, plen) = (lcn * 4096, 4096, 4096);
        ZExtent { la, llen, plen, pa: pa * 4096, kind: HeadKind::Head1, partial }
    };
    let shape = IndexShape { len: 60 * 4096, block_bits: bits, big: true, scattered: false, end: MapEnd::Stored };
    for far in 1..60 {
        let list: Vec<_> = (0..60).map(|lcn| extent(lcn, if lcn < far { 900 } else { 7 } + lcn, false)).collect();
        // 54 entries behind the first 6: three packs of 16, three of 2.
        let starts = if (6..54).contains(&far) { (far - 6) % 16 == 0 } else { far % 2 == 0 };
        for body_off in [32, 64] {
            assert_eq!(lie_in_packs(&list, shape, body_off).unwrap(), starts, "{far}");
        }
    }
    let list: Vec<_> = (0..60).map(|lcn| extent(lcn, lcn, lcn == 9)).collect();
    assert!(!lie_in_packs(&list, shape, 32).unwrap());
}
