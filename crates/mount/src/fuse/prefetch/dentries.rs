//! Which directories are worth listing for the kernel: a file that is read by its name costs a request for the name as well, and who
//! reads some files of a directory often reads them all.
//!
//! Nobody knows that before, so a directory is listed when the names that were looked up there have cost about as much as listing it does.
//! Then at most half of the work is in vain, whatever comes. Long directories are listed in parts.

use super::dentry_thread::{Lister, Part};
use crate::fuse::protocol::image_fs::Server;
use crate::fuse::protocol::node;
use fuser::INodeNo;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// log2 of how many directories are remembered at least and at most, each until another falls on its slot.
const DIRS_BITS_MIN: u32 = 4;
const DIRS_BITS_MAX: u32 = 14;
/// As many entries are listed for what a lookup costs.
const ENTRIES_PER_LOOKUP: u32 = 8;
/// From the second lookup on: one file says nothing of others.
const LOOKUPS_MIN: u32 = 2;
/// Entries that are listed at a time.
const PART: u32 = 2048;
/// Bytes of a directory for an entry, about.
const ENTRY_LEN: u64 = 28;

/// Files that were looked up in a directory, and how far it was listed for that.
#[derive(Clone, Copy, Default)]
struct Dir {
    node: u64,
    lookups: u32,
    listed: u32,
    next: u64,
}

/// Has directories listed.
pub struct Names {
    state: Mutex<State>,
    lister: Lister,
}

struct State {
    dirs: Box<[Dir]>,
    dirs_bits: u32,
    /// To be listed.
    due: Option<u64>,
}

impl Names {
    /// For an image with so many inodes.
    pub fn new(lister: Lister, inodes: u64) -> Self {
        Self { state: Mutex::new(State::new(inodes)), lister }
    }

    /// Remember that a file in `dir`, which has `size` bytes, was looked up.
    pub fn looked_up(&self, dir: INodeNo, size: u64) {
        self.state().looked_up(dir.0, size);
    }

    /// Whether it is time to list a directory.
    pub fn is_due(&self) -> bool {
        self.state().due.is_some()
    }

    /// List a directory if there is one for which it is time. Returns how many entries were listed.
    pub fn list(&self, server: &Server) -> u32 {
        let mut state = self.state();
        let Some(node) = state.due.take() else { return 0 };
        let from = state.dir(node).next;
        drop(state);
        let Ok(dir) = server.inode(INodeNo(node)) else { return 0 };
        let Some(path) = server.path(&dir) else { return 0 };
        let part = Part { path, from, count: PART, end: dir.meta.size };
        let Some(progress) = self.lister.list(part) else { return 0 };
        let mut state = self.state();
        let dir = state.dir(node);
        match progress.next {
            Some(next) => (dir.listed, dir.next) = (dir.listed + progress.count, next),
            // Who looks up more has lost what he had.
            None => *dir = Dir { node, ..Dir::default() },
        }
        progress.count
    }

    /// Nothing panics while it is locked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(inodes: u64) -> Self {
        let dirs_bits = (u64::BITS - inodes.leading_zeros()).clamp(DIRS_BITS_MIN, DIRS_BITS_MAX);
        Self { dirs: vec![Dir::default(); 1 << dirs_bits].into_boxed_slice(), dirs_bits, due: None }
    }

    fn looked_up(&mut self, node: u64, size: u64) {
        let dir = self.dir(node);
        dir.lookups = dir.lookups.saturating_add(1);
        let entries = u32::try_from(size / ENTRY_LEN).unwrap_or(u32::MAX);
        let part = entries.saturating_sub(dir.listed).min(PART);
        let is_due = dir.lookups >= LOOKUPS_MIN && dir.lookups.saturating_mul(ENTRIES_PER_LOOKUP) >= dir.listed + part;
        if is_due {
            self.due = Some(node);
        }
    }

    /// What is known of a directory: nothing, if it was unknown.
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

    /// After how many lookups a directory of so many entries is due, of which some are listed.
    fn lookups(entries: u32, listed: u32) -> u32 {
        let mut state = State::new(1 << 20);
        state.dir(7).listed = listed;
        let mut count = 0;
        while state.due.is_none() {
            state.looked_up(7, u64::from(entries) * ENTRY_LEN);
            count += 1;
        }
        count
    }

    #[test]
    fn a_directory_is_listed_when_lookups_have_cost_as_much() {
        assert_eq!([1, 16, 17, 800].map(|entries| lookups(entries, 0)), [2, 2, 3, 100]);
        // Part by part.
        assert_eq!(lookups(1_000_000, 0), PART / ENTRIES_PER_LOOKUP);
        assert_eq!(lookups(1_000_000, PART), 2 * PART / ENTRIES_PER_LOOKUP);
        assert_eq!(lookups(PART + 8, PART), PART / ENTRIES_PER_LOOKUP + 1);
        // Its end may have been estimated wrongly.
        assert_eq!(lookups(100, 120), 15);
    }

    #[test]
    fn directories_are_counted_apart() {
        let mut state = State::new(1 << 20);
        for dir in 1..100 {
            state.looked_up(dir, 100);
        }
        assert_eq!(state.due, None);
        state.looked_up(50, 100);
        assert_eq!(state.due, Some(50));
    }
}
