//! Lists that are loaded while their files are read: each byte is fetched once, and no error and no
//! end of a load leaves a reader waiting.

use crate::common::noting::Noting;
use crate::common::{Rng, named, read_whole, regular_files};
use kiln_read::hotlist::{HotEntry, HotList};
use kiln_read::{Image, ImageOptions, MemorySource, Opening, RangeMut, ReadAt, ReadPolicy, Threads};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Images with all kinds of extents: compressed alone and in the packed inode, plain, in chunks,
/// beside inodes.
const IMAGES: [&str; 6] = ["zstd", "lz4", "lzma", "zstd-1m-frag", "lz4-allfrag", "flat"];

/// A source whose reads take a while, and fail now and then as long as it is `faulty`.
struct Faulty {
    inner: MemorySource,
    rng: AtomicU64,
    is_faulty: AtomicBool,
}

impl Faulty {
    fn draw(&self) -> io::Result<()> {
        let seed = self.rng.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let chosen = Rng(seed | 1).below(5);
        thread::sleep(Duration::from_micros(100 * chosen));
        match chosen == 0 && self.is_faulty.load(Ordering::Relaxed) {
            true => Err(io::Error::other("a bad sector")),
            false => Ok(()),
        }
    }
}

impl ReadAt for Faulty {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.draw()?;
        self.inner.read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        self.draw()?;
        self.inner.read_ranges(ranges)
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, _off: u64, _len: u64) {}
}

fn options() -> ImageOptions {
    ImageOptions::default().with_policy(ReadPolicy::for_page_cache()).with_opening(Opening::HotList)
}

/// All regular files as a whole, and some directories.
fn everything(image: &Image) -> HotList {
    let files = regular_files(image).into_iter().map(|(path, inode)| (path, inode.size()));
    let entry = |(path, len)| HotEntry { offset: 0, len, micros: 0, path };
    let directories = [b"big".to_vec(), b".".to_vec()].map(|path| (path, 0));
    HotList::new(directories.into_iter().chain(files).map(entry).collect())
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[test]
fn readers_wait_for_what_is_in_flight_and_nothing_is_fetched_twice() {
    for name in IMAGES {
        let golden = named(name);
        let expected = golden.open();
        let source = Noting::late(golden.bytes(), Duration::from_millis(5));
        let image = Image::open(source.clone(), Vec::new(), &options()).unwrap();
        let list = everything(&expected);
        let files = regular_files(&expected);
        let ahead = thread::scope(|scope| {
            let load = || image.load_ahead(&list, Threads::at_least_one(4), &AtomicBool::new(false));
            let loading = scope.spawn(load);
            for _ in 0..3 {
                scope.spawn(|| {
                    for (path, inode) in &files {
                        let found = read_whole(&image, inode).unwrap();
                        assert!(found == read_whole(&expected, inode).unwrap(), "{name} {}", path.escape_ascii());
                    }
                });
            }
            loading.join().unwrap()
        });
        assert!(ahead.report.failed.is_empty(), "{name}: {:?}", ahead.report);
        // Now that all is there, reads of whatever size cost no fetch.
        source.take();
        for (path, inode) in &files {
            assert!(
                read_whole(&image, inode).unwrap() == read_whole(&expected, inode).unwrap(),
                "{}",
                path.escape_ascii()
            );
        }
        assert_eq!(source.take(), [], "{name}");
        drop(ahead);
        // Alone, a load fetches no byte twice, and takes few requests.
        let image = Image::open(source.clone(), Vec::new(), &options()).unwrap();
        let _ahead = image.load_ahead(&list, Threads::at_least_one(4), &AtomicBool::new(false));
        let reads = source.take();
        let twice = reads.iter().enumerate().find(|(at, read)| reads[..*at].iter().any(|other| overlap(read, other)));
        // The superblock's block may be one of the metadata, too.
        assert!(twice.is_none_or(|(_, read)| read.start == 0 || overlap(read, &(0..4096))), "{name}: {reads:?}");
        let most = 3 + golden.bytes().len() / (256 << 10);
        assert!(reads.len() <= most, "{name}: {} of {most}: {reads:?}", reads.len());
    }
}

#[test]
fn errors_are_those_of_their_readers_and_nobody_waits_for_ever() {
    for (name, seed) in IMAGES.iter().flat_map(|name| (0..6_u64).map(move |seed| (*name, seed))) {
        let golden = named(name);
        let expected = golden.open();
        let inner = MemorySource::new(golden.bytes());
        let source = Arc::new(Faulty { inner, rng: AtomicU64::new(seed << 20), is_faulty: AtomicBool::new(false) });
        // Half of them have room for next to nothing.
        let cache_bytes = if seed % 2 == 0 { 64 << 20 } else { 256 << 10 };
        let image = Image::open(source.clone(), Vec::new(), &options().with_cache_bytes(cache_bytes)).unwrap();
        let (list, files) = (everything(&expected), regular_files(&expected));
        source.is_faulty.store(true, Ordering::Relaxed);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| match seed % 3 {
                0 => drop(image.pin(&list, 32 << 20, Threads::at_least_one(3), &stop)),
                _ => drop(image.load_ahead(&list, Threads::at_least_one(3), &stop)),
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    for (path, inode) in &files {
                        // An error is no wrong byte.
                        if let Ok(found) = read_whole(&image, inode) {
                            let wanted = read_whole(&expected, inode).unwrap();
                            assert!(found == wanted, "{name}, seed {seed}: {}", path.escape_ascii());
                        }
                    }
                    // A load that is still under way is ended.
                    stop.store(true, Ordering::Relaxed);
                });
            }
        });
        // Whatever has failed, it can be read once the source works.
        source.is_faulty.store(false, Ordering::Relaxed);
        let _ahead = image.load_ahead(&list, Threads::at_least_one(2), &AtomicBool::new(false));
        for (path, inode) in &files {
            let found = read_whole(&image, inode).unwrap();
            assert!(found == read_whole(&expected, inode).unwrap(), "{name}, seed {seed}: {}", path.escape_ascii());
        }
    }
}
