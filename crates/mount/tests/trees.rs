//! The same image by FUSE and by the kernel is the same tree.
#![allow(missing_docs)]

mod common;

use common::{KernelMount, Served, TempDir, snapshot};

/// Mount the golden image `name` in both ways and compare all that system calls show.
fn compare(name: &str) {
    if !common::has_fuse() {
        return;
    }
    let temp = TempDir::new();
    let (image, devices) = common::golden_with_devices(name);
    let (fuse_dir, kernel_dir) = (temp.dir("fuse"), temp.dir("kernel"));
    let kernel = match KernelMount::new(&image, &devices, &kernel_dir) {
        Ok(mount) => mount,
        Err(error) if error.falls_back_to_fuse() => return common::skip(&error.to_string()),
        Err(error) => panic!("{error}"),
    };
    let served = Served::start(common::open(&image, &devices), &fuse_dir, common::options(&image)).unwrap();

    let (by_fuse, by_kernel) = (snapshot::take(&fuse_dir), snapshot::take(&kernel_dir));
    assert!(by_kernel.len() > 10, "only {} paths", by_kernel.len());
    snapshot::assert_equal(&by_fuse, &by_kernel);
    // Once more, now that the kernel has cached the names with the listings.
    snapshot::assert_equal(&snapshot::take(&fuse_dir), &by_kernel);

    drop(kernel);
    served.stop().unwrap();
    assert!(!common::is_mounted(&fuse_dir));
}

macro_rules! compare {
    ($($test:ident $image:literal,)*) => { $(#[test] fn $test() { compare($image); })* };
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
