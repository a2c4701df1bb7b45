//! Extents: ranges of files, and where their bytes come from.

use crate::metadata::space::MetadataSpace;
use kiln_format::Algorithm;

/// Place of a pcluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pcluster {
    pub device: u16,
    /// In this metadata space instead of on a device.
    pub inline: Option<MetadataSpace>,
    pub pa: u64,
    pub plen: u32,
}

/// A range of a file whose bytes have one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Byte offset in the file.
    pub la: u64,
    /// Length in bytes; 0 only behind the end of the file.
    pub llen: u64,
    /// Place of its bytes.
    pub kind: ExtentKind,
}

/// Place of the bytes of an extent. Flat addresses are resolved: `pa` is a byte address on
/// `device`, 0 for the primary device and n for extra device n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtentKind {
    /// Zeros.
    Hole,
    /// Stored plain, contiguous.
    Raw {
        /// Device.
        device: u16,
        /// First byte.
        pa: u64,
    },
    /// Stored plain, beside the inode (inline data).
    Meta {
        /// First byte in the metadata space.
        pa: u64,
        /// True for the metabox, false for the primary space.
        in_metabox: bool,
    },
    /// Stored plain, in a pcluster.
    Plain {
        /// Device.
        device: u16,
        /// First byte of the pcluster.
        pa: u64,
        /// Length of the pcluster in bytes.
        plen: u32,
        /// Rotated, so that bytes keep their offset within blocks.
        interlaced: bool,
        /// An inline pcluster: `pa` is in this metadata space, and `device` says nothing.
        inline: Option<MetadataSpace>,
    },
    /// Compressed in a pcluster.
    Encoded {
        /// Algorithm.
        algorithm: Algorithm,
        /// Device.
        device: u16,
        /// First byte of the pcluster.
        pa: u64,
        /// Length of the pcluster in bytes.
        plen: u32,
        /// The pcluster decodes to more than the extent.
        partial: bool,
        /// An inline pcluster: `pa` is in this metadata space, and `device` says nothing.
        inline: Option<MetadataSpace>,
    },
    /// Part of the packed inode.
    Fragment {
        /// First byte in the packed inode's contents.
        off: u64,
    },
    /// In a file outside of the image: the object that has the contents of a file of a composefs
    /// image, from the same byte on.
    Object,
}

impl ExtentKind {
    /// Returns the pcluster that holds the extent, if it is in one.
    pub(crate) fn pcluster(&self) -> Option<Pcluster> {
        match *self {
            ExtentKind::Plain { device, pa, plen, inline, .. }
            | ExtentKind::Encoded { device, pa, plen, inline, .. } => Some(Pcluster { device, inline, pa, plen }),
            ExtentKind::Hole
            | ExtentKind::Raw { .. }
            | ExtentKind::Meta { .. }
            | ExtentKind::Fragment { .. }
            | ExtentKind::Object => None,
        }
    }
}

impl Extent {
    /// Returns the byte offset behind the extent.
    pub fn end(&self) -> u64 {
        self.la + self.llen
    }

    /// Returns the empty extent behind a file of `size` bytes.
    pub(super) fn behind(size: u64) -> Self {
        Self { la: size, llen: 0, kind: ExtentKind::Hole }
    }
}
