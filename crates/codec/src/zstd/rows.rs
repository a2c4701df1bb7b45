//! Thorough search for earlier occurrences of text: the last positions of each hash, in rows.
//!
//! The plain algorithm: at each position, look up the last positions with the same hash of 4
//! bytes, and take the longest match. It gives way to a better one that starts one or two bytes
//! later, where each byte counts four bits, and the distance as many as it takes. Departures:
//!
//! * Each position of a row has 8 more bits of the hash, which are compared for the whole row at
//!   once, and text only where they are equal.
//! * The last distance is tried first, and the distance before that after each match.
//! * After a long text without a match, positions are skipped; most positions inside long matches
//!   are not entered.
//! * Rows are loaded some positions ahead, candidates before the first is compared.
//! * Tables have at most `2^18` positions: twice as many lose 4 % of the speed at 128 KiB. They are
//!   not cleared between pclusters, as those of [`matches`](super::matches): positions of earlier
//!   inputs are the oldest of their rows, and end the search.
//!
//! libzstd searches alike at levels 5 to 12. Here, no text is searched twice or beyond what fits,
//! and no second code is made.
//!
//! *In bounds* is as in [`matches`](super::matches). *Rows*: hashes come from the rows, and the table
//! is alive.

use super::row_table::{ROW_LEN, RowHash, RowTable, Rows};
use super::text::{MARGIN, MATCH_MARGIN, Text};
use super::tokens::{Cursor, Tokens, Until};
use crate::Spec;
use crate::words::for_processor;
use std::mem::MaybeUninit;

/// Shortest match.
const MATCH_MIN: usize = 4;
/// Log of the number of bytes without a match after which each step is one byte longer.
const SKIP_SHIFT: u32 = 8;
/// Longest step after which the positions before are entered.
const STEP_ENTERED: usize = 8;
/// Longest text, as of a match, of which all positions are entered.
const ENTERED_MAX: usize = 384;
/// Numbers of positions to enter of a longer one, at its start and at its end.
const ENTERED_FIRST: usize = 96;
const ENTERED_LAST: usize = 32;
/// Number of positions by which rows are loaded ahead.
const AHEAD: usize = 8;
/// Highest position at which an input starts. As positions are `u32`, the tables are cleared
/// beyond it.
const POSITION_MAX: u32 = 1 << 31;

pub(super) struct RowMatcher {
    table: RowTable,
    effort: Effort,
    window: usize,
    /// Position of the first byte of the input.
    base: u32,
    /// End of the positions that may be in the tables.
    end: u32,
    /// Next position to enter.
    next: usize,
}

/// Extent of the search at each position.
#[derive(Clone, Copy)]
struct Effort {
    /// Most candidates: the last ones.
    candidates: usize,
    /// Number of later positions that may have a better match.
    later: usize,
    /// Length of a match that no better one is searched for.
    len_enough: usize,
}

impl RowMatcher {
    /// Creates a matcher; `None` for levels that need another search.
    pub(super) fn new(spec: &Spec) -> Option<Self> {
        let is_short = spec.pcluster_len <= 16 << 10;
        let (candidates, later) = match spec.level {
            5 => (if is_short { 6 } else { 5 }, 1),
            6 => (if is_short { 24 } else { 10 }, 1),
            7 => (16, if is_short { 2 } else { 1 }),
            8 => (if is_short { 24 } else { 18 }, 2),
            9 => (ROW_LEN, 2),
            _ => return None,
        };
        let len_enough = if later == 1 { 32 } else { 48 };
        let effort = Effort { candidates, later, len_enough };
        let entries = (4 * spec.pcluster_len as usize).next_power_of_two().clamp(1 << 16, 1 << 18);
        Some(RowMatcher {
            table: RowTable::new(entries),
            effort,
            window: 1 << spec.zstd_window_log(),
            base: 1,
            end: 1,
            next: 1,
        })
    }

    /// Begins another input, of at most 12 MiB.
    pub(super) fn start(&mut self) {
        self.base = self.end;
        if self.base > POSITION_MAX {
            self.table.clear();
            (self.base, self.end) = (1, 1);
        }
        self.next = self.base as usize;
    }

    /// Finds matches from the cursor on. The caller adds the literals after the last match.
    pub(super) fn parse(&mut self, input: &[u8], cursor: &mut Cursor, until: Until, tokens: &mut Tokens) {
        for_processor!(
            RowMatcher::parse_now => (
                self => matcher: &mut RowMatcher,
                input => input: &[u8],
                cursor => cursor: &mut Cursor,
                until => until: Until,
                tokens => tokens: &mut Tokens
            ) -> ()
        );
    }

    #[inline(always)]
    fn parse_now(&mut self, input: &[u8], cursor: &mut Cursor, until: Until, tokens: &mut Tokens) {
        let Until { stop, limit } = until;
        assert!(stop <= limit && limit <= input.len());
        let end = stop.min(limit.saturating_sub(MATCH_MARGIN)).min(input.len().saturating_sub(MARGIN));
        let base = self.base as usize;
        if cursor.at < end {
            let mut search = Search {
                text: Text::new(input, base, limit),
                rows: self.table.rows(),
                effort: self.effort,
                reach: base + end.saturating_sub(self.window),
                end: base + end,
                last: base + input.len() - 8,
                next: self.next,
            };
            // SAFETY: `end` leaves the margins, and the table is borrowed.
            unsafe { search.run(input, cursor, tokens) };
            self.next = search.next;
        }
        cursor.at = cursor.at.max(stop).min(limit);
        self.end = self.end.max(self.base + cursor.at as u32 + 2);
    }
}

/// One search through a part of the input. All places are positions.
struct Search {
    text: Text,
    rows: Rows,
    effort: Effort,
    /// First position that a match may refer to: inside the window, wherever it starts.
    reach: usize,
    end: usize,
    /// Last position with 8 bytes.
    last: usize,
    /// Next position to enter.
    next: usize,
}

/// Match with earlier text.
#[derive(Clone, Copy)]
struct Match {
    at: usize,
    len: usize,
    dist: usize,
    /// Bits of the distance; 0 for the last one.
    bits: usize,
}

impl Search {
    /// Finds matches from the cursor on, until it reaches `end`.
    ///
    /// # Safety
    /// The cursor is before `end`, *in bounds* and *rows* hold.
    #[inline(always)]
    unsafe fn run(&mut self, input: &[u8], cursor: &mut Cursor, tokens: &mut Tokens) {
        let (text, end, base) = (self.text, self.end, self.text.base);
        let mut recent = cursor.recent;
        let (mut at, mut done, mut anchor) = (base + cursor.at, base + cursor.done, base + cursor.anchor);
        let mut writer = tokens.writer(input, cursor.done, end - base);
        // From the second byte on, the last distance is inside the input.
        at += usize::from(at == base);
        // SAFETY: all reads are in bounds. All literals are before `end`, and all matches have at
        // least 4 bytes, as `writer` requires.
        unsafe {
            while at < end {
                let last_dist = recent.0[0] as usize;
                let mut best = self.longest(at);
                if let Some(len) = self.repeated(at + 1, last_dist)
                    && len >= best.len
                {
                    best = Match { at: at + 1, len, dist: last_dist, bits: 0 };
                }
                if best.len < MATCH_MIN {
                    let step = 1 + ((at - anchor) >> SKIP_SHIFT);
                    at += step;
                    if step > STEP_ENTERED {
                        self.next = at;
                    }
                    continue;
                }
                if best.len < self.effort.len_enough {
                    self.improve(at, last_dist, &mut best);
                }
                let Match { at: mut start, mut len, dist, bits } = best;
                if bits > 0 {
                    let more = text.common_len_before(start - dist, start, done);
                    (start, len) = (start - more, len + more);
                }
                let value = recent.value(dist as u32, start == done && writer.pending == 0);
                writer.push(done - base, start - base, len, value);
                at = start + len;
                // Matches that follow at once at the distance before the last one.
                while at < end {
                    let dist = recent.0[1] as usize;
                    if at < base + dist {
                        break;
                    }
                    let Some(len) = self.repeated(at, dist) else { break };
                    writer.push(at - base, at - base, len, recent.value(dist as u32, true));
                    at += len;
                }
                (done, anchor) = (at, at);
            }
        }
        writer.finish();
        *cursor = Cursor { at: at - base, done: done - base, anchor: anchor - base, recent };
    }

    /// Replaces the match by better ones that start later.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(always)]
    unsafe fn improve(&mut self, mut at: usize, last_dist: usize, best: &mut Match) {
        // Bits that a later match must gain: literals before it are not free.
        const GAINS: [usize; 2] = [4, 7];
        'better: loop {
            for (i, gain) in GAINS.into_iter().take(self.effort.later).enumerate() {
                at += 1;
                if at >= self.end {
                    return;
                }
                // SAFETY: in bounds.
                unsafe {
                    if let Some(len) = self.repeated(at, last_dist)
                        && (3 + i) * len + best.bits > (3 + i) * best.len + 1
                    {
                        *best = Match { at, len, dist: last_dist, bits: 0 };
                    }
                    let other = self.longest(at);
                    if other.len >= MATCH_MIN && 4 * other.len + best.bits > 4 * best.len + other.bits + gain {
                        *best = other;
                        continue 'better;
                    }
                }
            }
            return;
        }
    }

    /// Returns the length of a match of at least 4 bytes at this distance.
    ///
    /// # Safety
    /// `at <= end`, and the distance is inside the input.
    #[inline(always)]
    unsafe fn repeated(&self, at: usize, dist: usize) -> Option<usize> {
        // SAFETY: in bounds.
        unsafe {
            let is_equal = self.text.word32(at - dist) == self.text.word32(at);
            is_equal.then(|| self.text.common_len(at - dist, at, MATCH_MIN))
        }
    }

    /// Returns the longest match at this position, of length 3 if there is none of at least
    /// [`MATCH_MIN`] bytes, and enters the position.
    ///
    /// # Safety
    /// As for [`run`](Self::run), and `at < end`.
    #[inline(always)]
    unsafe fn longest(&mut self, at: usize) -> Match {
        // SAFETY: in bounds, and *rows*.
        unsafe {
            self.enter_before(at);
            let hash = self.hash(at);
            let mut equal = self.rows.equal(hash);
            let mut candidates = [MaybeUninit::<u32>::uninit(); ROW_LEN];
            let mut count = 0;
            while count < self.effort.candidates
                && let Some(position) = equal.next()
            {
                if (position as usize) < self.reach {
                    break; // older ones are, too
                }
                self.text.prefetch(position as usize);
                candidates.get_unchecked_mut(count).write(position);
                count += 1;
            }
            self.rows.enter(at, hash);
            self.next = at + 1;
            let mut best = Match { at, len: MATCH_MIN - 1, dist: 0, bits: 0 };
            for candidate in candidates.get_unchecked(..count) {
                let from = candidate.assume_init() as usize;
                // The byte behind the best match must be equal for a longer one.
                if self.text.word32(from + best.len - 3) == self.text.word32(at + best.len - 3) {
                    let len = self.text.common_len(from, at, 0);
                    if len > best.len {
                        (best.len, best.dist) = (len, at - from);
                        if at + len >= self.text.limit {
                            break;
                        }
                    }
                }
            }
            best.bits = (best.dist as u32 + 3).ilog2() as usize;
            best
        }
    }

    /// Enters the positions before `at`.
    ///
    /// # Safety
    /// As for [`run`](Self::run), and `at < end`.
    #[inline(always)]
    unsafe fn enter_before(&mut self, at: usize) {
        // SAFETY: in bounds, and *rows*.
        unsafe {
            if at.saturating_sub(self.next) > ENTERED_MAX {
                self.enter_all(self.next, self.next + ENTERED_FIRST);
                self.next = at - ENTERED_LAST;
            }
            self.enter_all(self.next, at);
            self.rows.load(self.hash((at + AHEAD).min(self.last)));
        }
    }

    /// Enters all positions between the two.
    ///
    /// # Safety
    /// As for [`run`](Self::run), and `to < end`.
    #[inline(always)]
    unsafe fn enter_all(&mut self, from: usize, to: usize) {
        // SAFETY: in bounds, and *rows*.
        unsafe {
            for at in from..to {
                self.rows.load(self.hash((at + AHEAD).min(self.last)));
                self.rows.enter(at, self.hash(at));
            }
        }
    }

    /// Returns the hash of the bytes at a position.
    ///
    /// # Safety
    /// `at <= last`.
    #[inline(always)]
    unsafe fn hash(&self, at: usize) -> RowHash {
        // SAFETY: guaranteed by the caller.
        self.rows.hash(unsafe { self.text.word64(at) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method;
    use crate::zstd::tokens::testing::{any_text, parse_until, text_of};
    use proptest::prelude::*;

    fn matcher(level: i32) -> RowMatcher {
        RowMatcher::new(&Spec::new(Method::Zstd, Some(level), 4096).unwrap()).unwrap()
    }

    fn parse(matcher: &mut RowMatcher, text: &[u8], stops: &[usize]) -> Tokens {
        matcher.start();
        parse_until(text, stops, |cursor, until, tokens| matcher.parse(text, cursor, until, tokens))
    }

    proptest! {
        /// For any stops, the tokens decode to the text and do not depend on earlier searches.
        #[test]
        fn tokens_stand_for_the_text(
            text in any_text(),
            before in any_text(),
            level in 5..=9i32,
            stops in prop::collection::vec(1..500usize, 1..20),
        ) {
            let mut matcher = matcher(level);
            let tokens = parse(&mut matcher, &text, &stops);
            prop_assert!(text_of(&tokens) == text);
            parse(&mut matcher, &before, &stops);
            let again = parse(&mut matcher, &text, &stops);
            prop_assert_eq!(tokens.literals, again.literals);
            prop_assert_eq!(tokens.sequences.len(), again.sequences.len());
        }
    }

    #[test]
    fn positions_may_run_out() {
        let mut matcher = matcher(9);
        let text = b"the same again and again, ".repeat(20);
        for end in [1, POSITION_MAX, POSITION_MAX + 1, POSITION_MAX + (12 << 20)] {
            matcher.end = end;
            let tokens = parse(&mut matcher, &text, &[]);
            assert_eq!(text_of(&tokens), text);
            assert!(tokens.literals.len() < 60, "{}", tokens.literals.len());
        }
    }

    #[test]
    fn the_longest_match_wins() {
        let text = [&b"12345678 abcdefgh+ 1234567x abcd-... "[..], b"12345678 abcdefgh+ end of the text"].concat();
        let tokens = parse(&mut matcher(9), &text, &[]);
        let longest = tokens.sequences.iter().map(|sequence| sequence.match_len).max();
        assert_eq!(longest, Some(19));
    }
}
