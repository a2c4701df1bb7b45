//! Metadata: what is cached of it, inodes, extended attributes.

pub(crate) mod composefs;
pub(crate) mod inode;
pub(crate) mod reader;
pub(crate) mod window;
pub(crate) mod xattr;
