//! The plan of a batch read: its units in stored order, and the extents that they share.

use super::pieces::fragment_error;
use super::position::{DiskPosition, disk_position};
use super::read::readable;
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::inode_map::Map;
use crate::map::pcluster::EncodedExtent;
use crate::metadata::inode::Inode;
use std::collections::HashMap;
use std::ops::Range;

/// Longer ranges are given in items of about this many bytes.
pub(super) const ITEM_LEN: u64 = 4 << 20;
/// Most units of one range: a hostile file of an exabyte needs no more memory than that.
const UNITS_MAX: u64 = 1024;
/// Bytes of a batch that a thread takes at once, if it can end where a pcluster ends, and bytes after which it ends anywhere.
const BATCH_LEN: u64 = 1 << 20;
const BATCH_MAX_LEN: u64 = 4 << 20;

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
    /// Which range: its index in the list.
    pub idx: usize,
    /// Byte offset in the file.
    pub off: u64,
    /// The bytes, or the error that replaces them.
    pub bytes: Result<&'a [u8], ReadError>,
}

/// What one thread reads in one go: a range, or a part of a long one.
pub(super) struct ReadUnit {
    pub(super) idx: usize,
    pub(super) range: Range<u64>,
    pub(super) position: DiskPosition,
    /// The encoded extents that hold its first and last bytes.
    pub(super) ends: [Option<EncodedExtent>; 2],
}

impl ReadUnit {
    /// The device and the stored bytes that hold the unit, as far as its ends tell: what lies between them is theirs in most files. `None`
    /// where nothing is stored.
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
    /// How many units want a part.
    pub(super) users: usize,
}

pub(super) type SharedExtents = HashMap<EncodedExtent, SharedExtent>;

/// A callback for each extent of a range, with the wanted part of it.
type EachPiece<'a> = dyn FnMut(&Extent, Range<u64>) -> Result<(), ReadError> + 'a;

/// A plan in the making.
struct Planner<'a> {
    image: &'a Image,
    units: Vec<ReadUnit>,
    shared: SharedExtents,
}

impl Image {
    /// The units of all ranges, sorted by position. Ranges that cannot be looked up are given as errors at once.
    pub(super) fn plan_batch(
        &self,
        ranges: &[FileRange],
        each: &dyn Fn(BatchItem<'_>),
    ) -> (Vec<ReadUnit>, SharedExtents) {
        let units = Vec::with_capacity(ranges.len());
        let mut planner = Planner { image: self, units, shared: SharedExtents::new() };
        for (idx, FileRange { inode, range }) in ranges.iter().enumerate() {
            if let Err(error) = planner.add_range(idx, inode, range) {
                let off =
                    planner.units.last().filter(|unit| unit.idx == idx).map_or(range.start, |unit| unit.range.end);
                each(BatchItem { idx, off, bytes: Err(error.at_nid(inode.nid)) });
            }
        }
        let Planner { mut units, shared, .. } = planner;
        units.sort_unstable_by_key(|unit| (unit.position, unit.idx, unit.range.start));
        (units, shared)
    }

    /// Give the extents of a range to `each`, with the wanted part of each. For a fragment, they are extents of the packed inode.
    pub(super) fn each_piece(
        &self,
        map: &mut Map<'_>,
        inode: &Inode,
        range: Range<u64>,
        each: &mut EachPiece<'_>,
    ) -> Result<(), ReadError> {
        let mut off = range.start;
        while off < range.end {
            let extent = map.extent_at(off)?;
            let end = extent.end().min(range.end);
            if end <= off {
                return Err(ReadError::Internal { what: "an extent without progress".into() });
            }
            match extent.kind {
                ExtentKind::Fragment { off: start } => {
                    let from = start.saturating_add(off - extent.la);
                    let packed = *self.packed_range(from, end - off)?;
                    if packed.nid == inode.nid {
                        return Err(fragment_error(from, "a fragment inside the packed inode"));
                    }
                    self.each_piece(&mut Map::open(self, &packed)?, &packed, from..from + (end - off), each)?;
                }
                _ => each(&extent, off..end)?,
            }
            off = end;
        }
        Ok(())
    }
}

impl Planner<'_> {
    fn add_range(&mut self, idx: usize, inode: &Inode, range: &Range<u64>) -> Result<(), ReadError> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let end = range.start + readable(inode, len, range.start)? as u64;
        let mut start = range.start;
        if start >= end {
            self.units.push(ReadUnit { idx, range: start..start, position: (0, 0, 0), ends: [None, None] });
        }
        let mut map = Map::open(self.image, inode)?;
        let len = ITEM_LEN.max((end - start) / UNITS_MAX);
        while start < end {
            let stop = cut(&mut map, start, end, len)?;
            self.add_unit(idx, &mut map, inode, start..stop)?;
            start = stop;
        }
        Ok(())
    }

    fn add_unit(&mut self, idx: usize, map: &mut Map<'_>, inode: &Inode, range: Range<u64>) -> Result<(), ReadError> {
        let (mut position, mut first, mut last) = (None, None, None);
        let (image, shared) = (self.image, &mut self.shared);
        image.each_piece(map, inode, range.clone(), &mut |extent, part| {
            let encoded = match extent.kind {
                ExtentKind::Encoded { .. } => Some(EncodedExtent::of(extent)?),
                _ => None,
            };
            if position.is_none() {
                (position, first) = (Some(disk_position(extent, part.start)), encoded);
            }
            last = encoded;
            if let Some(encoded) = encoded.filter(|_| part.end - part.start < extent.llen) {
                let need = shared.entry(encoded).or_default();
                *need = SharedExtent { end: need.end.max(part.end - extent.la), users: need.users + 1 };
            }
            Ok(())
        })?;
        let position = position.unwrap_or_default();
        self.units.push(ReadUnit { idx, range, position, ends: [first, last] });
        Ok(())
    }
}

/// The end of an item of about `len` bytes of `start..end`, which does not split an encoded extent.
pub(super) fn cut(map: &mut Map<'_>, start: u64, end: u64, len: u64) -> Result<u64, ReadError> {
    let stop = start.saturating_add(len);
    if stop >= end {
        return Ok(end);
    }
    let extent = map.extent_at(stop)?;
    Ok(if matches!(extent.kind, ExtentKind::Encoded { .. }) { extent.end().min(end) } else { stop })
}

/// Ranges of units that one thread takes at once, cut where possible so that two batches share no pcluster.
pub(super) fn batches(units: &[ReadUnit]) -> Vec<Range<usize>> {
    let (mut batches, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (idx, unit) in units.iter().enumerate() {
        bytes += unit.range.end - unit.range.start;
        let is_shared = units.get(idx + 1).is_some_and(|next| next.ends[0].is_some() && next.ends[0] == unit.ends[1]);
        if bytes >= BATCH_MAX_LEN || (bytes >= BATCH_LEN && !is_shared) {
            batches.push(start..idx + 1);
            (start, bytes) = (idx + 1, 0);
        }
    }
    if start < units.len() {
        batches.push(start..units.len());
    }
    batches
}
