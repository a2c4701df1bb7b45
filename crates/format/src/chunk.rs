//! Chunk-based files: a table of start blocks, one for each fixed-size chunk.

use crate::{Blkaddr, BlockBits, FormatError};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const RECORD: &str = "erofs_inode_chunk_info";
const INDEXES: u16 = 0x20;
const WIDE: u16 = 0x40;

/// Largest log2 of a chunk's size in blocks: 5 bits of the format.
pub const CHUNK_MAX_SHIFT: u8 = 31;

/// `struct erofs_inode_chunk_index`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawChunkIndex {
    /// High half of the start block, with 48-bit chunk formats.
    pub startblk_hi: U16,
    /// 0 for the flat data space, else the number of an extra device.
    pub device_id: U16,
    /// Low half of the start block.
    pub startblk_lo: U32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawChunkIndex>() == 8);
    assert!(offset_of!(RawChunkIndex, startblk_hi) == 0);
    assert!(offset_of!(RawChunkIndex, device_id) == 2);
    assert!(offset_of!(RawChunkIndex, startblk_lo) == 4);
};

/// Kind of chunk table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkEntry {
    /// 4 bytes: the start block.
    BlockMap,
    /// 8 bytes with a device number; 32-bit start blocks.
    Index,
    /// 8 bytes with a device number; 48-bit start blocks.
    WideIndex,
}

impl ChunkEntry {
    /// Returns the length of an entry in bytes, which is also the alignment of the table.
    pub fn len(self) -> u64 {
        match self {
            ChunkEntry::BlockMap => 4,
            ChunkEntry::Index | ChunkEntry::WideIndex => 8,
        }
    }
}

/// Chunk format of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkFormat {
    /// log2 of the chunk size in bytes.
    pub chunk_bits: u8,
    /// Kind of table entries.
    pub entry: ChunkEntry,
}

/// Chunk format with unknown bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnknownChunkFormat(u16);

impl UnknownChunkFormat {
    /// Returns the error for a chunk table after byte `at` of its metadata space.
    pub fn error(self, at: u64) -> FormatError {
        FormatError::unsupported(RECORD, at, "format", self.0.into(), "unknown bits")
    }

    /// Returns the value for `i_u`.
    pub(crate) fn encode(self) -> u32 {
        self.0.into()
    }
}

/// Location of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Zeros.
    Hole,
    /// Contiguous blocks from `start` of `device`, 0 for the flat data space.
    At {
        /// 0 for the flat data space, else the number of an extra device.
        device: u16,
        /// First block.
        start: Blkaddr,
    },
}

impl ChunkFormat {
    /// Decodes `i_u` of a chunk-based inode. Its high half is reserved.
    ///
    /// # Errors
    /// Unknown bits.
    pub fn decode(i_u: u32, block_bits: BlockBits) -> Result<Self, UnknownChunkFormat> {
        let format = (i_u & 0xFFFF) as u16;
        if format >> 7 != 0 {
            return Err(UnknownChunkFormat(format));
        }
        let entry = match (format & INDEXES != 0, format & WIDE != 0) {
            (false, _) => ChunkEntry::BlockMap,
            (true, false) => ChunkEntry::Index,
            (true, true) => ChunkEntry::WideIndex,
        };
        Ok(Self { chunk_bits: block_bits.bits() + (format & 0x1F) as u8, entry })
    }

    /// Returns the value for `i_u`.
    ///
    /// # Errors
    /// A chunk smaller than a block or over 2^31 blocks.
    pub fn encode(self, block_bits: BlockBits) -> Result<u32, FormatError> {
        let shift = self
            .chunk_bits
            .checked_sub(block_bits.bits())
            .filter(|&shift| shift <= CHUNK_MAX_SHIFT)
            .ok_or_else(|| FormatError::does_not_fit(RECORD, "format (chunkbits)", self.chunk_bits.into()))?;
        let kind = match self.entry {
            ChunkEntry::BlockMap => 0,
            ChunkEntry::Index => INDEXES,
            ChunkEntry::WideIndex => INDEXES | WIDE,
        };
        Ok(u32::from(u16::from(shift) | kind))
    }

    /// Returns the number of entries in the table of a file of `size` bytes.
    pub fn count(self, size: u64) -> u64 {
        size.div_ceil(1 << self.chunk_bits)
    }

    /// Decodes one entry, exactly [`ChunkEntry::len`] bytes.
    pub fn decode_entry(self, bytes: &[u8]) -> Chunk {
        match self.entry {
            ChunkEntry::BlockMap => {
                let start = U32::read_from_bytes(bytes).expect("exact length").get();
                Self::chunk(0, Blkaddr(start.into()), Blkaddr::HOLE32)
            }
            ChunkEntry::Index => {
                let raw = RawChunkIndex::ref_from_bytes(bytes).expect("exact length");
                Self::chunk(raw.device_id.get(), Blkaddr(raw.startblk_lo.get().into()), Blkaddr::HOLE32)
            }
            ChunkEntry::WideIndex => {
                let raw = RawChunkIndex::ref_from_bytes(bytes).expect("exact length");
                let start = u64::from(raw.startblk_hi.get()) << 32 | u64::from(raw.startblk_lo.get());
                Self::chunk(raw.device_id.get(), Blkaddr(start), Blkaddr::HOLE48)
            }
        }
    }

    fn chunk(device: u16, start: Blkaddr, hole: Blkaddr) -> Chunk {
        if start == hole { Chunk::Hole } else { Chunk::At { device, start } }
    }
}

impl ChunkEntry {
    /// Appends the entry of a chunk.
    ///
    /// # Errors
    /// A start block that the entry cannot hold; a device number in an entry without one.
    pub fn encode(self, chunk: Chunk, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let (device, start) = match (chunk, self) {
            (Chunk::Hole, ChunkEntry::WideIndex) => (0, Blkaddr::HOLE48),
            (Chunk::Hole, _) => (0, Blkaddr::HOLE32),
            (Chunk::At { device, start }, _) => {
                let hole = if self == ChunkEntry::WideIndex { Blkaddr::HOLE48 } else { Blkaddr::HOLE32 };
                if start >= hole {
                    return Err(FormatError::does_not_fit(RECORD, "startblk", start.0));
                }
                (device, start)
            }
        };
        match self {
            ChunkEntry::BlockMap if device != 0 => Err(FormatError::does_not_fit(RECORD, "device_id", device.into())),
            ChunkEntry::BlockMap => {
                out.extend_from_slice(&start.lo().to_le_bytes());
                Ok(())
            }
            ChunkEntry::Index | ChunkEntry::WideIndex => {
                let (startblk_hi, startblk_lo) = (start.hi().into(), start.lo().into());
                let raw = RawChunkIndex { startblk_hi, device_id: device.into(), startblk_lo };
                out.extend_from_slice(raw.as_bytes());
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let entries = [ChunkEntry::BlockMap, ChunkEntry::Index, ChunkEntry::WideIndex];
        for entry in entries {
            let format = ChunkFormat { chunk_bits: 16, entry };
            for (device, start) in [(0, 0), (0, 0xFFFF_FFFE), (3, 7), (0, 0xFFFF_FFFF), (0, 0xFFFF_FFFF_FFFF)] {
                let chunk = Chunk::At { device, start: Blkaddr(start) };
                let mut out = Vec::new();
                let fits = match entry {
                    ChunkEntry::BlockMap => device == 0 && start < 0xFFFF_FFFF,
                    ChunkEntry::Index => start < 0xFFFF_FFFF,
                    ChunkEntry::WideIndex => start < 0xFFFF_FFFF_FFFF,
                };
                assert_eq!(entry.encode(chunk, &mut out).is_ok(), fits, "{entry:?} {chunk:?}");
                assert!(!fits || out.len() as u64 == entry.len() && format.decode_entry(&out) == chunk);
            }
            let mut out = Vec::new();
            entry.encode(Chunk::Hole, &mut out).unwrap();
            assert_eq!(format.decode_entry(&out), Chunk::Hole);
        }
    }
}
