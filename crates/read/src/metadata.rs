//! Metadata: its cache, inodes, extended attributes.

pub(crate) mod composefs;
pub(crate) mod generation_source;
pub(crate) mod generations;
pub(crate) mod inode;
pub(crate) mod inode_table;
pub(crate) mod long_prefixes;
pub(crate) mod reader;
pub(crate) mod recovery;
pub(crate) mod space;
pub(crate) mod superblock;
mod window;
pub(crate) mod xattr;
