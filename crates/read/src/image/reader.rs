//! The reader that all layers below [`Image`](super::Image) work with.

use super::volume::Volume;
use crate::metadata::inode::Inode;
use crate::metadata::long_prefixes::LongPrefixes;
use kiln_format::superblock::Superblock;

/// Permission to fetch metadata that is not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Missing metadata is fetched.
    Allowed,
    /// Missing metadata is an error, [`std::io::ErrorKind::WouldBlock`].
    Refused,
}

/// The special inodes of an image.
#[derive(Clone, Copy, Default)]
pub(crate) struct SpecialInodes {
    /// The packed inode. Its contents are the fragments of all files.
    pub(crate) packed: Option<Inode>,
    /// The metabox. Its contents are inodes.
    pub(crate) metabox: Option<Inode>,
    /// The root, once it has been read. It may lie in the sector that an update of the image replaces.
    pub(crate) root: Option<Inode>,
}

/// Reader of the metadata and the contents of any inode.
///
/// It borrows from the image and is copied freely. Its methods are in the layers that they belong
/// to: `metadata` reads inodes, `map` their extents, `data` their contents.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) special: &'a SpecialInodes,
    pub(crate) prefixes: &'a LongPrefixes,
    pub(crate) fetch: Fetch,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(volume: &'a Volume, special: &'a SpecialInodes, prefixes: &'a LongPrefixes) -> Self {
        Self { volume, special, prefixes, fetch: Fetch::Allowed }
    }

    /// Returns the same reader without permission to fetch metadata.
    pub(crate) fn without_fetches(self) -> Self {
        Self { fetch: Fetch::Refused, ..self }
    }

    pub(crate) fn superblock(self) -> &'a Superblock {
        &self.volume.sb
    }
}
