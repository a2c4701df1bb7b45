//! Metadata spaces: bytes of the image, or decoded contents of the metabox inode.

/// Space that holds the metadata of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MetadataSpace {
    /// Bytes of the image itself.
    Primary,
    /// Decoded contents of the metabox inode.
    Metabox,
}

impl MetadataSpace {
    pub(crate) fn of(in_metabox: bool) -> Self {
        if in_metabox { MetadataSpace::Metabox } else { MetadataSpace::Primary }
    }
}

/// A window of a metadata space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WindowKey {
    pub space: MetadataSpace,
    pub idx: u64,
}
