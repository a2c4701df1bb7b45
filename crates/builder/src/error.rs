//! Why a build failed, sorted by the party that must act: the user, the machine's owner, or we.

use kiln_codec::CodecError;
use kiln_format::dirent::PATH_MAX_LEN;
use kiln_format::xattr::BODY_MAX_LEN;
use kiln_format::{FormatError, KernelVersion};
use std::io;

use kiln_tree::{ContentError, TreeError, UnreadableFile};

/// Why a build failed.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A source that cannot be read.
    #[error("{}: {source}", lossy(path))]
    Read {
        /// Path in the tree.
        path: Vec<u8>,
        /// What went wrong.
        source: ContentError,
    },
    /// A source that the format cannot represent.
    #[error("{}: {reason}", lossy(path))]
    Input {
        /// Path in the tree.
        path: Vec<u8>,
        /// Why not.
        reason: InputProblem,
    },
    /// A tree that contradicts itself.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The image (or scratch file) cannot be written.
    #[error("cannot {action}: {source}")]
    Write {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// An option asks for what the chosen kernel does not have.
    #[error("{feature} needs Linux {needs}, but the image is for Linux {kernel}")]
    Kernel {
        /// What was asked for.
        feature: &'static str,
        /// The first kernel that has it.
        needs: KernelVersion,
        /// The kernel that was named.
        kernel: KernelVersion,
    },
    /// A pcluster length that blocks cannot make up, or that is too long.
    #[error("pclusters of {len} bytes: use a multiple of the block size, {block_len} bytes, up to {max_len}")]
    PclusterLen {
        /// What was asked for, in bytes.
        len: u32,
        /// Bytes in a block.
        block_len: u64,
        /// Bytes of the longest one.
        max_len: u32,
    },
    /// An alignment that is no whole blocks.
    #[error("an alignment of {align} bytes: use a multiple of the block size, {block_len} bytes, up to 1 GiB")]
    Alignment {
        /// What was asked for, in bytes.
        align: u64,
        /// Bytes in a block.
        block_len: u64,
    },
    /// A limit of extents that they cannot keep.
    #[error("extents of at most {len} bytes: use {min} or more")]
    ExtentMaxLen {
        /// What was asked for.
        len: u32,
        /// The least that can be had.
        min: u32,
    },
    /// More room for attributes than an inode has.
    #[error("{len} bytes for attributes of the root: the format has {BODY_MAX_LEN} at most")]
    RootXattrLen {
        /// What was asked for.
        len: usize,
    },
    /// A prefix of attributes' names that cannot be had.
    #[error("prefix {} of extended attributes: {reason}", lossy(name))]
    XattrPrefix {
        /// What was asked for.
        name: Vec<u8>,
        /// Why not.
        reason: &'static str,
    },
    /// Chunks that the format does not have.
    #[error("chunks of 2^{bits} bytes: use a block, {block_len} bytes, to 2^31 of them")]
    ChunkBits {
        /// log2 of what was asked for.
        bits: u8,
        /// Bytes in a block.
        block_len: u64,
    },
    /// The image grows beyond what its addresses can hold.
    #[error("the image is too large: {0}")]
    TooLarge(FormatError),
    /// A base whose blocks have another size.
    #[error(
        "the base has blocks of {base_len} bytes, the image is to have blocks of {block_len}: stored data is reused only with \
         --block-size {base_len}"
    )]
    BaseBlocks {
        /// Bytes in a block of the base.
        base_len: u64,
        /// Bytes in a block of the image.
        block_len: u64,
    },
    /// Stored data that a base cannot have.
    #[error(
        "the base is damaged: it has {base_len} bytes, and {len} bytes at byte {pa} of it are behind its end, or overlap others too often; \
         build without it"
    )]
    BaseRange {
        /// First byte in the base.
        pa: u64,
        /// How many.
        len: u64,
        /// Bytes of the base.
        base_len: u64,
    },
    /// Stored data that cannot be read.
    #[error("cannot read {len} bytes at byte {pa} of the base: {source}")]
    BaseRead {
        /// First byte in the base.
        pa: u64,
        /// How many.
        len: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A base that is another one now.
    #[error("the base {source}: data reused from it may be wrong")]
    BaseChanged {
        /// What has changed.
        source: ContentError,
    },
    /// Compression for whose configuration records an older image, behind which the new one goes, has no room.
    #[error(
        "the configuration records of its compression take {len} bytes behind the superblock (available_compr_algs), but only {max_len} are \
         free in the image: use what it is compressed by already (without -z, -C and --preset), or pack a new image"
    )]
    RecordsRoom {
        /// Bytes of the records.
        len: u64,
        /// Bytes for which there is room.
        max_len: u64,
    },
    /// What images behind older ones do not have.
    #[error("{what}: not in an image that is updated in place; pack a new image")]
    Behind {
        /// What was asked for.
        what: &'static str,
    },
    /// Compression failed (out of memory, as a rule).
    #[error("{0}")]
    Codec(#[from] CodecError),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// Our own mistake.
    #[error("internal error, please report it: {0}")]
    Internal(String),
}

/// What the format cannot represent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputProblem {
    /// Device numbers.
    #[error("device number {major}:{minor} is beyond 12 and 20 bits")]
    Rdev {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// Symbolic links.
    #[error("symbolic link of {0} bytes: targets have 1 to 4095")]
    SymlinkLen(usize),
    /// Extended attributes.
    #[error("extended attributes need {0} bytes: the format holds 262148 of one file")]
    XattrBody(usize),
    /// An extended attribute.
    #[error("extended attribute {}: {reason}", lossy(name))]
    Xattr {
        /// Full name.
        name: Vec<u8>,
        /// What is wrong.
        reason: &'static str,
    },
    /// Data on a device beside the image.
    #[error(
        "an image with blocks of {block_len} bytes cannot refer to its data at byte {pa} of device {device}: {reason}"
    )]
    Placed {
        /// First byte of the data there.
        pa: u64,
        /// Number of the device.
        device: u16,
        /// Bytes in a block of the image.
        block_len: u64,
        /// Why not.
        reason: &'static str,
    },
    /// Sizes.
    #[error("file of {0} bytes: the format ends at 2^63")]
    FileLen(u64),
    /// Paths, of which errors have the front.
    #[error("a path of {0} bytes begins so: readers of images follow paths of {PATH_MAX_LEN} bytes at most")]
    PathLen(usize),
}

impl BuildError {
    /// Whether skipping the file that the error names would let the build go on.
    pub fn is_input(&self) -> bool {
        matches!(self, BuildError::Read { .. } | BuildError::Input { .. })
    }

    /// Whether a file is no longer what was scanned or planned, but may well be readable.
    pub fn is_change(&self) -> bool {
        matches!(self, BuildError::Read { source: ContentError::Changed(_), .. })
    }
}

pub(crate) fn lossy(path: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(path)
}

/// Errors of records that the builder itself filled wrongly.
impl From<UnreadableFile> for BuildError {
    fn from(UnreadableFile { path, source }: UnreadableFile) -> Self {
        Self::Read { path, source }
    }
}

impl From<FormatError> for BuildError {
    fn from(error: FormatError) -> Self {
        BuildError::TooLarge(error)
    }
}

/// An input that was left out, or is not what it was.
#[derive(Debug)]
pub struct Skipped {
    /// Path in the tree.
    pub path: Vec<u8>,
    /// Why.
    pub error: BuildError,
}
