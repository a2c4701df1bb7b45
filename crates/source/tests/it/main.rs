//! Tests of this crate, in one program, which links much faster than many.

mod archive;
mod common;
mod cpio;
mod cramfs;
mod disk;
mod door;
mod draft;
mod erofs;
mod ext4;
mod filter;
mod fs_config;
mod merge;
mod mtree;
mod oci;
mod pseudo;
mod squashfs;
mod tar;
mod xattrs;
mod zip;
