//! A SquashFS image, version 4.0, as a tree.
//!
//! The format is that of the "Squashfs Binary Format" at <https://dr-emann.github.io/squashfs/>. The scan reads inodes, listings and
//! attributes through a cache of metadata blocks; contents are decoded block by block when they are wanted, by any number of threads,
//! which share decoded fragment blocks. Images of mksquashfs with each compressor are in `tests/squashfs`.

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
