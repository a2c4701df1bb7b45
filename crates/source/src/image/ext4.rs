//! An image of ext2, ext3 or ext4 as a tree.
//!
//! Everything lies in place: the scan reads inodes, directories, attributes and the map of each file, and contents are then read
//! from the image, whose holes stay holes. Checksums of metadata are not verified. What is known of the format comes from the documentation of the
//! Linux kernel (`Documentation/filesystems/ext4`).
//!
//! * A **journal** that holds changes which are not in place yet is refused: without them the image is not what it should be.
//! * **Encrypted** files and directories (fscrypt) are refused, each by its path.
//! * **Attributes** come from the inode, its block and inodes of attributes; ACLs have the form in which the kernel shows them.
//! * A file with several names is one node; `lost+found` is a directory as others are.

mod dir;
mod fields;
mod inode;
mod map;
mod scan;
pub(crate) mod source;
mod superblock;
mod volume;
mod xattr;
