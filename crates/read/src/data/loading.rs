//! Pinning: what a hot list names is decoded before it is read, and stays decoded, or is cached for
//! readers that come soon.
//!
//! Its stored bytes are fetched in [chunks](crate::cache::staged), from which all reads are served
//! meanwhile, and decoded on all threads.

use super::fetch::FetchPlan;
use super::hot_extents::{Chooser, Chosen, GAP_MAX_LEN, Keep, Task, chunks, tasks};
use crate::cache::staged::StagedChunks;
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::hotlist::{HotEntry, HotList};
use crate::image::Image;
use crate::image::reader::Reader;
use crate::map::encoded_extent::EncodedExtent;
use crate::map::extent::Pcluster;
use crate::metadata::inode::Inode;
use crate::tree::resolve::FollowLast;
use kiln_parallel::locks::{into_inner, lock};
use kiln_parallel::{Threads, unordered};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Report of what was decoded for a hot list.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LoadReport {
    /// Number of extents that were decoded.
    pub extents: u64,
    /// Bytes of these extents, decoded.
    pub bytes: u64,
    /// Bytes of extents that were left out, as they would have exceeded the limit.
    pub left_out: u64,
    /// Paths that could not be decoded, as the list has them, each once in a row, with their
    /// errors.
    pub failed: Vec<(Vec<u8>, ReadError)>,
}

/// A hot list that was loaded, see [`Image::pin`] and [`Image::load_ahead`].
///
/// Until it is dropped, the stored bytes of the list stay in memory, and a read of them waits for a
/// fetch that is under way instead of fetching again.
pub struct LoadedHotList {
    /// Report of what was decoded.
    pub report: LoadReport,
    image: Image,
    chunks: Arc<StagedChunks>,
}

impl fmt::Debug for LoadedHotList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedHotList").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Drop for LoadedHotList {
    fn drop(&mut self) {
        self.image.core.volume.state().remove_staged(&self.chunks);
    }
}

impl LoadedHotList {
    /// Implements `Image::pin`.
    pub(crate) fn pinned(image: &Image, list: &HotList, bytes_max: u64, threads: Threads, stop: &AtomicBool) -> Self {
        let left = bytes_max.saturating_sub(image.core.volume.state().pinned.cost());
        Self::load(image, list, Chooser::new(image.reader(), Keep::Pinned, left, stop), threads)
    }

    /// Implements `Image::load_ahead`.
    pub(crate) fn cached(image: &Image, list: &HotList, threads: Threads, stop: &AtomicBool) -> Self {
        let state = image.core.volume.state();
        let left = (state.decoded.capacity().saturating_sub(state.staged_max())) / 2;
        Self::load(image, list, Chooser::new(image.reader(), Keep::Cached, left, stop), threads)
    }

    fn load(image: &Image, list: &HotList, chooser: Chooser<'_>, threads: Threads) -> Self {
        let reader = image.reader();
        let (keep, stop) = (chooser.keep, chooser.stop);
        let state = reader.volume.state();
        // Programs that read meanwhile want the same metadata.
        let warming = state.warm();
        let mut report = LoadReport::default();
        let chooser = reader.look_up_listed(list, chooser, &mut report);
        let (chunks, order) = chunks(reader, &chooser.stored, state.staged_max().saturating_sub(state.staged().len()));
        let chunks = Arc::new(chunks);
        state.add_staged(Arc::clone(&chunks));
        let mut loaded = Self { report, image: image.clone(), chunks };
        drop(warming);
        let (done, failed) = (Mutex::new((0, 0)), Mutex::new(Vec::new()));
        let chunks = &loaded.chunks;
        unordered::run(threads, tasks(order, chooser.chosen), || {
            let (done, failed) = (&done, &failed);
            move |task: Task| {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let batch = match task {
                    Task::Fetch(key) => {
                        return chunks.fetch(key, &|device, buf, pa| reader.volume.devices.read(device, buf, pa));
                    }
                    Task::Decode(batch) => batch,
                };
                for ((encoded, idx), result) in reader.decode_batch(&batch, keep) {
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
        let report = &mut loaded.report;
        (report.extents, report.bytes) = into_inner(done);
        let mut failed = into_inner(failed);
        failed.sort_by_key(|(idx, _)| *idx);
        failed.into_iter().for_each(|(idx, error)| report.fail(&list.entries()[idx], error));
        loaded
    }
}

impl<'a> Reader<'a> {
    /// Looks up the metadata of a list, and the extents that hold its ranges.
    fn look_up_listed<'c>(self, list: &HotList, chooser: Chooser<'c>, report: &mut LoadReport) -> Chooser<'c> {
        let mut chooser = chooser;
        let mut last: Option<(&[u8], Option<Inode>)> = None;
        for (idx, entry) in list.entries().iter().enumerate() {
            if chooser.is_over() {
                break;
            }
            if entry.is_metadata() {
                let found = self.resolve(&entry.path, FollowLast::Keep);
                let listed = found.and_then(|inode| if inode.is_dir() { chooser.list(&inode) } else { Ok(()) });
                listed.unwrap_or_else(|error| report.fail(entry, error));
                continue;
            }
            // Ranges of one file often follow each other.
            if last.as_ref().is_none_or(|(path, _)| *path != entry.path) {
                let inode = self.resolve(&entry.path, FollowLast::Follow).map_err(|error| report.fail(entry, error));
                last = Some((&entry.path[..], inode.ok()));
            }
            let Some((_, Some(inode))) = &last else { continue };
            match chooser.add(idx, inode, entry.range()) {
                Ok(left_out) => report.left_out = report.left_out.saturating_add(left_out),
                Err(error) => report.fail(entry, error),
            }
        }
        chooser
    }

    /// Fetches and decode extents, and keep them.
    fn decode_batch(self, batch: &[Chosen], keep: Keep) -> Vec<(Chosen, Result<(), ReadError>)> {
        let state = self.volume.state();
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

    /// Plans to fetch a pcluster, unless it is in memory or beside an inode, and what lies between
    /// it and the end of the `last` one, if that is little. Where it will be.
    fn place(
        self,
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

impl LoadReport {
    fn fail(&mut self, entry: &HotEntry, error: ReadError) {
        if self.failed.last().is_none_or(|(path, _)| *path != entry.path) {
            self.failed.push((entry.path.clone(), error));
        }
    }
}
