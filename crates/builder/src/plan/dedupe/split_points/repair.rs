//! Refs are made shorter, or given back, until no part is too short.
//!
//! A Ref that loses its front moves the cut at its source; one that loses its end moves none. What Refs lose is stored, and
//! longer Stored runs break nothing, but a moved cut may, or a Ref that now stands alone. So it goes in rounds. Giving
//! Refs back as a whole breaks nothing at all: after some rounds nothing else is done, which settles the rest at once.

use super::Ref;
use crate::plan::dedupe::matching::Place;

/// Rounds in which Refs are made shorter, before they are given back.
const TRIM_ROUNDS: u32 = 8;

/// Change `refs`, in order of targets, such that each has `least` bytes, and so has each part that they make of Stored runs,
/// the ends of streams excepted.
pub(super) fn repair(refs: Vec<Ref>, least: u64) -> Vec<Ref> {
    let mut repair = Repair { refs, least, may_trim: true, changed: false };
    for round in 0.. {
        repair.changed = false;
        repair.may_trim = round < TRIM_ROUNDS;
        repair.drop_shorter_than(least);
        repair.space_cuts();
        repair.drop_shorter_than(1);
        repair.widen_gaps();
        repair.drop_shorter_than(1);
        if !repair.changed {
            break;
        }
    }
    repair.refs
}

/// Refs on the way to where no part is too short.
struct Repair {
    /// In order of targets. Those given back have no bytes until they are dropped.
    refs: Vec<Ref>,
    /// Least bytes of a part.
    least: u64,
    may_trim: bool,
    /// Something was, in this round.
    changed: bool,
}

impl Repair {
    fn drop_shorter_than(&mut self, len: u64) {
        let before = self.refs.len();
        self.refs.retain(|one| one.len >= len);
        self.changed |= self.refs.len() < before;
    }

    /// Whether a Ref remains one without `len` bytes.
    fn can_lose(&self, idx: usize, len: u64) -> bool {
        self.may_trim && self.refs[idx].len >= len + self.least
    }

    /// Take `len` bytes of a Ref's front, or give it back. Whether it remains.
    fn trim_front(&mut self, idx: usize, len: u64) -> bool {
        self.changed = true;
        let remains = self.can_lose(idx, len);
        let one = &mut self.refs[idx];
        if remains {
            one.target.off += len;
            one.source.off += len;
            one.len -= len;
        } else {
            one.len = 0;
        }
        remains
    }

    /// Move source starts that are too near the cut before them, or the start of their run, to the next place allowed. What
    /// lies behind a cut is long enough: it holds a Ref's source.
    fn space_cuts(&mut self) {
        let mut by_source: Vec<usize> = (0..self.refs.len()).collect();
        by_source.sort_unstable_by_key(|&idx| (self.refs[idx].source, idx));
        let run_starts = self.run_starts(&by_source);
        let mut last_cut = Place { stream: 0, off: 0 };
        for (idx, run_start) in by_source.into_iter().zip(run_starts) {
            let Place { stream, off } = self.refs[idx].source;
            let before = last_cut.max(Place { stream, off: run_start }).off;
            let allowed = if off <= before {
                before
            } else if off - before >= self.least {
                off
            } else {
                before + self.least
            };
            if allowed == off || self.trim_front(idx, allowed - off) {
                last_cut = Place { stream, off: allowed };
            }
        }
    }

    /// Starts of the Stored runs that hold the sources.
    fn run_starts(&self, by_source: &[usize]) -> Vec<u64> {
        let mut refs = self.refs.iter().peekable();
        let mut end = Place { stream: 0, off: 0 };
        let start = |&idx: &usize| {
            let source = self.refs[idx].source;
            while let Some(one) = refs.next_if(|one| one.target < source) {
                end = Place { stream: one.target.stream, off: one.end() };
            }
            if end.stream == source.stream { end.off } else { 0 }
        };
        by_source.iter().map(start).collect()
    }

    /// Lengthen Stored runs that are too short to stand before a Ref.
    fn widen_gaps(&mut self) {
        let mut before: Option<usize> = None;
        for idx in 0..self.refs.len() {
            let target = self.refs[idx].target;
            let neighbour = before.filter(|&before| self.refs[before].target.stream == target.stream);
            let gap = target.off - neighbour.map_or(0, |before| self.refs[before].end());
            let is_short = gap > 0 && gap < self.least;
            if !is_short || self.widen(neighbour, idx, self.least - gap) {
                before = Some(idx);
            }
        }
    }

    /// Store `len` bytes more between two Refs: of the first, which moves no cut, else of the second. Whether that remains.
    fn widen(&mut self, before: Option<usize>, idx: usize, len: u64) -> bool {
        let Some(before) = before.filter(|&before| self.can_lose(before, len)) else {
            return self.trim_front(idx, len);
        };
        self.refs[before].len -= len;
        self.changed = true;
        true
    }
}
