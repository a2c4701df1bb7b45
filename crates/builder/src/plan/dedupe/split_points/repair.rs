//! Repair of parts that are too short: Refs are shortened or given back.
//!
//! A Ref that loses its front moves the cut at its source; one that loses its end moves none. What Refs lose is
//! stored, and longer Stored runs break nothing, but a moved cut may, or a Ref that now stands alone. So it goes in
//! rounds. Giving Refs back as a whole breaks nothing at all: after some rounds nothing else is done, which settles
//! the rest at once.

use super::{Portion, Ref};
use crate::plan::dedupe::matching::Place;
use std::ops::Range;

/// Rounds in which Refs are made shorter, before they are given back.
const TRIM_ROUNDS: u32 = 8;

/// Changes `refs`, in order of targets, so that each has at least `least` bytes, and so does each part that they cause
/// in `portions`, except at the ends of streams. The targets are in these portions, which are sorted. Sources before
/// them cut nothing here.
pub(super) fn repair(refs: Vec<Ref>, least: u64, portions: &[Portion]) -> Vec<Ref> {
    let mut repair = Repair { refs, portions, least, may_trim: true, changed: false };
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

/// Refs during the repair.
struct Repair<'a> {
    /// In order of targets. Those given back have no bytes until they are dropped.
    refs: Vec<Ref>,
    /// Text in memory, sorted.
    portions: &'a [Portion],
    /// Least bytes of a part.
    least: u64,
    may_trim: bool,
    /// A Ref was changed in this round.
    changed: bool,
}

impl Repair<'_> {
    fn drop_shorter_than(&mut self, len: u64) {
        let before = self.refs.len();
        self.refs.retain(|one| one.len >= len);
        self.changed |= self.refs.len() < before;
    }

    /// Returns whether a Ref can lose `len` bytes.
    fn can_lose(&self, idx: usize, len: u64) -> bool {
        self.may_trim && self.refs[idx].len >= len + self.least
    }

    /// Removes `len` bytes of a Ref's front, or gives it back. Returns whether it remains.
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

    /// Returns the bytes of the portion that has this place, and whether its stream ends there. Parts end with
    /// portions.
    fn portion(&self, place: Place) -> (Range<u64>, bool) {
        let at = self.portions.partition_point(|portion| portion.start() <= place);
        let portion = at.checked_sub(1).map(|at| &self.portions[at]).filter(|portion| portion.stream == place.stream);
        portion.map_or((0..u64::MAX, true), |portion| (portion.range.clone(), portion.ends_stream))
    }

    /// Moves source starts that are too near the cut before them, or an end of their run or portion, to the next
    /// allowed place. Text behind a cut is long enough, but for the end of a portion: it holds a Ref's source.
    fn space_cuts(&mut self) {
        let first = self.portions.first().map(Portion::start);
        let is_here = |&idx: &usize| first.is_some_and(|first| self.refs[idx].source >= first);
        let mut by_source: Vec<usize> = (0..self.refs.len()).filter(is_here).collect();
        by_source.sort_unstable_by_key(|&idx| (self.refs[idx].source, idx));
        let run_starts = self.run_starts(&by_source);
        let mut last_cut = Place { stream: 0, off: 0 };
        for (idx, run_start) in by_source.into_iter().zip(run_starts) {
            let Place { stream, off } = self.refs[idx].source;
            let (portion, ends_stream) = self.portion(Place { stream, off });
            let before = last_cut.max(Place { stream, off: run_start.max(portion.start) }).off;
            let allowed = if off <= before {
                before
            } else if off - before >= self.least {
                off
            } else {
                before + self.least
            };
            let is_near_end = !ends_stream && portion.end.saturating_sub(allowed) < self.least;
            let allowed = if is_near_end && allowed > portion.start { portion.end.max(allowed) } else { allowed };
            if allowed == off || self.trim_front(idx, allowed - off) {
                last_cut = Place { stream, off: allowed };
            }
        }
    }

    /// Returns the starts of the Stored runs that hold the sources.
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

    /// Lengthens Stored runs that are too short before a Ref, or between one and the end of its portion.
    fn widen_gaps(&mut self) {
        self.widen_ends();
        let mut before: Option<usize> = None;
        for idx in 0..self.refs.len() {
            let target = self.refs[idx].target;
            let neighbour = before.filter(|&before| self.refs[before].target.stream == target.stream);
            let end = neighbour.map_or(0, |before| self.refs[before].end());
            let start = self.portion(target).0.start;
            // What ends in an earlier portion cannot lose text in this one.
            let neighbour = neighbour.filter(|_| end >= start);
            let gap = target.off - end.max(start);
            let is_short = gap > 0 && gap < self.least;
            if !is_short || self.widen(neighbour, idx, self.least - gap) {
                before = Some(idx);
            }
        }
    }

    /// Shortens Refs that end too near the end of a portion with which their stream does not end.
    fn widen_ends(&mut self) {
        for idx in 0..self.refs.len() {
            let stream = self.refs[idx].target.stream;
            let end = Place { stream, off: self.refs[idx].end() };
            let (portion, ends_stream) = self.portion(end);
            let rest = portion.end - end.off;
            let next = self.refs.get(idx + 1).map(|next| next.target);
            let is_stored = next.is_none_or(|next| next >= Place { stream, off: portion.end });
            if ends_stream || rest >= self.least || !is_stored || end.off == portion.start {
                continue;
            }
            self.changed = true;
            let len = self.least - rest;
            match self.can_lose(idx, len) {
                true => self.refs[idx].len -= len,
                false => self.refs[idx].len = 0,
            }
        }
    }

    /// Stores `len` bytes more between two Refs: from the first, which moves no cut, else from the second. Returns
    /// whether that remains.
    fn widen(&mut self, before: Option<usize>, idx: usize, len: u64) -> bool {
        let Some(before) = before.filter(|&before| self.can_lose(before, len)) else {
            return self.trim_front(idx, len);
        };
        self.refs[before].len -= len;
        self.changed = true;
        true
    }
}
