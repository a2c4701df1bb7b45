//! The compact index compared with the full one.

use crate::zmap::head_kind;
use crate::{any_u64, config};
use kiln_format::Blkaddr;
use kiln_format::zmap::{Advise, CBLKCNT_MAX, CompactLayout, DELTA_MAX, HeadKind, Lcluster, Pack};
use proptest::collection::vec;
use proptest::prelude::*;

/// Index of a file: its entries and the layout of its packs.
#[derive(Clone, Debug)]
struct Index {
    layout: CompactLayout,
    table_off: u64,
    dense: bool,
    entries: Vec<Lcluster>,
}

fn advise(dense: bool, big: bool) -> Advise {
    let dense = if dense { Advise::COMPACTED_2B_OR_EXTENTS } else { Advise::empty() };
    let big = if big { Advise::BIG_PCLUSTER_1 | Advise::BIG_PCLUSTER_2 } else { Advise::empty() };
    dense | big
}

/// Generates extents as (kind, lclusters, offset of the start, blocks), contiguous on disk.
fn index() -> impl Strategy<Value = Index> {
    let length = prop_oneof![6 => 1..5u32, 3 => 1..40u32, 1 => 2040..2060u32];
    let extents = vec((head_kind(), length, any::<u32>(), 1..=CBLKCNT_MAX), 1..40);
    let shape = (any::<bool>(), any::<bool>(), 9..=14u8, (0..1u64 << 40).prop_map(|slot| 8 * slot));
    (extents, shape, 1..=u32::MAX - 40 * CBLKCNT_MAX, prop::option::of(any::<u32>())).prop_map(
        |(extents, (dense, big, bits, table_off), start, end_marker)| {
            let lcluster_bits = if dense { bits.min(12) } else { bits };
            let clusterofs = |random: u32| random & ((1 << lcluster_bits) - 1);
            let mut entries = Vec::new();
            let mut addr = start;
            for (kind, lclusters, random, blocks) in extents {
                // A pcluster of several blocks needs a second lcluster to hold their number.
                let blocks = if big && lclusters > 1 { blocks } else { 1 };
                let blkaddr = Blkaddr(addr.into());
                entries.push(Lcluster::Head { kind, clusterofs: clusterofs(random), blkaddr, partial: false });
                entries.extend((1..lclusters).map(|back| {
                    let cblkcnt = (big && back == 1).then_some(blocks);
                    Lcluster::Nonhead { back, forward: lclusters - back, cblkcnt }
                }));
                addr += blocks;
            }
            entries.extend(end_marker.map(|random| {
                let (kind, blkaddr) = (HeadKind::Plain, Blkaddr(0));
                Lcluster::Head { kind, clusterofs: clusterofs(random), blkaddr, partial: false }
            }));
            let count = entries.len() as u64;
            let layout = CompactLayout::new(table_off, count, count, lcluster_bits, advise(dense, big)).unwrap();
            Index { layout, table_off, dense, entries }
        },
    )
}

/// Returns the part of an entry that a compact index can store at `slot` of `pack`: only one of the
/// two distances, except that the distance back of the last entry follows from the entry before.
fn through_pack(entry: Lcluster, pack: Pack, slot: usize) -> Lcluster {
    let full = Lcluster::decode_full(&entry.encode_full().unwrap());
    let last = slot + 1 == pack.entries;
    match full {
        Lcluster::Nonhead { cblkcnt: None, .. } if last => full,
        Lcluster::Nonhead { back, cblkcnt, .. } => Lcluster::Nonhead { back, forward: 1, cblkcnt },
        head => head,
    }
}

/// Returns the decoded entry without the two things that a pack adds: a distance back over
/// [`DELTA_MAX`], and the address of an end marker, which has no pcluster (a full index has 0, a
/// pack counts on).
fn comparable(got: Lcluster, expected: Lcluster) -> Lcluster {
    match (got, expected) {
        (Lcluster::Nonhead { back, forward, cblkcnt }, _) => {
            Lcluster::Nonhead { back: back.min(DELTA_MAX), forward, cblkcnt }
        }
        (Lcluster::Head { kind, clusterofs, partial, .. }, Lcluster::Head { blkaddr: Blkaddr(0), .. }) => {
            Lcluster::Head { kind, clusterofs, blkaddr: Blkaddr(0), partial }
        }
        (head, _) => head,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..config() })]

    #[test]
    fn compact_packs_say_what_the_full_index_says(index in index()) {
        let mut bytes = Vec::new();
        index.layout.encode(index.entries.iter().copied(), &mut bytes).unwrap();
        prop_assert_eq!(index.table_off + bytes.len() as u64, index.layout.end_off());
        for (lcn, &entry) in index.entries.iter().enumerate() {
            let pack = index.layout.pack_of(lcn as u64);
            let off = (pack.off - index.table_off) as usize;
            let slot = lcn - pack.first as usize;
            let got = index.layout.decode_pack(pack, &bytes[off..off + pack.len]).unwrap().get(slot);
            let expected = through_pack(entry, pack, slot);
            prop_assert_eq!(comparable(got, expected), expected, "lcluster {} in {:?}", lcn, pack);
        }
    }

    #[test]
    fn packs_lie_one_behind_the_other(index in index()) {
        let (mut off, mut lcn) = (index.table_off, 0);
        while lcn < index.entries.len() as u64 {
            let pack = index.layout.pack_of(lcn);
            prop_assert_eq!((pack.off, pack.first), (off, lcn));
            prop_assert!(matches!((pack.len, pack.entries), (8, 2) | (32, 16)));
            prop_assert!(pack.len == 8 || (index.dense && pack.off % 32 == 0));
            for within in lcn..lcn + pack.entries as u64 {
                prop_assert_eq!(index.layout.pack_of(within), pack);
            }
            (off, lcn) = (off + pack.len as u64, lcn + pack.entries as u64);
        }
        prop_assert_eq!(index.layout.end_off(), off);
    }

    #[test]
    fn sequences_that_no_pack_can_store_are_rejected(index in index(), at in any::<prop::sample::Index>(), what in 0..4) {
        let mut entries = index.entries.clone();
        let idx = at.index(entries.len());
        match (what, &mut entries[idx]) {
            (0, Lcluster::Head { partial, .. }) => *partial = true,
            (1, Lcluster::Head { clusterofs, .. }) => *clusterofs = 1 << 14,
            (2, Lcluster::Head { blkaddr, .. }) if blkaddr.0 != 0 && !index.layout.starts_pack(idx as u64) => {
                blkaddr.0 += 1
            }
            _ => drop(entries.pop()),
        }
        prop_assert!(index.layout.encode(entries.into_iter(), &mut Vec::new()).is_err());
    }

    #[test]
    fn any_pack_decodes(
        bytes in any::<[u8; 32]>(),
        off in any_u64(),
        bits in 9..=14u8,
        big in any::<bool>(),
        dense in any::<bool>(),
    ) {
        let bits = if dense { bits.min(12) } else { bits };
        let layout = CompactLayout::new(off & 0xFFFF_FFFF_FFF8, 1 << 30, 1 << 30, bits, advise(dense, big)).unwrap();
        for lcn in [0, 1, 5, 100, (1 << 30) - 1] {
            let pack = layout.pack_of(lcn);
            if let Ok(entries) = layout.decode_pack(pack, &bytes[..pack.len]) {
                for slot in 0..pack.entries {
                    let _ = entries.get(slot);
                }
            }
        }
    }

    /// The arguments are any that an inode can have: files are below 2^63 bytes, so below 2^54
    /// lclusters, and tables lie in a device.
    #[test]
    fn any_compact_layout_answers(
        off in 0..1u64 << 63,
        blocks in any_u64(),
        count in 1..1u64 << 54,
        bits in any::<u8>(),
        bits_of_advise in any::<u16>(),
        at in any::<u64>(),
    ) {
        if let Ok(layout) = CompactLayout::new(off / 8 * 8, blocks, count, bits, Advise::from_bits_retain(bits_of_advise)) {
            let (end, pack) = (layout.end_off(), layout.pack_of(at % count));
            prop_assert!(pack.off >= off / 8 * 8 && pack.off + pack.len as u64 <= end);
        }
    }
}
