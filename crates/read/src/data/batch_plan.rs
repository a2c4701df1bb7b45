//! The plan of a batch read: its units in stored order, and the extents that they share.

use super::position::{DiskPosition, disk_position};
use super::read::readable;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::DataPart;
use crate::map::encoded_extent::EncodedExtent;
use crate::map::extent::ExtentKind;
use crate::map::file_map::FileMap;
use crate::map::inode_map::Map;
use crate::metadata::inode::Inode;
use crate::source::read_at::FETCH_MAX_LEN;
use kiln_parallel::Threads;
use std::collections::HashMap;
use std::ops::Range;

/// Longer ranges are given in items of about this many bytes.
pub(super) const ITEM_LEN: u64 = 4 << 20;
/// Most units of one range: a hostile file of an exabyte needs no more memory than that.
const UNITS_MAX: u64 = 1024;
/// A unit of at most so many pieces keeps them, so that they are looked up once. What a unit of
/// more is read from takes longer than looking them up.
const KEPT_PARTS_MAX: usize = 4;
/// Bytes of a batch that a thread takes at once, if it can end where a pcluster ends, and bytes
/// after which it ends anywhere.
const BATCH_LEN: u64 = 1 << 20;
const BATCH_MAX_LEN: u64 = 4 << 20;
/// Encoded data is cut into this many batches per thread, but not into shorter ones: a batch of 64
/// KiB takes 200 microseconds or more to decode, a thread 20 to start.
const BATCHES_OF_THREAD: u64 = 4;
const ENCODED_BATCH_MIN_LEN: u64 = 64 << 10;

/// A range of a file's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub inode: Inode,
    /// Bytes of it; those behind its end are left out.
    pub range: Range<u64>,
}

/// Contents of one range of a batch: all of them, or a part of a long range.
#[derive(Debug)]
pub struct BatchItem<'a> {
    /// Index of the range in the list.
    pub idx: usize,
    /// Byte offset in the file.
    pub off: u64,
    /// The bytes, or the error that replaces them.
    pub bytes: Result<&'a [u8], ReadError>,
}

/// Unit of reading of one thread: a range, or a part of a long one.
pub(super) struct ReadUnit {
    pub(super) idx: usize,
    pub(super) range: Range<u64>,
    pub(super) position: DiskPosition,
    /// The encoded extents that hold its first and last bytes.
    pub(super) ends: [Option<EncodedExtent>; 2],
    /// Parts of the plan that it has; none if there are too many to keep them.
    parts: Range<usize>,
}

impl ReadUnit {
    /// Returns the device and the stored bytes that hold the unit, as far as its ends tell: the
    /// bytes between them are theirs in most files. `None` where nothing is stored.
    pub(super) fn stored(&self) -> Option<(u16, Range<u64>)> {
        let (device, start, _) = self.position;
        let len = self.range.end - self.range.start;
        let pcluster_end = |extent: &EncodedExtent| extent.pcluster.pa.saturating_add(extent.pcluster.plen.into());
        let end = match &self.ends {
            [Some(first), Some(last)] if first.pcluster.device == last.pcluster.device => {
                pcluster_end(first).max(pcluster_end(last))
            }
            [Some(first), _] => pcluster_end(first),
            [None, _] => start.saturating_add(len),
        };
        (start > 0 && len > 0 && end > start).then_some((device, start..end))
    }
}

/// An extent that units want parts of: what all of them together need.
#[derive(Default)]
pub(super) struct SharedExtent {
    /// The byte behind the last one that a unit wants.
    pub(super) end: u64,
    /// Number of units that want a part.
    pub(super) users: usize,
}

/// Plan of a batch: units in stored order, their parts, and the extents that they share.
pub(super) struct BatchPlan {
    pub(super) units: Vec<ReadUnit>,
    parts: Vec<DataPart>,
    pub(super) shared: SharedExtents,
}

impl BatchPlan {
    /// Returns the parts of a unit, or none if they are not kept.
    pub(super) fn parts(&self, unit: &ReadUnit) -> &[DataPart] {
        &self.parts[unit.parts.clone()]
    }
}

pub(super) type SharedExtents = HashMap<EncodedExtent, SharedExtent>;

/// A plan in the making.
struct Planner<'a> {
    reader: Reader<'a>,
    /// Map of the file that was looked up last, with that of the packed inode.
    map: Option<FileMap<'a>>,
    plan: BatchPlan,
}

impl<'a> Reader<'a> {
    /// Returns the units of all ranges, sorted by position. Ranges that cannot be looked up are
    /// given as errors at once.
    pub(super) fn plan_batch(self, ranges: &[FileRange], each: &dyn Fn(BatchItem<'_>)) -> BatchPlan {
        let units = Vec::with_capacity(ranges.len());
        let plan = BatchPlan { units, parts: Vec::new(), shared: SharedExtents::new() };
        let mut planner = Planner { reader: self, map: None, plan };
        for (idx, FileRange { inode, range }) in ranges.iter().enumerate() {
            if let Err(error) = planner.add_range(idx, inode, range) {
                let off =
                    planner.plan.units.last().filter(|unit| unit.idx == idx).map_or(range.start, |unit| unit.range.end);
                each(BatchItem { idx, off, bytes: Err(error.at_nid(inode.nid)) });
            }
        }
        let mut plan = planner.plan;
        plan.units.sort_unstable_by_key(|unit| (unit.position, unit.idx, unit.range.start));
        plan
    }
}

impl Planner<'_> {
    fn add_range(&mut self, idx: usize, inode: &Inode, range: &Range<u64>) -> Result<(), ReadError> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let end = range.start + readable(inode, len, range.start)? as u64;
        let mut start = range.start;
        if start >= end {
            let (position, ends) = ((0, 0, 0), [None, None]);
            self.plan.units.push(ReadUnit { idx, range: start..start, position, ends, parts: 0..0 });
        }
        let Self { reader, map, plan } = self;
        let map = FileMap::open_in(map, *reader, inode)?;
        let len = ITEM_LEN.max((end - start) / UNITS_MAX);
        while start < end {
            let stop = cut(map.file(), start, end, len)?;
            plan.add_unit(idx, map, start..stop)?;
            start = stop;
        }
        Ok(())
    }
}

impl BatchPlan {
    fn add_unit(&mut self, idx: usize, map: &mut FileMap<'_>, range: Range<u64>) -> Result<(), ReadError> {
        let (mut position, mut first, mut last) = (None, None, None);
        let (start, mut count) = (self.parts.len(), 0);
        for part in map.parts(range.clone()) {
            let part = part?;
            let encoded = part.encoded()?;
            if position.is_none() {
                (position, first) = (Some(disk_position(&part)), encoded);
            }
            last = encoded;
            if let Some(encoded) = encoded.filter(|_| part.len() < part.extent.llen) {
                let need = self.shared.entry(encoded).or_default();
                *need = SharedExtent { end: need.end.max(part.skip() + part.len()), users: need.users + 1 };
            }
            count += 1;
            if count <= KEPT_PARTS_MAX {
                self.parts.push(part);
            }
        }
        if count > KEPT_PARTS_MAX {
            self.parts.truncate(start);
        }
        let position = position.unwrap_or_default();
        self.units.push(ReadUnit { idx, range, position, ends: [first, last], parts: start..self.parts.len() });
        Ok(())
    }
}

/// Returns the end of an item of about `len` bytes of `start..end`, which does not split an encoded
/// extent.
pub(super) fn cut(map: &mut Map<'_>, start: u64, end: u64, len: u64) -> Result<u64, ReadError> {
    let stop = start.saturating_add(len);
    if stop >= end {
        return Ok(end);
    }
    let extent = map.extent_at(stop)?;
    Ok(if matches!(extent.kind, ExtentKind::Encoded { .. }) { extent.end().min(end) } else { stop })
}

impl<'a> Reader<'a> {
    /// Returns ranges of units that one of `threads` takes at once, cut where possible so that two
    /// batches share no pcluster.
    pub(super) fn batches(self, units: &[ReadUnit], threads: Threads) -> Vec<Range<usize>> {
        let batch_len = match self.volume.devices.fetch_max_len() < FETCH_MAX_LEN {
            true => decoded_batch_len(units, threads),
            // Each batch is a call to a source that is far away.
            false => BATCH_LEN,
        };
        batches(units, batch_len)
    }
}

/// Returns the bytes that a thread takes at once where fetching costs little: [`BATCH_LEN`], unless
/// decoding is so much of the work that all threads should have a share of it, and the last one to
/// finish a small one.
fn decoded_batch_len(units: &[ReadUnit], threads: Threads) -> u64 {
    let len = |unit: &ReadUnit| unit.range.end - unit.range.start;
    let encoded: u64 = units.iter().filter(|unit| unit.ends[0].is_some()).map(len).sum();
    let share = encoded / (BATCHES_OF_THREAD * threads.count() as u64).max(1);
    match threads.count() > 1 && share > 0 {
        true => share.clamp(ENCODED_BATCH_MIN_LEN, BATCH_LEN),
        false => BATCH_LEN,
    }
}

/// Returns ranges of units of about `batch_len` bytes, cut where possible so that two share no
/// pcluster.
fn batches(units: &[ReadUnit], batch_len: u64) -> Vec<Range<usize>> {
    let (mut batches, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (idx, unit) in units.iter().enumerate() {
        bytes += unit.range.end - unit.range.start;
        let is_shared = units.get(idx + 1).is_some_and(|next| next.ends[0].is_some() && next.ends[0] == unit.ends[1]);
        if bytes >= BATCH_MAX_LEN || (bytes >= batch_len && !is_shared) {
            batches.push(start..idx + 1);
            (start, bytes) = (idx + 1, 0);
        }
    }
    if start < units.len() {
        batches.push(start..units.len());
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::extent::Pcluster;
    use kiln_format::Algorithm;

    /// Returns units of `len` bytes, each in a pcluster of its own, or stored plain.
    fn units(count: usize, len: u64, is_encoded: bool) -> Vec<ReadUnit> {
        let unit = |idx: usize| {
            let pcluster = Pcluster { device: 0, inline: None, pa: idx as u64 * 4096, plen: 4096 };
            let encoded = EncodedExtent { pcluster, algorithm: Algorithm::Zstd, partial: false, llen: len as u32 };
            let ends = [is_encoded.then_some(encoded); 2];
            ReadUnit { idx, range: 0..len, position: (0, pcluster.pa, 0), ends, parts: 0..0 }
        };
        (0..count).map(unit).collect()
    }

    #[test]
    fn all_threads_get_a_share_of_what_is_to_be_decoded() {
        let len = |count, is_encoded, threads| {
            decoded_batch_len(&units(count, 2560, is_encoded), Threads::at_least_one(threads))
        };
        assert_eq!(len(256, true, 2), 80 << 10);
        assert_eq!(len(256, true, 64), ENCODED_BATCH_MIN_LEN);
        assert_eq!(len(100_000, true, 2), BATCH_LEN);
        assert_eq!(len(256, true, 1), BATCH_LEN, "one thread takes all");
        assert_eq!(len(256, false, 2), BATCH_LEN, "nothing is decoded");
        assert_eq!(batches(&units(256, 2560, true), 80 << 10).len(), 8);
        assert_eq!(batches(&units(256, 2560, false), BATCH_LEN).len(), 1);
    }

    #[test]
    fn units_of_one_pcluster_stay_together() {
        let mut shared = units(8, 64 << 10, true);
        let ends = shared[0].ends;
        shared[..5].iter_mut().for_each(|unit| unit.ends = ends);
        assert_eq!(batches(&shared, 64 << 10), [0..5, 5..6, 6..7, 7..8]);
    }
}
