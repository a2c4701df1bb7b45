//! Prefetch of dentries. A file that is opened by its path costs a LOOKUP besides its READ, and a
//! process that reads some files of a directory often reads all.
//!
//! That cannot be known beforehand. So a directory is listed once the lookups in it have cost about
//! as much as listing it: at most half of the work is wasted. Long directories are listed in
//! ranges.

use super::dentry_thread::{DirRange, ReaddirThread};
use crate::fuse::protocol::image_fs::ImageFs;
use crate::fuse::protocol::node;
use crate::fuse::protocol::paths::DirPaths;
use fuser::INodeNo;
use parking_lot::Mutex;

/// log2 of the number of directories that are remembered, at least and at most. Each is remembered
/// until another one takes its slot.
const DIRS_BITS_MIN: u32 = 4;
const DIRS_BITS_MAX: u32 = 14;
/// Number of entries that are listed at the cost of a lookup.
const ENTRIES_PER_LOOKUP: u32 = 8;
/// Number of lookups from which on a directory is listed: one file predicts no others.
const LOOKUPS_MIN: u32 = 2;
/// Number of entries that are listed at a time.
const RANGE_COUNT: u32 = 2048;
/// Approximate bytes of a directory per entry.
const ENTRY_LEN: u64 = 28;

/// Lookups of files in a directory, and the progress of listing it.
#[derive(Clone, Copy, Default)]
struct Dir {
    node: u64,
    lookups: u32,
    listed: u32,
    /// Position after the entries that were listed.
    next: u64,
}

/// Decides which directories are listed.
pub(super) struct Dentries {
    state: Mutex<DentriesState>,
    thread: ReaddirThread,
    /// Only locked by `try_lock`: a thread that finds it locked skips the listing.
    paths: Mutex<DirPaths>,
}

struct DentriesState {
    dirs: Box<[Dir]>,
    dirs_bits: u32,
    /// Directory that is to be listed next.
    due: Option<u64>,
}

impl Dentries {
    /// Creates the state for an image of `inodes` inodes.
    pub(super) fn new(thread: ReaddirThread, inodes: u64) -> Self {
        Self { state: Mutex::new(DentriesState::new(inodes)), thread, paths: Mutex::default() }
    }

    /// Records a LOOKUP of a file in `dir`, a directory of `size` bytes.
    pub(super) fn note_lookup(&self, dir: INodeNo, size: u64) {
        self.state.lock().note_lookup(dir.0, size);
    }

    /// Returns true if a directory is to be listed.
    pub(super) fn is_due(&self) -> bool {
        self.state.lock().due.is_some()
    }

    /// Lists the directory that is due, if any. Returns the number of entries that were listed.
    pub(super) fn list(&self, fs: &ImageFs) -> u32 {
        let mut state = self.state.lock();
        let Some(node) = state.due.take() else { return 0 };
        let from = state.dir(node).next;
        drop(state);
        let Ok(dir) = fs.inode(INodeNo(node)) else { return 0 };
        let Some(path) = self.paths.try_lock().and_then(|mut paths| paths.find(&fs.image, &dir)) else {
            // More lookups must pay for the next search.
            self.state.lock().dir(node).lookups = 0;
            return 0;
        };
        let range = DirRange { path, from, count: RANGE_COUNT, end: dir.meta.size };
        let Some(progress) = self.thread.list(range) else { return 0 };
        let mut state = self.state.lock();
        let dir = state.dir(node);
        match progress.next {
            Some(next) => (dir.listed, dir.next) = (dir.listed + progress.count, next),
            // A further lookup means that the kernel has dropped dentries, so listing starts again.
            None => *dir = Dir { node, ..Dir::default() },
        }
        progress.count
    }
}

impl DentriesState {
    fn new(inodes: u64) -> Self {
        let dirs_bits = (u64::BITS - inodes.leading_zeros()).clamp(DIRS_BITS_MIN, DIRS_BITS_MAX);
        Self { dirs: vec![Dir::default(); 1 << dirs_bits].into_boxed_slice(), dirs_bits, due: None }
    }

    fn note_lookup(&mut self, node: u64, size: u64) {
        let dir = self.dir(node);
        dir.lookups = dir.lookups.saturating_add(1);
        let entries = u32::try_from(size / ENTRY_LEN).unwrap_or(u32::MAX);
        let range = entries.saturating_sub(dir.listed).min(RANGE_COUNT);
        let is_due = dir.lookups >= LOOKUPS_MIN && dir.lookups.saturating_mul(ENTRIES_PER_LOOKUP) >= dir.listed + range;
        if is_due {
            self.due = Some(node);
        }
    }

    /// Returns the record of a directory; an empty one if the directory was not remembered.
    fn dir(&mut self, node: u64) -> &mut Dir {
        let dir = &mut self.dirs[node::slot(node, self.dirs_bits)];
        if dir.node != node {
            *dir = Dir { node, ..Dir::default() };
        }
        dir
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of lookups after which a directory with so many entries, some of them
    /// listed, is due.
    fn lookups(entries: u32, listed: u32) -> u32 {
        let mut state = DentriesState::new(1 << 20);
        state.dir(7).listed = listed;
        let mut count = 0;
        while state.due.is_none() {
            state.note_lookup(7, u64::from(entries) * ENTRY_LEN);
            count += 1;
        }
        count
    }

    #[test]
    fn a_directory_is_listed_when_lookups_have_cost_as_much() {
        assert_eq!([1, 16, 17, 800].map(|entries| lookups(entries, 0)), [2, 2, 3, 100]);
        // The directory is listed range by range.
        assert_eq!(lookups(1_000_000, 0), RANGE_COUNT / ENTRIES_PER_LOOKUP);
        assert_eq!(lookups(1_000_000, RANGE_COUNT), 2 * RANGE_COUNT / ENTRIES_PER_LOOKUP);
        assert_eq!(lookups(RANGE_COUNT + 8, RANGE_COUNT), RANGE_COUNT / ENTRIES_PER_LOOKUP + 1);
        // The number of entries is an estimate, and may be too low.
        assert_eq!(lookups(100, 120), 15);
    }

    #[test]
    fn directories_are_counted_apart() {
        let mut state = DentriesState::new(1 << 20);
        for dir in 1..100 {
            state.note_lookup(dir, 100);
        }
        assert_eq!(state.due, None);
        state.note_lookup(50, 100);
        assert_eq!(state.due, Some(50));
    }
}
