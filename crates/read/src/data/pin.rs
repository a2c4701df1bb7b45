//! Pinning: what a hot list names is decoded before it is read, and stays decoded, or is cached for readers that come soon.
//!
//! The list decides what is decoded: its extents are taken in its order, each once, as long as they have room. Then they are fetched and decoded on all threads, in windows of the list's order, and within a window in stored order: what lies together is
//! fetched together.

use super::fetch::FetchPlan;
use super::pieces::PackedMap;
use super::read::readable;
use crate::cache::pinned::PINNED_COST;
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::hotlist::{HotEntry, HotList};
use crate::image::Image;
use crate::map::extent::ExtentKind;
use crate::map::inode_map::Map;
use crate::map::pcluster::{EncodedExtent, Pcluster};
use crate::metadata::inode::Inode;
use crate::source::read_at::FETCH_MAX_LEN;
use crate::tree::resolve::FollowLast;
use kiln_parallel::locks::{into_inner, lock};
use kiln_parallel::{Threads, unordered};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a file that are looked up between two looks at `stop`.
const STEP_LEN: u64 = 16 << 20;
/// Extents and steps that are looked up at most: a hostile file of an exabyte takes no more time than that.
const LOOKUPS_MAX: usize = 1 << 20;
/// Stored bytes between two pclusters that are fetched with them: that takes less time than a request to a disk.
const GAP_MAX_LEN: u64 = 64 << 10;
/// Stored bytes of a window.
const WINDOW_LEN: u64 = 8 << 20;

/// What was pinned, or loaded.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Pinned {
    /// Extents that were decoded.
    pub extents: u64,
    /// Their bytes, decoded.
    pub bytes: u64,
    /// Bytes of extents that were left out, as they would have been more than wanted.
    pub left_out: u64,
    /// Paths, as the list has them, of what could not be decoded, each once in a row, and why.
    pub failed: Vec<(Vec<u8>, ReadError)>,
}

/// Where decoded extents stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// Beside the cache, for as long as the image is open.
    Pinned,
    /// In the cache.
    Cached,
}

/// An extent to pin, and which entry of the list wants it first.
type Chosen = (EncodedExtent, usize);

impl Image {
    /// Decode the extents that hold the ranges of `list`, and keep them for as long as the image is open: later reads of them, of any of
    /// their bytes, copy. Extents are pinned as a whole, in the order of the list, until all that is pinned takes `bytes_max` bytes of
    /// memory; they are no part of the cache. What is stored as it is needs no decoding, and is left to the source. Symbolic links are
    /// followed within the image; `stop` ends the work early.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use kiln_read::Threads;
    /// use kiln_read::hotlist::HotList;
    /// use std::sync::atomic::AtomicBool;
    ///
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let list = HotList::parse(b"#kiln-hotlist 1\n0+4096\t80\tbig/text\n", "boot.list")?;
    /// let pinned = image.pin(&list, 64 << 20, Threads::PROCESSORS, &AtomicBool::new(false));
    /// println!("{} bytes are decoded", pinned.bytes);
    /// # assert!(pinned.bytes >= 4096 && pinned.failed.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn pin(&self, list: &HotList, bytes_max: u64, threads: Threads, stop: &AtomicBool) -> Pinned {
        let left = bytes_max.saturating_sub(self.core.state().pinned.cost());
        self.decode_listed(list, Chooser::new(self, Keep::Pinned, left, stop), threads)
    }

    /// Decode the extents that hold the ranges of `list` into the cache, in its order, until half of the cache is taken: for readers
    /// that come soon. What lies together is fetched together, metadata too, so on a slow source this takes a fraction of the requests
    /// that reads one after the other take. `stop` ends the work early.
    pub fn load_ahead(&self, list: &HotList, threads: Threads, stop: &AtomicBool) -> Pinned {
        let left = self.core.state().decoded.capacity() / 2;
        self.decode_listed(list, Chooser::new(self, Keep::Cached, left, stop), threads)
    }
}

impl Image {
    fn decode_listed<'a>(&'a self, list: &HotList, chooser: Chooser<'a>, threads: Threads) -> Pinned {
        let (keep, stop) = (chooser.keep, chooser.stop);
        let mut chooser = chooser;
        // Programs that read meanwhile want the same metadata.
        let _warming = self.core.state().warm();
        let mut pinned = Pinned::default();
        let mut packed = PackedMap::new(self);
        let mut last: Option<(&[u8], Option<Inode>)> = None;
        for (idx, entry) in list.entries().iter().enumerate().filter(|(_, entry)| !entry.is_metadata()) {
            if chooser.is_over() {
                break;
            }
            // Ranges of one file often follow each other.
            if last.as_ref().is_none_or(|(path, _)| *path != entry.path) {
                let inode = self.resolve(&entry.path, FollowLast::Follow).map_err(|error| pinned.fail(entry, error));
                last = Some((&entry.path[..], inode.ok()));
            }
            let Some((_, Some(inode))) = &last else { continue };
            match chooser.add(idx, inode, entry.range(), &mut packed) {
                Ok(left_out) => pinned.left_out = pinned.left_out.saturating_add(left_out),
                Err(error) => pinned.fail(entry, error),
            }
        }
        let (done, failed) = (Mutex::new((0, 0)), Mutex::new(Vec::new()));
        let batches = batches(chooser.chosen);
        unordered::run(threads, batches, || {
            let (done, failed) = (&done, &failed);
            move |batch: Vec<Chosen>| {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                for ((encoded, idx), result) in self.decode_batch(&batch, keep) {
                    match result {
                        Ok(()) => {
                            let (extents, bytes) = &mut *lock(done);
                            (*extents, *bytes) = (*extents + 1, *bytes + u64::from(encoded.llen));
                        }
                        Err(error) => lock(failed).push((idx, error)),
                    }
                }
            }
        });
        (pinned.extents, pinned.bytes) = into_inner(done);
        let mut failed = into_inner(failed);
        failed.sort_by_key(|(idx, _)| *idx);
        failed.into_iter().for_each(|(idx, error)| pinned.fail(&list.entries()[idx], error));
        pinned
    }

    /// Fetch and decode extents, and keep them.
    fn decode_batch(&self, batch: &[Chosen], keep: Keep) -> Vec<(Chosen, Result<(), ReadError>)> {
        let state = self.core.state();
        state.sources.with(|buf| {
            let (mut fetch, mut last) = (FetchPlan::default(), None);
            let places: Vec<_> = batch.iter().map(|(encoded, _)| self.place(encoded, &mut fetch, &mut last)).collect();
            // If this fails, each extent fetches for itself, so that only those fail that must.
            let is_fetched = self.fetch(&fetch, grow_to(buf, fetch.len()), Vec::new()).is_ok();
            let pin = |(chosen, place): (&Chosen, Result<Option<usize>, ReadError>)| -> Result<(), ReadError> {
                let (encoded, _) = chosen;
                let at_hand = match place? {
                    Some(start) if is_fetched => &buf[start..start + encoded.pcluster.plen as usize],
                    _ => &[],
                };
                let bytes = match state.decoded.get(encoded) {
                    Some(cached) => cached,
                    None => self.load(encoded, 0, at_hand)?,
                };
                match keep {
                    Keep::Pinned => state.pinned.insert(*encoded, bytes),
                    Keep::Cached => state.decoded.put(*encoded, bytes),
                }
                Ok(())
            };
            batch.iter().zip(places).map(|(chosen, place)| (*chosen, pin((chosen, place)))).collect()
        })
    }

    /// Plan to fetch a pcluster, unless it is in memory or beside an inode, and what lies between it and the end of the `last` one, if that
    /// is little. Where it will be.
    fn place(
        &self,
        encoded: &EncodedExtent,
        fetch: &mut FetchPlan,
        last: &mut Option<(u16, u64)>,
    ) -> Result<Option<usize>, ReadError> {
        let pcluster = &encoded.pcluster;
        if pcluster.inline.is_some() || self.borrow_pcluster(pcluster)?.is_some() {
            return Ok(None);
        }
        let &Pcluster { device, pa, plen, .. } = pcluster;
        if let Some((of, end)) = *last
            && of == device
            && let Some(gap @ 1..=GAP_MAX_LEN) = pa.checked_sub(end)
        {
            fetch.add(device, end, gap as usize);
        }
        *last = Some((device, pa.saturating_add(plen.into())));
        Ok(Some(fetch.add(device, pa, plen as usize)))
    }
}

impl Pinned {
    fn fail(&mut self, entry: &HotEntry, error: ReadError) {
        if self.failed.last().is_none_or(|(path, _)| *path != entry.path) {
            self.failed.push((entry.path.clone(), error));
        }
    }
}

/// Chooses extents in the order of a list.
struct Chooser<'a> {
    image: &'a Image,
    keep: Keep,
    stop: &'a AtomicBool,
    /// Bytes of memory that may be taken.
    left: u64,
    lookups: usize,
    seen: HashSet<EncodedExtent>,
    chosen: Vec<Chosen>,
}

impl<'a> Chooser<'a> {
    /// One that chooses `left` bytes at most.
    fn new(image: &'a Image, keep: Keep, left: u64, stop: &'a AtomicBool) -> Self {
        Self { image, keep, stop, left, lookups: 0, seen: HashSet::new(), chosen: Vec::new() }
    }

    /// Whether an extent is where it is to stay.
    fn is_kept(&self, encoded: &EncodedExtent) -> bool {
        let state = self.image.core.state();
        match self.keep {
            Keep::Pinned => state.pinned.get(encoded).is_some(),
            Keep::Cached => state.decoded(encoded).is_some() || !state.fits_cache(encoded),
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.lookups >= LOOKUPS_MAX
    }

    /// Add the extents of bytes `wanted` of a file, which entry `idx` wants. Returns how many bytes were left out.
    fn add(
        &mut self,
        idx: usize,
        inode: &Inode,
        wanted: Range<u64>,
        packed: &mut PackedMap<'a>,
    ) -> Result<u64, ReadError> {
        readable(inode, 0, 0)?;
        let (mut off, end) = (wanted.start, wanted.end.min(inode.meta.size));
        let mut map = Map::open(self.image, inode)?;
        if !map.is_compressed() {
            return Ok(0);
        }
        let mut left_out = 0_u64;
        while off < end && !self.is_over() {
            let stop = end.min(off.saturating_add(STEP_LEN));
            self.lookups += 1;
            self.image.each_piece(&mut map, packed, off..stop, &mut |extent, _| {
                self.lookups += 1;
                if !matches!(extent.kind, ExtentKind::Encoded { .. }) {
                    return Ok(());
                }
                let encoded = EncodedExtent::of(extent)?;
                let cost = u64::from(encoded.llen) + PINNED_COST;
                if !self.seen.insert(encoded) || self.is_kept(&encoded) {
                    return Ok(());
                }
                match self.left.checked_sub(cost) {
                    Some(left) => {
                        self.left = left;
                        self.chosen.push((encoded, idx));
                    }
                    None => left_out = left_out.saturating_add(encoded.llen.into()),
                }
                Ok(())
            })?;
            off = stop;
        }
        Ok(left_out)
    }
}

/// Stored bytes between two pclusters, if they are fetched with both.
fn gap((before, _): &Chosen, (behind, _): &Chosen) -> Option<u64> {
    let (before, behind) = (&before.pcluster, &behind.pcluster);
    let gap = behind.pa.checked_sub(before.pa.saturating_add(before.plen.into()))?;
    (before.device == behind.device && gap <= GAP_MAX_LEN).then_some(gap)
}

/// Extents in windows of their order, and each window in stored order, cut into what is fetched at once.
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
