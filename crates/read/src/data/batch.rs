//! Batch reads: many files, or ranges of them, in one call.
//!
//! Plain algorithm: look up where each range is stored, sort the ranges by that, and let threads take batches of them from front
//! to back. So sources are read forwards, and ranges that share a pcluster are neighbours: the pcluster is decoded once, as far as the
//! last of them needs it, and each range gets its part without a copy.

use super::plan::DecodeTarget;
use super::read::{FragmentPolicy, fragment_error, readable};
use crate::cache::access_pattern::AccessPattern;
use crate::cache::byte_cache::SharedBytes;
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::inode_map::Map;
use crate::map::pcluster::EncodedExtent;
use crate::metadata::inode::Inode;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Longer ranges are given in items of about this many bytes.
const PART_LEN: u64 = 4 << 20;
/// Most units of one range: a hostile file of an exabyte needs no more memory than that.
const UNITS_MAX: u64 = 1024;
/// Bytes of a batch that a thread takes at once, if it can end where a pcluster ends, and bytes after which it ends anywhere.
const BATCH_LEN: u64 = 1 << 20;
const BATCH_MAX_LEN: u64 = 4 << 20;
/// The longest range of a source that is announced to it.
const HINT_MAX_LEN: u64 = 16 << 20;

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
struct ReadUnit {
    idx: usize,
    range: Range<u64>,
    position: DiskPosition,
    /// The encoded extents that hold its first and last bytes.
    ends: [Option<EncodedExtent>; 2],
    /// Whether one piece of one extent holds all bytes, and not two pieces with equal contents.
    is_one_piece: bool,
}

/// Where bytes are stored: device, byte address, and for encoded ones the byte in the extent.
type DiskPosition = (u16, u64, u64);

/// An extent that units want parts of: what all of them together need.
#[derive(Default)]
struct SharedExtent {
    /// The byte behind the last one that a unit wants.
    end: u64,
    /// How many units want a part.
    users: usize,
}

type SharedExtents = HashMap<EncodedExtent, SharedExtent>;

/// A callback for each extent of a range, with the wanted part of it.
type EachPiece<'a> = dyn FnMut(&Extent, Range<u64>) -> Result<(), ReadError> + 'a;

impl Image {
    /// Read all `ranges` on `threads` threads, in the order in which they are stored, and give each to `each` once: from any
    /// thread, in any order. A range of more than 4 MiB is given in several items, with items of other ranges between them. Memory is
    /// bounded by two extents and one item for each thread.
    pub fn read_many(&self, ranges: &[FileRange], threads: usize, each: &(dyn Fn(BatchItem<'_>) + Sync)) {
        let (units, shared) = self.plan(ranges, each);
        let batches = batches(&units);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut worker =
                Worker { image: self, shared: &shared, last_decoded: Default::default(), older: 0, buf: Vec::new() };
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                let units = &units[batch.clone()];
                self.announce(units);
                for unit in units {
                    worker.read_unit(&ranges[unit.idx].inode, unit, each);
                }
            }
        };
        match threads.min(batches.len()) {
            0 | 1 => work(),
            threads => std::thread::scope(|scope| {
                // This thread is one of `threads`.
                for _ in 1..threads {
                    // If the system refuses a thread, those that run do the work.
                    let _ = std::thread::Builder::new().spawn_scoped(scope, work);
                }
                work();
            }),
        }
    }

    /// The units of all ranges, sorted by position. Ranges that cannot be looked up are given as errors at once.
    fn plan(&self, ranges: &[FileRange], each: &dyn Fn(BatchItem<'_>)) -> (Vec<ReadUnit>, SharedExtents) {
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
        let len = PART_LEN.max((end - start) / UNITS_MAX);
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
            let (device, pa) = stored_at(&extent.kind);
            let skip = part.start - extent.la;
            pieces += 1;
            let encoded = match extent.kind {
                ExtentKind::Encoded { .. } => Some(EncodedExtent::of(extent)?),
                _ => None,
            };
            if position.is_none() {
                (position, first) =
                    (Some((device, pa.saturating_add(if encoded.is_none() { skip } else { 0 }), skip)), encoded);
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
    fn each_piece(
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

    /// Tell the device which bytes a batch will read.
    fn announce(&self, units: &[ReadUnit]) {
        if let [first, .., last] = units {
            let ((device, start, _), (end_device, end, _)) = (first.position, last.position);
            if device == end_device && end > start {
                self.core.devices.will_need(device, start, (end - start).min(HINT_MAX_LEN));
            }
        }
    }
}

/// The end of an item of about `len` bytes of `start..end`, which does not split an encoded extent.
fn cut(map: &mut Map<'_>, start: u64, end: u64, len: u64) -> Result<u64, ReadError> {
    let stop = start.saturating_add(len);
    if stop >= end {
        return Ok(end);
    }
    let extent = map.extent_at(stop)?;
    Ok(if matches!(extent.kind, ExtentKind::Encoded { .. }) { extent.end().min(end) } else { stop })
}

/// Where the bytes of an extent are stored. For holes and inline data the order does not matter.
fn stored_at(kind: &ExtentKind) -> (u16, u64) {
    match *kind {
        ExtentKind::Raw { device, pa } => (device, pa),
        ExtentKind::Plain { device, pa, inline: None, .. } | ExtentKind::Encoded { device, pa, inline: None, .. } => {
            (device, pa)
        }
        ExtentKind::Meta { pa, .. } | ExtentKind::Plain { pa, .. } | ExtentKind::Encoded { pa, .. } => (0, pa),
        ExtentKind::Hole | ExtentKind::Fragment { .. } => (0, 0),
    }
}

/// Ranges of units that one thread takes at once, cut where possible so that two batches share no pcluster.
fn batches(units: &[ReadUnit]) -> Vec<Range<usize>> {
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

/// The state of one thread.
struct Worker<'a> {
    image: &'a Image,
    shared: &'a SharedExtents,
    /// The two extents decoded last: a unit across the border of two extents is followed by units of the second one.
    last_decoded: [LastDecoded; 2],
    /// Which of the two is older.
    older: usize,
    buf: Vec<u8>,
}

/// The front of a decoded extent.
#[derive(Default)]
struct LastDecoded {
    encoded: Option<EncodedExtent>,
    /// All of it, if it is in the cache.
    shared: Option<SharedBytes>,
    /// Else its first `len` bytes.
    own: Vec<u8>,
    len: usize,
}

impl LastDecoded {
    fn front(&self) -> &[u8] {
        self.shared.as_ref().map_or(&self.own[..self.len], |shared| shared)
    }
}

impl Worker<'_> {
    fn read_unit(&mut self, inode: &Inode, unit: &ReadUnit, each: &dyn Fn(BatchItem<'_>)) {
        let mut buf = std::mem::take(&mut self.buf);
        let mut off = unit.range.start;
        if let Err(error) = self.read_items(inode, unit, &mut off, &mut buf, each) {
            each(BatchItem { idx: unit.idx, off, bytes: Err(error.at_nid(inode.nid)) });
        }
        self.buf = buf;
    }

    /// Give the items of a unit to `each`, from `off` on, which moves with them.
    fn read_items(
        &mut self,
        inode: &Inode,
        unit: &ReadUnit,
        off: &mut u64,
        buf: &mut Vec<u8>,
        each: &dyn Fn(BatchItem<'_>),
    ) -> Result<(), ReadError> {
        let mut map = Map::open(self.image, inode)?;
        loop {
            let end = cut(&mut map, *off, unit.range.end, PART_LEN)?;
            self.image.core.counters.read((end - *off) as usize);
            let bytes = self.read(&mut map, inode, unit, *off..end, buf)?;
            each(BatchItem { idx: unit.idx, off: *off, bytes: Ok(bytes) });
            *off = end;
            if end >= unit.range.end {
                return Ok(());
            }
        }
    }

    fn read<'b>(
        &'b mut self,
        map: &mut Map<'_>,
        inode: &Inode,
        unit: &ReadUnit,
        range: Range<u64>,
        buf: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], ReadError> {
        let image = self.image;
        let len = (range.end - range.start) as usize;
        if let [Some(encoded), _] = unit.ends
            && unit.is_one_piece
            && len < encoded.len()
        {
            let skip = unit.position.2 + (range.start - unit.range.start);
            let front = self.front(&encoded, skip + len as u64, Reuse::Adjacent)?;
            return Ok(&front[skip as usize..][..len]);
        }
        let buf = grow_to(buf, len);
        let mut done = 0;
        image.each_piece(map, inode, range, &mut |extent, part| {
            let dst = &mut buf[done..][..(part.end - part.start) as usize];
            done += dst.len();
            self.piece(extent, part.start - extent.la, dst)
        })?;
        Ok(buf)
    }

    /// Fill `dst` from byte `skip` of an extent on.
    fn piece(&mut self, extent: &Extent, skip: u64, dst: &mut [u8]) -> Result<(), ReadError> {
        if !matches!(extent.kind, ExtentKind::Encoded { .. }) {
            return self.image.read_extent(extent, dst, skip, FragmentPolicy::Refused, AccessPattern::default());
        }
        let encoded = EncodedExtent::of(extent)?;
        if dst.len() == encoded.len() {
            return self.image.decode_front(&encoded, dst, DecodeTarget::Destination);
        }
        let front = self.front(&encoded, skip + dst.len() as u64, Reuse::Anywhere)?;
        dst.copy_from_slice(&front[skip as usize..][..dst.len()]);
        Ok(())
    }

    /// The front of an extent, up to byte `end` at least.
    fn front(&mut self, encoded: &EncodedExtent, end: u64, reuse: Reuse) -> Result<&[u8], ReadError> {
        let is_held = |last_decoded: &LastDecoded| {
            last_decoded.encoded == Some(*encoded) && last_decoded.front().len() as u64 >= end
        };
        let found = match self.last_decoded.iter().position(is_held) {
            Some(found) => found,
            None => {
                let need = self.shared.get(encoded).map_or((end, 1), |need| (need.end.max(end), need.users));
                self.decode_front_of(encoded, need, reuse)?;
                self.older
            }
        };
        self.older = 1 - found;
        Ok(self.last_decoded[found].front())
    }

    /// Decode an extent up to byte `end`, which `users` units want parts of, in place of the older one.
    fn decode_front_of(
        &mut self,
        encoded: &EncodedExtent,
        (end, users): (u64, usize),
        reuse: Reuse,
    ) -> Result<(), ReadError> {
        let last_decoded = &mut self.last_decoded[self.older];
        last_decoded.encoded = None;
        last_decoded.shared = match reuse {
            Reuse::Anywhere if users > 1 => self
                .image
                .core
                .state()
                .fits_cache(encoded)
                .then(|| self.image.decode_into_cache(encoded, 0))
                .transpose()?,
            _ => self.image.core.state().decoded.get(encoded),
        };
        if last_decoded.shared.is_none() {
            last_decoded.len = end as usize;
            self.image.decode_front(
                encoded,
                grow_to(&mut last_decoded.own, last_decoded.len),
                DecodeTarget::Scratch,
            )?;
        }
        last_decoded.encoded = Some(*encoded);
        Ok(())
    }
}

/// Which other units want parts of an extent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reuse {
    /// Neighbours in the order, which the same thread reads next.
    Adjacent,
    /// Any: the extent holds the end of a file that begins elsewhere.
    Anywhere,
}
