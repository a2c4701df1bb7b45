//! Pinning: what a hot list names is decoded before it is read, and stays decoded, or is cached for readers that come soon.
//!
//! Its stored bytes are fetched in [chunks](crate::cache::staged), from which all reads are served meanwhile, and decoded on all threads.

use super::fetch::FetchPlan;
use super::hot_extents::{Chooser, Chosen, GAP_MAX_LEN, Keep, Task, chunks, tasks};
use super::pieces::PackedMap;
use crate::cache::staged::StagedChunks;
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::hotlist::{HotEntry, HotList};
use crate::image::Image;
use crate::map::pcluster::{EncodedExtent, Pcluster};
use crate::metadata::inode::Inode;
use crate::tree::resolve::FollowLast;
use kiln_parallel::locks::{into_inner, lock};
use kiln_parallel::{Threads, unordered};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

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

/// What was pinned or loaded for a list, and the stored bytes of that list: until this is dropped, they are in memory, and whoever reads them
/// waits for a fetch under way instead of fetching again.
pub struct Ahead {
    /// What was decoded.
    pub loaded: Pinned,
    image: Image,
    chunks: Arc<StagedChunks>,
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("loaded", &self.loaded).finish_non_exhaustive()
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.image.core.state().remove_staged(&self.chunks);
    }
}

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
        std::mem::take(&mut self.pin_ahead(list, bytes_max, threads, stop).loaded)
    }

    /// [`Image::pin`] for readers that come soon, or have come already: see [`Image::load_ahead`].
    pub fn pin_ahead(&self, list: &HotList, bytes_max: u64, threads: Threads, stop: &AtomicBool) -> Ahead {
        let left = bytes_max.saturating_sub(self.core.state().pinned.cost());
        self.decode_listed(list, Chooser::new(self, Keep::Pinned, left, stop), threads)
    }

    /// Decode the extents that hold the ranges of `list` into the cache, in its order, until three eighths of the cache are taken: for readers
    /// that come soon. What lies together is fetched together, in requests of up to 1 MiB, metadata and what is stored plain too, so on a slow
    /// source this takes a fraction of the requests that reads one after the other take. Who reads a part of it meanwhile waits for the
    /// request that is under way. Stored bytes stay until the result is dropped, and take up to a quarter of the cache until then. `stop`
    /// ends the work early.
    pub fn load_ahead(&self, list: &HotList, threads: Threads, stop: &AtomicBool) -> Ahead {
        let state = self.core.state();
        let left = (state.decoded.capacity().saturating_sub(state.staged_max())) / 2;
        self.decode_listed(list, Chooser::new(self, Keep::Cached, left, stop), threads)
    }
}

impl Image {
    fn decode_listed<'a>(&'a self, list: &HotList, chooser: Chooser<'a>, threads: Threads) -> Ahead {
        let (keep, stop) = (chooser.keep, chooser.stop);
        // Programs that read meanwhile want the same metadata.
        let warming = self.core.state().warm();
        let mut pinned = Pinned::default();
        let chooser = self.look_up_listed(list, chooser, &mut pinned);
        let state = self.core.state();
        let (chunks, order) = chunks(self, &chooser.stored, state.staged_max().saturating_sub(state.staged().len()));
        let chunks = Arc::new(chunks);
        state.add_staged(Arc::clone(&chunks));
        let mut ahead = Ahead { loaded: pinned, image: self.clone(), chunks };
        drop(warming);
        let (done, failed) = (Mutex::new((0, 0)), Mutex::new(Vec::new()));
        let chunks = &ahead.chunks;
        unordered::run(threads, tasks(order, chooser.chosen), || {
            let (done, failed) = (&done, &failed);
            move |task: Task| {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let batch = match task {
                    Task::Fetch(key) => {
                        return chunks.fetch(key, &|device, buf, pa| self.core.devices.read(device, buf, pa));
                    }
                    Task::Decode(batch) => batch,
                };
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
        let pinned = &mut ahead.loaded;
        (pinned.extents, pinned.bytes) = into_inner(done);
        let mut failed = into_inner(failed);
        failed.sort_by_key(|(idx, _)| *idx);
        failed.into_iter().for_each(|(idx, error)| pinned.fail(&list.entries()[idx], error));
        ahead
    }

    /// Look up the metadata of a list, and which extents hold its ranges.
    fn look_up_listed<'a>(&'a self, list: &HotList, chooser: Chooser<'a>, pinned: &mut Pinned) -> Chooser<'a> {
        let (mut chooser, mut packed) = (chooser, PackedMap::new(self));
        let mut last: Option<(&[u8], Option<Inode>)> = None;
        for (idx, entry) in list.entries().iter().enumerate() {
            if chooser.is_over() {
                break;
            }
            if entry.is_metadata() {
                let found = self.resolve(&entry.path, FollowLast::Keep);
                let listed = found.and_then(|inode| if inode.is_dir() { chooser.list(&inode) } else { Ok(()) });
                listed.unwrap_or_else(|error| pinned.fail(entry, error));
                continue;
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
        chooser
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
