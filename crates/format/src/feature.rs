//! Feature words of the superblock, and the kernel that introduced each feature.

use std::fmt;
use std::str::FromStr;

bitflags::bitflags! {
    /// `feature_compat`: kernels ignore bits they do not know.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// The superblock's checksum is valid.
        const SB_CHKSUM = 0x01;
        /// Times are mtimes; informative.
        const MTIME = 0x02;
        /// `h_name_filter` of xattr bodies is valid.
        const XATTR_FILTER = 0x04;
        /// The shared xattr area is in the metabox.
        const SHARED_EA_IN_METABOX = 0x08;
        /// The long xattr prefix table is in the image itself.
        const PLAIN_XATTR_PFX = 0x10;
        /// Content fingerprints are present.
        const ISHARE_XATTRS = 0x20;
        /// All other bits are preserved.
        const _ = !0;
    }

    /// `feature_incompat`: a kernel that does not know a bit refuses the image.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Compressed data is padded in front, not behind.
        const LZ4_0PADDING = 0x001;
        /// Compression configuration records exist; pclusters may exceed a block (`BIG_PCLUSTER`).
        const COMPR_CFGS = 0x002;
        /// Chunk-based inodes exist.
        const CHUNKED_FILE = 0x004;
        /// A device table may exist; the lcluster type HEAD2 may occur.
        const DEVICE_TABLE = 0x008;
        /// Inline pclusters exist.
        const ZTAILPACKING = 0x010;
        /// A packed inode, partially referenced pclusters (`DEDUPE`) or interlaced data may exist.
        const FRAGMENTS = 0x020;
        /// Long xattr name prefixes are in use.
        const XATTR_PREFIXES = 0x040;
        /// 48-bit block addresses, encoded extents, omitted dot entries.
        const ADDR_48BIT = 0x080;
        /// Compressed metadata.
        const METABOX = 0x100;
    }
}

/// Version of Linux, as far as it matters here: `X.Y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion {
    /// First number.
    pub major: u16,
    /// Second number.
    pub minor: u16,
}

impl KernelVersion {
    /// Returns the version `major.minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Error for a text that is not a kernel version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a kernel version: write it as X.Y, for example 6.1")]
pub struct BadKernelVersion;

impl FromStr for KernelVersion {
    type Err = BadKernelVersion;

    /// Parses `X.Y`. Anything after a second dot or a dash is ignored, so that the output of `uname
    /// -r` works.
    fn from_str(text: &str) -> Result<Self, BadKernelVersion> {
        let (major, rest) = text.split_once('.').ok_or(BadKernelVersion)?;
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (minor, tail) = rest.split_at(digits);
        if !(tail.is_empty() || tail.starts_with(['.', '-'])) {
            return Err(BadKernelVersion);
        }
        let number = |s: &str| s.parse().map_err(|_| BadKernelVersion);
        Ok(Self::new(number(major)?, number(minor)?))
    }
}

/// Feature of an image, with the first kernel that supports it (public release history).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// LZ4 in pclusters of one block.
    Lz4,
    /// Configuration records and pclusters of several blocks.
    BigPcluster,
    /// Chunk-based files.
    ChunkedFile,
    /// Extra devices.
    DeviceTable,
    /// MicroLZMA.
    Lzma,
    /// Compressed tails beside the inode.
    TailPacking,
    /// Fragments, and pclusters shared by several extents.
    Fragments,
    /// Long xattr name prefixes.
    XattrPrefixes,
    /// Blocks smaller than a page, uncompressed.
    SubPageBlocks,
    /// DEFLATE.
    Deflate,
    /// Blocks smaller than a page, compressed.
    SubPageCompressed,
    /// Zstandard.
    Zstd,
    /// 48-bit addresses and encoded extents.
    Addr48Bit,
    /// Compressed metadata.
    Metabox,
    /// Long xattr name prefixes that are in the image itself although it has a packed inode.
    PlainXattrPrefixes,
}

impl Feature {
    /// All features, oldest first.
    pub const ALL: [Feature; 15] = [
        Feature::Lz4,
        Feature::BigPcluster,
        Feature::ChunkedFile,
        Feature::DeviceTable,
        Feature::Lzma,
        Feature::TailPacking,
        Feature::Fragments,
        Feature::XattrPrefixes,
        Feature::SubPageBlocks,
        Feature::Deflate,
        Feature::SubPageCompressed,
        Feature::Zstd,
        Feature::Addr48Bit,
        Feature::Metabox,
        Feature::PlainXattrPrefixes,
    ];

    /// Returns the first kernel that mounts an image with this feature.
    pub const fn since(self) -> KernelVersion {
        let (major, minor) = match self {
            Feature::Lz4 => (5, 4),
            Feature::BigPcluster => (5, 13),
            Feature::ChunkedFile => (5, 15),
            Feature::DeviceTable | Feature::Lzma => (5, 16),
            Feature::TailPacking => (5, 17),
            Feature::Fragments => (6, 1),
            Feature::XattrPrefixes | Feature::SubPageBlocks => (6, 4),
            Feature::Deflate => (6, 6),
            Feature::SubPageCompressed => (6, 8),
            Feature::Zstd => (6, 10),
            Feature::Addr48Bit => (6, 15),
            Feature::Metabox => (6, 17),
            // The bit was added late in 6.17.
            Feature::PlainXattrPrefixes => (6, 18),
        };
        KernelVersion::new(major, minor)
    }

    /// Returns the name to show to users.
    pub const fn name(self) -> &'static str {
        match self {
            Feature::Lz4 => "lz4",
            Feature::BigPcluster => "big pclusters",
            Feature::ChunkedFile => "chunk-based files",
            Feature::DeviceTable => "extra devices",
            Feature::Lzma => "lzma",
            Feature::TailPacking => "compressed tail packing",
            Feature::Fragments => "fragments or shared pclusters",
            Feature::XattrPrefixes => "long xattr prefixes",
            Feature::SubPageBlocks => "blocks smaller than 4096 bytes",
            Feature::Deflate => "deflate",
            Feature::SubPageCompressed => "compressed blocks smaller than 4096 bytes",
            Feature::Zstd => "zstd",
            Feature::Addr48Bit => "48-bit addresses",
            Feature::Metabox => "compressed metadata",
            Feature::PlainXattrPrefixes => "long xattr prefixes beside a packed inode",
        }
    }
}

/// Oldest kernel that mounts an uncompressed EROFS image without later features.
pub const OLDEST_KERNEL: KernelVersion = KernelVersion::new(5, 4);
