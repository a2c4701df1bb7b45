//! A directory of very many entries, from a tree in memory to a mounted image: a million with `./test.sh --long`.

use kiln_read::{DirEntries, FileSource, FollowLast, Image, ImageOptions, Threads};
use kiln_tests::counted::Counted;
use kiln_tests::image::{build_to, options, scan_dir};
use kiln_tests::mnt::Mount;
use kiln_tests::temp::TempDir;
use kiln_tests::{require, rounds, skip};
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

/// Returns the number of entries.
fn count() -> usize {
    rounds("KILN_ENTRIES", 200_000, 1_000_000) as usize
}

fn name(n: usize) -> String {
    format!("entry-{:x}", n * 7919)
}

/// Opening an image and finding a first name takes a few reads for any number of inodes, because
/// inodes are not listed.
fn first_lookup_is_cheap(path: &Path) {
    /// Unit in bytes in which metadata is read.
    const WINDOW_LEN: u64 = 16 << 10;
    let source = Arc::new(Counted::new(FileSource::open(path).unwrap()));
    let image = Image::open(source.clone(), Vec::new(), &ImageOptions::default()).unwrap();
    let (calls, bytes) = source.counts();
    assert!(calls <= 4 && bytes <= 2 * WINDOW_LEN, "opening took {calls} reads of {bytes} bytes");
    image.resolve(name(count() / 3).as_bytes(), FollowLast::Keep).unwrap();
    let (calls, bytes) = source.counts();
    // The directory has fewer than 2^13 blocks.
    assert!(calls <= 4 + 13 + 1 && bytes <= calls * WINDOW_LEN, "with a lookup {calls} reads of {bytes} bytes");
}

#[test]
fn a_directory_of_very_many_entries() {
    let count = count();
    let source = TempDir::in_memory("million").unwrap();
    let dir = File::open(source.path()).unwrap();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    for n in 0..count {
        match openat(&dir, name(n), flags, Mode::RUSR) {
            Err(Errno::NOSPC) => skip!("no room for {count} files in {}", source.path().display()),
            made => drop(made.unwrap()),
        }
    }
    let scan = scan_dir(source.path(), 2).unwrap();
    let image = TempDir::new("image").unwrap();
    let path = image.path().join("image");
    let out = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let summary = build_to(&scan.tree, &out, &options(None, 4096, 2)).unwrap();
    assert_eq!((summary.files, summary.directories), (count as u64, 1));
    first_lookup_is_cheap(&path);
    let opened = Image::open_path(&path, &[], &ImageOptions::default()).unwrap();
    for n in (0..count).step_by(99_991).chain([count - 1]) {
        opened.resolve(name(n).as_bytes(), FollowLast::Keep).unwrap();
        assert!(opened.resolve(format!("{}x", name(n)).as_bytes(), FollowLast::Keep).is_err());
    }
    let root = opened.inode(opened.root_nid()).unwrap();
    assert_eq!(DirEntries::new(&opened, &root).collect::<Result<Vec<_>, _>>().unwrap().len(), count);
    assert_eq!(opened.check(Threads::at_least_one(2)).unwrap().problem_count, 0);
    let mount = require!(Mount::by_kernel(&path));
    for n in (0..count).step_by(9_973).chain([count - 1]) {
        assert_eq!(fs::symlink_metadata(mount.path().join(name(n))).unwrap().len(), 0);
        assert!(fs::symlink_metadata(mount.path().join(name(n) + "x")).is_err());
    }
    let listed = Dir::read_from(File::open(mount.path()).unwrap()).unwrap();
    assert_eq!(listed.map(Result::unwrap).count(), count + 2);
}
