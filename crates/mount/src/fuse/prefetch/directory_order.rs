//! Listings: which file follows which in its directory, and which of them the kernel has, as far as we know.
//!
//! They are remembered as links from each file to its neighbours, in a table of hashes, until others fall on their slots.

use crate::fuse::protocol::node;

/// log2 of how many files and directories are remembered at least and at most, 32 bytes each.
const LINKS_BITS_MIN: u32 = 6;
const LINKS_BITS_MAX: u32 = 17;
/// Who asks for a file that was given so few reads ago did not wait for it, or the kernel has no room.
const SOON: u32 = 1024;
/// A file that is asked for again after that time outweighs so many that are not: the kernel has no more room for what it had, or
/// something happened to a single file.
const DOUBT: u32 = 16;
const DOUBTS_MAX: u32 = 4 * DOUBT;

/// Neighbours of a file; of a directory, the last file that was listed so far is the next. Node ids, 0 for none.
#[derive(Clone, Copy, Default)]
struct Link {
    node: u64,
    next: u64,
    prev: u64,
    /// When the kernel got it last, in reads.
    had_at: u32,
    had: Had,
    is_listed: bool,
}

/// How the kernel came to have a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Had {
    #[default]
    Never,
    /// Somebody asked for it.
    Asked,
    /// Nobody should ask for it.
    Given,
    /// It has not got it: this one is to find out whether somebody asks for it.
    LeftOut,
}

/// What was known of a file when somebody asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// In no listing, as far as we remember.
    Unlisted,
    /// The first file of one.
    First,
    /// Another one.
    Listed,
    /// It was given just before.
    InVain,
    /// It was left out, to find out whether somebody asks for it.
    LeftOut,
}

/// What was listed.
pub struct Listed {
    links: Box<[Link]>,
    links_bits: u32,
    /// One more than files were asked for so far.
    reads: u32,
    /// What the kernel got by then, it seems to have dropped.
    dropped: u32,
    /// Grows with files that are asked for although the kernel should have them.
    doubts: u32,
}

impl Listed {
    /// Nothing, of an image with so many inodes.
    pub fn new(inodes: u64) -> Self {
        // Twice the inodes, so that few fall on each other's slots.
        let links_bits = (u64::BITS - inodes.leading_zeros() + 1).clamp(LINKS_BITS_MIN, LINKS_BITS_MAX);
        let links = vec![Link::default(); 1 << links_bits].into_boxed_slice();
        Self { links, links_bits, reads: 1, dropped: 0, doubts: 0 }
    }

    /// Remember files that are listed in `dir`, in this order: `from_start`, or behind those listed before.
    pub fn list(&mut self, dir: u64, from_start: bool, files: &[u64]) {
        let mut last = if from_start { 0 } else { self.next(dir) };
        for &file in files {
            if let Some(link) = self.link(last) {
                link.next = file;
            }
            let (had, had_at) = self.link(file).map_or_else(Default::default, |link| (link.had, link.had_at));
            *self.slot(file) = Link { node: file, next: 0, prev: last, had, had_at, is_listed: true };
            last = file;
        }
        *self.slot(dir) = Link { node: dir, next: last, ..Link::default() };
    }

    /// Remember that somebody asks for `file`.
    pub fn ask(&mut self, file: u64) -> Asked {
        self.reads = self.reads.saturating_add(1);
        let (now, dropped) = (self.reads, self.dropped);
        if self.link(file).is_none() {
            *self.slot(file) = Link { node: file, ..Link::default() };
        }
        let link = self.slot(file);
        let Link { had, had_at, prev, is_listed, .. } = *link;
        (link.had, link.had_at) = (Had::Asked, now);
        let is_soon = now - had_at < SOON;
        match had {
            Had::LeftOut => return Asked::LeftOut,
            Had::Given if is_soon => return Asked::InVain,
            Had::Given | Had::Asked if !is_soon => {
                self.doubts = (self.doubts + DOUBT).min(DOUBTS_MAX);
                // The kernel drops first what it got first.
                if self.doubts == DOUBTS_MAX {
                    self.dropped = dropped.max(had_at);
                }
            }
            Had::Asked | Had::Given => {}
            Had::Never => self.doubts = self.doubts.saturating_sub(1),
        }
        match (is_listed, prev) {
            (false, _) => Asked::Unlisted,
            (true, 0) => Asked::First,
            (true, _) => Asked::Listed,
        }
    }

    /// Note that a file is given.
    pub fn give(&mut self, file: u64) {
        self.mark(file, Had::Given);
    }

    /// Note that a file is not given that could be.
    pub fn leave_out(&mut self, file: u64) {
        self.mark(file, Had::LeftOut);
    }

    /// Somebody will ask for a file, although that was noted as given.
    pub fn expect(&mut self, file: u64) {
        if let Some(link) = self.link(file).filter(|link| link.had == Had::Given) {
            link.had = Had::Never;
        }
    }

    /// Whether the kernel has a file.
    pub fn is_there(&mut self, file: u64) -> bool {
        let dropped = self.dropped;
        self.link(file).is_some_and(|link| matches!(link.had, Had::Asked | Had::Given) && link.had_at > dropped)
    }

    /// The file behind this one, 0 if there is none.
    pub fn next(&mut self, file: u64) -> u64 {
        let next = self.link(file).map_or(0, |link| link.next);
        self.known(next)
    }

    /// The file before this one, 0 if there is none.
    pub fn prev(&mut self, file: u64) -> u64 {
        let prev = self.link(file).map_or(0, |link| link.prev);
        self.known(prev)
    }

    fn known(&mut self, node: u64) -> u64 {
        self.link(node).map_or(0, |link| link.node)
    }

    fn mark(&mut self, file: u64, had: Had) {
        let now = self.reads;
        if let Some(link) = self.link(file) {
            (link.had, link.had_at) = (had, now);
        }
    }

    fn slot(&mut self, node: u64) -> &mut Link {
        &mut self.links[node::slot(node, self.links_bits)]
    }

    fn link(&mut self, node: u64) -> Option<&mut Link> {
        Some(self.slot(node)).filter(|link| link.node == node && node != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u64 = 1 << 32;

    #[test]
    fn neighbours_are_remembered_over_several_answers() {
        let mut listed = Listed::new(1 << 20);
        listed.list(DIR, true, &[5, 3, 8]);
        listed.list(DIR, false, &[1]);
        assert_eq!([5, 3, 8, 1].map(|file| listed.next(file)), [3, 8, 1, 0]);
        assert_eq!([5, 3, 8, 1].map(|file| listed.prev(file)), [0, 5, 3, 8]);
        assert_eq!([5, 3].map(|file| listed.ask(file)), [Asked::First, Asked::Listed]);
        assert_eq!(listed.ask(77), Asked::Unlisted);
    }

    #[test]
    fn what_is_asked_for_tells_what_the_kernel_has() {
        let mut listed = Listed::new(1 << 20);
        listed.list(DIR, true, &(1..10).collect::<Vec<_>>());
        listed.ask(1);
        (2..5).for_each(|file| listed.give(file));
        listed.leave_out(5);
        assert_eq!((1..7).filter(|&file| listed.is_there(file)).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!([2, 5].map(|file| listed.ask(file)), [Asked::InVain, Asked::LeftOut]);
    }

    #[test]
    fn what_the_kernel_drops_is_noticed() {
        let mut listed = Listed::new(1 << 20);
        listed.list(DIR, true, &(1..100).collect::<Vec<_>>());
        (1..50).for_each(|file| listed.give(file));
        for _ in 0..SOON {
            listed.ask(1 << 40);
        }
        (50..60).for_each(|file| listed.give(file));
        // One file says nothing of others; several do, of those that came before them.
        assert_eq!(listed.ask(2), Asked::Listed);
        assert!(listed.is_there(40));
        (3..10).for_each(|file| assert_eq!(listed.ask(file), Asked::Listed));
        assert!(!listed.is_there(40));
        assert!(listed.is_there(50) && listed.is_there(2));
    }

    #[test]
    fn who_lists_again_changes_nothing() {
        let mut listed = Listed::new(1 << 20);
        listed.list(DIR, true, &[1, 2]);
        listed.give(2);
        listed.list(DIR, true, &[1, 2]);
        assert!(listed.is_there(2) && !listed.is_there(1));
    }
}
