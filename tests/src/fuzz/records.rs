//! Decoders of single records.

use super::input::Input;
use kiln_format::chunk::ChunkFormat;
use kiln_format::compr_cfg::ComprCfgs;
use kiln_format::device::{DEVICE_SLOT_LEN, DeviceSlot, RawDeviceSlot};
use kiln_format::dirent::{DirBlock, encode_block};
use kiln_format::inode::{CompactTimes, Epoch, IndexKind, Inode};
use kiln_format::superblock::Superblock;
use kiln_format::zmap::{COMPACT_INDEX_OFF, CompactLayout, ExtentRecord, Lcluster, MapHeader, RecordSize, ZmapHeader};
use kiln_format::{BlockBits, Incompat};
use zerocopy::FromBytes;

/// Input: a superblock. If it decodes, its encoding must decode to the same.
pub fn superblock(data: &[u8]) {
    let Ok(sb) = Superblock::decode(data) else { return };
    let _ = sb.compr_cfgs(data.get(sb.record_len as usize..).unwrap_or_default());
    if let Ok(bytes) = sb.encode() {
        assert_eq!(Superblock::decode(&bytes), Ok(sb));
    }
}

pub fn compr_cfg(data: &[u8]) {
    let mut input = Input(data);
    let available = input.u16();
    if let Ok(cfgs) = ComprCfgs::decode(available, input.0, 1152) {
        assert_eq!(cfgs.algorithms(), available);
        let bytes = cfgs.encode().expect("what was decoded fits");
        assert_eq!(ComprCfgs::decode(available, &bytes, 0), Ok(cfgs));
    }
}

pub fn inode(data: &[u8]) {
    let mut input = Input(data);
    let epoch = Epoch { secs: input.u64() as i64, nsec: input.u32() };
    let block_bits = BlockBits::DEFAULT;
    let Ok(inode) = Inode::decode(input.0, input.0.len() as u64, epoch, block_bits) else { return };
    let _ = (inode.body_off(), inode.layout(), inode.rdev(), inode.mode());
    let own = Epoch { secs: inode.mtime, nsec: inode.mtime_nsec };
    let bytes = inode.encode(own, CompactTimes::Shared, block_bits).expect("what was decoded fits");
    assert_eq!(Inode::decode(&bytes, 0, own, block_bits), Ok(inode));
}

/// Input: a directory block. If all of it is valid, its entries must encode to a block that decodes
/// to the same.
pub fn dirent(data: &[u8]) {
    let Ok(block) = DirBlock::new(data, 0) else { return };
    let entries: Vec<_> = block.entries().collect();
    assert_eq!(entries.len(), block.len());
    let Ok(entries) = entries.into_iter().collect::<Result<Vec<_>, _>>() else { return };
    let len = entries.iter().map(|entry| kiln_format::dirent::entry_len(entry.name.len())).sum();
    let mut again = vec![0; len];
    if encode_block(&entries, &mut again).is_ok() {
        let block = DirBlock::new(&again, 0).expect("well-formed");
        assert!(block.entries().map(Result::unwrap).eq(entries));
    }
}

/// Input: chunk tables and device tables.
pub fn tables(data: &[u8]) {
    let mut input = Input(data);
    let block_bits = BlockBits::new(9 + input.u8() % 8).expect("9 to 16");
    let i_u = input.u32();
    let incompat = Incompat::from_bits_truncate(input.u32());
    if let Ok(format) = ChunkFormat::decode(i_u, block_bits) {
        let _ = format.count(input.u64());
        input.0.chunks_exact(format.entry.len() as usize).for_each(|entry| _ = format.decode_entry(entry));
    }
    for slot in input.0.chunks_exact(DEVICE_SLOT_LEN) {
        let _ = DeviceSlot::decode(RawDeviceSlot::ref_from_bytes(slot).expect("exact length"), incompat);
    }
}

/// Input: map headers and all three kinds of index.
pub fn zmap(data: &[u8]) {
    let mut input = Input(data);
    let block_bits = BlockBits::new(9 + input.u8() % 8).expect("9 to 16");
    let size = input.u64() >> 1;
    let index = if input.u8() % 2 == 0 { IndexKind::Full } else { IndexKind::Compact };
    let Ok(ZmapHeader::Map(header)) = ZmapHeader::decode(&input.array(), 0, block_bits, index) else { return };
    if index == IndexKind::Full {
        for entry in input.0.chunks_exact(8) {
            let entry = Lcluster::decode_full(entry.try_into().expect("8 bytes"));
            if let Ok(bytes) = entry.encode_full() {
                let _ = Lcluster::decode_full(&bytes);
            }
        }
        let record_size = RecordSize::from_advise(header.advise);
        for record in input.0.chunks_exact(record_size.len() as usize) {
            let _ = ExtentRecord::decode(record, record_size).plen.algorithm();
        }
    } else {
        compact(&header, block_bits, size, input.0);
    }
}

fn compact(header: &MapHeader, block_bits: BlockBits, size: u64, table: &[u8]) {
    let (bits, advise) = (header.lcluster_bits, header.advise);
    let count = size.div_ceil(1 << bits);
    let off = COMPACT_INDEX_OFF + 8 * u64::from(header.idata_len % 4);
    let blocks = block_bits.blocks_for(size);
    let Ok(layout) = CompactLayout::new(off, blocks, count, bits, advise) else { return };
    assert!(layout.end_off() >= off);
    let mut lcn = 0;
    while lcn < count {
        let pack = layout.pack_of(lcn);
        assert!(pack.first == lcn, "packs follow each other");
        let at = (pack.off - off) as usize;
        let Some(bytes) = table.get(at..at + pack.len) else { break };
        if let Ok(entries) = layout.decode_pack(pack, bytes) {
            (0..pack.entries).for_each(|idx| _ = entries.get(idx));
        }
        lcn += pack.entries as u64;
    }
}
