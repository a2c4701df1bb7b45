//! Many files, or ranges of them, at once.
//!
//! Plain algorithm: look up where each range is stored, sort the ranges by that, and let threads take batches of them from front
//! to back. So sources are read forwards, and who shares a pcluster stands together: it is decoded once, as far as the last of
//! them wants it, and each gets its part without a copy.

use super::read::{Fragments, fragment_error, readable};
use crate::cache::access_pattern::Course;
use crate::cache::byte_cache::Bytes;
use crate::cache::workspaces::sized;
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::inode_map::Map;
use crate::map::pcluster::Stored;
use crate::metadata::inode::Inode;
use crate::stats::Decoded;
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
pub struct Part<'a> {
    /// Which range: its place in the list.
    pub idx: usize,
    /// Byte offset in the file.
    pub off: u64,
    /// The bytes, or why there are none.
    pub bytes: Result<&'a [u8], ReadError>,
}

/// What one thread reads: a range, or a part of a long one.
struct Unit {
    idx: usize,
    range: Range<u64>,
    place: Place,
    /// The encoded extents that hold its first and last bytes.
    ends: [Option<Stored>; 2],
    /// Whether these are one and the same piece, and not two of equal contents.
    is_one_piece: bool,
}

/// Where bytes are stored: device, address, and for encoded ones the place in the extent.
type Place = (u16, u64, u64);

/// What is wanted of an extent of which nobody in particular wants everything.
#[derive(Default)]
struct Need {
    /// As far as this.
    end: u64,
    /// By so many units.
    users: usize,
}

type Needs = HashMap<Stored, Need>;

/// Who gets an extent, and the part of it that is wanted.
type EachPiece<'a> = dyn FnMut(&Extent, Range<u64>) -> Result<(), ReadError> + 'a;

impl Image {
    /// Read all `ranges` with so many threads, in the order in which they are stored, and give each to `each` once: from any
    /// thread, in any order. A range of more than 4 MiB comes in parts, between which others may come. Memory is bounded by
    /// two extents and one part for each thread.
    pub fn read_many(&self, ranges: &[FileRange], threads: usize, each: &(dyn Fn(Part<'_>) + Sync)) {
        let (units, needs) = self.plan(ranges, each);
        let batches = batches(&units);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut worker = Worker { image: self, needs: &needs, held: Default::default(), turn: 0, buf: Vec::new() };
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                let units = &units[batch.clone()];
                self.announce(units);
                for unit in units {
                    worker.serve(&ranges[unit.idx].inode, unit, each);
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
    fn plan(&self, ranges: &[FileRange], each: &dyn Fn(Part<'_>)) -> (Vec<Unit>, Needs) {
        let (mut units, mut needs) = (Vec::with_capacity(ranges.len()), Needs::new());
        for (idx, FileRange { inode, range }) in ranges.iter().enumerate() {
            if let Err(error) = self.plan_range(idx, inode, range, &mut units, &mut needs) {
                let off = units.last().filter(|unit| unit.idx == idx).map_or(range.start, |unit| unit.range.end);
                each(Part { idx, off, bytes: Err(error.at_nid(inode.nid)) });
            }
        }
        units.sort_unstable_by_key(|unit| (unit.place, unit.idx, unit.range.start));
        (units, needs)
    }

    fn plan_range(
        &self,
        idx: usize,
        inode: &Inode,
        range: &Range<u64>,
        units: &mut Vec<Unit>,
        needs: &mut Needs,
    ) -> Result<(), ReadError> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let end = range.start + readable(inode, len, range.start)? as u64;
        let mut start = range.start;
        if start >= end {
            units.push(Unit { idx, range: start..start, place: (0, 0, 0), ends: [None, None], is_one_piece: false });
        }
        let mut map = Map::open(self, inode)?;
        let len = PART_LEN.max((end - start) / UNITS_MAX);
        while start < end {
            let stop = cut(&mut map, start, end, len)?;
            units.push(self.plan_unit(idx, &mut map, inode, start..stop, needs)?);
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
        needs: &mut Needs,
    ) -> Result<Unit, ReadError> {
        let (mut place, mut first, mut last, mut pieces) = (None, None, None, 0u64);
        self.each_piece(map, inode, range.clone(), &mut |extent, part| {
            let (device, pa) = stored_at(&extent.kind);
            let skip = part.start - extent.la;
            pieces += 1;
            let stored = match extent.kind {
                ExtentKind::Encoded { .. } => Some(Stored::of(extent)?),
                _ => None,
            };
            if place.is_none() {
                (place, first) =
                    (Some((device, pa.saturating_add(if stored.is_none() { skip } else { 0 }), skip)), stored);
            }
            last = stored;
            if let Some(stored) = stored.filter(|_| part.end - part.start < extent.llen) {
                let need = needs.entry(stored).or_default();
                *need = Need { end: need.end.max(part.end - extent.la), users: need.users + 1 };
            }
            Ok(())
        })?;
        let place = place.unwrap_or_default();
        Ok(Unit { idx, range, place, ends: [first, last], is_one_piece: pieces == 1 })
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
    fn announce(&self, units: &[Unit]) {
        if let [first, .., last] = units {
            let ((device, start, _), (end_device, end, _)) = (first.place, last.place);
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
fn batches(units: &[Unit]) -> Vec<Range<usize>> {
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
    needs: &'a Needs,
    /// The two extents decoded last: a unit that lies across a border is followed by those on its far side.
    held: [Held; 2],
    /// Which of them is older.
    turn: usize,
    buf: Vec<u8>,
}

/// The front of a decoded extent.
#[derive(Default)]
struct Held {
    stored: Option<Stored>,
    /// In the cache, where all of it is.
    shared: Option<Bytes>,
    /// Else as much of it as `len` says.
    own: Vec<u8>,
    len: usize,
}

impl Held {
    fn front(&self) -> &[u8] {
        self.shared.as_ref().map_or(&self.own[..self.len], |shared| shared)
    }
}

impl Worker<'_> {
    fn serve(&mut self, inode: &Inode, unit: &Unit, each: &dyn Fn(Part<'_>)) {
        let mut buf = std::mem::take(&mut self.buf);
        let mut off = unit.range.start;
        if let Err(error) = self.serve_parts(inode, unit, &mut off, &mut buf, each) {
            each(Part { idx: unit.idx, off, bytes: Err(error.at_nid(inode.nid)) });
        }
        self.buf = buf;
    }

    /// Give the parts of a unit to `each`, from `off` on, which moves with them.
    fn serve_parts(
        &mut self,
        inode: &Inode,
        unit: &Unit,
        off: &mut u64,
        buf: &mut Vec<u8>,
        each: &dyn Fn(Part<'_>),
    ) -> Result<(), ReadError> {
        let mut map = Map::open(self.image, inode)?;
        loop {
            let end = cut(&mut map, *off, unit.range.end, PART_LEN)?;
            self.image.core.counters.read((end - *off) as usize);
            let bytes = self.read(&mut map, inode, unit, *off..end, buf)?;
            each(Part { idx: unit.idx, off: *off, bytes: Ok(bytes) });
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
        unit: &Unit,
        range: Range<u64>,
        buf: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], ReadError> {
        let image = self.image;
        let len = (range.end - range.start) as usize;
        if let [Some(stored), _] = unit.ends
            && unit.is_one_piece
            && len < stored.len()
        {
            let skip = unit.place.2 + (range.start - unit.range.start);
            let front = self.front(&stored, skip + len as u64, Whose::Neighbours)?;
            return Ok(&front[skip as usize..][..len]);
        }
        let buf = sized(buf, len);
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
            return self.image.read_extent(extent, dst, skip, Fragments::Refused, Course::default());
        }
        let stored = Stored::of(extent)?;
        if dst.len() == stored.len() {
            return self.image.decode_front(&stored, dst, Decoded::Direct);
        }
        let front = self.front(&stored, skip + dst.len() as u64, Whose::Anybodys)?;
        dst.copy_from_slice(&front[skip as usize..][..dst.len()]);
        Ok(())
    }

    /// The front of an extent, up to byte `end` at least.
    fn front(&mut self, stored: &Stored, end: u64, whose: Whose) -> Result<&[u8], ReadError> {
        let is_held = |held: &Held| held.stored == Some(*stored) && held.front().len() as u64 >= end;
        let found = match self.held.iter().position(is_held) {
            Some(found) => found,
            None => {
                let need = self.needs.get(stored).map_or((end, 1), |need| (need.end.max(end), need.users));
                self.hold(stored, need, whose)?;
                self.turn
            }
        };
        self.turn = 1 - found;
        Ok(self.held[found].front())
    }

    /// Put an extent that is needed up to some byte, by so many, in the place of the older one.
    fn hold(&mut self, stored: &Stored, (end, users): (u64, usize), whose: Whose) -> Result<(), ReadError> {
        let held = &mut self.held[self.turn];
        held.stored = None;
        held.shared = match whose {
            Whose::Anybodys if users > 1 => self.image.shared(stored)?,
            _ => self.image.core.memory().decoded.get(stored),
        };
        if held.shared.is_none() {
            held.len = end as usize;
            self.image.decode_front(stored, sized(&mut held.own, held.len), Decoded::Scratch)?;
        }
        held.stored = Some(*stored);
        Ok(())
    }
}

/// Who else wants an extent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Those who stand beside this one in the order.
    Neighbours,
    /// Whoever: it holds the end of a file that begins elsewhere.
    Anybodys,
}
