//! Errors of a build, sorted by the party that must act: the user, the machine's owner, or we.

use kiln_codec::CodecError;
use kiln_format::dirent::PATH_MAX_LEN;
use kiln_format::xattr::BODY_MAX_LEN;
use kiln_format::{FormatError, KernelVersion};
use std::io;

use crate::options::kernel::Lack;
use kiln_tree::{ContentError, TreeError, UnreadableFile};

/// Error of a build.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Source that cannot be read.
    #[error("{}: {source}", lossy(path))]
    Read {
        /// Path in the tree.
        path: Vec<u8>,
        /// Cause.
        source: ContentError,
    },
    /// Source that the format cannot represent.
    #[error("{}: {reason}", lossy(path))]
    Input {
        /// Path in the tree.
        path: Vec<u8>,
        /// Reason.
        reason: InputProblem,
    },
    /// Tree that contradicts itself.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Image or scratch file that cannot be written.
    #[error("cannot {action}: {source}")]
    Write {
        /// Action that was tried.
        action: &'static str,
        /// Answer of the system.
        source: io::Error,
    },
    /// Feature that the chosen kernel does not have: an option needs it, or the image uses it.
    #[error("{feature} needs Linux {needs}, but the image is for Linux {kernel}")]
    Kernel {
        /// Name of the feature.
        feature: &'static str,
        /// First kernel that has it.
        needs: KernelVersion,
        /// Kernel that was chosen.
        kernel: KernelVersion,
    },
    /// Pcluster length that is not a multiple of the block size, or too long.
    #[error("pclusters of {len} bytes: use a multiple of the block size, {block_len} bytes, up to {max_len}")]
    PclusterLen {
        /// Value that was asked for, in bytes.
        len: u32,
        /// Bytes in a block.
        block_len: u64,
        /// Bytes of the longest pcluster.
        max_len: u32,
    },
    /// Alignment that is not a multiple of the block size, or too large.
    #[error("an alignment of {align} bytes: use a multiple of the block size, {block_len} bytes, up to 1 GiB")]
    Alignment {
        /// Value that was asked for, in bytes.
        align: u64,
        /// Bytes in a block.
        block_len: u64,
    },
    /// Limit of extents that is too small.
    #[error("extents of at most {len} bytes: use {min} or more")]
    ExtentMaxLen {
        /// Value that was asked for, in bytes.
        len: u32,
        /// Least value, in bytes.
        min: u32,
    },
    /// More room for attributes than an inode can have.
    #[error("{len} bytes for attributes of the root: the format has {BODY_MAX_LEN} at most")]
    RootXattrLen {
        /// Value that was asked for, in bytes.
        len: usize,
    },
    /// Prefix of attributes' names that the format does not have.
    #[error("prefix {} of extended attributes: {reason}", lossy(name))]
    XattrPrefix {
        /// Prefix that was asked for.
        name: Vec<u8>,
        /// Reason.
        reason: &'static str,
    },
    /// Length of chunks that the format does not have.
    #[error("chunks of 2^{bits} bytes: use a block, {block_len} bytes, to 2^31 of them")]
    ChunkBits {
        /// Value that was asked for: log2 of the length in bytes.
        bits: u8,
        /// Bytes in a block.
        block_len: u64,
    },
    /// Image that is larger than its addresses can describe.
    #[error("the image is too large: {0}")]
    TooLarge(FormatError),
    /// Base whose blocks have another size.
    #[error(
        "the base has blocks of {base_len} bytes, the image is to have blocks of {block_len}: stored data is taken \
         over only with --block-size {base_len}"
    )]
    BaseBlocks {
        /// Bytes in a block of the base.
        base_len: u64,
        /// Bytes in a block of the image.
        block_len: u64,
    },
    /// Stored data outside the base.
    #[error(
        "the base is damaged: it has {base_len} bytes, and {len} bytes at byte {pa} of it are behind its end, or \
         overlap others too often; build without it"
    )]
    BaseRange {
        /// Byte of the base at which it begins.
        pa: u64,
        /// Length in bytes.
        len: u64,
        /// Length of the base in bytes.
        base_len: u64,
    },
    /// Stored data of the base that cannot be read.
    #[error("cannot read {len} bytes at byte {pa} of the base: {source}")]
    BaseRead {
        /// Byte of the base at which it begins.
        pa: u64,
        /// Length in bytes.
        len: u64,
        /// Answer of the system.
        source: io::Error,
    },
    /// Base that was replaced or changed during the build.
    #[error("the base {source}: what was taken over from it may be wrong")]
    BaseChanged {
        /// Change that was noticed.
        source: ContentError,
    },
    /// Compression whose configuration records have no room in the image that is updated.
    #[error(
        "the configuration records of its compression take {len} bytes behind the superblock (available_compr_algs), \
         but only {max_len} are free in the image: use what it is compressed by already (without -z, -C and --preset), \
         or pack a new image"
    )]
    RecordsRoom {
        /// Bytes of the records.
        len: u64,
        /// Bytes of the room.
        max_len: u64,
    },
    /// Property that an image updated in place cannot get.
    #[error("{what}: not in an image that is updated in place; pack a new image")]
    Behind {
        /// Property that was asked for.
        what: &'static str,
    },
    /// Failed compression, usually for lack of memory.
    #[error("{0}")]
    Codec(#[from] CodecError),
    /// Interruption by the caller.
    #[error("interrupted")]
    Interrupted,
    /// Mistake of this library.
    #[error("internal error, please report it: {0}")]
    Internal(String),
}

/// Property of an input that the format cannot represent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputProblem {
    /// Device number.
    #[error("device number {major}:{minor} is beyond 12 and 20 bits")]
    Rdev {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// Length of a symbolic link.
    #[error("symbolic link of {0} bytes: targets have 1 to 4095")]
    SymlinkLen(usize),
    /// Length of all extended attributes of a file.
    #[error("extended attributes need {0} bytes: the format holds 262148 of one file")]
    XattrBody(usize),
    /// Extended attribute.
    #[error("extended attribute {}: {reason}", lossy(name))]
    Xattr {
        /// Full name.
        name: Vec<u8>,
        /// Reason.
        reason: &'static str,
    },
    /// Data on a device beside the image.
    #[error(
        "an image with blocks of {block_len} bytes cannot refer to its data at byte {pa} of device {device}: {reason}"
    )]
    Placed {
        /// Byte of the device at which the data begins.
        pa: u64,
        /// Number of the device.
        device: u16,
        /// Bytes in a block of the image.
        block_len: u64,
        /// Reason.
        reason: &'static str,
    },
    /// Size of a file.
    #[error("file of {0} bytes: the format ends at 2^63")]
    FileLen(u64),
    /// Length of a path; the error has its front.
    #[error("a path of {0} bytes begins so: readers of images follow paths of {PATH_MAX_LEN} bytes at most")]
    PathLen(usize),
}

impl BuildError {
    /// Returns true if the build could go on without the file that the error names.
    pub fn is_input(&self) -> bool {
        matches!(self, BuildError::Read { .. } | BuildError::Input { .. })
    }

    /// Returns true if a file changed after it was scanned or planned. It may well be readable.
    pub fn is_change(&self) -> bool {
        matches!(self, BuildError::Read { source: ContentError::Changed(_), .. })
    }
}

pub(crate) fn lossy(path: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(path)
}

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

/// Input that was left out, or has changed.
#[derive(Debug)]
pub struct Skipped {
    /// Path in the tree.
    pub path: Vec<u8>,
    /// Error about it.
    pub error: BuildError,
}
