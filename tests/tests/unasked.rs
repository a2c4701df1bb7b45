//! What a FUSE mount gives the kernel before it is asked for: it spares requests, is right, and nobody waits for himself.

use kiln_codec::Method;
use kiln_mount::fuse;
use kiln_read::{Image, MemorySource, OpenOptions, Reader};
use kiln_tests::data::Texture;
use kiln_tests::image::{build, options};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::mnt::Mount;
use kiln_tests::require;
use kiln_tests::rng::Rng;
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const DIRS: u64 = 24;
const FILES: u64 = 40;
/// In `big`, beside the directories.
const BIG_LEN: usize = 16 << 20;
const PAGE: usize = 4096;

fn small_file(dir: u64, file: u64) -> Vec<u8> {
    let seed = dir * FILES + file;
    // Some are empty, and some are too long to be given.
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

/// Directories of small files, and one big file.
fn image() -> Vec<u8> {
    let mut tree = MemTree::default();
    let root = kiln_build::tree::NodeId(0);
    for dir in 0..DIRS {
        let node = tree.dir(root, format!("{dir:02}").as_bytes());
        for file in 0..FILES {
            tree.file(node, format!("{file:02}").as_bytes(), MemFile::whole(small_file(dir, file)));
        }
    }
    tree.file(root, b"big", MemFile::whole(big_file()));
    build(&tree.finish().unwrap(), &options(Some((Method::Lz4, 1)), 64 << 10, 2)).unwrap().0
}

/// The image as `kiln mount` serves it.
fn mounted() -> Result<Mount, String> {
    let options = OpenOptions { reader: Reader::Kernel, ..OpenOptions::default() };
    Mount::by_fuse(Image::open(Arc::new(MemorySource::new(image())), Vec::new(), &options).unwrap())
}

/// The value of a sample.
fn sample(dir: &Path, name: &str) -> u64 {
    // A request is counted when it is done, which is just after its answer.
    thread::sleep(Duration::from_millis(100));
    let text = fuse::stats(dir).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

const READS: &str = "kiln_request_duration_seconds_count{request=\"read\"}";
const AHEAD: &str = "kiln_unasked_total{why=\"ahead\"}";
const AROUND: &str = "kiln_unasked_total{why=\"around\"}";

/// Names in the order in which they are listed.
fn listed(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Read all small files as a program does that walks through the tree.
fn walk(root: &Path) {
    for dir in listed(root).into_iter().filter(|path| path.is_dir()) {
        for path in listed(&dir) {
            let number = |path: &Path| path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            assert!(fs::read(&path).unwrap() == small_file(number(&dir), number(&path)), "{}", path.display());
        }
    }
}

/// Read pages of the big file here and there, with more flags of open(2).
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
    let (reads, given) = (sample(mount.path(), READS), sample(mount.path(), AHEAD));
    assert!(given > DIRS * FILES / 2, "{given} given");
    assert!(reads < DIRS * FILES / 2, "{reads} asked for");
    // Again: all is there, nothing is given twice.
    walk(mount.path());
    assert_eq!(sample(mount.path(), AHEAD), given);
    assert_eq!(sample(mount.path(), READS), reads);
}

#[test]
fn pages_come_with_their_extents() {
    let mount = require!(mounted());
    let count = (BIG_LEN / PAGE) as u64;
    pages(mount.path(), OFlags::empty(), &big_file(), 1, count);
    let reads = sample(mount.path(), READS);
    assert!(sample(mount.path(), AROUND) > 0);
    assert!(reads < count / 2, "{reads} of {count}");
    assert_eq!(sample(mount.path(), AHEAD), 0);
}

#[test]
fn who_reads_past_the_cache_is_given_nothing() {
    let mount = require!(mounted());
    pages(mount.path(), OFlags::DIRECT, &big_file(), 3, 1000);
    assert_eq!(sample(mount.path(), AROUND), 0);
}

#[test]
fn files_in_no_order_are_left_alone() {
    let mount = require!(mounted());
    let dirs: Vec<_> = listed(mount.path()).into_iter().filter(|path| path.is_dir()).collect();
    let mut files: Vec<_> = dirs.iter().flat_map(|dir| listed(dir)).collect();
    let mut rng = Rng::new(9);
    for idx in (1..files.len()).rev() {
        files.swap(idx, rng.below(idx as u64 + 1) as usize);
    }
    files.iter().for_each(|path| drop(fs::read(path).unwrap()));
    assert!(sample(mount.path(), AHEAD) < DIRS * FILES / 20, "{}", sample(mount.path(), AHEAD));
}

/// Readers hold pages that others are given: all must go on.
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
        assert!(sample(root, AHEAD) + sample(root, AROUND) > 0);
    }
}
