//! Batch reads: many files, or ranges of them, in one call.
//!
//! Plain algorithm: look up where each range is stored, sort the ranges by that, and let threads take batches of them from front
//! to back. So sources are read forwards, and ranges that share a pcluster are neighbours: the pcluster is decoded once, as far as the
//! last of them needs it, and each range gets its part without a copy.

use super::batch_plan::{BatchItem, FileRange, ITEM_LEN, ReadUnit, SharedExtents, batches, cut};
use super::plan::DecodeTarget;
use super::read::FragmentPolicy;
use crate::cache::access_pattern::AccessPattern;
use crate::cache::byte_cache::SharedBytes;
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::inode_map::Map;
use crate::map::pcluster::EncodedExtent;
use crate::metadata::inode::Inode;
use kiln_parallel::Threads;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The longest range of a source that is announced to it.
const HINT_MAX_LEN: u64 = 16 << 20;

impl Image {
    /// Read all `ranges` on `threads`, in the order in which they are stored, and give each to `each` once: from any
    /// thread, in any order. A range of more than 4 MiB is given in several items, with items of other ranges between them. Memory is
    /// bounded by two extents and one item for each thread.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use kiln_read::{FileRange, Threads};
    /// use std::sync::Mutex;
    ///
    /// let root = image.inode(image.root_nid())?;
    /// let mut files = Vec::new();
    /// for entry in image.walk(&root, b"/") {
    ///     let inode = entry?.inode;
    ///     if inode.is_file() {
    ///         files.push(FileRange { inode, range: 0..inode.size() });
    ///     }
    /// }
    /// // How many zeros each file has.
    /// let zeros = Mutex::new(vec![0; files.len()]);
    /// image.read_many(&files, Threads::PROCESSORS, &|item| {
    ///     if let Ok(bytes) = item.bytes {
    ///         zeros.lock().unwrap()[item.idx] += bytes.iter().filter(|&&byte| byte == 0).count();
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_many(&self, ranges: &[FileRange], threads: Threads, each: &(dyn Fn(BatchItem<'_>) + Sync)) {
        let (units, shared) = self.plan_batch(ranges, each);
        let batches = batches(&units);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut worker = Worker::new(self, &shared);
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                let units = &units[batch.clone()];
                self.announce(units);
                for unit in units {
                    worker.read_unit(&ranges[unit.idx].inode, unit, each);
                }
            }
        };
        match threads.count().min(batches.len()) {
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

    /// Tell the device which bytes a batch will read.
    pub(super) fn announce(&self, units: &[ReadUnit]) {
        if let [first, .., last] = units {
            let ((device, start, _), (end_device, end, _)) = (first.position, last.position);
            if device == end_device && end > start {
                self.core.devices.will_need(device, start, (end - start).min(HINT_MAX_LEN));
            }
        }
    }
}

/// The state of one thread.
pub(super) struct Worker<'a> {
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

impl<'a> Worker<'a> {
    pub(super) fn new(image: &'a Image, shared: &'a SharedExtents) -> Self {
        Worker { image, shared, last_decoded: Default::default(), older: 0, buf: Vec::new() }
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
            let end = cut(&mut map, *off, unit.range.end, ITEM_LEN)?;
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
        let len = (range.end - range.start) as usize;
        if let Some((encoded, skip)) = unit.part_of(&range) {
            let front = self.front(&encoded, skip + len as u64, Reuse::Adjacent)?;
            return Ok(&front[skip as usize..][..len]);
        }
        let buf = grow_to(buf, len);
        self.read_pieces(map, inode, range, buf)?;
        Ok(buf)
    }

    /// Fill `dst` with the contents of a unit.
    pub(super) fn read_into(&mut self, inode: &Inode, unit: &ReadUnit, dst: &mut [u8]) -> Result<(), ReadError> {
        self.image.core.counters.read(dst.len());
        match unit.part_of(&unit.range) {
            Some((encoded, skip)) => {
                let front = self.front(&encoded, skip + dst.len() as u64, Reuse::Adjacent)?;
                dst.copy_from_slice(&front[skip as usize..][..dst.len()]);
                Ok(())
            }
            None => self.read_pieces(&mut Map::open(self.image, inode)?, inode, unit.range.clone(), dst),
        }
    }

    /// Fill `dst` with a range of a file, extent by extent.
    fn read_pieces(
        &mut self,
        map: &mut Map<'_>,
        inode: &Inode,
        range: Range<u64>,
        dst: &mut [u8],
    ) -> Result<(), ReadError> {
        let (image, mut done) = (self.image, 0);
        image.each_piece(map, inode, range, &mut |extent, part| {
            let dst = &mut dst[done..][..(part.end - part.start) as usize];
            done += dst.len();
            self.piece(extent, part.start - extent.la, dst)
        })
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
