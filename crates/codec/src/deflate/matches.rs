//! Matches: earlier occurrences of the text at a position. Hash chains over the last 32 KiB, or
//! less if the window is smaller.
//!
//! The plain algorithm: `head[hash of 4 bytes]` is the last position with that hash,
//! `chain[position]` the one before it. A search follows the chain and compares. Departures, with
//! their gains at pclusters of 64 KiB:
//!
//! * Positions are stored modulo 64 KiB, in 16 bits: half of the memory. Heads that left the window
//!   are replaced from time to time ([`Matcher::sweep`]), before they can be mistaken for younger
//!   ones and lead into the chain of another hash (level 6: 1.03 times the speed, level 9: 1.3).
//! * Matches of 3 bytes have their own table, with one position per hash: longer chains of them do
//!   not pay. Level 1 does without it (1.06).
//! * A candidate is first compared at the end of what it must match, then at its beginning, then in
//!   words of 8 bytes.
//! * Words are read without bounds checks, which the compiler cannot prove away (level 1: 1.04, 6:
//!   1.08, 9: 1.18). With [`words`](crate::words), this is the only unsafe code of the encoder.
//!
//! The invariant of all unsafe reads in [`Matcher::find`], called *in bounds* there: `at + len_max
//! <= input.len()`, `4 < best.len + 1 <= len_max`, and candidates lie before `at`. So a word at
//! `at`, or one that ends with byte `best.len` after `at`, is inside the input, and the same word
//! of a candidate is, too.
//!
//! Tables are cleared for each pcluster; otherwise its bytes would depend on what this encoder did
//! before. Small pclusters use fewer heads. `chain` is not cleared: it is only read at positions
//! that were entered since.

use super::symbols::{MATCH_MAX, MATCH_MIN, WINDOW_LEN};
use crate::words::{common_len, load32};
use std::mem;

const HASH_BITS_MAX: u32 = 16;
const HASH_BITS_MIN: u32 = 12;
const HASH3_BITS: u32 = 13;

/// Distance from the end of the input below which nothing is searched or inserted: hashes and
/// comparisons read words.
pub(super) const MARGIN: usize = 8;

/// Distance between two sweeps: a window, less what one token may go past its end.
const SWEEP_LEN: usize = WINDOW_LEN - 2 * MATCH_MAX;

/// Returns a position that is outside of the window at `at`, and stays so until the next sweep.
fn outside(at: usize) -> u16 {
    (at as u16).wrapping_sub(WINDOW_LEN as u16)
}

/// Effort of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Number of candidates per search.
    pub(super) depth: u32,
    /// Length of a match in bytes that ends the search.
    pub(super) nice_len: usize,
}

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// Length in bytes; 0 if there is no match.
    pub(super) len: usize,
    pub(super) dist: usize,
}

pub(super) struct Matcher {
    head: Box<[u16; 1 << HASH_BITS_MAX]>,
    head3: Box<[u16; 1 << HASH3_BITS]>,
    chain: Box<[u16; WINDOW_LEN]>,
    /// Longest match distance in bytes.
    window_len: usize,
    hash_shift: u32,
    heads: usize,
    /// Position at which the next sweep is due.
    sweep_at: usize,
}

impl Matcher {
    /// Creates a matcher for distances of at most `window_len` bytes, which must not exceed 32 KiB.
    pub(super) fn new(window_len: usize) -> Self {
        debug_assert!(window_len <= WINDOW_LEN);
        Matcher {
            window_len,
            head: Box::new([0; 1 << HASH_BITS_MAX]),
            head3: Box::new([0; 1 << HASH3_BITS]),
            chain: Box::new([0; WINDOW_LEN]),
            hash_shift: 32 - HASH_BITS_MAX,
            heads: 0,
            sweep_at: 0,
        }
    }

    /// Forgets everything. About `expected_len` bytes will be inserted.
    pub(super) fn start(&mut self, expected_len: usize) {
        let bits = (expected_len.max(1).ilog2() + 2).clamp(HASH_BITS_MIN, HASH_BITS_MAX);
        self.hash_shift = 32 - bits;
        self.heads = 1 << bits;
        self.head[..self.heads].fill(outside(0));
        self.head3.fill(outside(0));
        self.sweep_at = SWEEP_LEN;
    }

    /// Replaces heads that left the window. Must be called before anything is done at `at`, at
    /// least once per token.
    #[inline(always)]
    pub(super) fn sweep(&mut self, at: usize) {
        if at >= self.sweep_at {
            self.sweep_now(at);
        }
    }

    #[inline(never)]
    fn sweep_now(&mut self, at: usize) {
        for head in &mut self.head[..self.heads] {
            *head = if (at as u16).wrapping_sub(*head) <= WINDOW_LEN as u16 { *head } else { outside(at) };
        }
        self.sweep_at = at + SWEEP_LEN;
    }

    /// Enters `at`, and returns the last positions (modulo 64 KiB) with the hash of 4 and of 3
    /// bytes. `word` is the text at `at`.
    #[inline(always)]
    fn enter<const SHORT: bool>(&mut self, word: u32, at: usize) -> (u16, u16) {
        let hash = (word.wrapping_mul(0x9E37_79B1) >> self.hash_shift) as usize % self.head.len();
        let last = mem::replace(&mut self.head[hash], at as u16);
        self.chain[at % WINDOW_LEN] = last;
        if !SHORT {
            return (last, at as u16);
        }
        let hash3 = ((word << 8).wrapping_mul(0x9E37_79B1) >> (32 - HASH3_BITS)) as usize;
        (last, mem::replace(&mut self.head3[hash3], at as u16))
    }

    /// Enters the positions `from..to`.
    #[inline]
    pub(super) fn insert<const SHORT: bool>(&mut self, input: &[u8], from: usize, to: usize) {
        for at in from..to.min(input.len().saturating_sub(MARGIN)) {
            // SAFETY: at + 4 <= input.len(), by the loop's bound.
            self.enter::<SHORT>(unsafe { load32(input, at) }, at);
        }
    }

    /// Enters `at`, and returns the longest match that is longer than `longer_than` and at least 3
    /// bytes.
    #[inline(always)]
    pub(super) fn find<const SHORT: bool>(
        &mut self,
        input: &[u8],
        at: usize,
        longer_than: usize,
        effort: Effort,
    ) -> Match {
        // This makes all reads *in bounds*: at + len_max <= input.len(), and len_max >= 8.
        assert!(at + MARGIN <= input.len());
        let len_max = MATCH_MAX.min(input.len() - at);
        // SAFETY: in bounds, as at + 4 <= at + len_max.
        let word = unsafe { load32(input, at) };
        let (mut last, last3) = self.enter::<SHORT>(word, at);
        if longer_than >= len_max {
            return Match::default();
        }
        let mut best = Match { len: longer_than.max(MATCH_MIN), dist: 0 };
        // Distance from the current to the farthest allowed candidate.
        let mut reach = at.min(self.window_len);
        if SHORT && longer_than < MATCH_MIN {
            let dist = usize::from((at as u16).wrapping_sub(last3));
            // SAFETY: in bounds, as the first condition means dist <= reach <= at.
            if dist.wrapping_sub(1) < reach && (unsafe { load32(input, at - dist) } ^ word) << 8 == 0 {
                best = Match { len: MATCH_MIN, dist };
            }
        }
        // The last 4 bytes of a match that would be longer than the best so far, which most
        // candidates lack.
        // SAFETY: in bounds: best.len < len_max.
        let mut tail = unsafe { load32(input, at + best.len - 3) };
        let mut candidate = at;
        for _ in 0..effort.depth {
            let step = usize::from((candidate as u16).wrapping_sub(last));
            if step.wrapping_sub(1) >= reach {
                break; // outside of the window, or nothing
            }
            reach -= step;
            candidate -= step;
            last = self.chain[candidate % WINDOW_LEN];
            // SAFETY: in bounds, as candidate < at.
            let differs =
                unsafe { load32(input, candidate + best.len - 3) != tail || load32(input, candidate) != word };
            if differs {
                continue;
            }
            // SAFETY: in bounds, as candidate < at.
            let len = unsafe { common_len(input, candidate, at, 4, len_max) };
            if len > best.len {
                best = Match { len, dist: at - candidate };
                if len >= effort.nice_len || len == len_max {
                    break;
                }
                // SAFETY: in bounds: len < len_max.
                tail = unsafe { load32(input, at + best.len - 3) };
            }
        }
        if best.dist == 0 { Match::default() } else { best }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation: the longest match anywhere in the window, the nearest of several.
    fn naive(input: &[u8], at: usize, longer_than: usize, window_len: usize) -> Match {
        let mut best = Match { len: longer_than.max(MATCH_MIN - 1), dist: 0 };
        for dist in 1..=at.min(window_len) {
            let same = input[at..].iter().zip(&input[at - dist..]).take(MATCH_MAX).take_while(|(a, b)| a == b).count();
            if same > best.len {
                best = Match { len: same, dist };
            }
        }
        if best.dist == 0 { Match::default() } else { best }
    }

    /// Returns text of few letters with copies of earlier text, over more than two windows.
    fn input(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        let mut below = |n: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % n
        };
        let mut out = Vec::new();
        while out.len() < len {
            match below(40) {
                0 => {
                    let from = out.len() - below(out.len() + 1).min(40_000);
                    (from..from + below(400)).for_each(|i| out.push(*out.get(i).unwrap_or(&b'-')));
                }
                _ => out.extend((0..below(20)).map(|_| b'a' + below(16) as u8)),
            }
        }
        out.truncate(len);
        out
    }

    #[test]
    fn matches_are_the_naive_ones() {
        let input = input(150_000);
        let effort = Effort { depth: u32::MAX, nice_len: MATCH_MAX };
        for (expected_len, window_len) in [(0, WINDOW_LEN), (input.len(), WINDOW_LEN), (input.len(), 256), (0, 4096)] {
            let mut matcher = Matcher::new(window_len);
            matcher.start(expected_len);
            for at in 0..=input.len() - MARGIN {
                matcher.sweep(at);
                let longer_than = if at % 3 == 0 { at % 11 } else { 0 };
                let found = matcher.find::<true>(&input, at, longer_than, effort);
                if at % 97 != 0 && at < input.len() - 300 {
                    continue; // the twin is slow
                }
                let want = naive(&input, at, longer_than, window_len);
                match want.len {
                    // Of short matches, only the last position with the hash is known.
                    0..=3 => {
                        assert!(found == want || found.len == 0 || found.len == 3, "{at}: {found:?}, not {want:?}")
                    }
                    _ => assert_eq!(found, want, "at {at}"),
                }
            }
        }
    }

    /// Less effort finds less, but only true matches.
    #[test]
    fn any_effort_finds_true_matches() {
        let input = input(100_000);
        for (depth, nice_len) in [(1, 4), (3, 16), (20, 64)] {
            let mut matcher = Matcher::new(WINDOW_LEN);
            matcher.start(input.len());
            let (mut at, mut total) = (0, 0);
            while at + MARGIN <= input.len() {
                matcher.sweep(at);
                let found = matcher.find::<false>(&input, at, 0, Effort { depth, nice_len });
                assert!(found.dist <= at.min(WINDOW_LEN) && found.len <= MATCH_MAX);
                if found.len > 0 {
                    assert_eq!(input[at..at + found.len], input[at - found.dist..][..found.len]);
                }
                matcher.insert::<false>(&input, at + 1, at + found.len);
                (at, total) = (at + found.len.max(1), total + found.len);
            }
            assert!(total > input.len() / 3, "{depth}: {total}");
        }
    }
}
