//! Push prefetch: contents and names that the kernel gets before it asks. Each request saved is two
//! switches between processes, which cost more than decoding most files.
//!
//! * *Sequential*: small files that will be read next, as a process opens the files of a directory
//!   in readdir order ([`sequential`]).
//! * *Siblings*: small files near the one that is read, which were decoded together with it
//!   ([`siblings`]).
//! * *Extent*: the rest of an extent that was decoded for a page of a file that is read at random.
//!   The cache of decoded extents then drops it.
//! * *Dentries*: names of a directory in which some were looked up ([`dentries`]). FUSE has no
//!   notification that adds dentries, so a thread of the server lists the directory through the
//!   mount ([`dentry_thread`]), and the answers to READDIRPLUS fill the dcache.
//!
//! Files and dentries are pushed before the READ that triggers them is answered. So its reader
//! cannot request them meanwhile, and has a file open, so that the directory that the dentry thread
//! opens is never the reason why the mount is busy.
//!
//! # Rules against deadlock
//!
//! A thread that prefetches waits for the kernel, and the kernel may wait for the server. Each rule
//! prevents one circle.
//!
//! 1. **A follower receives requests** ([`LeaderFollowers::with_follower`]). A push locks the pages
//!    that it fills, and the kernel keeps the pages of a READ locked until it is answered.
//!    *Circle:* all threads push, each waits for pages of a READ, and these READs wait in the queue
//!    for a thread. So a thread prefetches only while another one neither prefetches nor is idle;
//!    otherwise it skips the prefetch.
//! 2. **Register, then look** ([`in_flight`]). A thread that pushes before its answer holds the
//!    pages of the READ that it answers. *Circle:* thread A answers X and pushes Y, thread B
//!    answers Y and pushes X. So a thread registers its own file before it checks whether the file
//!    to push is registered, and does not push a registered file. A thread can then wait for
//!    another only if it checked before the other had registered; in a circle, each would have
//!    checked before it was registered itself.
//! 3. **Never the own file before the answer.** *Circle:* a thread waits for pages that its own
//!    answer unlocks. By rule 2, a file with several names, which may follow itself in a listing,
//!    is not pushed to its own reader. The rest of an extent belongs to the file that is read, and
//!    the kernel may lock more of its pages together than one READ requests: it is pushed after the
//!    answer. A thread that has answered holds no pages, so no circle leads through it.
//! 4. **No lock is held over a push.** *Circle:* a thread waits for pages with the predictors
//!    locked, and the thread that could unlock these pages needs the predictors for its READ. So
//!    `predictors` and the set of files in flight are only locked to read or record state.
//! 5. **One listing at a time, for a limited time** ([`dentry_thread`]). *Circle:* threads wait for
//!    the dentry thread, which waits for answers to READDIRPLUS. Besides rule 1, at most one thread
//!    waits for the dentry thread, and no longer than its time limit.
//! 6. **The dentry thread does not hold the connection.** *Circle:* the server is killed while that
//!    thread waits for an answer; only the end of the connection ends that wait, and the connection
//!    ends only when no descriptor of it is left, including that thread's. So the thread has its
//!    own table of descriptors, which is empty. The image cannot be read there: the thread that
//!    answers finds the path of the directory, by a walk over a bounded number of entries
//!    ([`DirPaths`](super::protocol::paths::DirPaths)).
//! 7. **Only this mount is listed.** *Circle:* the mount point meanwhile leads to another server,
//!    which waits for files of ours. So the dentry thread compares the identity of the directory
//!    that it has opened with that of the mount, and stops for good if they differ.

mod dentries;
pub(super) mod dentry_thread;
mod directory_order;
mod in_flight;
mod notify_store;
mod sequential;
mod siblings;

use super::metrics::{Metrics, PrefetchKind};
use super::protocol::image_fs::ImageFs;
use super::protocol::node;
use super::threads::leader_followers::LeaderFollowers;
use dentries::Dentries;
use dentry_thread::ReaddirThread;
use directory_order::DirectoryOrder;
use fuser::INodeNo;
use in_flight::{InFlight, InFlightGuard};
use kiln_read::View;
use notify_store::PageCache;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::param::page_size;
use sequential::{Predicted, Sequential};
use siblings::Siblings;
use std::ops::Range;
use std::sync::Arc;

/// Length in bytes of the longest file that is pushed as a whole. In longer ones, the kernel's own
/// readahead works.
const FILE_MAX: u64 = 128 << 10;
/// Most bytes of files that are pushed in a sequence for one request.
const SEQUENCE_MAX: u64 = 256 << 10;
/// Number of files not in the cache of decoded extents after which the search for siblings ends.
const MISSES_MAX: u32 = 16;

/// Decides what to push, and pushes it.
pub(super) struct Prefetcher {
    cache: PageCache,
    dentries: Option<Dentries>,
    /// No thread waits for the kernel while it holds this lock (rule 4).
    predictors: Mutex<Predictors>,
    in_flight: InFlight,
    metrics: Arc<Metrics>,
}

/// State of listings and of the requests for their files.
struct Predictors {
    order: DirectoryOrder,
    sequential: Sequential,
    siblings: Siblings,
}

/// Files that may be worth a push.
enum Candidates {
    None,
    Sequential(Predicted),
    Siblings(Vec<u64>),
}

impl Predictors {
    /// Records a request for `file`, and chooses candidates.
    fn note_request(&mut self, file: u64, is_hit: bool) -> Candidates {
        let request = self.order.note_request(file);
        self.siblings.note_request(request);
        let predicted = self.sequential.predict(&mut self.order, file, request);
        if !predicted.files.is_empty() {
            return Candidates::Sequential(predicted);
        }
        let siblings = self.siblings.candidates(&mut self.order, file, is_hit);
        if siblings.is_empty() { Candidates::None } else { Candidates::Siblings(siblings) }
    }

    /// Records that the siblings `files` are about to be pushed, and removes the holdout from them.
    fn note_siblings(&mut self, files: &mut Vec<u64>) {
        files.truncate(self.siblings.note_pushed(&mut self.order, files));
        self.sequential.skip_cached(&mut self.order);
    }
}

/// READ whose answer was sent to the kernel.
pub(in crate::fuse) struct Answered {
    /// File that was read.
    pub file: INodeNo,
    /// Length of the file in bytes.
    pub size: u64,
    /// Range of bytes that were sent.
    pub bytes: Range<u64>,
}

impl Prefetcher {
    /// Creates a prefetcher for the kernel at the other end of `connection`, and an image of
    /// `inodes` inodes. With `thread`, dentries are prefetched.
    pub(super) fn new(connection: OwnedFd, thread: Option<ReaddirThread>, inodes: u64, metrics: Arc<Metrics>) -> Self {
        let (sequential, siblings) = (Sequential::default(), Siblings::new());
        Self {
            cache: PageCache::new(connection),
            dentries: thread.map(|thread| Dentries::new(thread, inodes)),
            predictors: Mutex::new(Predictors { order: DirectoryOrder::new(inodes), sequential, siblings }),
            in_flight: InFlight::default(),
            metrics,
        }
    }

    /// Records `files` of an answer to READDIRPLUS for `dir`: the first ones if `from_start`, else
    /// the ones after those of earlier answers.
    pub(super) fn note_listing(&self, dir: INodeNo, from_start: bool, files: &[u64]) {
        if !files.is_empty() {
            self.predictors.lock().order.note_listing(dir.0, from_start, files);
        }
    }

    /// Records a LOOKUP of a file in `dir`, a directory of `size` bytes.
    pub(super) fn note_lookup(&self, dir: INodeNo, size: u64) {
        if let Some(dentries) = &self.dentries {
            dentries.note_lookup(dir, size);
        }
    }

    /// Prefetches before a READ from the start of `file` is answered: lists dentries, and pushes
    /// files that will be read next, or else siblings. `is_hit` means that the bytes of the file
    /// had already been decoded for another one. Drop the guard after the answer.
    pub(super) fn before_answer(
        &self,
        fs: &ImageFs,
        threads: &LeaderFollowers,
        file: INodeNo,
        is_hit: bool,
    ) -> InFlightGuard<'_> {
        let guard = self.in_flight.register(file.0);
        if let Some(dentries) =
            self.dentries.as_ref().filter(|dentries| dentries.is_due() && !fs.image.server().is_cold())
        {
            with_follower_unless_slow(fs, threads, || self.metrics.note_dentries(dentries.list(fs)));
        }
        let candidates = self.predictors.lock().note_request(file.0, is_hit);
        match candidates {
            Candidates::Sequential(predicted) => self.push_sequence(fs, threads, &predicted),
            Candidates::Siblings(files) => with_follower_unless_slow(fs, threads, || self.push_siblings(fs, &files)),
            Candidates::None => {}
        }
        guard
    }

    fn push_sequence(&self, fs: &ImageFs, threads: &LeaderFollowers, predicted: &Predicted) {
        let mut pushed = 0;
        with_follower_unless_slow(fs, threads, || {
            let mut bytes = 0;
            // The source may turn out to be slow meanwhile.
            while pushed < predicted.files.len() && bytes < SEQUENCE_MAX && !fs.image.server().is_slow() {
                let Some(len) = self.push_whole_file(fs, predicted.files[pushed]) else { break };
                pushed += 1;
                bytes += len;
            }
        });
        if pushed < predicted.files.len() {
            let Predictors { order, sequential, .. } = &mut *self.predictors.lock();
            sequential.note_not_pushed(order, predicted, pushed);
        }
    }

    /// Pushes those of `candidates` that are in the cache of decoded extents.
    fn push_siblings(&self, fs: &ImageFs, candidates: &[u64]) {
        let (mut files, mut views) = (Vec::new(), Vec::new());
        let mut misses = 0;
        for &file in candidates {
            // The process that reads a damaged file gets the error.
            match fs.image.server().get_if_cached(node::nid(&fs.image, INodeNo(file)), FILE_MAX).ok().flatten() {
                Some(view) => {
                    files.push(file);
                    views.push(view);
                }
                None if misses == MISSES_MAX => break,
                None => misses += 1,
            }
        }
        self.predictors.lock().note_siblings(&mut files);
        let mut pushed = 0;
        for (&file, view) in files.iter().zip(views) {
            if !self.push_other_file(PrefetchKind::Siblings, file, &view) {
                break;
            }
            fs.image.server().mark_consumed(view);
            pushed += 1;
        }
        if pushed < files.len() {
            let order = &mut self.predictors.lock().order;
            files[pushed..].iter().for_each(|&file| order.note_not_pushed(file));
        }
    }

    /// Decodes and pushes a small file. Returns its length in bytes; `None` if it is not pushed.
    fn push_whole_file(&self, fs: &ImageFs, file: u64) -> Option<u64> {
        let inode = fs.inode(INodeNo(file)).ok().filter(|inode| inode.meta.size <= FILE_MAX)?;
        let size = inode.meta.size;
        fs.buffers.with(|buf| {
            // The process that reads a damaged file gets the error.
            let bytes = fs.image.view(&inode, 0, size as usize, buf).ok()?;
            self.push_other_file(PrefetchKind::Sequential, file, &bytes).then_some(size)
        })
    }

    /// Pushes, after a READ was answered from `view`, the rest of the text that was decoded with
    /// these bytes.
    pub(super) fn after_answer(&self, fs: &ImageFs, threads: &LeaderFollowers, answered: Answered, view: View<'_>) {
        let Answered { file, size, bytes: answered } = answered;
        let server = fs.image.server();
        let Some((la, bytes)) = server.containing_extent(&view).filter(|_| !fs.image.server().is_slow()) else {
            return;
        };
        let mut is_pushed = false;
        threads.with_follower(|| {
            let parts = whole_pages(la..la + bytes.len() as u64, &answered, size);
            let mut parts = parts.into_iter().filter(|part| !part.is_empty());
            is_pushed = parts.all(|part| {
                let bytes = &bytes[(part.start - la) as usize..(part.end - la) as usize];
                self.push(PrefetchKind::Extent, file.0, part.start, bytes)
            });
        });
        if is_pushed {
            fs.image.server().mark_consumed(view);
        }
    }

    /// Pushes a file from its start on, before the answer to a READ of another one (rule 2).
    fn push_other_file(&self, kind: PrefetchKind, file: u64, bytes: &[u8]) -> bool {
        !self.in_flight.contains(file) && self.push(kind, file, 0, bytes)
    }

    fn push(&self, kind: PrefetchKind, file: u64, off: u64, bytes: &[u8]) -> bool {
        let is_pushed = self.cache.store(file, off, bytes);
        if is_pushed {
            self.metrics.note_prefetch(kind, bytes.len());
        }
        is_pushed
    }
}

/// Runs `work` while a follower receives requests, unless it may have to wait for a slow source: a
/// reader waits for the answer that follows.
fn with_follower_unless_slow(fs: &ImageFs, threads: &LeaderFollowers, work: impl FnOnce()) {
    if !fs.image.server().is_slow() {
        threads.with_follower(work);
    }
}

/// Returns the parts of `extent`, in bytes of a file of `size` bytes, before and after `answered`:
/// whole pages, except that the last one of the file may be shorter.
fn whole_pages(extent: Range<u64>, answered: &Range<u64>, size: u64) -> [Range<u64>; 2] {
    let page = page_size() as u64;
    let up = |off: u64| off.next_multiple_of(page);
    let down = |off: u64| off - off % page;
    let end = if extent.end == size { size } else { down(extent.end) };
    [up(extent.start)..down(answered.start), up(answered.end)..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_beside_those_that_are_answered() {
        let page = page_size() as u64;
        let parts = |start, end, from, to, size| whole_pages(start..end, &(from..to), size);
        let [before, behind] = parts(100, 9 * page + 100, 2 * page, 4 * page, 20 * page);
        assert_eq!((before, behind), (page..2 * page, 4 * page..9 * page));
        // The last page of the file is not whole.
        let [before, behind] = parts(0, 9 * page + 100, 0, page, 9 * page + 100);
        assert_eq!((before, behind), (0..0, page..9 * page + 100));
        for [before, behind] in [
            parts(100, 200, 100, 200, 20 * page),
            parts(100, page + 200, 100, page, 20 * page),
            parts(0, page + 7, page, page + 7, page + 7),
            parts(5 * page + 1, 6 * page + 1, 5 * page + 1, 6 * page, 20 * page),
        ] {
            assert!(before.is_empty() || before == (0..page), "{before:?}");
            assert!(behind.is_empty(), "{behind:?}");
        }
    }
}
