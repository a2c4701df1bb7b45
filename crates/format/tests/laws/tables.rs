//! Directories, extended attributes, chunks, devices.

use crate::inode::fitting_inode;
use crate::{any_u32, any_u64, block_bits, config};
use kiln_format::chunk::{Chunk, ChunkEntry, ChunkFormat};
use kiln_format::device::{DEVICE_SLOT_LEN, DeviceSlot, RawDeviceSlot};
use kiln_format::dirent::{DirBlock, Dirent, encode_block, entry_len};
use kiln_format::{Blkaddr, FormatError, Incompat, Nid, xattr};
use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::FromBytes;

/// Nid, type, name.
type Entry = (u64, u8, Vec<u8>);

fn entries(byte: impl Strategy<Value = u8> + Clone) -> impl Strategy<Value = Vec<Entry>> {
    let name = prop_oneof![9 => vec(byte.clone(), 1..=255), 1 => vec(byte, 0..300)];
    vec((any_u64(), any::<u8>(), name), 1..20)
}

fn any_name_byte() -> impl Strategy<Value = u8> + Clone {
    any::<u8>().prop_map(|byte| if byte == 0 || byte == b'/' { b'x' } else { byte })
}

fn dirents(entries: &[Entry]) -> Vec<Dirent<'_>> {
    entries.iter().map(|(nid, file_type, name)| Dirent { nid: Nid(*nid), file_type: *file_type, name }).collect()
}

fn decode_block(block: &[u8]) -> Result<Vec<Dirent<'_>>, FormatError> {
    DirBlock::new(block, 0)?.entries().collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn directory_blocks_come_back(entries in entries(any_name_byte()), room in 0..40usize) {
        let dirents = dirents(&entries);
        let used: usize = dirents.iter().map(|d| entry_len(d.name.len())).sum();
        let fits = dirents.iter().all(|d| matches!(d.name.len(), 1..=255));
        let mut block = vec![0; used + room];
        prop_assert_eq!(encode_block(&dirents, &mut block).is_ok(), fits);
        if fits {
            prop_assert_eq!(decode_block(&block), Ok(dirents));
        }
    }

    #[test]
    fn directory_blocks_encode_faithfully_or_not(entries in entries(any::<u8>()), room in 0..40usize) {
        let dirents = dirents(&entries);
        let mut block = vec![0; dirents.iter().map(|d| entry_len(d.name.len())).sum::<usize>() + room];
        if encode_block(&dirents, &mut block).is_ok() {
            prop_assert_eq!(decode_block(&block), Ok(dirents));
        }
    }

    #[test]
    fn any_directory_bytes_decode(mut bytes in vec(any::<u8>(), 0..600), at in 0..u64::MAX / 2, count in 1..40u16) {
        for plausible in [false, true] {
            if plausible && bytes.len() >= 10 {
                bytes[8..10].copy_from_slice(&(12 * count).to_le_bytes());
            }
            if let Ok(block) = DirBlock::new(&bytes, at) {
                prop_assert_eq!(block.entries().count(), block.len());
            }
        }
    }

    #[test]
    fn xattr_names_come_apart_and_together(
        name in "(user\\.|trusted\\.|security\\.|system\\.posix_acl_(access|default))?[a-z.]{0,9}",
    ) {
        if let Some((index, rest)) = xattr::split_name(name.as_bytes()) {
            prop_assert_eq!([xattr::prefix(index).unwrap(), rest].concat(), name.as_bytes());
            prop_assert!(xattr::filter_bit(index, rest).is_power_of_two());
        }
    }

    #[test]
    fn xattr_entries_are_their_parts(
        index in any::<u8>(),
        name in vec(any::<u8>(), 0..300),
        len in prop_oneof![0..99usize, 65500..65600usize],
    ) {
        let value: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut out = vec![0xEE; 4];
        let fits = name.len() <= 255 && len <= xattr::VALUE_MAX_LEN;
        prop_assert_eq!(xattr::encode_entry(index, &name, &value, &mut out).is_ok(), fits);
        if fits {
            let (raw, rest) = xattr::RawXattrEntry::read_from_prefix(&out[4..]).unwrap();
            prop_assert_eq!((raw.e_name_index, usize::from(raw.e_name_len)), (index, name.len()));
            prop_assert_eq!(usize::from(raw.e_value_size.get()), len);
            prop_assert_eq!(&rest[..name.len()], &name);
            prop_assert_eq!(&rest[name.len()..][..len], &value);
            prop_assert_eq!(out.len() - 4, xattr::entry_len(name.len(), len));
        }
    }

    #[test]
    fn xattr_body_lengths_come_back(words in 0..70_000usize, mut inode in fitting_inode()) {
        let len = xattr::BODY_HEADER_LEN + 4 * words;
        let icount = xattr::icount(len);
        prop_assert_eq!(icount.is_ok(), len <= xattr::BODY_MAX_LEN);
        if let Ok(icount) = icount {
            inode.xattr_icount = icount;
            prop_assert_eq!(inode.xattr_len(), len as u64);
        }
    }

    #[test]
    fn chunk_formats_come_back(
        chunk_bits in any::<u8>(),
        block_bits in block_bits(),
        kind in 0..3usize,
        i_u in any_u32(),
    ) {
        let entry = [ChunkEntry::BlockMap, ChunkEntry::Index, ChunkEntry::WideIndex][kind];
        let format = ChunkFormat { chunk_bits, entry };
        let fits = (block_bits.bits()..=block_bits.bits() + 31).contains(&chunk_bits);
        let back = format.encode(block_bits).map(|i_u| ChunkFormat::decode(i_u, block_bits).unwrap());
        prop_assert_eq!(back.ok(), fits.then_some(format));
        if let Ok(format) = ChunkFormat::decode(i_u, block_bits) {
            let _ = format.count(u64::MAX);
            prop_assert!(format.encode(block_bits).is_ok());
        }
    }

    #[test]
    fn chunks_are_what_their_bytes_say(start in any_u64(), hole in any::<bool>(), bytes in any::<[u8; 8]>()) {
        let format = |entry| ChunkFormat { chunk_bits: 12, entry };
        let start = (!hole).then_some(Blkaddr(start));
        let chunk = start.map_or(Chunk::Hole, |start| Chunk::At { device: 0, start });
        let fits = start.is_none_or(|start| start < Blkaddr::HOLE32);
        let mut entry = Vec::new();
        let encoded = ChunkEntry::BlockMap.encode(chunk, &mut entry);
        let back = encoded.map(|()| format(ChunkEntry::BlockMap).decode_entry(&entry));
        prop_assert_eq!(back.ok(), fits.then_some(chunk));

        let [hi0, hi1, dev0, dev1, lo @ ..] = bytes;
        let device = u16::from_le_bytes([dev0, dev1]);
        let lo = u64::from(u32::from_le_bytes(lo));
        let wide = lo | u64::from(u16::from_le_bytes([hi0, hi1])) << 32;
        let at = |start, hole| if start == hole { Chunk::Hole } else { Chunk::At { device, start } };
        prop_assert_eq!(format(ChunkEntry::Index).decode_entry(&bytes), at(Blkaddr(lo), Blkaddr::HOLE32));
        prop_assert_eq!(format(ChunkEntry::WideIndex).decode_entry(&bytes), at(Blkaddr(wide), Blkaddr::HOLE48));
    }

    #[test]
    fn any_device_slot_decodes(bytes in vec(any::<u8>(), DEVICE_SLOT_LEN), flags in 0..0x200u32) {
        let raw = RawDeviceSlot::read_from_bytes(&bytes).unwrap();
        let slot = DeviceSlot::decode(&raw, Incompat::from_bits(flags).unwrap());
        prop_assert_eq!(slot.blocks as u32, raw.blocks_lo.get());
        let hi = if flags & 0x80 == 0 { 0 } else { raw.blocks_hi.get() };
        prop_assert_eq!(slot.blocks >> 32, u64::from(hi));
    }
}
