//! Data of an older image, the base, that a new image reuses as stored, without decoding and encoding
//! it again.

use kiln_format::compr_cfg::ComprCfgs;
use kiln_format::inode::Epoch;
use kiln_format::{Algorithm, Blkaddr, BlockBits};
use std::fs::File;
use std::io;
use std::ops::Range;

use super::error::ContentError;
use super::{NodeId, Tree};

/// Stored form of a file's contents in a base, if an image can reuse it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReusedData {
    /// As they are, contiguous from byte `pa` of the base on, which begins a block. The last
    /// `tail_len` bytes lie elsewhere, beside the inode, if there are any: these may be all.
    Flat {
        /// Byte of the base where they begin.
        pa: u64,
        /// Bytes at the end of the file that are to be read as those of other files.
        tail_len: u64,
    },
    /// In extents.
    Extents(ReusedExtents),
    /// In the packed inode of the base.
    Fragment {
        /// The first byte there.
        off: u64,
    },
}

/// The extents of a compressed file of a base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReusedExtents {
    /// Algorithm of all compressed extents.
    pub algorithm: Option<Algorithm>,
    /// In the order of the file; what lies between them is holes.
    pub list: Vec<ReusedExtent>,
    /// Offsets in the file and in the packed inode of the base of the end of the file that is stored
    /// there, if any.
    pub fragment: Option<(u64, u64)>,
    /// The end of the file, if its pcluster lies beside the inode.
    pub inline: Option<ReusedExtent>,
    /// Blocks that the inode counts.
    pub blocks: u32,
}

/// An extent of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReusedExtent {
    /// Byte of the file where it begins.
    pub la: u64,
    /// Bytes of plain text.
    pub llen: u32,
    /// Byte of the base where its pcluster begins.
    pub pa: u64,
    /// Bytes of the pcluster, not 0.
    pub plen: u32,
    /// True if the pcluster is the text itself.
    pub plain: bool,
    /// True if the pcluster decodes to more than this text.
    pub partial: bool,
}

impl ReusedExtent {
    /// Byte of the file behind it.
    pub fn end(&self) -> u64 {
        self.la.saturating_add(self.llen.into())
    }
}

/// Previous version of a file, as a base stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousVersion {
    /// Length in bytes.
    pub len: u64,
    /// Its extents.
    pub extents: ReusedExtents,
    /// Ranges in which the file differs from its extents, in order.
    pub differences: Vec<Range<u64>>,
}

impl PreviousVersion {
    /// Minimum length in bytes. Shorter files are stored again as a whole if they have changed.
    pub const MIN_LEN: u64 = 256 << 10;
}

/// Treatment of reused data of a base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// It is copied: the new image does not need the base.
    #[default]
    Copy,
    /// It stays where it is: the new image is appended to the base.
    InPlace,
}

/// Properties of a base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseFacts {
    /// Treatment of reused data.
    pub reuse: Reuse,
    /// Bytes that identify it among images. The UUID of the new image depends on them and on the reused data.
    pub identity: Vec<u8>,
    /// Length in bytes.
    pub len: u64,
    /// Length of its blocks.
    pub block_bits: BlockBits,
    /// Configuration that readers need for its compressed data.
    pub cfgs: ComprCfgs,
    /// Extents of its packed inode; none if they cannot be reused.
    pub packed: ReusedExtents,
    /// Values that its metadata depends on; `None` if no image can refer to its inodes.
    pub metadata: Option<BaseMetadata>,
}

/// Values of a superblock that give meaning to inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseMetadata {
    /// Time that compact inodes have or count from.
    pub epoch: Epoch,
    /// Block from which the ids of shared attributes count.
    pub xattr_blkaddr: Blkaddr,
}

/// A base: where stored bytes are copied from.
pub trait Base: Send + Sync {
    /// Returns its properties.
    fn facts(&self) -> &BaseFacts;

    /// The file that it is, if the system can copy from it.
    fn file(&self) -> Option<&File>;

    /// Fill `buf` from byte `pa` on.
    ///
    /// # Errors
    /// Those of the system, and the end of the base.
    fn read_exact_at(&self, buf: &mut [u8], pa: u64) -> io::Result<()>;

    /// Returns nodes of `tree` with the byte at which the base has the inode of the same path, each node once. There
    /// are none for paths that the base does not have or cannot read.
    fn inode_places(&self, tree: &Tree) -> Vec<(NodeId, u64)>;

    /// Called after the last read.
    ///
    /// # Errors
    /// [`ContentError::Changed`] if the base may have changed since it was opened.
    fn verify_unchanged(&self) -> Result<(), ContentError>;
}
