//! Chunk-based files: a table of start blocks, one for each fixed-size chunk.

use crate::{Blkaddr, BlockBits, FormatError};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const RECORD: &str = "erofs_inode_chunk_info";
const INDEXES: u16 = 0x20;
const WIDE: u16 = 0x40;

/// Largest chunk: the format's 5 bits above the block size.
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

const _: () = assert!(size_of::<RawChunkIndex>() == 8);

/// Kind of chunk table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkEntry {
    /// 4 bytes: the start block.
    BlockMap,
    /// 8 bytes with a device number; 32-bit start blocks.
    Index,
    /// 8 bytes with a device number; 48-bit start blocks.
    WideIndex,
}

impl ChunkEntry {
    /// Length of an entry, also the alignment of the table, in bytes.
    pub fn len(self) -> u64 {
        match self {
            ChunkEntry::BlockMap => 4,
            ChunkEntry::Index | ChunkEntry::WideIndex => 8,
        }
    }
}

/// The chunk format of an inode: the low half of `i_u`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkFormat {
    /// log2 of the chunk size in bytes.
    pub chunk_bits: u8,
    /// Kind of table entries.
    pub entry: ChunkEntry,
}

/// Where a chunk lies.
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
    /// Decode `i_u` of the chunk-based inode at byte `at`.
    ///
    /// # Errors
    /// Unknown bits.
    pub fn decode(i_u: u32, block_bits: BlockBits, at: u64) -> Result<Self, FormatError> {
        let format = (i_u & 0xFFFF) as u16;
        if format >> 7 != 0 {
            return Err(FormatError::unsupported(RECORD, at, "format", format.into(), "unknown bits"));
        }
        let entry = match (format & INDEXES != 0, format & WIDE != 0) {
            (false, _) => ChunkEntry::BlockMap,
            (true, false) => ChunkEntry::Index,
            (true, true) => ChunkEntry::WideIndex,
        };
        Ok(Self { chunk_bits: block_bits.bits() + (format & 0x1F) as u8, entry })
    }

    /// The value for `i_u`.
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

    /// Entries that a file of `size` bytes has.
    pub fn count(self, size: u64) -> u64 {
        size.div_ceil(1 << self.chunk_bits)
    }

    /// Decode one entry, exactly [`ChunkEntry::len`] bytes.
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

/// The entry of a [`ChunkEntry::BlockMap`].
///
/// # Errors
/// A start block over 32 bits.
pub fn encode_block_map(start: Option<Blkaddr>) -> Result<[u8; 4], FormatError> {
    match start {
        None => Ok(Blkaddr::HOLE32.lo().to_le_bytes()),
        Some(addr) if addr < Blkaddr::HOLE32 => Ok(addr.lo().to_le_bytes()),
        Some(addr) => Err(FormatError::does_not_fit("erofs_block_map", "startblk", addr.0)),
    }
}
