//! Many files, or ranges of them, at once.
//!
//! Plain algorithm: look up where each range is stored, sort the ranges by that, and let threads take batches of them from front
//! to back. So sources are read forwards, and who shares a pcluster stands together: it is decoded once, as far as the last of
//! them wants it, and each gets its part without a copy.

use super::plan::DecodeMode;
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

/// Longer ranges come in parts of about this many bytes.
const PART_LEN: u64 = 4 << 20;
/// Most units of one range: a hostile file of an exabyte needs no more memory than that.
const UNITS_MAX: u64 = 1024;
/// Bytes that a thread takes at once, and those after which it does not wait for an end of a pcluster.
const BATCH_LEN: u64 = 1 << 20;
const BATCH_MAX_LEN: u64 = 4 << 20;
/// The longest range of a source that is announced to it.
const HINT_MAX_LEN: u64 = 16 << 20;

/// A range of a file's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub inode: Inode,
    /// Bytes of it; what is behind its end is left out.
    pub range: Range<u64>,
}

/// Contents of one of many ranges: all of them, or a part of a long one.
#[derive(Debug)]
pub struct BatchItem<'a> {
    /// Which range: its place in the list.
    pub idx: usize,
    /// Byte offset in the file.
    pub off: u64,
    /// The bytes, or why there are none.
    pub bytes: Result<&'a [u8], ReadError>,
}

/// What one thread reads: a range, or a part of a long one.
struct ReadUnit {
    idx: usize,
    range: Range<u64>,
    position: DiskPosition,
    /// The encoded extents that hold its first and last bytes.
    ends: [Option<EncodedExtent>; 2],
    /// Whether these are one and the same piece, and not two of equal contents.
    is_one_piece: bool,
}

/// Where bytes are stored: device, address, and for encoded ones the place in the extent.
type DiskPosition = (u16, u64, u64);

/// What is wanted of an extent of which nobody in particular wants everything.
#[derive(Default)]
struct SharedExtent {
    /// As far as this.
    end: u64,
    /// By so many units.
    users: usize,
}

type SharedExtents = HashMap<EncodedExtent, SharedExtent>;

/// Who gets an extent, and the part of it that is wanted.
type EachPiece<'a> = dyn FnMut(&Extent, Range<u64>) -> Result<(), ReadError> + 'a;

impl Image {
    /// Read all `ranges` with so many threads, in the order in which they are stored, and give each to `each` once: from any
    /// thread, in any order. A range of more than 4 MiB comes in parts, between which others may come. Memory is bounded by
    /// two extents and one part for each thread.
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
                // This thread is one of them.
                for _ in 1..threads {
                    // Where the system has no more threads, fewer will do.
                    let _ = std::thread::Builder::new().spawn_scoped(scope, work);
                }
                work();
            }),
        }
    }

    /// The units of all ranges, sorted by place. What cannot be looked up is told at once.
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

    /// Give the extents of a range to `each`, each with the part of it that is wanted; those of fragments are the packed inode's.
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

    /// Tell the source what a batch will read.
    fn announce(&self, units: &[ReadUnit]) {
        if let [first, .., last] = units {
            let ((device, start, _), (end_device, end, _)) = (first.position, last.position);
            if device == end_device && end > start {
                self.core.devices.will_need(device, start, (end - start).min(HINT_MAX_LEN));
            }
        }
    }
}

/// The end of a part of about `len` bytes of `start..end`, not in the middle of what is decoded in one go.
fn cut(map: &mut Map<'_>, start: u64, end: u64, len: u64) -> Result<u64, ReadError> {
    let stop = start.saturating_add(len);
    if stop >= end {
        return Ok(end);
    }
    let extent = map.extent_at(stop)?;
    Ok(if matches!(extent.kind, ExtentKind::Encoded { .. }) { extent.end().min(end) } else { stop })
}

/// Where the bytes of an extent are; holes and what is beside inodes need no place in the order.
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

/// Ranges of units that one thread takes: of some size, and if possible without a pcluster that the next one wants, too.
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

/// One thread's.
struct Worker<'a> {
    image: &'a Image,
    shared: &'a SharedExtents,
    /// The two extents decoded last: a unit that lies across a border is followed by those on its far side.
    last_decoded: [LastDecoded; 2],
    /// Which of them is older.
    older: usize,
    buf: Vec<u8>,
}

/// The front of a decoded extent.
#[derive(Default)]
struct LastDecoded {
    encoded: Option<EncodedExtent>,
    /// In the cache, where all of it is.
    shared: Option<SharedBytes>,
    /// Else as much of it as `len` says.
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

    /// Give the parts of a unit to `each`, from `off` on, which moves with them.
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
            return self.image.decode_front(&encoded, dst, DecodeMode::IntoDestination);
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

    /// Put an extent that is needed up to some byte, by so many, in the place of the older one.
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
                DecodeMode::IntoScratch,
            )?;
        }
        last_decoded.encoded = Some(*encoded);
        Ok(())
    }
}

/// Who else wants an extent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reuse {
    /// Those who stand beside this one in the order.
    Adjacent,
    /// Whoever: it holds the end of a file that begins elsewhere.
    Anywhere,
}
