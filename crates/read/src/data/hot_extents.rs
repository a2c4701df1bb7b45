//! Extents that hold the ranges of a hot list, and the order in which they are fetched and decoded.
//!
//! The list decides which extents are chosen: they are taken in its order, each once, as long as
//! there is room. They are fetched and decoded in windows of the list's order, and within a window
//! in stored order: what lies together is fetched together.

use super::read::readable;
use crate::cache::pinned::PINNED_COST;
use crate::cache::staged::{ChunkKey, StagedChunks};
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::{PCLUSTER, StoredRange};
use crate::map::encoded_extent::EncodedExtent;
use crate::map::extent::Pcluster;
use crate::map::file_map::FileMap;
use crate::metadata::inode::Inode;
use crate::source::read_at::FETCH_MAX_LEN;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};

/// Extents, steps and names that are looked up at most: a hostile file of an exabyte takes no more
/// time than that.
const LOOKUPS_MAX: usize = 1 << 20;
/// Stored bytes between two pclusters that are fetched with them: that takes less time than a
/// request to a disk.
pub(super) const GAP_MAX_LEN: u64 = 64 << 10;
/// Stored bytes of a window.
const WINDOW_LEN: u64 = 8 << 20;
/// Number of chunks that are fetched before the first batch is decoded: two windows.
const CHUNKS_AHEAD: usize = 2 * WINDOW_LEN as usize / FETCH_MAX_LEN;

/// Place where decoded extents stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Beside the cache, for as long as the image is open.
    Pinned,
    /// In the cache.
    Cached,
}

/// An extent to decode, and which entry of the list wants it first.
pub(super) type Chosen = (EncodedExtent, usize);

/// Work of a thread for a list.
pub(super) enum Task {
    /// Fetch a chunk.
    Fetch(ChunkKey),
    /// Decode these extents.
    Decode(Vec<Chosen>),
}

/// Chooses extents in the order of a list.
pub(super) struct Chooser<'a> {
    reader: Reader<'a>,
    pub(super) keep: Keep,
    pub(super) stop: &'a AtomicBool,
    /// Bytes of memory that may be taken.
    left: u64,
    /// Map of the file that was looked up last, with that of the packed inode.
    map: Option<FileMap<'a>>,
    lookups: usize,
    seen: HashSet<EncodedExtent>,
    pub(super) chosen: Vec<Chosen>,
    /// Stored bytes of all chosen extents, and of plain data.
    pub(super) stored: Vec<StoredRange>,
    /// Ranges that were added before: device, first byte, length.
    staged: HashSet<(u16, u64, u64)>,
}

impl<'a> Chooser<'a> {
    /// Returns a chooser of `left` bytes at most.
    pub(super) fn new(reader: Reader<'a>, keep: Keep, left: u64, stop: &'a AtomicBool) -> Self {
        Self {
            reader,
            keep,
            stop,
            left,
            map: None,
            lookups: 0,
            seen: HashSet::new(),
            chosen: Vec::new(),
            stored: Vec::new(),
            staged: HashSet::new(),
        }
    }

    /// Returns true if an extent is where it is to stay.
    fn is_kept(&self, encoded: &EncodedExtent) -> bool {
        let state = self.reader.volume.state();
        match self.keep {
            Keep::Pinned => state.pinned.get(encoded).is_some(),
            Keep::Cached => state.decoded(encoded).is_some() || !state.fits_cache(encoded),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.lookups >= LOOKUPS_MAX
    }

    /// Adds the extents of bytes `wanted` of a file, for entry `idx` of the list. Returns the
    /// number of bytes that were left out.
    pub(super) fn add(&mut self, idx: usize, inode: &Inode, wanted: Range<u64>) -> Result<u64, ReadError> {
        readable(inode, 0, 0)?;
        let mut map = self.map.take();
        let added = FileMap::open_in(&mut map, self.reader, inode)
            .and_then(|map| self.add_parts(idx, map, wanted.start..wanted.end.min(inode.meta.size)));
        self.map = map;
        added
    }

    fn add_parts(&mut self, idx: usize, map: &mut FileMap<'a>, wanted: Range<u64>) -> Result<u64, ReadError> {
        let mut left_out = 0_u64;
        for part in map.parts(wanted) {
            let part = part?;
            self.lookups += 1;
            if self.is_over() {
                break;
            }
            match part.encoded()? {
                Some(encoded) => left_out = left_out.saturating_add(self.choose(idx, encoded)),
                None => part.stored().map_or(Ok(()), |stored| self.add_stored(stored))?,
            }
        }
        Ok(left_out)
    }

    /// Chooses an extent if there is room for it. Returns the number of bytes that were left out.
    fn choose(&mut self, idx: usize, encoded: EncodedExtent) -> u64 {
        if !self.seen.insert(encoded) || self.is_kept(&encoded) {
            return 0;
        }
        let Some(left) = self.left.checked_sub(u64::from(encoded.llen) + PINNED_COST) else {
            return encoded.llen.into();
        };
        self.left = left;
        self.chosen.push((encoded, idx));
        let Pcluster { device, pa, plen, inline } = encoded.pcluster;
        if inline.is_none() {
            // Decoding it reports a place that is not on the device.
            let _ = self.add_stored((device, pa..pa.saturating_add(plen.into())));
        }
        0
    }
}

impl Chooser<'_> {
    /// Stages stored bytes, unless their source has them in memory.
    fn add_stored(&mut self, (device, bytes): StoredRange) -> Result<(), ReadError> {
        let (pa, len) = (bytes.start, bytes.end - bytes.start);
        let devices = &self.reader.volume.devices;
        devices.check_range(PCLUSTER, device, pa, len)?;
        let is_long = len > FETCH_MAX_LEN as u64;
        let is_new = self.staged.insert((device, pa, len));
        if len > 0 && is_new && (is_long || !devices.is_in_memory(device, pa, len as usize)) {
            self.stored.push((device, bytes));
        }
        Ok(())
    }

    /// Reads the names of a directory, which brings them into the cache.
    pub(super) fn list(&mut self, dir: &Inode) -> Result<(), ReadError> {
        self.reader.read_dir(dir, 0, &mut |_, _| {
            self.lookups += 1;
            if self.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }
}

/// Returns the chunks that hold all of `stored`, and those of them that the list needs first, in
/// its order. Of a list with more than `len_max` bytes they hold the front.
///
/// A long run is filled up to whole chunks, as a request costs the same then: what follows it are,
/// in an image that was laid out by the list, the other parts of the same files, which the kernel
/// reads around what is mapped.
pub(super) fn chunks(reader: Reader<'_>, stored: &[StoredRange], len_max: u64) -> (StagedChunks, Vec<ChunkKey>) {
    let (mut chunks, chunk_len) = (StagedChunks::default(), FETCH_MAX_LEN as u64);
    for (device, run) in runs(stored, len_max) {
        let len = run.end - run.start;
        let filled = if len > chunk_len { len.next_multiple_of(chunk_len) } else { len };
        // The gaps between ranges may be longer than the ranges.
        let end = run.start.saturating_add(filled.min(len_max.saturating_sub(chunks.len())));
        let end = end.min(reader.volume.devices.len(device));
        chunks.add(device, run.start..end, chunk_len);
    }
    let mut seen = HashSet::new();
    let starts = stored.iter().filter_map(|(device, range)| chunks.key_over(*device, range.start));
    let mut order: Vec<_> = starts.filter(|key| seen.insert(*key)).collect();
    // Those where no range begins.
    order.extend(chunks.keys().filter(|key| seen.insert(*key)));
    (chunks, order)
}

/// Returns the front of `stored`, of `len_max` bytes at most, in stored order: what overlaps, and
/// what lies between ranges that are near each other, is one run.
fn runs(stored: &[StoredRange], len_max: u64) -> Vec<StoredRange> {
    let mut left = len_max;
    let fits = |(_, range): &&StoredRange| {
        let rest = left.checked_sub(range.end - range.start);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let mut front: Vec<StoredRange> = stored.iter().take_while(fits).cloned().collect();
    front.sort_unstable_by_key(|(device, range)| (*device, range.start));
    let mut runs: Vec<StoredRange> = Vec::new();
    for (device, range) in front {
        match runs.last_mut() {
            Some((of, run)) if *of == device && range.start <= run.end.saturating_add(GAP_MAX_LEN) => {
                run.end = run.end.max(range.end);
            }
            _ => runs.push((device, range)),
        }
    }
    runs
}

/// Returns the work of the threads in order: chunks are fetched some way ahead of the decoding.
pub(super) fn tasks(chunks: Vec<ChunkKey>, chosen: Vec<Chosen>) -> Vec<Task> {
    let mut fetches = chunks.into_iter().map(Task::Fetch);
    let mut tasks: Vec<_> = fetches.by_ref().take(CHUNKS_AHEAD).collect();
    for batch in batches(chosen) {
        tasks.push(Task::Decode(batch));
        tasks.extend(fetches.next());
    }
    tasks.extend(fetches);
    tasks
}

/// Returns the number of stored bytes between two pclusters, if they are fetched with both.
fn gap((before, _): &Chosen, (behind, _): &Chosen) -> Option<u64> {
    let (before, behind) = (&before.pcluster, &behind.pcluster);
    let gap = behind.pa.checked_sub(before.pa.saturating_add(before.plen.into()))?;
    (before.device == behind.device && gap <= GAP_MAX_LEN).then_some(gap)
}

/// Returns extents in windows of their order, and each window in stored order, cut into what is
/// fetched at once.
fn batches(chosen: Vec<Chosen>) -> Vec<Vec<Chosen>> {
    let plen = |(encoded, _): &Chosen| u64::from(encoded.pcluster.plen);
    let mut batches = Vec::new();
    let mut rest = &chosen[..];
    while !rest.is_empty() {
        let (mut count, mut len) = (0, 0);
        while count < rest.len() && len < WINDOW_LEN {
            len += plen(&rest[count]);
            count += 1;
        }
        let (window, behind) = rest.split_at(count);
        let mut window = window.to_vec();
        window.sort_unstable_by_key(|(encoded, _)| (encoded.pcluster.device, encoded.pcluster.pa));
        let (mut batch, mut batch_len) = (Vec::new(), 0);
        for chosen in window {
            let gap = batch.last().and_then(|last| gap(last, &chosen)).unwrap_or(0);
            if !batch.is_empty() && batch_len + gap + plen(&chosen) > FETCH_MAX_LEN as u64 {
                batches.push(std::mem::take(&mut batch));
                batch_len = 0;
            }
            batch_len += gap + plen(&chosen);
            batch.push(chosen);
        }
        batches.push(batch);
        rest = behind;
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_format::Algorithm;

    #[test]
    fn what_lies_together_is_one_run_and_the_front_of_the_list_comes_first() {
        let near = 1000 + GAP_MAX_LEN;
        let stored = [
            (0, 500..1000),
            (1, 0..500),
            (0, near..near + 500),
            (0, 700..1000),
            (0, near + GAP_MAX_LEN + 501..near + GAP_MAX_LEN + 601),
        ];
        let all = [(0, 500..near + 500), stored[4].clone(), (1, 0..500)];
        assert_eq!(runs(&stored, u64::MAX), all);
        assert_eq!(runs(&stored, 1000), [(0, 500..1000), (1, 0..500)]);
        assert_eq!(runs(&stored, 999), [(0, 500..1000)]);
        assert!(runs(&stored, 0).is_empty());
    }

    #[test]
    fn chunks_are_fetched_ahead_of_what_is_decoded() {
        let pcluster = |pa| Pcluster { device: 0, inline: None, pa, plen: 1 << 20 };
        let extent = |pa| {
            (EncodedExtent { pcluster: pcluster(pa), algorithm: Algorithm::Zstd, partial: false, llen: 1 << 20 }, 0)
        };
        let order = |chunks: u64, extents: u64| -> String {
            let keys = (0..chunks).map(|at| (0, at << 20)).collect();
            let name = |task| if matches!(task, Task::Fetch(_)) { 'f' } else { 'd' };
            tasks(keys, (0..extents).map(|at| extent(at << 20)).collect()).into_iter().map(name).collect()
        };
        assert_eq!((order(2, 1), order(0, 2)), ("ffd".into(), "dd".into()));
        assert_eq!(order(20, 3), format!("{}dfdfdff", "f".repeat(16)));
    }

    #[test]
    fn windows_are_read_in_stored_order() {
        let extent = |pa: u64| {
            let pcluster = Pcluster { device: 0, inline: None, pa, plen: 512 << 10 };
            (EncodedExtent { pcluster, algorithm: Algorithm::Zstd, partial: false, llen: 1 << 20 }, 0)
        };
        // Two windows: 16 pclusters have 8 MiB.
        let chosen: Vec<_> = (0..20).rev().map(|at| extent(at << 20)).collect();
        let pas: Vec<Vec<u64>> = batches(chosen)
            .iter()
            .map(|batch| batch.iter().map(|(encoded, _)| encoded.pcluster.pa >> 20).collect())
            .collect();
        assert_eq!(pas.len(), 10);
        assert_eq!((&pas[0], &pas[7], &pas[8], &pas[9]), (&vec![4, 5], &vec![18, 19], &vec![0, 1], &vec![2, 3]));
        assert!(batches(Vec::new()).is_empty());
    }
}
