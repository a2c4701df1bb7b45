//! An inode, as the image's users see it.

use super::space::MetadataSpace;
use kiln_format::Nid;
use kiln_format::inode::FileType;

/// An inode and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Slot number.
    pub nid: Nid,
    /// Type, permissions, owner, size, times, layout.
    pub meta: kiln_format::inode::Inode,
}

impl Inode {
    /// Where the inode's metadata lies.
    pub fn space(&self) -> MetadataSpace {
        if self.nid.in_metabox() { MetadataSpace::Metabox } else { MetadataSpace::Primary }
    }

    /// Whether the inode is a directory.
    pub fn is_dir(&self) -> bool {
        self.meta.file_type == FileType::Directory
    }

    /// Whether the type has contents: a regular file, a directory, a symbolic link.
    pub fn has_contents(&self) -> bool {
        matches!(self.meta.file_type, FileType::Regular | FileType::Directory | FileType::Symlink)
    }
}
