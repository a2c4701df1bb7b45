//! Reader of SquashFS images, version 4.0.
//!
//! The format is described in the "Squashfs Binary Format" at
//! <https://dr-emann.github.io/squashfs/>. The scan reads inodes, directory listings and attributes
//! through a cache of metadata blocks. Contents are decoded block by block on demand, by any number
//! of threads, which share decoded fragment blocks. Images made by mksquashfs with each compressor
//! are in `tests/squashfs`.
//!
//! The crate `backhand` (0.25) is not used: its nodes have no extended attributes and no inode
//! numbers (which hard links need), and it reads all inodes into memory when it opens an image.

mod blocks;
mod cache;
mod codec;
mod contents;
mod inode;
mod listing;
mod lzo;
mod metadata;
mod problem;
mod scan;
pub(crate) mod source;
mod superblock;
mod table;
mod xattrs;
