//! Prefetch of a FUSE mount: it saves requests, its contents are correct, and no thread waits for
//! itself.

use kiln_builder::Fragments;
use kiln_codec::Method;
use kiln_mount::fuse::{FuseOptions, ImageSources, Prefetch};
use kiln_read::MemorySource;
use kiln_tests::counted::Counted;
use kiln_tests::data::Texture;
use kiln_tests::image::{build, options};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::mnt::{Mount, settled_stats};
use kiln_tests::rng::Rng;
use kiln_tests::{require, skip};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

const DIRS: u64 = 24;
const FILES: u64 = 40;
/// Number of entries in `big`, beside the directories.
const BIG_LEN: usize = 16 << 20;
const PAGE: usize = 4096;
/// Number of mounts that a test makes if its result depends on the speed of fetches.
const MOUNTS_MAX: usize = 5;

fn small_file(dir: u64, file: u64) -> Vec<u8> {
    let seed = dir * FILES + file;
    // Some are empty, and some are too long to be prefetched.
    let len = match file {
        7 => 0,
        20 => 300 << 10,
        _ => 1 + seed * 7919 % 20_000,
    };
    Texture::Text.bytes(seed, len as usize)
}

fn big_file() -> Vec<u8> {
    Texture::Mixed.bytes(4711, BIG_LEN)
}

/// Returns a tree with directories of small files, and one big file.
fn image() -> Vec<u8> {
    let mut tree = MemTree::default();
    let root = kiln_tree::NodeId(0);
    for dir in 0..DIRS {
        let node = tree.dir(root, format!("{dir:02}").as_bytes());
        for file in 0..FILES {
            tree.file(node, format!("{file:02}").as_bytes(), MemFile::whole(small_file(dir, file)));
        }
    }
    tree.file(root, b"big", MemFile::whole(big_file()));
    packed(tree)
}

/// Returns an image in which small files share extents.
fn packed(tree: MemTree) -> Vec<u8> {
    let options =
        options(Some((Method::Lz4, 1)), 64 << 10, 2).with(|o| o.packing.fragments = Fragments::UpTo(32 << 10));
    build(&tree.finish().unwrap(), &options).unwrap().0
}

static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(image);

/// Serves the image as `kiln mount` does.
fn mounted() -> Result<Mount, String> {
    mounted_from(IMAGE.clone())
}

fn mounted_from(image: Vec<u8>) -> Result<Mount, String> {
    Mount::by_fuse(ImageSources::new(Arc::new(MemorySource::new(image))))
}

/// Returns the value of a sample.
fn sample(dir: &Path, name: &str) -> u64 {
    let text = settled_stats(dir).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

const READS: &str = "kiln_request_duration_seconds_count{request=\"read\"}";
const SEQUENTIAL: &str = "kiln_prefetch_total{kind=\"sequential\"}";
const EXTENT: &str = "kiln_prefetch_total{kind=\"extent\"}";
const SIBLINGS: &str = "kiln_prefetch_total{kind=\"siblings\"}";
const DENTRIES: &str = "kiln_prefetch_dentries_total";
const READDIRS: &str = "kiln_request_duration_seconds_count{request=\"readdir\"}";
const LOOKUPS: &str = "kiln_request_duration_seconds_count{request=\"lookup\"}";

/// Returns names in the order in which they are listed.
fn listed(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Reads all small files as a program does that walks the tree.
fn walk(root: &Path) {
    for dir in listed(root).into_iter().filter(|path| path.is_dir()) {
        for path in listed(&dir) {
            let number = |path: &Path| path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            assert!(fs::read(&path).unwrap() == small_file(number(&dir), number(&path)), "{}", path.display());
        }
    }
}

/// Known names of directories and files, in no particular order.
fn shuffled(seed: u64) -> Vec<(u64, u64)> {
    let mut files: Vec<_> = (0..DIRS).flat_map(|dir| (0..FILES).map(move |file| (dir, file))).collect();
    Rng::new(seed).shuffle(&mut files);
    files
}

/// Reads small files by their names.
fn read(root: &Path, files: impl IntoIterator<Item = (u64, u64)>) {
    for (dir, file) in files {
        let path = root.join(format!("{dir:02}/{file:02}"));
        assert!(fs::read(&path).unwrap() == small_file(dir, file), "{}", path.display());
    }
}

/// Reads scattered pages of the big file, with more flags of open(2).
fn pages(root: &Path, flags: OFlags, expected: &[u8], seed: u64, count: u64) {
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(root.join("big")).unwrap();
    let mut rng = Rng::new(seed);
    for _ in 0..count {
        let off = rng.below((BIG_LEN / PAGE) as u64) as usize * PAGE;
        let mut page = [0; PAGE];
        file.read_exact_at(&mut page, off as u64).unwrap();
        assert!(page == expected[off..off + PAGE], "at byte {off}");
    }
}

#[test]
fn files_are_there_before_they_are_asked_for() {
    let mount = require!(mounted());
    walk(mount.path());
    let (reads, given) = (sample(mount.path(), READS), sample(mount.path(), SEQUENTIAL));
    assert!(given > DIRS * FILES / 2, "{given} given");
    assert!(reads < DIRS * FILES / 2, "{reads} asked for");
    // Again: nearly everything is in the page cache, and is not sent twice. If memory is short, the
    // kernel may have dropped some pages.
    walk(mount.path());
    let (reads_again, given_again) = (sample(mount.path(), READS) - reads, sample(mount.path(), SEQUENTIAL) - given);
    assert!(reads_again + given_again < DIRS * FILES / 20, "{reads_again} asked for again, {given_again} given again");
}

/// Makes reads of all kinds that cause prefetch, and returns the count of each kind: files in
/// sequence, siblings, extents, dentries.
fn prefetched_with(prefetch: Prefetch) -> Result<([u64; 4], u64), String> {
    let serve = || {
        let sources = ImageSources::new(Arc::new(MemorySource::new(IMAGE.clone())));
        Mount::by_fuse_with(sources, FuseOptions { prefetch, ..FuseOptions::default() })
    };
    let kinds = [SEQUENTIAL, SIBLINGS, EXTENT, DENTRIES];
    // By name, without any listing by the reader: each READDIR comes from the server's own thread.
    let mount = serve()?;
    read(mount.path(), shuffled(12));
    let readdirs = sample(mount.path(), READDIRS);
    let by_names = kinds.map(|kind| sample(mount.path(), kind));
    drop(mount);
    let mount = serve()?;
    walk(mount.path());
    pages(mount.path(), OFlags::empty(), &big_file(), 2, (BIG_LEN / PAGE) as u64);
    let in_order = kinds.map(|kind| sample(mount.path(), kind));
    drop(mount);
    let mount = serve()?;
    listed(mount.path()).into_iter().filter(|path| path.is_dir()).for_each(|dir| drop(listed(&dir)));
    read(mount.path(), shuffled(9));
    let listed = kinds.map(|kind| sample(mount.path(), kind));
    Ok((std::array::from_fn(|kind| by_names[kind] + in_order[kind] + listed[kind]), readdirs))
}

#[test]
fn prefetch_follows_the_option() {
    let (counts, readdirs) = require!(prefetched_with(Prefetch::Off));
    assert_eq!((counts, readdirs), ([0; 4], 0));
    // On a busy machine, fetches count as slow and suppress prefetch: several mounts are tried.
    let mut tried = Vec::new();
    let has_all = |counts: &[u64]| counts.iter().all(|&count| count > 0);
    for _ in 0..MOUNTS_MAX {
        let ([data @ .., dentries], data_readdirs) = require!(prefetched_with(Prefetch::Data));
        assert_eq!((dentries, data_readdirs), (0, 0));
        let (counts, readdirs) = require!(prefetched_with(Prefetch::DataAndNames));
        if has_all(&data) && has_all(&counts) && readdirs > 0 {
            return;
        }
        tried.push((data, counts, readdirs));
    }
    panic!("data, all, listings: {tried:?}");
}

#[test]
fn pages_come_with_their_extents() {
    let mount = require!(mounted());
    let count = (BIG_LEN / PAGE) as u64;
    pages(mount.path(), OFlags::empty(), &big_file(), 1, count);
    let reads = sample(mount.path(), READS);
    assert!(sample(mount.path(), EXTENT) > 0);
    assert!(reads < count / 2, "{reads} of {count}");
    assert_eq!(sample(mount.path(), SEQUENTIAL), 0);
}

#[test]
fn direct_reads_are_not_prefetched() {
    let mount = require!(mounted());
    pages(mount.path(), OFlags::DIRECT, &big_file(), 3, 1000);
    assert_eq!(sample(mount.path(), EXTENT), 0);
}

#[test]
fn files_in_no_order_come_with_those_that_are_at_hand() {
    let mount = require!(mounted());
    listed(mount.path()).into_iter().filter(|path| path.is_dir()).for_each(|dir| drop(listed(&dir)));
    read(mount.path(), shuffled(9));
    let given = sample(mount.path(), SIBLINGS);
    assert!(given > DIRS * FILES / 2, "{given} given");
    let reads = sample(mount.path(), READS);
    assert!(reads < DIRS * FILES / 2, "{reads} asked for");
    assert!(sample(mount.path(), SEQUENTIAL) < DIRS * FILES / 20, "{}", sample(mount.path(), SEQUENTIAL));
}

#[test]
fn one_file_here_and_there_comes_alone() {
    let mount = require!(mounted());
    listed(mount.path()).into_iter().filter(|path| path.is_dir()).for_each(|dir| drop(listed(&dir)));
    read(mount.path(), (0..DIRS).map(|dir| (dir, dir * 7 % FILES)));
    let given = sample(mount.path(), SIBLINGS) + sample(mount.path(), SEQUENTIAL);
    assert!(given < DIRS * FILES / 4, "{given} given");
}

#[test]
fn names_are_there_before_they_are_looked_up() {
    let mount = require!(mounted());
    read(mount.path(), shuffled(10));
    let names = sample(mount.path(), DENTRIES);
    assert!(names > DIRS * FILES / 2, "{names} names given");
    let lookups = sample(mount.path(), LOOKUPS);
    assert!(lookups < DIRS * FILES / 2, "{lookups} looked up");

    // In order, files are prefetched as well. A fetch during which another program has the
    // processor counts as slow, and suppresses prefetch for some time: on a busy machine several
    // mounts are tried.
    let in_order = || (0..DIRS).flat_map(|dir| (0..FILES).map(move |file| (dir, file)));
    let mut tried = Vec::new();
    for _ in 0..MOUNTS_MAX {
        let mount = require!(mounted());
        read(mount.path(), in_order());
        let asked = sample(mount.path(), LOOKUPS) + sample(mount.path(), READS);
        let given = sample(mount.path(), SEQUENTIAL);
        if asked < DIRS * FILES && given > DIRS * FILES / 4 {
            return;
        }
        tried.push((asked, given));
    }
    panic!("asked for and given: {tried:?}");
}

/// Names come with attributes, and so with inodes that must be fetched although nothing has
/// requested them.
#[test]
fn names_are_not_fetched_from_a_slow_source() {
    let mut tree = MemTree::default();
    let contents = |file: u64| Texture::Noise.bytes(file, 1000 + (file * 7919 % 2000) as usize);
    for dir in 0..DIRS {
        let node = tree.dir(kiln_tree::NodeId(0), format!("{dir:02}").as_bytes());
        for file in 0..FILES {
            tree.file(node, format!("{file:02}").as_bytes(), MemFile::whole(contents(dir * FILES + file)));
        }
    }
    // Everything is metadata: each file is the tail of its inode.
    let (image, _) = build(&tree.finish().unwrap(), &options(None, 4096, 2)).unwrap();
    for (delay, is_slow) in [(Duration::from_millis(2), true), (Duration::ZERO, false)] {
        let source = Arc::new(Counted::late(MemorySource::new(image.clone()), delay));
        let mount = require!(Mount::by_fuse(ImageSources::new(source)));
        // Four files of each directory: prefetching names pays from the third on.
        for (dir, file) in shuffled(11).into_iter().filter(|(_, file)| file % 13 == 0) {
            let path = mount.path().join(format!("{dir:02}/{file:02}"));
            assert!(fs::read(&path).unwrap() == contents(dir * FILES + file), "{}", path.display());
        }
        let names = sample(mount.path(), DENTRIES);
        assert_eq!(names < DIRS * FILES / 4, is_slow, "{names} names given");
    }
}

/// A reader gets its data after our threads have closed their files in the mount.
#[test]
fn a_mount_is_not_in_use_because_names_are_given() {
    if !rustix::process::geteuid().is_root() {
        skip!("unmounting at once needs root");
    }
    let mut busy = 0;
    for round in 0..40 {
        let mount = require!(mounted());
        read(mount.path(), shuffled(round).into_iter().take(20 + 5 * round as usize));
        match rustix::mount::unmount(mount.path(), UnmountFlags::empty()) {
            Ok(()) => {}
            Err(Errno::BUSY) => busy += 1,
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    // Unless the machine is so busy that readers do not wait any longer.
    assert!(busy < 4, "{busy}");
}

/// A file that follows itself in a listing is not prefetched for a reader that waits for it.
#[test]
fn files_of_several_names_do_not_deadlock() {
    let mut tree = MemTree::default();
    let root = kiln_tree::NodeId(0);
    let file = |number: u64| Texture::Text.bytes(number, 3000);
    for dir in 0..20 {
        let node = tree.dir(root, format!("{dir:02}").as_bytes());
        let first = tree.file(node, b"00", MemFile::whole(file(dir * 100)));
        for number in 1..30 {
            let name = format!("{number:02}");
            match number % 3 {
                0 => drop(tree.file(node, name.as_bytes(), MemFile::whole(file(dir * 100 + number)))),
                _ => tree.name(node, name.as_bytes(), first),
            }
        }
    }
    let bytes = packed(tree);
    let mut names: Vec<(u64, u64)> = (0..20).flat_map(|dir| (0..30).map(move |number| (dir, number))).collect();
    for is_shuffled in [false, true] {
        let mount = require!(mounted_from(bytes.clone()));
        if is_shuffled {
            Rng::new(11).shuffle(&mut names);
        }
        for &(dir, number) in &names {
            let dir_path = mount.path().join(format!("{dir:02}"));
            if is_shuffled || number == 0 {
                listed(&dir_path);
            }
            let expected = file(dir * 100 + if number % 3 == 0 { number } else { 0 });
            assert!(fs::read(dir_path.join(format!("{number:02}"))).unwrap() == expected);
        }
    }
}

/// Readers hold pages into which others' data is prefetched; all of them continue.
#[test]
fn readers_side_by_side_do_not_wait_for_each_other() {
    let big = big_file();
    for round in 0..4 {
        let mount = require!(mounted());
        let root = mount.path();
        thread::scope(|scope| {
            for reader in 0..4 {
                scope.spawn(|| walk(root));
                let big = &big;
                scope.spawn(move || pages(root, OFlags::empty(), big, round * 4 + reader, 2000));
            }
        });
        assert!(sample(root, SEQUENTIAL) + sample(root, EXTENT) > 0);
    }
}
