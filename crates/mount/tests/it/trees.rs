//! The same image by FUSE, by the kernel and by the library is the same tree.
#![allow(missing_docs)]

crate::common::scenes! {
    slots_0_and_1
    blocks_of_all_sizes
    nanoseconds_over_a_second
}

use crate::common::snapshot::{self, Snapshot};
use crate::common::{KernelMount, Served, TempDir};
use kiln_mount::fuse::{FuseOptions, Prefetch};
use kiln_read::{DirEntries, Image};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn compare_golden(name: &str) {
    let (image, devices) = crate::common::golden_with_devices(name);
    compare(&image, &devices, 10);
}

/// Mounts an image with more than `paths` paths in both ways, and compares everything that system
/// calls show, and the library.
fn compare(image: &Path, devices: &[PathBuf], paths: usize) {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let (fuse_dir, kernel_dir) = (temp.dir("fuse"), temp.dir("kernel"));
    let kernel = match KernelMount::new(image, 0, devices, &kernel_dir) {
        Ok(mount) => mount,
        Err(error) if error.falls_back_to_fuse() => return crate::common::skip(&error.to_string()),
        Err(error) => panic!("{error}"),
    };
    let by_kernel = snapshot::take(&kernel_dir);
    assert!(by_kernel.len() > paths, "only {} paths", by_kernel.len());
    drop(kernel);
    compare_fuse(image, devices, &fuse_dir, by_kernel);
}

/// Checks that the same image by FUSE, and by the library, is `expected`.
fn compare_fuse(image: &Path, devices: &[PathBuf], fuse_dir: &Path, mut expected: Snapshot) {
    let opened = crate::common::open(image, devices);
    compare_library(&opened, &expected);
    without_numbers_0_and_1(&mut expected);
    for prefetch in [Prefetch::DataAndNames, Prefetch::Off] {
        let options = FuseOptions { prefetch, ..crate::common::options(image) };
        let served = Served::start(crate::common::sources(image, devices), fuse_dir, options).unwrap();
        snapshot::assert_equal(&snapshot::take(fuse_dir), &expected);
        // Once more, now that the kernel has cached the names with the listings.
        snapshot::assert_equal(&snapshot::take(fuse_dir), &expected);
        assert!(crate::common::ls_shows_dots(fuse_dir), "{}", image.display());
        served.stop().unwrap();
        assert!(!crate::common::is_mounted(fuse_dir));
    }
}

/// Changes inode numbers as a FUSE mount does: it shows other numbers where the kernel shows 0,
/// which readdir of C libraries skips, or 1.
fn without_numbers_0_and_1(snapshot: &mut Snapshot) {
    let entries = snapshot.values_mut().flat_map(|entry| {
        // A snapshot has 0 for every "..".
        let names = entry.names.iter_mut().flatten().filter(|(name, _)| *name != b"..");
        names.map(|(_, (ino, _))| ino).chain([&mut entry.ino])
    });
    entries.filter(|ino| **ino < 2).for_each(|ino| *ino += 1 << 62);
}

/// Checks that system calls show the same of each path as the library.
fn compare_library(image: &Image, expected: &Snapshot) {
    let root = image.inode(image.root_nid()).unwrap();
    let mut left: BTreeSet<_> = expected.keys().collect();
    for entry in image.walk(&root, b"").map(Result::unwrap) {
        let path = Path::new(OsStr::from_bytes(&entry.path));
        let (shown, inode, shown_path) = (&expected[path], &entry.inode, path.display());
        assert!(left.remove(&path.to_path_buf()));
        let meta = &inode.meta;
        assert_eq!(
            (shown.mode, shown.nlink, shown.uid, shown.gid),
            (meta.mode().into(), meta.nlink, meta.uid, meta.gid)
        );
        assert_eq!((shown.ino, shown.size), (image.st_ino(inode.nid), meta.size), "{shown_path}");
        assert_eq!(shown.times, [(meta.mtime, meta.mtime_nsec); 3], "{shown_path}");
        assert_eq!(shown.rdev, (meta.rdev().major, meta.rdev().minor), "{shown_path}");
        let xattrs = image.list_xattrs(inode).unwrap().into_iter().map(|xattr| (xattr.name, xattr.value));
        assert_eq!(shown.xattrs, xattrs.collect(), "{shown_path}");
        let target = shown.link.as_ref().map(|target| target.as_os_str().as_bytes().to_vec());
        assert_eq!(target, image.read_link(inode).ok(), "{shown_path}");
        let contents = shown.contents.as_ref().map(|expected| {
            let mut contents = vec![0; expected.len()];
            image.read_at(inode, &mut contents, 0).map(|_| contents == *expected).unwrap()
        });
        assert_ne!(contents, Some(false), "contents of {shown_path}");
        let names =
            inode.is_dir().then(|| DirEntries::new(image, inode).collect::<Result<Vec<_>, _>>().unwrap().len() + 2);
        assert_eq!(shown.names.as_ref().map(BTreeMap::len), names, "{shown_path}");
    }
    assert!(left.is_empty(), "the library lacks {left:?}");
}

macro_rules! compare {
    ($($test:ident $image:literal,)*) => {
        $(#[test] fn $test() { compare_golden($image); })*

        #[test]
        fn no_golden_image_is_left_out() {
            let files = fs::read_dir(crate::common::golden("")).unwrap().map(|entry| entry.unwrap().file_name());
            let names = files.filter_map(|file| Some(file.to_str()?.strip_suffix(".erofs")?.to_owned()));
            assert_eq!(names.collect::<BTreeSet<_>>(), BTreeSet::from([$($image.to_owned()),*]));
        }
    };
}

compare! {
    flat "flat",
    inline "inline",
    compact "compact",
    extended "extended",
    blocks_of_512 "b512",
    blocks_of_1024_lz4 "b1024-lz4",
    lz4 "lz4",
    lz4hc_64k "lz4hc-64k",
    lz4_legacy "lz4-legacy",
    lz4_dedupe "lz4-dedupe",
    lz4_tail "lz4-tail",
    lz4_fragments "lz4-frag",
    lz4_all_fragments "lz4-allfrag",
    lz4_dedupe_fragments_tail "lz4-dedupe-frag-tail",
    lzma "lzma",
    lzma_dictionary_of_1m "lzma-dict-1m",
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

/// Returns an image of a root directory in slot `root`, with a file in slot `file`, in blocks of
/// `block_len` bytes.
fn tiny_image(block_len: usize, root: u64, file: u64) -> Vec<u8> {
    // The superblock ends before byte 2048.
    let meta = 2048_usize.next_multiple_of(block_len);
    let data = meta + block_len.max(1024);
    let contents: Vec<u8> = (0..block_len + 100).map(|n| (n / 3) as u8).collect();
    let mut image = vec![0; data + 4 * block_len];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let superblock = 1024;
    put(superblock, &0xE0F5_E1E2_u32.to_le_bytes());
    put(superblock + 12, &[block_len.ilog2() as u8]); // blkszbits
    put(superblock + 14, &(root as u16).to_le_bytes());
    put(superblock + 16, &2_u64.to_le_bytes()); // inos
    put(superblock + 36, &((data / block_len + 4) as u32).to_le_bytes()); // blocks_lo
    put(superblock + 40, &((meta / block_len) as u32).to_le_bytes()); // meta_blkaddr

    // Three dirents, then their names.
    let mut dir = Vec::new();
    for (nid, nameoff, file_type) in [(root, 36, 2), (root, 37, 2), (file, 39, 1_u8)] {
        dir.extend(nid.to_le_bytes());
        dir.extend(u16::to_le_bytes(nameoff));
        dir.extend([file_type, 0]);
    }
    dir.extend(b"...file");

    // Compact inodes with flat contents.
    let mut put_inode = |nid: u64, mode: u16, nlink: u16, start: usize, data: &[u8]| {
        let inode = meta + nid as usize * 32;
        put(inode + 4, &mode.to_le_bytes());
        put(inode + 6, &nlink.to_le_bytes());
        put(inode + 8, &(data.len() as u32).to_le_bytes());
        put(inode + 16, &((start / block_len) as u32).to_le_bytes());
        put(start, data);
    };
    put_inode(root, 0o040755, 2, data, &dir);
    put_inode(file, 0o100644, 1, data + block_len, &contents);
    image
}

/// Node ids 0 and 1 have another meaning in FUSE.
fn slots_0_and_1() {
    for (root, file) in [(0, 1), (1, 0), (2, 0), (2, 1), (0, 2)] {
        let temp = TempDir::new("mount").unwrap();
        let image = temp.path().join("tiny.erofs");
        fs::write(&image, tiny_image(4096, root, file)).unwrap();
        compare(&image, &[], 1);
    }
}

/// The kernel mounts blocks up to its page size; FUSE mounts all, and shows the same.
fn blocks_of_all_sizes() {
    if !crate::common::has_fuse() {
        return;
    }
    for bits in 9..=16 {
        let temp = TempDir::new("mount").unwrap();
        let (image, dir) = (temp.path().join("tiny.erofs"), temp.dir("kernel"));
        fs::write(&image, tiny_image(1 << bits, 2, 4)).unwrap();
        // No page is smaller than 4 KiB.
        let too_large =
            bits > 12 && KernelMount::new(&image, 0, &[], &dir).is_err_and(|error| error.falls_back_to_fuse());
        if !too_large {
            compare(&image, &[], 1);
            continue;
        }
        let served = Served::start(crate::common::sources(&image, &[]), &dir, crate::common::options(&image)).unwrap();
        let by_fuse = snapshot::take(&dir);
        served.stop().unwrap();
        assert_eq!(by_fuse.len(), 2);
        compare_library(&crate::common::open(&image, &[]), &by_fuse);
        let contents = by_fuse[Path::new("file")].contents.as_ref().unwrap();
        assert!(contents.iter().enumerate().all(|(n, byte)| *byte == (n / 3) as u8));
        assert_eq!(contents.len(), (1 << bits) + 100);
    }
}

/// Extended inodes with more than a second of nanoseconds: Linux shows both fields as stored, and
/// programs add them up; the library and FUSE show the sum.
fn nanoseconds_over_a_second() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let path = crate::common::golden("extended.erofs");
    let image = crate::common::open(&path, &[]);
    let sb = image.superblock();
    let root = (sb.meta_blkaddr.0 << sb.block_bits.bits()) + image.root_nid().byte_off().unwrap();
    for (secs, nsec, sum) in [
        (100_i64, 999_999_999_u32, (100, 999_999_999)),
        (100, 1_000_000_005, (101, 5)),
        (-5, u32::MAX, (-1, 294_967_295)),
    ] {
        let mut bytes = fs::read(&path).unwrap();
        bytes[1032] &= !1; // no checksum
        bytes[root as usize + 32..][..8].copy_from_slice(&secs.to_le_bytes());
        bytes[root as usize + 40..][..4].copy_from_slice(&nsec.to_le_bytes());
        let changed = temp.path().join("changed.erofs");
        fs::write(&changed, bytes).unwrap();
        let mtime = |dir: &Path| {
            let stat = fs::symlink_metadata(dir).unwrap();
            (stat.mtime(), stat.mtime_nsec())
        };
        let (kernel_dir, fuse_dir) = (temp.dir(&format!("kernel{nsec}")), temp.dir(&format!("fuse{nsec}")));
        let mount = match KernelMount::new(&changed, 0, &[], &kernel_dir) {
            Ok(mount) => mount,
            Err(error) if error.falls_back_to_fuse() => return crate::common::skip(&error.to_string()),
            Err(error) => panic!("{error}"),
        };
        let (shown_secs, shown_nsec) = mtime(&mount.0);
        assert_eq!((shown_secs + shown_nsec / 1_000_000_000, shown_nsec % 1_000_000_000), sum);
        let opened = crate::common::open(&changed, &[]);
        let meta = opened.inode(opened.root_nid()).unwrap().meta;
        assert_eq!((meta.mtime, i64::from(meta.mtime_nsec)), sum);
        let served =
            Served::start(crate::common::sources(&changed, &[]), &fuse_dir, crate::common::options(&changed)).unwrap();
        assert_eq!(mtime(&served.dir), sum);
        served.stop().unwrap();
    }
}
