//! Reader of ext2, ext3 and ext4 images.
//!
//! The scan reads inodes, directories, attributes and the map of each file. Contents are then read
//! from the image in place, and holes remain holes. Metadata checksums are not verified. The source
//! for the format is the documentation of the Linux kernel (`Documentation/filesystems/ext4`).
//!
//! The crate `ext4-view` (0.9) is not used: it does not return extended attributes, times, device
//! numbers and inode numbers (which hard links need), fills holes with zeros instead of reporting
//! them, and its handle is an `Rc`, which threads cannot share.
//!
//! * A **journal** with changes that have not been written to their places is refused: without them
//!   the image is not consistent.
//! * **Encrypted** files and directories (fscrypt) are refused, each by its path.
//! * **Attributes** are read from the inode, its attribute block and attribute inodes; ACLs are
//!   converted to the form in which the kernel shows them.
//! * A file with several names is one node; `lost+found` is an ordinary directory.

mod dir;
mod fields;
mod inode;
mod map;
mod scan;
pub(crate) mod source;
mod superblock;
mod volume;
mod xattr;
