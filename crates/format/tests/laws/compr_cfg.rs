//! Configuration records of the algorithms.

use crate::{any_u16, config};
use kiln_format::compr_cfg::{ComprCfgs, Lz4Cfg};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn configurations_come_back(
        lz4 in prop::option::of((1..=u16::MAX, 1..=2048u16)),
        lzma_dict_size in prop::option::of(4096..=8u32 << 20),
        deflate_windowbits in prop::option::of(0..=15u8),
        zstd_windowlog in prop::option::of(10..=20u8),
    ) {
        let lz4 = lz4.map(|(max_distance, max_pclusterblks)| Lz4Cfg { max_distance, max_pclusterblks });
        let cfgs = ComprCfgs { lz4, lzma_dict_size, deflate_windowbits, zstd_windowlog };
        prop_assert_eq!(ComprCfgs::decode(cfgs.algorithms(), &cfgs.encode().unwrap(), 1152), Ok(cfgs));
    }

    /// A later format may append fields to a record, and its length gives the start of the next
    /// one.
    #[test]
    fn longer_records_are_read_by_their_beginning(extra in any::<[u8; 4]>(), windowlog in 10..=20u8) {
        let cfgs = ComprCfgs {
            lz4: Some(Lz4Cfg { max_distance: 65535, max_pclusterblks: 1 }),
            lzma_dict_size: Some(4096),
            deflate_windowbits: Some(15),
            zstd_windowlog: Some(windowlog),
        };
        let encoded = cfgs.encode().unwrap();
        let (mut rest, mut longer) = (&encoded[..], Vec::new());
        for extra in extra.map(usize::from) {
            let len = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
            longer.resize(longer.len().next_multiple_of(4), 0);
            longer.extend(((len + extra) as u16).to_le_bytes());
            longer.extend(&rest[2..2 + len]);
            longer.resize(longer.len() + extra, 0xEE);
            rest = rest.get((2 + len).next_multiple_of(4)..).unwrap_or(&[]);
        }
        prop_assert!(rest.is_empty());
        prop_assert_eq!(ComprCfgs::decode(cfgs.algorithms(), &longer, 1152), Ok(cfgs));
    }

    #[test]
    fn any_configuration_bytes_decode(
        available in any_u16(),
        bytes in vec(any::<u8>(), 0..100),
        lens in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if lens && bytes.len() >= 2 {
            bytes[..2].copy_from_slice(&14u16.to_le_bytes());
        }
        let _ = ComprCfgs::decode(available, &bytes, 1152);
        let _ = ComprCfgs::decode(available & 0xF, &bytes, u64::MAX / 2);
    }
}
