//! The superblock.

use crate::{any_u16, any_u32, any_u64, block_bits, config};
use kiln_format::superblock::{BASE_LEN, ComprInfo, MAGIC, Superblock, set_blocks};
use kiln_format::{Blkaddr, Compat, Incompat, Nid};
use proptest::collection::vec;
use proptest::prelude::*;

fn superblock() -> impl Strategy<Value = Superblock> {
    let features = (any::<u32>(), 0..=0x1FFu32, block_bits(), any_u32(), any::<bool>(), any_u16());
    let numbers = (any_u64(), any_u64(), any_u64(), any_u32(), any_u64(), any_u64(), any_u64());
    let tables = (any_u16(), any_u64(), any::<u8>(), any_u64(), any_u64(), any_u64(), any_u64());
    let rest = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u8>(), any::<u8>(), any_u32(), any::<[bool; 3]>());
    (features, numbers, tables, rest).prop_map(|(features, numbers, tables, rest)| {
        let (compat, incompat, block_bits, checksum, has_cfgs, u1) = features;
        let (root_nid, inos, epoch, fixed_nsec, blocks, meta_blkaddr, xattr_blkaddr) = numbers;
        let (extra_devices, devt, xattr_prefix_count, prefix, packed_nid, metabox_nid, record) = tables;
        let (uuid, volume_name, xattr_filter_reserved, ishare_xattr_prefix_id, build_time, aligned) = rest;
        // Half of the offsets are multiples of their unit; otherwise almost none would be.
        let unit = |off: u64, unit: u64, aligned| if aligned { off / unit * unit } else { off };
        Superblock {
            block_bits,
            checksum,
            compat: Compat::from_bits_retain(compat),
            incompat: Incompat::from_bits(incompat).unwrap(),
            root_nid: Nid(root_nid),
            inos,
            epoch: epoch as i64,
            fixed_nsec,
            blocks,
            meta_blkaddr: Blkaddr(meta_blkaddr),
            xattr_blkaddr: Blkaddr(xattr_blkaddr),
            uuid,
            volume_name,
            compr_info: if has_cfgs { ComprInfo::AvailableAlgs(u1) } else { ComprInfo::Lz4MaxDistance(u1) },
            extra_devices,
            devt_off: unit(devt, 128, aligned[0]),
            xattr_prefix_count,
            xattr_prefix_off: unit(prefix, 4, aligned[1]),
            xattr_filter_reserved,
            ishare_xattr_prefix_id,
            packed_nid: (packed_nid % 3 != 0).then_some(Nid(packed_nid)),
            build_time,
            metabox_nid: (metabox_nid % 3 != 0).then_some(Nid(metabox_nid)),
            record_len: if aligned[2] { BASE_LEN as u64 + record % 20 * 16 } else { record },
        }
    })
}

/// Generates superblocks with every value inside its field and no contradictions: they must encode.
fn fitting_superblock() -> impl Strategy<Value = Superblock> {
    superblock().prop_map(|mut sb| {
        let (has, nid) = (sb.incompat, |nid: Nid| Nid((nid.0 & (u64::MAX >> 1)).max(1)));
        let u1 = match sb.compr_info {
            ComprInfo::Lz4MaxDistance(u1) | ComprInfo::AvailableAlgs(u1) => u1,
        };
        let cfgs = has.contains(Incompat::COMPR_CFGS);
        sb.compr_info = if cfgs { ComprInfo::AvailableAlgs(u1) } else { ComprInfo::Lz4MaxDistance(u1) };
        if has.contains(Incompat::ADDR_48BIT) {
            sb.root_nid = Nid(sb.root_nid.0.max(1));
            sb.blocks &= 0xFFFF_FFFF_FFFF;
        } else {
            sb.root_nid.0 &= 0xFFFF;
            sb.blocks &= 0xFFFF_FFFF;
        }
        sb.meta_blkaddr.0 &= 0xFFFF_FFFF;
        sb.xattr_blkaddr.0 &= 0xFFFF_FFFF;
        sb.extra_devices = if has.contains(Incompat::DEVICE_TABLE) { sb.extra_devices } else { 0 };
        sb.devt_off = sb.devt_off / 128 % 0x1_0000 * 128;
        sb.xattr_prefix_off = sb.xattr_prefix_off / 4 % (1 << 32) * 4;
        sb.packed_nid = sb.packed_nid.filter(|_| has.contains(Incompat::FRAGMENTS)).map(nid);
        sb.metabox_nid = has.contains(Incompat::METABOX).then(|| nid(sb.metabox_nid.unwrap_or(Nid(0))));
        let slots = sb.record_len % 256;
        sb.record_len = BASE_LEN as u64 + 16 * slots.max(sb.metabox_nid.is_some().into());
        sb
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn superblocks_encode_faithfully_or_not(sb in superblock()) {
        if let Ok(bytes) = sb.encode() {
            prop_assert_eq!(Superblock::decode(&bytes), Ok(sb));
        }
    }

    #[test]
    fn fitting_superblocks_encode(sb in fitting_superblock()) {
        let bytes = sb.encode();
        prop_assert!(bytes.is_ok(), "{bytes:?}");
        let bytes = bytes.unwrap();
        prop_assert_eq!(bytes.len() as u64, sb.record_len);
        prop_assert_eq!(Superblock::decode(&bytes), Ok(sb));
    }

    #[test]
    fn any_superblock_bytes_decode(
        mut bytes in vec(any::<u8>(), 0..200),
        magic in any::<bool>(),
        flags in 0..0x200u32,
    ) {
        if magic && bytes.len() >= 84 {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[12] = 9 + bytes[12] % 8;
            bytes[80..84].copy_from_slice(&flags.to_le_bytes());
        }
        if let Ok(sb) = Superblock::decode(&bytes) {
            let _ = (sb.compr_cfgs(&bytes), sb.features(), sb.oldest_kernel(), sb.encode());
        }
    }

    #[test]
    fn values_over_their_fields_are_rejected(mut sb in fitting_superblock(), over in any_u32(), which in 0..6) {
        let over = u64::from(over);
        match which {
            0 => sb.meta_blkaddr.0 = over << 32 | 1 << 63,
            1 => sb.xattr_blkaddr.0 = over + (1 << 32),
            2 => sb.devt_off = (over + 0x1_0000) * 128,
            3 => sb.devt_off |= 1 + over % 127,
            4 => sb.xattr_prefix_off = (over + (1 << 32)) * 4,
            _ => (sb.incompat, sb.root_nid.0) = (sb.incompat - Incompat::ADDR_48BIT, over + 0x1_0000),
        }
        prop_assert!(sb.encode().is_err());
    }

    #[test]
    fn only_the_count_of_blocks_is_set(sb in fitting_superblock(), blocks in any_u64()) {
        let before = sb.encode().unwrap();
        let mut after = before.clone();
        match set_blocks(&mut after, blocks) {
            Ok(()) => {
                let expected = Superblock { blocks, ..Superblock::decode(&before).unwrap() };
                prop_assert_eq!(Superblock::decode(&after).unwrap(), expected);
            }
            Err(_) => {
                prop_assert!(blocks >> 32 != 0);
                prop_assert_eq!(after, before);
            }
        }
    }
}
