//! An inode, as the image's users see it.

use super::space::MetadataSpace;
use kiln_format::Nid;
use kiln_format::inode::{FileType, Rdev};

/// An inode and its number.
///
/// ```
/// # fn main() -> Result<(), kiln_read::ReadError> {
/// use kiln_read::{FileType, Image};
///
/// let image = Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
/// let root = image.inode(image.root_nid())?;
/// assert_eq!(root.file_type(), FileType::Directory);
/// assert_eq!(root.mode() & 0o170000, 0o040000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Slot number.
    pub nid: Nid,
    /// The stored record: the values that the methods return, and the layout of the contents.
    pub meta: kiln_format::inode::Inode,
}

impl Inode {
    /// Returns the length of the contents in bytes. Of an image that is not trusted, a claim:
    /// contents may be holes, or damaged.
    pub fn size(&self) -> u64 {
        self.meta.size
    }

    /// Returns the type and permissions, as `st_mode` has them.
    pub fn mode(&self) -> u16 {
        self.meta.mode()
    }

    /// Returns the type.
    pub fn file_type(&self) -> FileType {
        self.meta.file_type
    }

    /// Returns the low 12 bits of `st_mode`: permissions with suid, sgid and sticky.
    pub fn permissions(&self) -> u16 {
        self.meta.permissions
    }

    /// Returns the user ID of the owner.
    pub fn uid(&self) -> u32 {
        self.meta.uid
    }

    /// Returns the group ID.
    pub fn gid(&self) -> u32 {
        self.meta.gid
    }

    /// Returns seconds of the modification time since 1970, negative before.
    pub fn mtime(&self) -> i64 {
        self.meta.mtime
    }

    /// Returns nanoseconds of the modification time behind [`Inode::mtime`], below 10^9.
    pub fn mtime_nsec(&self) -> u32 {
        self.meta.mtime_nsec
    }

    /// Returns the number of names that the inode claims to have.
    pub fn nlink(&self) -> u32 {
        self.meta.nlink
    }

    /// Returns the device number of a device, 0:0 for other types.
    pub fn rdev(&self) -> Rdev {
        self.meta.rdev()
    }

    /// Returns the metadata space of the inode.
    pub fn space(&self) -> MetadataSpace {
        MetadataSpace::of(self.nid.in_metabox())
    }

    /// Returns true if the inode is a directory.
    pub fn is_dir(&self) -> bool {
        self.meta.file_type == FileType::Directory
    }

    /// Returns true if the inode is a regular file.
    pub fn is_file(&self) -> bool {
        self.meta.file_type == FileType::Regular
    }

    /// Returns true if the inode is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.meta.file_type == FileType::Symlink
    }

    /// Returns true if the type has contents: a regular file, a directory, a symbolic link.
    pub fn has_contents(&self) -> bool {
        matches!(self.meta.file_type, FileType::Regular | FileType::Directory | FileType::Symlink)
    }
}
