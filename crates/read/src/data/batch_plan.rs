//! The plan of a batch read: its units in stored order, and the extents that they share.

use super::position::{DiskPosition, disk_position};
use super::read::{fragment_error, readable};
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
    /// Whether one piece of one extent holds all bytes, and not two pieces with equal contents.
    pub(super) is_one_piece: bool,
}

impl ReadUnit {
    /// If one encoded extent holds a range of the unit and more: that extent, and the byte of it with which the range begins.
    pub(super) fn part_of(&self, range: &Range<u64>) -> Option<(EncodedExtent, u64)> {
        let encoded = self.ends[0].filter(|_| self.is_one_piece)?;
        let is_part = range.end - range.start < u64::from(encoded.llen);
        is_part.then(|| (encoded, self.position.2 + (range.start - self.range.start)))
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

impl Image {
    /// The units of all ranges, sorted by position. Ranges that cannot be looked up are given as errors at once.
    pub(super) fn plan_batch(
        &self,
        ranges: &[FileRange],
        each: &dyn Fn(BatchItem<'_>),
    ) -> (Vec<ReadUnit>, SharedExtents) {
        let (mut units, mut shared) = (Vec::with_capacity(ranges.len()), SharedExtents::new());
        for (idx, FileRange { inode, range }) in ranges.iter().enumerate() {
            if let Err(error) = self.plan_range(idx, inode, range, &mut units, &mut shared) {
                let off = units.last().filter(|unit| unit.idx == idx).map_or(range.start, |unit| unit.range.end);
                each(BatchItem { idx, off, bytes: Err(error.at_nid(inode.nid)) });
            }
        }
        units.sort_unstable_by_key(|unit| (unit.position, unit.idx, unit.range.start));
        (units, shared)
    }

    fn plan_range(
        &self,
        idx: usize,
        inode: &Inode,
        range: &Range<u64>,
        units: &mut Vec<ReadUnit>,
        shared: &mut SharedExtents,
    ) -> Result<(), ReadError> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let end = range.start + readable(inode, len, range.start)? as u64;
        let mut start = range.start;
        if start >= end {
            units.push(ReadUnit {
                idx,
                range: start..start,
                position: (0, 0, 0),
                ends: [None, None],
                is_one_piece: false,
            });
        }
        let mut map = Map::open(self, inode)?;
        let len = ITEM_LEN.max((end - start) / UNITS_MAX);
        while start < end {
            let stop = cut(&mut map, start, end, len)?;
            units.push(self.plan_unit(idx, &mut map, inode, start..stop, shared)?);
            start = stop;
        }
        Ok(())
    }

    fn plan_unit(
        &self,
        idx: usize,
        map: &mut Map<'_>,
        inode: &Inode,
        range: Range<u64>,
        shared: &mut SharedExtents,
    ) -> Result<ReadUnit, ReadError> {
        let (mut position, mut first, mut last, mut pieces) = (None, None, None, 0u64);
        self.each_piece(map, inode, range.clone(), &mut |extent, part| {
            pieces += 1;
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
        Ok(ReadUnit { idx, range, position, ends: [first, last], is_one_piece: pieces == 1 })
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
