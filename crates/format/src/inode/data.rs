//! Location of an inode's data: the data layout, and the meaning of `i_u` under it.

use super::file_type::FileType;
use crate::chunk::{ChunkFormat, UnknownChunkFormat};
use crate::{Blkaddr, BlockBits, FormatError};

/// Data layout: how an inode's contents are stored (bits 1 to 3 of `i_format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DataLayout {
    /// Contiguous blocks.
    FlatPlain = 0,
    /// Compressed, 8-byte index entries or encoded extents.
    CompressedFull = 1,
    /// Contiguous blocks, the last one beside the inode.
    FlatInline = 2,
    /// Compressed, packed index entries.
    CompressedCompact = 3,
    /// Chunks of a fixed size at any block.
    ChunkBased = 4,
}

impl DataLayout {
    /// Returns the name to show to users.
    pub fn name(self) -> &'static str {
        match self {
            DataLayout::FlatPlain => "flat",
            DataLayout::CompressedFull => "compressed (full index)",
            DataLayout::FlatInline => "inline",
            DataLayout::CompressedCompact => "compressed (compact index)",
            DataLayout::ChunkBased => "chunk-based",
        }
    }

    /// Returns true if the contents are compressed.
    pub fn is_compressed(self) -> bool {
        matches!(self, DataLayout::CompressedFull | DataLayout::CompressedCompact)
    }
}

/// Kind of the map of compressed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexKind {
    /// [`DataLayout::CompressedFull`]: 8 bytes for each lcluster, or encoded extents.
    Full,
    /// [`DataLayout::CompressedCompact`]: lclusters in packs.
    Compact,
}

/// Location of an inode's data, as far as the inode itself describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InodeData {
    /// Blocks from this one on; `None` if the file is one hole. Without meaning for an empty file.
    FlatPlain(Option<Blkaddr>),
    /// Blocks from this one on, except the last, which follows the inode. Without whole blocks the
    /// address has no meaning.
    FlatInline(Blkaddr),
    /// A table of chunks after the inode. An unknown format is an error only when the table is
    /// used.
    ChunkBased(Result<ChunkFormat, UnknownChunkFormat>),
    /// A compressed stream; its map follows the inode.
    Compressed {
        /// Kind of map.
        index: IndexKind,
        /// Number of blocks of compressed data, modulo 2^32; informative. Linux shows these 32
        /// bits, even where the form has room for more.
        blocks: u32,
    },
    /// A device, which has a number instead of data.
    Device(Rdev),
    /// A pipe or a socket, whose layout and `i_u` have no meaning.
    Nothing,
}

/// Layout, `i_u` and the high half of the start block, as stored in the record.
pub(super) struct DataWords {
    pub(super) layout: DataLayout,
    pub(super) i_u: u32,
    pub(super) startblk_hi: u16,
}

impl InodeData {
    /// Returns the layout stored in the record. Devices, pipes and sockets are written as
    /// [`DataLayout::FlatPlain`].
    pub fn layout(self) -> DataLayout {
        match self {
            InodeData::FlatPlain(_) | InodeData::Device(_) | InodeData::Nothing => DataLayout::FlatPlain,
            InodeData::FlatInline(_) => DataLayout::FlatInline,
            InodeData::ChunkBased(_) => DataLayout::ChunkBased,
            InodeData::Compressed { index: IndexKind::Full, .. } => DataLayout::CompressedFull,
            InodeData::Compressed { index: IndexKind::Compact, .. } => DataLayout::CompressedCompact,
        }
    }

    /// Decodes the words of an inode of this type. The start block `hole` marks a hole.
    pub(super) fn decode(words: &DataWords, file_type: FileType, hole: Blkaddr, block_bits: BlockBits) -> Self {
        match file_type {
            FileType::CharDevice | FileType::BlockDevice => return InodeData::Device(Rdev::decode(words.i_u)),
            FileType::Fifo | FileType::Socket => return InodeData::Nothing,
            FileType::Regular | FileType::Directory | FileType::Symlink => {}
        }
        let start = Blkaddr(u64::from(words.i_u) | u64::from(words.startblk_hi) << 32);
        let compressed = |index| InodeData::Compressed { index, blocks: words.i_u };
        match words.layout {
            DataLayout::FlatPlain => InodeData::FlatPlain((start != hole).then_some(start)),
            DataLayout::FlatInline => InodeData::FlatInline(start),
            DataLayout::ChunkBased => InodeData::ChunkBased(ChunkFormat::decode(words.i_u, block_bits)),
            DataLayout::CompressedFull => compressed(IndexKind::Full),
            DataLayout::CompressedCompact => compressed(IndexKind::Compact),
        }
    }

    /// Encodes the data as words of the record. Does not check that the form has room for the high
    /// half of the start block.
    ///
    /// # Errors
    /// A start block over 48 bits, or one that means a hole; a chunk size that the format cannot
    /// express.
    pub(super) fn encode(
        self,
        hole: Blkaddr,
        block_bits: BlockBits,
        record: &'static str,
    ) -> Result<DataWords, FormatError> {
        let at = |start: Blkaddr| match start.0 >> 48 {
            0 => Ok((start.lo(), start.hi())),
            _ => Err(FormatError::does_not_fit(record, "i_u (startblk)", start.0)),
        };
        let (i_u, startblk_hi) = match self {
            InodeData::FlatPlain(Some(start)) if start == hole => {
                return Err(FormatError::does_not_fit(record, "i_u (startblk)", start.0));
            }
            InodeData::FlatPlain(start) => at(start.unwrap_or(hole))?,
            InodeData::FlatInline(start) => at(start)?,
            InodeData::ChunkBased(Ok(format)) => (format.encode(block_bits)?, 0),
            InodeData::ChunkBased(Err(unknown)) => (unknown.encode(), 0),
            InodeData::Compressed { blocks, .. } => (blocks, 0),
            InodeData::Device(rdev) => (rdev.encode()?, 0),
            InodeData::Nothing => (0, 0),
        };
        Ok(DataWords { layout: self.layout(), i_u, startblk_hi })
    }

    /// Returns true if an inode of this type can have such data.
    pub(super) fn suits(self, file_type: FileType) -> bool {
        match file_type {
            FileType::CharDevice | FileType::BlockDevice => matches!(self, InodeData::Device(_)),
            FileType::Fifo | FileType::Socket => self == InodeData::Nothing,
            FileType::Regular | FileType::Directory | FileType::Symlink => {
                !matches!(self, InodeData::Device(_) | InodeData::Nothing)
            }
        }
    }
}

/// Device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rdev {
    /// Major number, 12 bits.
    pub major: u32,
    /// Minor number, 20 bits.
    pub minor: u32,
}

impl Rdev {
    /// Decodes the field `i_u`.
    pub fn decode(i_u: u32) -> Self {
        Self { major: i_u >> 8 & 0xFFF, minor: (i_u & 0xFF) | (i_u >> 12 & !0xFF) }
    }

    /// Encodes the field `i_u`.
    ///
    /// # Errors
    /// A major number over 12 bits or a minor number over 20 bits.
    pub fn encode(self) -> Result<u32, FormatError> {
        let refuse = |field, value: u32| Err(FormatError::does_not_fit("erofs_inode", field, value.into()));
        match self {
            Self { major: 0x1000.., .. } => refuse("rdev (major)", self.major),
            Self { minor: 0x10_0000.., .. } => refuse("rdev (minor)", self.minor),
            Self { major, minor } => Ok((minor & 0xFF) | major << 8 | (minor & !0xFF) << 12),
        }
    }
}
