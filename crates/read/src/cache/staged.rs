//! Stored bytes that are fetched before they are read: those of a hot list, in chunks as long as
//! one request may be.
//!
//! The first reader of a byte of a chunk fetches all of it: either the list's own thread or a
//! reader ahead of it. A reader that needs one meanwhile waits, and the source is asked once. A
//! fetch that fails gives its chunk up: each reader then fetches what it needs for itself, so that
//! only those fail that must.
//!
//! The thread that fetches a chunk waits for its source alone, neither for another chunk nor for a
//! claim on a cache. So a thread that waits for a chunk, no matter which claims it holds, waits for
//! a thread that comes to an end: no circle of waiting can occur.

use crate::error::ReadError;
use kiln_parallel::locks::{lock, wait};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

/// Fills a buffer from a byte of a device on.
pub(crate) type FetchFn<'a> = dyn Fn(u16, &mut [u8], u64) -> Result<(), ReadError> + 'a;

/// A page of memory, in bytes, or a part of one.
const ALIGNMENT: usize = 4096;

/// The place of a chunk: its device, and its first byte there.
pub(crate) type ChunkKey = (u16, u64);

/// The chunks of one list, which do not overlap.
#[derive(Default)]
pub(crate) struct StagedChunks {
    chunks: BTreeMap<ChunkKey, Chunk>,
    len: u64,
}

struct Chunk {
    len: usize,
    progress: Mutex<Progress>,
    changed: Condvar,
}

enum Progress {
    /// No thread fetches it yet.
    Wanted,
    InFlight,
    Fetched(Arc<AlignedBytes>),
    GivenUp,
}

impl StagedChunks {
    /// Adds a run of a device, in chunks of at most `chunk_len` bytes, as far as it is in none yet.
    pub(crate) fn add(&mut self, device: u16, run: Range<u64>, chunk_len: u64) {
        let mut start = run.start;
        while start < run.end {
            if let Some(end) = self.end_of_chunk_over(device, start) {
                start = end;
                continue;
            }
            let next = self.chunks.range((device, start)..).next().filter(|((of, _), _)| *of == device);
            let end = next.map_or(run.end, |((_, at), _)| run.end.min(*at)).min(start.saturating_add(chunk_len));
            let chunk =
                Chunk { len: (end - start) as usize, progress: Mutex::new(Progress::Wanted), changed: Condvar::new() };
            self.chunks.insert((device, start), chunk);
            self.len += end - start;
            start = end;
        }
    }

    /// Returns the bytes of all chunks.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the chunks in stored order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = ChunkKey> {
        self.chunks.keys().copied()
    }

    /// Returns the chunk that has a byte of a device.
    pub(crate) fn key_over(&self, device: u16, off: u64) -> Option<ChunkKey> {
        self.end_of_chunk_over(device, off)?;
        self.chunks.range(..=(device, off)).next_back().map(|(key, _)| *key)
    }

    /// Fetches a chunk, unless that was begun before.
    pub(crate) fn fetch(&self, key: ChunkKey, fetch: &FetchFn<'_>) {
        if let Some(chunk) = self.chunks.get(&key)
            && let Some(claim) = chunk.claim()
        {
            claim.fetch(key, fetch);
        }
    }

    fn end_of_chunk_over(&self, device: u16, off: u64) -> Option<u64> {
        let ((of, start), chunk) = self.chunks.range(..=(device, off)).next_back()?;
        let end = start + chunk.len as u64;
        (*of == device && off < end).then_some(end)
    }

    /// Fills `buf` from byte `off` of a device on, if chunks have all of it, and could be fetched.
    fn read(&self, device: u16, buf: &mut [u8], off: u64, fetch: &FetchFn<'_>) -> bool {
        let Some(end) = off.checked_add(buf.len() as u64) else { return false };
        let mut at = off;
        while at < end {
            let Some(stop) = self.end_of_chunk_over(device, at) else { return false };
            at = stop;
        }
        let (mut at, mut buf) = (off, buf);
        while at < end {
            let Some((&key, chunk)) = self.chunks.range(..=(device, at)).next_back() else { return false };
            let Some(bytes) = chunk.bytes(key, fetch) else { return false };
            let Some(found) = bytes.all().get((at - key.1) as usize..).filter(|found| !found.is_empty()) else {
                return false;
            };
            let (part, rest) = buf.split_at_mut(found.len().min(buf.len()));
            part.copy_from_slice(&found[..part.len()]);
            (at, buf) = (at + part.len() as u64, rest);
        }
        true
    }
}

impl Chunk {
    /// Returns the right to fetch the chunk, unless another thread has or had it.
    fn claim(&self) -> Option<ChunkClaim<'_>> {
        let mut progress = lock(&self.progress);
        matches!(*progress, Progress::Wanted).then(|| {
            *progress = Progress::InFlight;
            ChunkClaim { chunk: self, outcome: Progress::GivenUp }
        })
    }

    /// Returns its bytes, fetched here unless a fetch is under way; `None` if it was given up.
    fn bytes(&self, key: ChunkKey, fetch: &FetchFn<'_>) -> Option<Arc<AlignedBytes>> {
        if let Some(claim) = self.claim() {
            claim.fetch(key, fetch);
        }
        let mut progress = lock(&self.progress);
        while matches!(*progress, Progress::InFlight) {
            progress = wait(&self.changed, progress);
        }
        match &*progress {
            Progress::Fetched(bytes) => Some(Arc::clone(bytes)),
            Progress::Wanted | Progress::InFlight | Progress::GivenUp => None,
        }
    }
}

/// Bytes that begin with a page of memory. Sources that bypass the page cache take requests of so
/// many pages, and bytes that begin within one have one more: a chunk would take two requests.
struct AlignedBytes {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    /// Returns `len` zeros.
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGNMENT];
        // Without an alignment, no part is aligned.
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { bytes, start, len }
    }

    fn all(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    fn all_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// The right and the duty to fetch a chunk. Dropped without success, after a panic too, it gives
/// the chunk up.
struct ChunkClaim<'a> {
    chunk: &'a Chunk,
    outcome: Progress,
}

impl ChunkClaim<'_> {
    fn fetch(mut self, (device, start): ChunkKey, fetch: &FetchFn<'_>) {
        let mut bytes = AlignedBytes::new(self.chunk.len);
        if fetch(device, bytes.all_mut(), start).is_ok() {
            self.outcome = Progress::Fetched(Arc::new(bytes));
        }
    }
}

impl Drop for ChunkClaim<'_> {
    fn drop(&mut self) {
        *lock(&self.chunk.progress) = std::mem::replace(&mut self.outcome, Progress::GivenUp);
        self.chunk.changed.notify_all();
    }
}

/// The chunks of all lists that are loaded at the moment. Where there are none, reads look no
/// further.
#[derive(Default)]
pub(crate) struct StagedLists {
    lists: RwLock<Vec<Arc<StagedChunks>>>,
    count: AtomicUsize,
}

impl StagedLists {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Returns the bytes of all chunks.
    pub(crate) fn len(&self) -> u64 {
        self.lists.read().unwrap_or_else(PoisonError::into_inner).iter().map(|list| list.len()).sum()
    }

    pub(crate) fn add(&self, list: Arc<StagedChunks>) {
        let mut lists = self.lists.write().unwrap_or_else(PoisonError::into_inner);
        lists.push(list);
        self.count.store(lists.len(), Ordering::Relaxed);
    }

    /// Forgets the chunks of a list. Readers that wait for one get it yet.
    pub(crate) fn remove(&self, list: &Arc<StagedChunks>) {
        let mut lists = self.lists.write().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|other| !Arc::ptr_eq(other, list));
        self.count.store(lists.len(), Ordering::Relaxed);
    }

    /// Returns true if a chunk has this byte of a device.
    pub(crate) fn has(&self, device: u16, off: u64) -> bool {
        let lists = || self.lists.read().unwrap_or_else(PoisonError::into_inner);
        !self.is_empty() && lists().iter().any(|list| list.key_over(device, off).is_some())
    }

    /// Fills `buf` from byte `off` of a device on, if chunks of one list have all of it, and could
    /// be fetched.
    pub(crate) fn read(&self, device: u16, buf: &mut [u8], off: u64, fetch: &FetchFn<'_>) -> bool {
        if self.is_empty() || buf.is_empty() {
            return false;
        }
        // No lock is held while anybody waits.
        let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner).clone();
        lists.iter().any(|list| list.read(device, buf, off, fetch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn byte(device: u16, at: u64) -> u8 {
        (at % 251) as u8 ^ device as u8
    }

    fn fill(device: u16, buf: &mut [u8], off: u64) {
        (off..).zip(buf).for_each(|(at, out)| *out = byte(device, at));
    }

    fn chunks(runs: &[(u16, Range<u64>)]) -> StagedChunks {
        let mut chunks = StagedChunks::default();
        runs.iter().for_each(|(device, run)| chunks.add(*device, run.clone(), 100));
        chunks
    }

    #[test]
    fn runs_are_cut_and_overlap_nowhere() {
        let runs = [(0, 50..270), (1, 50..60), (0, 0..300), (0, 100..200), (0, 1000..1100)];
        let all = chunks(&runs);
        let lens: Vec<_> = all.keys().map(|key| (key, all.chunks[&key].len)).collect();
        let expected =
            [(0, 0, 50), (0, 50, 100), (0, 150, 100), (0, 250, 20), (0, 270, 30), (0, 1000, 100), (1, 50, 10)];
        assert_eq!(lens, expected.map(|(device, start, len)| ((device, start), len)));
        assert_eq!(all.len(), 410);
        let keys =
            [(0, 49), (0, 149), (0, 300), (0, 1099), (1, 49), (1, 59)].map(|(device, off)| all.key_over(device, off));
        assert_eq!(keys, [Some((0, 0)), Some((0, 50)), None, Some((0, 1000)), None, Some((1, 50))]);
    }

    #[test]
    fn bytes_begin_with_a_page() {
        for len in [0, 1, 4096, 1 << 20] {
            let mut bytes = AlignedBytes::new(len);
            assert_eq!((bytes.all().len(), bytes.all().as_ptr().align_offset(ALIGNMENT)), (len, 0));
            bytes.all_mut().fill(7);
            assert!(bytes.all().iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn reads_are_served_where_chunks_have_all_of_them() {
        let lists = StagedLists::default();
        let list = Arc::new(chunks(&[(0, 50..270), (1, 0..10)]));
        lists.add(Arc::clone(&list));
        let fetches = AtomicUsize::new(0);
        let fetch = |device: u16, buf: &mut [u8], off: u64| {
            fetches.fetch_add(1, Ordering::Relaxed);
            fill(device, buf, off);
            Ok(())
        };
        for (device, range, is_there) in [
            (0, 60..70, true),
            (0, 50..270, true),
            (0, 49..51, false),
            (0, 269..271, false),
            (1, 9..10, true),
            (2, 0..1, false),
        ] {
            let mut buf = vec![0; (range.end - range.start) as usize];
            assert_eq!(lists.read(device, &mut buf, range.start, &fetch), is_there, "{device} {range:?}");
            assert!(!is_there || range.clone().zip(&buf).all(|(at, &found)| found == byte(device, at)), "{range:?}");
        }
        assert_eq!(fetches.load(Ordering::Relaxed), 4, "each chunk once");
        assert!(!lists.read(0, &mut [0], u64::MAX, &fetch));
        assert_eq!([49, 50, 269, 270].map(|off| lists.has(0, off)), [false, true, true, false]);
        lists.remove(&list);
        assert!(lists.is_empty() && !lists.read(0, &mut [0], 60, &fetch));
    }

    #[test]
    fn one_fetch_serves_all_and_one_that_fails_is_given_up() {
        for fails in [false, true] {
            let list = chunks(&[(0, 0..100)]);
            let fetches = AtomicUsize::new(0);
            let fetch = |device: u16, buf: &mut [u8], off: u64| {
                fetches.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(20));
                fill(device, buf, off);
                if fails { Err(ReadError::io(off, 1, io::Error::other("no"))) } else { Ok(()) }
            };
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| assert_eq!(list.read(0, &mut [0; 40], 7, &fetch), !fails));
                }
            });
            assert_eq!(fetches.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn a_fetch_that_panics_leaves_nobody_waiting() {
        let list = chunks(&[(0, 0..100)]);
        assert!(
            catch_unwind(AssertUnwindSafe(|| list.fetch((0, 0), &|_, _, _| panic!("a source that panics")))).is_err()
        );
        assert!(!list.read(0, &mut [0; 40], 7, &|_, _, _| unreachable!()));
    }
}
