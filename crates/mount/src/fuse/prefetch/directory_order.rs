//! Order of files in listings, and an estimate of which of them are in the kernel's page cache.
//!
//! Each file has an entry with its neighbours in a hash table of fixed size, until a file with the
//! same slot takes the entry.

use crate::fuse::protocol::node;

/// log2 of the number of entries of 32 bytes, at least and at most.
const BITS_MIN: u32 = 6;
const BITS_MAX: u32 = 17;
/// Number of requests. A push was useless if its file is requested within that many: its reader was
/// faster, or the page cache is too small.
const REDUNDANT_WITHIN: u32 = 1024;
/// Weight of a request for a file that the kernel got longer ago: it has probably left the page
/// cache. The request counts as much as that many first requests, since a single file may have been
/// dropped for another reason.
const SUSPICION: u32 = 16;
const SUSPECTED_MAX: u32 = 4 * SUSPICION;

/// State of a file, or of a directory, whose `next` is the last file of its listing so far. Fields
/// are node ids, 0 for none.
#[derive(Clone, Copy, Default)]
struct Entry {
    node: u64,
    next: u64,
    prev: u64,
    /// Time when the kernel got the file, counted in requests.
    cached_at: u32,
    cache: KernelCache,
    is_listed: bool,
}

/// Way in which the page cache got a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KernelCache {
    /// The page cache does not have the file, as far as we know.
    #[default]
    Unknown,
    /// The page cache got the file by a READ.
    Requested,
    /// The page cache got the file by a push.
    Pushed,
    /// The page cache did not get the file, which is the holdout of a push: a request for it shows
    /// that the push was useful.
    HeldOut,
}

/// Meaning of a request for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The file is in no listing that is remembered.
    Unlisted,
    /// The file is the first of a listing.
    First,
    /// The file is another one of a listing.
    Listed,
    /// The file was pushed shortly before: the push was useless.
    Redundant,
    /// The file was the holdout of a push.
    HeldOut,
}

/// Listings of an image.
pub(super) struct DirectoryOrder {
    entries: Box<[Entry]>,
    bits: u32,
    /// Number of requests so far, plus one.
    requests: u32,
    /// Time in requests. Files that the kernel got before it seem to have left the page cache.
    evicted_before: u32,
    /// Suspicion of evictions. Grows with requests for files that the page cache should have.
    evictions_suspected: u32,
}

impl DirectoryOrder {
    /// Creates the state for an image of `inodes` inodes.
    pub(super) fn new(inodes: u64) -> Self {
        // Twice as many entries as inodes, so that few files share a slot.
        let bits = (u64::BITS - inodes.leading_zeros() + 1).clamp(BITS_MIN, BITS_MAX);
        let entries = vec![Entry::default(); 1 << bits].into_boxed_slice();
        Self { entries, bits, requests: 1, evicted_before: 0, evictions_suspected: 0 }
    }

    /// Records `files` as listed in `dir`, in this order: the first ones if `from_start`, else the
    /// ones after those listed before.
    pub(super) fn note_listing(&mut self, dir: u64, from_start: bool, files: &[u64]) {
        let mut last = if from_start { 0 } else { self.next(dir) };
        for &file in files {
            if let Some(entry) = self.entry(last) {
                entry.next = file;
            }
            let known = self.entry(file).map(|entry| (entry.cache, entry.cached_at));
            let (cache, cached_at) = known.unwrap_or_default();
            *self.slot(file) = Entry { node: file, next: 0, prev: last, cache, cached_at, is_listed: true };
            last = file;
        }
        *self.slot(dir) = Entry { node: dir, next: last, ..Entry::default() };
    }

    /// Records a request for `file`.
    pub(super) fn note_request(&mut self, file: u64) -> Request {
        self.requests = self.requests.saturating_add(1);
        let (now, evicted_before) = (self.requests, self.evicted_before);
        if self.entry(file).is_none() {
            *self.slot(file) = Entry { node: file, ..Entry::default() };
        }
        let entry = self.slot(file);
        let Entry { cache, cached_at, prev, is_listed, .. } = *entry;
        (entry.cache, entry.cached_at) = (KernelCache::Requested, now);
        let is_soon = now - cached_at < REDUNDANT_WITHIN;
        match cache {
            KernelCache::HeldOut => return Request::HeldOut,
            KernelCache::Pushed if is_soon => return Request::Redundant,
            KernelCache::Pushed | KernelCache::Requested if !is_soon => {
                self.evictions_suspected = (self.evictions_suspected + SUSPICION).min(SUSPECTED_MAX);
                // The kernel evicts in the order in which it got the files.
                if self.evictions_suspected == SUSPECTED_MAX {
                    self.evicted_before = evicted_before.max(cached_at);
                }
            }
            KernelCache::Requested | KernelCache::Pushed => {}
            KernelCache::Unknown => self.evictions_suspected = self.evictions_suspected.saturating_sub(1),
        }
        match (is_listed, prev) {
            (false, _) => Request::Unlisted,
            (true, 0) => Request::First,
            (true, _) => Request::Listed,
        }
    }

    /// Records that a file is pushed.
    pub(super) fn note_pushed(&mut self, file: u64) {
        self.mark(file, KernelCache::Pushed);
    }

    /// Records that a file is the holdout of a push.
    pub(super) fn hold_out(&mut self, file: u64) {
        self.mark(file, KernelCache::HeldOut);
    }

    /// Records that a file was not pushed, although [`DirectoryOrder::note_pushed`] was called.
    pub(super) fn note_not_pushed(&mut self, file: u64) {
        if let Some(entry) = self.entry(file).filter(|entry| entry.cache == KernelCache::Pushed) {
            entry.cache = KernelCache::Unknown;
        }
    }

    /// Returns true if the page cache has a file, as far as we know.
    pub(super) fn is_cached(&mut self, file: u64) -> bool {
        let evicted_before = self.evicted_before;
        self.entry(file).is_some_and(|entry| {
            let has_come = matches!(entry.cache, KernelCache::Requested | KernelCache::Pushed);
            has_come && entry.cached_at > evicted_before
        })
    }

    /// Returns the next file in the listing; 0 if there is none.
    pub(super) fn next(&mut self, file: u64) -> u64 {
        let next = self.entry(file).map_or(0, |entry| entry.next);
        self.known(next)
    }

    /// Returns the previous file in the listing; 0 if there is none.
    pub(super) fn prev(&mut self, file: u64) -> u64 {
        let prev = self.entry(file).map_or(0, |entry| entry.prev);
        self.known(prev)
    }

    fn known(&mut self, node: u64) -> u64 {
        self.entry(node).map_or(0, |entry| entry.node)
    }

    fn mark(&mut self, file: u64, cache: KernelCache) {
        let now = self.requests;
        if let Some(entry) = self.entry(file) {
            (entry.cache, entry.cached_at) = (cache, now);
        }
    }

    fn slot(&mut self, node: u64) -> &mut Entry {
        &mut self.entries[node::slot(node, self.bits)]
    }

    fn entry(&mut self, node: u64) -> Option<&mut Entry> {
        Some(self.slot(node)).filter(|entry| entry.node == node && node != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u64 = 1 << 32;

    #[test]
    fn neighbours_are_remembered_over_several_answers() {
        let mut order = DirectoryOrder::new(1 << 20);
        order.note_listing(DIR, true, &[5, 3, 8]);
        order.note_listing(DIR, false, &[1]);
        assert_eq!([5, 3, 8, 1].map(|file| order.next(file)), [3, 8, 1, 0]);
        assert_eq!([5, 3, 8, 1].map(|file| order.prev(file)), [0, 5, 3, 8]);
        assert_eq!([5, 3].map(|file| order.note_request(file)), [Request::First, Request::Listed]);
        assert_eq!(order.note_request(77), Request::Unlisted);
    }

    #[test]
    fn requests_tell_what_the_page_cache_holds() {
        let mut order = DirectoryOrder::new(1 << 20);
        order.note_listing(DIR, true, &(1..10).collect::<Vec<_>>());
        order.note_request(1);
        (2..5).for_each(|file| order.note_pushed(file));
        order.hold_out(5);
        assert_eq!((1..7).filter(|&file| order.is_cached(file)).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!([2, 5].map(|file| order.note_request(file)), [Request::Redundant, Request::HeldOut]);
    }

    #[test]
    fn evictions_are_noticed() {
        let mut order = DirectoryOrder::new(1 << 20);
        order.note_listing(DIR, true, &(1..100).collect::<Vec<_>>());
        (1..50).for_each(|file| order.note_pushed(file));
        for _ in 0..REDUNDANT_WITHIN {
            order.note_request(1 << 40);
        }
        (50..60).for_each(|file| order.note_pushed(file));
        // One file says nothing about others. Several do, about files that came before them.
        assert_eq!(order.note_request(2), Request::Listed);
        assert!(order.is_cached(40));
        (3..10).for_each(|file| assert_eq!(order.note_request(file), Request::Listed));
        assert!(!order.is_cached(40));
        assert!(order.is_cached(50) && order.is_cached(2));
    }

    #[test]
    fn a_second_listing_changes_nothing() {
        let mut order = DirectoryOrder::new(1 << 20);
        order.note_listing(DIR, true, &[1, 2]);
        order.note_pushed(2);
        order.note_listing(DIR, true, &[1, 2]);
        assert!(order.is_cached(2) && !order.is_cached(1));
    }
}
