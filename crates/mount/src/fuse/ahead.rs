//! Which files will be read next: who reads the files of a directory in the order in which it was listed goes on with those that
//! follow. The kernel reads ahead in files, but it does not know this.
//!
//! Listings are remembered as links from each file to the next, in a table of hashes, until others fall on their slots. A *run* is a
//! reader in a directory: the file that he will read next, if he goes on. Each reader who does earns credit, and the more there is, the
//! more is foretold; each other read halves it. Who reads the first file of a listing may be about to read all of them, or not: what
//! is foretold to him costs some credit. Short directories would never give it back, for nothing in them would be asked for. So of every
//! fourth the last file is left out: who reads on asks for it. Whoever asks for a file that was foretold did not wait for it, as several
//! readers of one directory do not, or came too late: that costs more than many others earn.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// log2 of how many files and directories are remembered at most, 24 bytes each.
const LINKS_BITS: u32 = 17;
/// Readers, and directories that one reader has not finished: he may be in their subdirectories.
const RUNS: usize = 16;
/// Credit for a reader who goes on; so many make twice as much be foretold.
const EARNED: i32 = 4;
/// Credit from which on anything is foretold, and what there is at most.
const CREDIT_MIN: i32 = 3 * EARNED;
const CREDIT_MAX: i32 = 6 * EARNED;
/// What a file costs that was foretold in vain, and the greatest debt.
const IN_VAIN: i32 = 16 * EARNED;
const DEBT_MAX: i32 = 256 * EARNED;
/// One in so many directories is not foretold to its end.
const PROBES: u32 = 4;

/// What follows a file in its listing; of a directory, the last file that was listed so far. Node ids, 0 for none.
#[derive(Clone, Copy, Default)]
struct Link {
    node: u64,
    next: u64,
    /// The first file of a listing.
    is_first: bool,
    /// Nobody should ask for it any more.
    is_foretold: bool,
}

/// What was listed, and who reads it.
pub struct Ahead(Mutex<State>);

struct State {
    links: Box<[Link]>,
    runs: [u64; RUNS],
    /// The run that is given up for the next reader.
    oldest: usize,
    credit: i32,
    /// Directories that were foretold from their first file on.
    begun: u32,
}

/// Files that will be read soon.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// Node ids, in order.
    pub files: Vec<u64>,
    run: usize,
}

impl Ahead {
    pub fn new() -> Self {
        let links = vec![Link::default(); 1 << LINKS_BITS].into_boxed_slice();
        Self(Mutex::new(State { links, runs: [0; RUNS], oldest: 0, credit: 0, begun: 0 }))
    }

    /// Remember files that are listed in `dir`, in this order: `from_start`, or behind those listed before.
    pub fn listed(&self, dir: u64, from_start: bool, files: &[u64]) {
        let mut state = self.state();
        let mut last = if from_start { 0 } else { state.next(dir) };
        for &file in files {
            if let Some(link) = state.link(last) {
                link.next = file;
            }
            *state.slot(file) = Link { node: file, is_first: last == 0, ..Link::default() };
            last = file;
        }
        *state.slot(dir) = Link { node: dir, next: last, ..Link::default() };
    }

    /// Remember that somebody reads `file` from its start on, and foretell what he reads next.
    pub fn read(&self, file: u64) -> Foretold {
        let mut state = self.state();
        let run = state.runs.iter().position(|&next| next == file);
        let link = state.link(file).map(|link| {
            let was = *link;
            link.is_foretold = false;
            was
        });
        let is_first = link.is_some_and(|link| link.is_first);
        state.credit = match run {
            _ if link.is_some_and(|link| link.is_foretold) => (state.credit.min(0) - IN_VAIN).max(-DEBT_MAX),
            Some(_) => CREDIT_MAX.min(state.credit + EARNED),
            None if is_first => state.credit,
            None => state.credit.min(state.credit / 2),
        };
        let Some(link) = link else { return Foretold::default() };
        let is_trusted = (run.is_some() || is_first) && state.credit >= CREDIT_MIN;
        let count = if is_trusted { 1 << (state.credit / EARNED) } else { 0 };
        let mut files = Vec::with_capacity(count);
        let mut next = link.next;
        while files.len() < count
            && let Some(link) = state.link(next)
        {
            link.is_foretold = true;
            files.push(next);
            next = link.next;
        }
        if run.is_none() && !files.is_empty() {
            state.credit -= 1;
            state.begun = state.begun.wrapping_add(1);
            if next == 0 && state.begun.is_multiple_of(PROBES) {
                next = files.pop().unwrap_or(0);
                state.expect(next);
            }
        }
        let run = run.unwrap_or_else(|| {
            state.oldest = (state.oldest + 1) % RUNS;
            state.oldest
        });
        state.runs[run] = next;
        Foretold { files, run }
    }

    /// Expect the files from `idx` on of those foretold to be asked for, as they were not handed over.
    pub fn left_out(&self, foretold: &Foretold, idx: usize) {
        let mut state = self.state();
        foretold.files[idx..].iter().for_each(|&file| state.expect(file));
        state.runs[foretold.run] = foretold.files[idx];
    }

    /// Nothing panics while it is locked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn slot(&mut self, node: u64) -> &mut Link {
        // 2^64 divided by the golden ratio; its highest bits are a hash.
        let hash = node.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &mut self.links[(hash >> (64 - LINKS_BITS)) as usize]
    }

    fn link(&mut self, node: u64) -> Option<&mut Link> {
        Some(self.slot(node)).filter(|link| link.node == node && node != 0)
    }

    fn next(&mut self, node: u64) -> u64 {
        self.link(node).map_or(0, |link| link.next)
    }

    /// Somebody will ask for a file all the same.
    fn expect(&mut self, file: u64) {
        if let Some(link) = self.link(file) {
            link.is_foretold = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u64 = 1 << 32;

    /// Read what is not handed over; everything that is foretold is. Returns the files that were asked for.
    fn asked(ahead: &Ahead, reads: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let (mut had, mut asked) = (Vec::new(), Vec::new());
        for file in reads {
            if !had.contains(&file) {
                asked.push(file);
                had.extend(ahead.read(file).files);
            }
        }
        asked
    }

    /// A listing of files with numbers from `first` on.
    fn list(ahead: &Ahead, dir: u64, first: u64, count: u64) {
        ahead.listed(dir, true, &(first..first + count).collect::<Vec<_>>());
    }

    #[test]
    fn who_reads_on_is_given_more_and_more() {
        let ahead = Ahead::new();
        list(&ahead, DIR, 100, 50);
        ahead.listed(DIR, false, &(150..300).collect::<Vec<_>>());
        assert_eq!(asked(&ahead, 100..300), [100, 101, 102, 103, 112, 129, 162, 227, 292]);
        // The next one knows it from the beginning.
        list(&ahead, DIR + 1, 1000, 60);
        assert_eq!(asked(&ahead, 1000..1060), [1000]);
    }

    #[test]
    fn who_walks_through_short_directories_is_given_all_but_a_few() {
        let ahead = Ahead::new();
        let mut asked_for = 0;
        for dir in 0..1000 {
            list(&ahead, DIR + dir, dir * 100 + 1, 6);
            asked_for += asked(&ahead, dir * 100 + 1..dir * 100 + 7).len();
        }
        assert!(asked_for <= 1000 + 1000 / PROBES as usize + 10, "{asked_for}");
    }

    #[test]
    fn who_reads_only_first_files_is_given_little() {
        let ahead = Ahead::new();
        list(&ahead, DIR, 1, 50);
        asked(&ahead, 1..51);
        let given = (1..1000).map(|dir| {
            list(&ahead, DIR + dir, dir * 100, 20);
            ahead.read(dir * 100).files.len()
        });
        assert!(given.sum::<usize>() < CREDIT_MAX as usize * 20);
    }

    #[test]
    fn who_does_not_wait_for_what_is_foretold_is_given_little() {
        let ahead = Ahead::new();
        list(&ahead, DIR, 1, 5000);
        let given = (1..5000).map(|file| ahead.read(file).files.len());
        assert!(given.sum::<usize>() < 5000 / 10);
    }

    #[test]
    fn subdirectories_do_not_interrupt() {
        let ahead = Ahead::new();
        list(&ahead, DIR, 100, 100);
        asked(&ahead, 100..129);
        list(&ahead, DIR + 1, 500, 2);
        assert_eq!(asked(&ahead, 500..502), [500]);
        assert_eq!(asked(&ahead, 129..146), [129]);
    }

    #[test]
    fn nothing_is_foretold_of_files_here_and_there() {
        let ahead = Ahead::new();
        ahead.listed(DIR, true, &(1..1000).collect::<Vec<_>>());
        for read in 1..5000 {
            assert_eq!(ahead.read(read * 377 % 1009).files, []);
        }
        // Nor of those that nobody has listed.
        assert_eq!(asked(&ahead, 5000..5100).len(), 100);
    }

    #[test]
    fn what_was_left_out_is_expected() {
        let ahead = Ahead::new();
        ahead.listed(DIR, true, &(1..100).collect::<Vec<_>>());
        (1..4).for_each(|file| assert_eq!(ahead.read(file).files, []));
        let foretold = ahead.read(4);
        assert_eq!(foretold.files, (5..13).collect::<Vec<_>>());
        ahead.left_out(&foretold, 2);
        assert_eq!(ahead.read(7).files.len(), 16);
    }

    #[test]
    fn a_file_of_several_names_makes_no_endless_run() {
        let ahead = Ahead::new();
        ahead.listed(DIR, true, &[1, 2, 3, 1, 2, 3, 1, 2]);
        for _ in 0..10 {
            for file in 1..4 {
                assert!(ahead.read(file).files.len() <= 1 << (CREDIT_MAX / EARNED));
            }
        }
    }
}
