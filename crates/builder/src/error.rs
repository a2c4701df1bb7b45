//! Errors of a build, sorted by the party that must act: the user, the machine's owner, or the authors of kiln.

use kiln_codec::CodecError;
use kiln_format::dirent::PATH_MAX_LEN;
use kiln_format::xattr::BODY_MAX_LEN;
use kiln_format::{FormatError, KernelVersion};
use std::io;

use crate::options::kernel::Lack;
use kiln_tree::{ContentError, TreeError, UnreadableFile};

/// The reason why a build failed.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A source that cannot be read.
    #[error("{}: {source}", lossy(path))]
    Read {
        /// Path in the tree.
        path: Vec<u8>,
        /// Error of the source.
        source: ContentError,
    },
    /// A source that the format cannot represent.
    #[error("{}: {reason}", lossy(path))]
    Input {
        /// Path in the tree.
        path: Vec<u8>,
        /// Reason.
        reason: InputProblem,
    },
    /// A tree that contradicts itself.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The image (or scratch file) cannot be written.
    #[error("cannot {action}: {source}")]
    Write {
        /// Operation that failed.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// A feature that the chosen kernel lacks: an option asks for it, or the image uses it.
    #[error("{feature} needs Linux {needs}, but the image is for Linux {kernel}")]
    Kernel {
        /// The feature.
        feature: &'static str,
        /// The first kernel that supports it.
        needs: KernelVersion,
        /// The chosen kernel.
        kernel: KernelVersion,
    },
    /// A pcluster length that is no multiple of the block size, or that is too long.
    #[error("pclusters of {len} bytes: use a multiple of the block size, {block_len} bytes, up to {max_len}")]
    PclusterLen {
        /// Length that was asked for, in bytes.
        len: u32,
        /// Bytes in a block.
        block_len: u64,
        /// Longest possible length in bytes.
        max_len: u32,
    },
    /// An alignment that is no multiple of the block size.
    #[error("an alignment of {align} bytes: use a multiple of the block size, {block_len} bytes, up to 1 GiB")]
    Alignment {
        /// Alignment that was asked for, in bytes.
        align: u64,
        /// Bytes in a block.
        block_len: u64,
    },
    /// A limit on extents that is too low.
    #[error("extents of at most {len} bytes: use {min} or more")]
    ExtentMaxLen {
        /// Limit that was asked for, in bytes.
        len: u32,
        /// Lowest possible limit in bytes.
        min: u32,
    },
    /// More room for attributes than an inode can have.
    #[error("{len} bytes for attributes of the root: the format has {BODY_MAX_LEN} at most")]
    RootXattrLen {
        /// Bytes that were asked for.
        len: usize,
    },
    /// A prefix of attribute names that cannot be used.
    #[error("prefix {} of extended attributes: {reason}", lossy(name))]
    XattrPrefix {
        /// The prefix.
        name: Vec<u8>,
        /// Reason.
        reason: &'static str,
    },
    /// A length of chunks that the format lacks.
    #[error("chunks of 2^{bits} bytes: use a block, {block_len} bytes, to 2^31 of them")]
    ChunkBits {
        /// log2 of the length that was asked for.
        bits: u8,
        /// Bytes in a block.
        block_len: u64,
    },
    /// An image that grows beyond the range of its addresses.
    #[error("the image is too large: {0}")]
    TooLarge(FormatError),
    /// A base whose blocks have another size.
    #[error(
        "the base has blocks of {base_len} bytes, the image is to have blocks of {block_len}: stored data can only be \
         reused with --block-size {base_len}"
    )]
    BaseBlocks {
        /// Bytes in a block of the base.
        base_len: u64,
        /// Bytes in a block of the image.
        block_len: u64,
    },
    /// Stored data that lies outside the base, or overlaps too often: the base is damaged.
    #[error(
        "the base is damaged: it has {base_len} bytes, and {len} bytes at byte {pa} of it are behind its end, or \
         overlap others too often; build without it"
    )]
    BaseRange {
        /// First byte of the extent in the base.
        pa: u64,
        /// Length of the extent in bytes.
        len: u64,
        /// Length of the base in bytes.
        base_len: u64,
    },
    /// Stored data of a base that cannot be read.
    #[error("cannot read {len} bytes at byte {pa} of the base: {source}")]
    BaseRead {
        /// First byte of the data in the base.
        pa: u64,
        /// Length of the data in bytes.
        len: u64,
        /// Error of the system.
        source: io::Error,
    },
    /// A base that has changed since it was opened.
    #[error("the base {source}: data reused from it may be wrong")]
    BaseChanged {
        /// The change.
        source: ContentError,
    },
    /// An older image, behind which the new one goes, has no room for the configuration records of its compression.
    #[error(
        "the configuration records of its compression take {len} bytes behind the superblock (available_compr_algs), \
         but only {max_len} are free in the image: keep its compression (without -z, -C and --preset), or pack a new \
         image"
    )]
    RecordsRoom {
        /// Length of the records in bytes.
        len: u64,
        /// Room for records in bytes.
        max_len: u64,
    },
    /// A feature that images behind older ones cannot have.
    #[error("{what}: not in an image that is updated in place; pack a new image")]
    Behind {
        /// The feature.
        what: &'static str,
    },
    /// Compression failed, as a rule for lack of memory.
    #[error("{0}")]
    Codec(#[from] CodecError),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A bug in kiln.
    #[error("internal error, please report it: {0}")]
    Internal(String),
}

/// A property of an input that the format cannot represent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputProblem {
    /// Device numbers out of range.
    #[error("device number {major}:{minor} is beyond 12 and 20 bits")]
    Rdev {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A symbolic link that is too long or empty.
    #[error("symbolic link of {0} bytes: targets have 1 to 4095")]
    SymlinkLen(usize),
    /// Extended attributes that are too long in total.
    #[error("extended attributes need {0} bytes: the format holds 262148 of one file")]
    XattrBody(usize),
    /// An extended attribute that cannot be stored.
    #[error("extended attribute {}: {reason}", lossy(name))]
    Xattr {
        /// Full name.
        name: Vec<u8>,
        /// Reason.
        reason: &'static str,
    },
    /// Data on an extra device that the image cannot refer to.
    #[error(
        "an image with blocks of {block_len} bytes cannot refer to its data at byte {pa} of device {device}: {reason}"
    )]
    Placed {
        /// First byte of the data on the device.
        pa: u64,
        /// Number of the device.
        device: u16,
        /// Bytes in a block of the image.
        block_len: u64,
        /// Reason.
        reason: &'static str,
    },
    /// A file that is too long.
    #[error("file of {0} bytes: the format ends at 2^63")]
    FileLen(u64),
    /// A path that is too long. The error holds the front of it.
    #[error("a path of {0} bytes begins so: readers of images follow paths of {PATH_MAX_LEN} bytes at most")]
    PathLen(usize),
}

impl BuildError {
    /// Returns whether the build could go on without the file that the error names.
    pub fn is_input(&self) -> bool {
        matches!(self, BuildError::Read { .. } | BuildError::Input { .. })
    }

    /// Returns whether a file has changed since it was scanned or planned. It may well be readable.
    pub fn is_change(&self) -> bool {
        matches!(self, BuildError::Read { source, .. } if source.is_change())
    }

    /// Returns true if a file has another length than when it was scanned.
    pub fn is_resize(&self) -> bool {
        matches!(self, BuildError::Read { source: ContentError::Resized(_), .. })
    }
}

pub(crate) fn lossy(path: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(path)
}

/// Converts errors of records that the builder itself filled wrongly.
impl From<UnreadableFile> for BuildError {
    fn from(UnreadableFile { path, source }: UnreadableFile) -> Self {
        Self::Read { path, source }
    }
}

impl From<Lack> for BuildError {
    fn from(Lack { feature, kernel }: Lack) -> Self {
        Self::Kernel { feature: feature.name(), needs: feature.since(), kernel }
    }
}

impl From<FormatError> for BuildError {
    fn from(error: FormatError) -> Self {
        BuildError::TooLarge(error)
    }
}

/// An input that was left out, or that has changed.
#[derive(Debug)]
pub struct Skipped {
    /// Path in the tree.
    pub path: Vec<u8>,
    /// Reason.
    pub error: BuildError,
}
