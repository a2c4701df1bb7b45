//! Data that an older image, the base, stores already: an image takes them over as they are stored,
//! neither decoded nor encoded again.

use kiln_format::compr_cfg::ComprCfgs;
use kiln_format::{Algorithm, BlockBits};
use std::fs::File;
use std::io;
use std::ops::Range;

use super::error::ContentError;

/// How a base stores a file's contents, where an image can take them over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// As they are, contiguous from byte `pa` of the base on, which begins a block. The last
    /// `tail_len` bytes lie elsewhere, beside the inode, if there are any: these may be all.
    Flat {
        /// Byte of the base where they begin.
        pa: u64,
        /// Bytes at the end of the file that are to be read as those of other files.
        tail_len: u64,
    },
    /// In extents.
    Extents(KeptExtents),
    /// In the packed inode of the base.
    Fragment {
        /// The first byte there.
        off: u64,
    },
}

/// The extents of a compressed file of a base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptExtents {
    /// What all of them are compressed by that are compressed.
    pub algorithm: Option<Algorithm>,
    /// In the order of the file; what lies between them is holes.
    pub list: Vec<KeptExtent>,
    /// Where the end of the file lies in the packed inode of the base, if it does: its first byte
    /// in the file and there.
    pub fragment: Option<(u64, u64)>,
    /// The end of the file, if its pcluster lies beside the inode.
    pub inline: Option<KeptExtent>,
    /// Blocks that the inode counts.
    pub blocks: u32,
}

/// An extent of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptExtent {
    /// Byte of the file where it begins.
    pub la: u64,
    /// Bytes of plain text.
    pub llen: u32,
    /// Byte of the base where its pcluster begins.
    pub pa: u64,
    /// Bytes of the pcluster, not 0.
    pub plen: u32,
    /// Whether the pcluster is the text itself.
    pub plain: bool,
    /// Whether the pcluster decodes to more than this text.
    pub partial: bool,
}

impl KeptExtent {
    /// Byte of the file behind it.
    pub fn end(&self) -> u64 {
        self.la.saturating_add(self.llen.into())
    }
}

/// An older version of a file, as a base stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    /// Length in bytes.
    pub len: u64,
    /// Its extents.
    pub extents: KeptExtents,
    /// Where the file differs from it, in order, if that is known: there is nothing to compare then.
    pub differences: Option<Vec<Range<u64>>>,
}

/// What becomes of stored data that is taken over from a base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Taking {
    /// It is copied: the new image does not need the base.
    #[default]
    Copied,
    /// It stays where it is: the new image is appended to the base.
    InPlace,
}

/// What is known of a base as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseFacts {
    /// What becomes of the data.
    pub taking: Taking,
    /// What tells it from other images. The UUID of the new image depends on it, and on what is taken over.
    pub identity: Vec<u8>,
    /// Length in bytes.
    pub len: u64,
    /// Length of its blocks.
    pub block_bits: BlockBits,
    /// What readers need for what it has compressed.
    pub cfgs: ComprCfgs,
    /// The extents of its packed inode; none where these cannot be taken over.
    pub packed: KeptExtents,
}

/// A base: where stored bytes are copied from.
pub trait Base: Send + Sync {
    /// What is known of it.
    fn facts(&self) -> &BaseFacts;

    /// The file that it is, if the system can copy from it.
    fn file(&self) -> Option<&File>;

    /// Fill `buf` from byte `pa` on.
    ///
    /// # Errors
    /// Those of the system, and the end of the base.
    fn read_exact_at(&self, buf: &mut [u8], pa: u64) -> io::Result<()>;

    /// Called after the last read.
    ///
    /// # Errors
    /// [`ContentError::Changed`] if the base may have changed since it was opened.
    fn verify_unchanged(&self) -> Result<(), ContentError>;
}
