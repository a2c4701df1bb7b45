//! Golden images damaged in thousands of ways: every request gets an answer or an error, with
//! bounded memory and bounded reads.
//!
//! This is a program of its own because it replaces the global allocator to count the memory of the
//! whole process, to which tests that run beside it would add.
//!
//! `KILN_MUTATIONS=n` sets how often each image is damaged: 20 times by default, 300 times with
//! `./test.sh --long`. `KILN_MUTATIONS_FROM=NAME` skips the images before this one, because
//! thousands of rounds of all images take hours.

use kiln_read::MemorySource;
use kiln_tests::counted::Counted;
use kiln_tests::damage::Damager;
use kiln_tests::exercise::{Limits, Outcome, exercise};
use kiln_tests::golden::{Golden, golden_images};
use kiln_tests::rounds;
use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum memory in use in bytes, beside the images: two caches of 8 and 4 MiB; a workspace of one
/// pcluster (1 MiB) and one extent (12 MiB); an extent on its way to the cache and one for a
/// reader; lists of a check; and half as much again.
const MEMORY_MAX: usize = 48 << 20;
/// Maximum number of bytes allocated by one call: an extent, a pcluster, and their copies.
const ALLOCATED_MAX_PER_CALL: u64 = 16 << 20;
/// Maximum number of bytes read by one call: a pcluster, the metadata around it, and uncompressed
/// data.
const READ_MAX_PER_CALL: u64 = 2 << 20;
const LIMITS: Limits = Limits { entries: 2000, file_bytes: 128 << 10, extents: 200 };
const ROUNDS: u64 = 10;
const LONG_ROUNDS: u64 = 300;

/// Allocator that counts what is allocated.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static TOTAL: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(in_use, Ordering::Relaxed);
        TOTAL.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Cost of one damaged image.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    peak: usize,
    total: usize,
    read: u64,
}

impl Cost {
    fn max(self, other: Cost) -> Cost {
        let Cost { peak, total, read } = other;
        Cost { peak: self.peak.max(peak), total: self.total.max(total), read: self.read.max(read) }
    }
}

/// Makes all requests; returns `None` if the image cannot be opened.
fn survey(golden: &Golden, bytes: Vec<u8>) -> (Option<Outcome>, Cost) {
    let (before, total) = (IN_USE.load(Ordering::Relaxed), TOTAL.load(Ordering::Relaxed));
    PEAK.store(before, Ordering::Relaxed);
    let source = Arc::new(Counted::new(MemorySource::new(bytes)));
    let outcome = golden.open_from(source.clone()).ok().map(|image| exercise(&image, &LIMITS));
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    let total = TOTAL.load(Ordering::Relaxed) - total;
    let (calls, read) = source.counts();
    // A call is work, too, however little it reads.
    (outcome, Cost { peak, total, read: read + 64 * calls })
}

fn survives(golden: &Golden, other: &[u8], rounds: u64) -> Cost {
    let image = golden.open_as(golden.bytes.clone()).unwrap();
    let block_len = image.superblock().block_bits.len() as usize;
    drop(image);
    let seed = golden.name.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte));
    let mut damager = Damager::new(seed, golden.metadata().unwrap(), block_len);
    let (mut refused, mut noticed, mut worst) = (0, 0, Cost::default());
    for round in 0..rounds {
        let mut bytes = golden.bytes.clone();
        let what = damager.damage(&mut bytes, other);
        let surveyed = catch_unwind(AssertUnwindSafe(|| survey(golden, bytes)));
        let (outcome, cost) = surveyed.unwrap_or_else(|_| panic!("{}, round {round}: {what}", golden.name));
        worst = worst.max(cost);
        // Opening is a call, too.
        let calls = 1 + outcome.map_or(0, |outcome| outcome.calls);
        let is_bounded = cost.peak <= MEMORY_MAX
            && cost.total as u64 <= ALLOCATED_MAX_PER_CALL * calls
            && cost.read <= READ_MAX_PER_CALL * calls;
        assert!(is_bounded, "{}, round {round}: {what}: {cost:?}", golden.name);
        match outcome {
            None => refused += 1,
            Some(outcome) => noticed += u64::from(outcome.errors + outcome.problems > 0),
        }
    }
    println!("{}: of {rounds}, {refused} refused, {noticed} noticed; at most {worst:?}", golden.name);
    assert!(refused + noticed > rounds / 10, "{}: the damage does nothing", golden.name);
    worst
}

/// There is only one test, because memory is counted for the whole process.
#[test]
fn damaged_images_are_survived_within_bounds() {
    let images = golden_images().unwrap();
    assert_eq!(images.len(), 36);
    for golden in &images {
        let (outcome, cost) = survey(golden, golden.bytes.clone());
        let outcome = outcome.expect("a good image");
        assert_eq!((outcome.errors, outcome.problems), (0, 0), "{}: {cost:?}", golden.name);
    }
    let mut worst = Cost::default();
    let from = std::env::var("KILN_MUTATIONS_FROM").unwrap_or_default();
    let first = images.iter().position(|golden| golden.name == from).unwrap_or(0);
    let rounds = rounds("KILN_MUTATIONS", ROUNDS, LONG_ROUNDS);
    for (nth, golden) in images.iter().enumerate().skip(first) {
        let other = &images[(nth + 1) % images.len()].bytes;
        worst = worst.max(survives(golden, other, rounds));
    }
    println!("all: at most {worst:?}");
}
