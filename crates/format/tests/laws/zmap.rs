//! Map headers, the full index, encoded extents.

use crate::{any_u16, any_u32, any_u64, block_bits, config};
use kiln_format::inode::IndexKind;
use kiln_format::zmap::{
    Advise, CBLKCNT_MAX, DELTA_MAX, ExtentRecord, HeadKind, Lcluster, MapHeader, PlenWord, RecordSize, ZmapHeader,
};
use kiln_format::{Algorithm, Blkaddr, BlockBits};
use proptest::prelude::*;

pub fn head_kind() -> impl Strategy<Value = HeadKind> {
    prop::sample::select(vec![HeadKind::Plain, HeadKind::Head1, HeadKind::Head2])
}

fn map_header() -> impl Strategy<Value = (BlockBits, MapHeader)> {
    (block_bits(), any_u16(), any::<[u8; 2]>(), any::<u8>(), any_u32(), any_u16(), any_u64()).prop_map(
        |(block_bits, advise, algorithms, lcluster_bits, fragment_off, idata_len, extent_count)| {
            let advise = Advise::from_bits_retain(advise);
            (block_bits, MapHeader { advise, algorithms, lcluster_bits, fragment_off, idata_len, extent_count })
        },
    )
}

fn index_kind() -> impl Strategy<Value = IndexKind> {
    prop_oneof![Just(IndexKind::Full), Just(IndexKind::Compact)]
}

/// Generates headers as `decode` returns them: the two readings of the first word agree.
fn fitting_map_header() -> impl Strategy<Value = (BlockBits, MapHeader)> {
    (map_header(), 0..16u8).prop_map(|((block_bits, mut map), shift)| {
        if map.advise.contains(Advise::INLINE_PCLUSTER) {
            map.fragment_off &= 0xFFFF_0000;
        }
        map.idata_len = (map.fragment_off >> 16) as u16;
        map.algorithms = map.algorithms.map(|number| number & 0xF);
        map.lcluster_bits = (block_bits.bits() + shift).min(30);
        map.extent_count = 0;
        (block_bits, map)
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn map_headers_come_back((block_bits, map) in fitting_map_header()) {
        prop_assert_eq!(ZmapHeader::decode(&map.encode(block_bits).unwrap(), 0, block_bits, IndexKind::Compact), Ok(ZmapHeader::Map(map)));
    }

    #[test]
    fn fragment_headers_come_back(off in any_u64(), block_bits in block_bits(), index in index_kind()) {
        let back = ZmapHeader::encode_fragment(off).map(|bytes| ZmapHeader::decode(&bytes, 0, block_bits, index));
        prop_assert_eq!(back.ok(), (off >> 63 == 0).then_some(Ok(ZmapHeader::Fragment(off))));
    }

    #[test]
    fn any_map_header_decodes(bytes in any::<[u8; 8]>(), block_bits in block_bits(), index in index_kind()) {
        let _ = ZmapHeader::decode(&bytes, u64::MAX, block_bits, index);
    }

    #[test]
    fn full_heads_come_back(
        kind in head_kind(),
        clusterofs in any_u32(),
        blkaddr in any_u64(),
        partial in any::<bool>(),
    ) {
        let head = Lcluster::Head { kind, clusterofs, blkaddr: Blkaddr(blkaddr), partial };
        let fits = clusterofs < 1 << 16 && blkaddr < 1 << 32;
        let back = head.encode_full().map(|bytes| Lcluster::decode_full(&bytes));
        prop_assert_eq!(back.ok(), fits.then_some(head));
    }

    #[test]
    fn full_nonheads_come_back_clipped(
        back in any_u32(),
        forward in any_u32(),
        cblkcnt in prop::option::of(any_u32()),
    ) {
        let entry = Lcluster::Nonhead { back, forward, cblkcnt };
        let fits = cblkcnt.is_none_or(|blocks| (1..=CBLKCNT_MAX).contains(&blocks));
        let back = if cblkcnt.is_some() { 1 } else { back.min(DELTA_MAX) };
        let clipped = Lcluster::Nonhead { back, forward: forward.min(DELTA_MAX), cblkcnt };
        let got = entry.encode_full().map(|bytes| Lcluster::decode_full(&bytes));
        prop_assert_eq!(got.ok(), fits.then_some(clipped));
    }

    #[test]
    fn any_full_entry_decodes(bytes in any::<[u8; 8]>()) {
        let _ = Lcluster::decode_full(&bytes);
    }

    #[test]
    fn words_of_pclusters_come_back(plen in any_u32(), number in 0..5usize, partial in any::<bool>()) {
        let algorithm = number.checked_sub(1).map(|idx| Algorithm::ALL[idx]);
        let word = PlenWord::new(plen, algorithm).map(|word| if partial { word.used_in_part() } else { word });
        prop_assert_eq!(word.is_ok(), (1..=1 << 20).contains(&plen));
        if let Ok(word) = word {
            prop_assert_eq!((word.plen(), word.algorithm(), word.partial()), (plen, Ok(algorithm), partial));
        }
    }

    #[test]
    fn extent_records_are_what_their_bytes_say(bytes in any::<[u8; 32]>(), advise in any_u16()) {
        let size = RecordSize::from_advise(Advise::from_bits_retain(advise));
        let record = ExtentRecord::decode(&bytes[..size.len() as usize], size);
        // The 32-byte record as one number. Smaller records are its prefixes.
        let all = u128::from_le_bytes(bytes[..16].try_into().unwrap());
        let la64 = (all >> 96) as u64 | u64::from(u32::from_le_bytes(bytes[16..20].try_into().unwrap())) << 32;
        let pa64 = (all >> 32) as u64;
        let (pa, la) = match size {
            RecordSize::Four => (None, None),
            RecordSize::Eight => (Some(pa64 & 0xFFFF_FFFF), None),
            RecordSize::Sixteen => (Some(pa64), Some(la64 & 0xFFFF_FFFF)),
            RecordSize::ThirtyTwo => (Some(pa64), Some(la64)),
        };
        prop_assert_eq!(record, ExtentRecord { plen: PlenWord(all as u32), pa, la });
        prop_assert!(record.plen.plen() < 1 << 21);
        if let Ok(Some(algorithm)) = record.plen.algorithm() {
            prop_assert_eq!(Algorithm::from_number((record.plen.0 >> 28) as u8 - 1), Some(algorithm));
        }
    }
}
