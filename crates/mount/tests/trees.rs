//! The same image by FUSE and by the kernel is the same tree.
#![allow(missing_docs)]

mod common;

use common::{KernelMount, Served, TempDir, snapshot};
use std::fs;
use std::path::{Path, PathBuf};

fn compare_golden(name: &str) {
    let (image, devices) = common::golden_with_devices(name);
    compare(&image, &devices, 10);
}

/// Mount an image with more than `paths` paths in both ways, and compare all that system calls show.
fn compare(image: &Path, devices: &[PathBuf], paths: usize) {
    if !common::has_fuse() {
        return;
    }
    let temp = TempDir::new();
    let (fuse_dir, kernel_dir) = (temp.dir("fuse"), temp.dir("kernel"));
    let kernel = match KernelMount::new(image, devices, &kernel_dir) {
        Ok(mount) => mount,
        Err(error) if error.falls_back_to_fuse() => return common::skip(&error.to_string()),
        Err(error) => panic!("{error}"),
    };
    let served = Served::start(common::open(image, devices), &fuse_dir, common::options(image)).unwrap();

    let (by_fuse, by_kernel) = (snapshot::take(&fuse_dir), snapshot::take(&kernel_dir));
    assert!(by_kernel.len() > paths, "only {} paths", by_kernel.len());
    snapshot::assert_equal(&by_fuse, &by_kernel);
    // Once more, now that the kernel has cached the names with the listings.
    snapshot::assert_equal(&snapshot::take(&fuse_dir), &by_kernel);

    drop(kernel);
    served.stop().unwrap();
    assert!(!common::is_mounted(&fuse_dir));
}

macro_rules! compare {
    ($($test:ident $image:literal,)*) => { $(#[test] fn $test() { compare_golden($image); })* };
}

compare! {
    flat "flat",
    inline "inline",
    compact "compact",
    extended "extended",
    blocks_of_512 "b512",
    blocks_of_1024_lz4 "b1024-lz4",
    lz4 "lz4",
    lz4_legacy "lz4-legacy",
    lz4_tail "lz4-tail",
    lz4_fragments "lz4-frag",
    lz4_all_fragments "lz4-allfrag",
    lz4_dedupe_fragments_tail "lz4-dedupe-frag-tail",
    lzma "lzma",
    deflate "deflate",
    zstd "zstd",
    zstd_1m_fragments "zstd-1m-frag",
    addresses_of_48_bits "48bit-flat",
    dot_omitted_zstd "48bit-zstd",
    metabox "metabox",
    metabox_zstd "metabox-zstd",
    metadata_zone "mz",
    chunks "chunk-4k",
    chunk_map "chunk-map-64k",
    chunk_index "chunk-index-16k",
    extra_device "blobdev",
    xattrs "xattrs",
    xattrs_shared "xattrs-shared",
    xattrs_inline "xattrs-inline",
    xattr_prefixes "xattr-prefix",
    xattr_filter "xattr-filter",
    xattr_metabox "xattr-metabox",
    xattr_plain_prefix "xattr-plain-prefix",
    xattr_none "xattr-none",
}

/// An image of a root directory in slot `root`, and in it a file in slot `file`.
fn tiny_image(root: u64, file: u64) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let mut image = vec![0; 4 * BLOCK];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let superblock = 1024;
    put(superblock, &0xE0F5_E1E2_u32.to_le_bytes());
    put(superblock + 12, &[12]); // blkszbits
    put(superblock + 14, &(root as u16).to_le_bytes());
    put(superblock + 16, &2_u64.to_le_bytes()); // inos
    put(superblock + 36, &4_u32.to_le_bytes()); // blocks_lo
    put(superblock + 40, &1_u32.to_le_bytes()); // meta_blkaddr

    // Three dirents, then their names.
    let mut dir = Vec::new();
    for (nid, nameoff, file_type) in [(root, 36, 2), (root, 37, 2), (file, 39, 1_u8)] {
        dir.extend(nid.to_le_bytes());
        dir.extend(u16::to_le_bytes(nameoff));
        dir.extend([file_type, 0]);
    }
    dir.extend(b"...file");
    let contents = b"what is in the file";

    // Compact inodes with flat contents in one block.
    let mut put_inode = |nid: u64, mode: u16, nlink: u16, block: u32, data: &[u8]| {
        let inode = BLOCK + nid as usize * 32;
        put(inode + 4, &mode.to_le_bytes());
        put(inode + 6, &nlink.to_le_bytes());
        put(inode + 8, &(data.len() as u32).to_le_bytes());
        put(inode + 16, &block.to_le_bytes());
        put(block as usize * BLOCK, data);
    };
    put_inode(root, 0o040755, 2, 2, &dir);
    put_inode(file, 0o100644, 1, 3, contents);
    image
}

/// Node ids 0 and 1 mean something else to FUSE.
#[test]
fn slots_0_and_1() {
    for (root, file) in [(0, 1), (1, 0), (2, 0), (2, 1), (0, 2)] {
        let temp = TempDir::new();
        let image = temp.path().join("tiny.erofs");
        fs::write(&image, tiny_image(root, file)).unwrap();
        compare(&image, &[], 1);
    }
}
