//! Quick search for earlier occurrences of text: the last position of each hash, no chains.
//!
//! The plain algorithm: at each position, look up the last one with the same 8 bytes, then the last
//! one with the same 4 or 5, and take the first match found. A short match gives way to a long one
//! a byte later. Departures:
//!
//! * The last distance is tried first, a byte ahead, and the distance before that after each match:
//!   both are cheap.
//! * After a long text without a match, positions are skipped.
//! * The data for the next position is loaded before this one is decided.
//! * Tables are small. At pclusters of 128 KiB, `2^16` entries in each gain 1 % and lose 13 % of
//!   the speed.
//! * Tables are not cleared between pclusters: positions count on, and those before the input are
//!   out of reach.
//! * Words and tables are read without bounds checks, which the compiler cannot prove away.
//!
//! Two invariants make this sound. The SAFETY notes cite them by these names:
//!
//! * *in bounds*: a position `at` that is searched or entered lies below `end`, so
//!   `at + MARGIN <= input.len()`, and a candidate lies before it. So words of 8 bytes at both, and
//!   of 4 bytes one position later, are inside the input.
//! * *hashes*: `hash_long` and `hash_short` return less than `2^BITS`, the length of both tables.

use super::tokens::{Cursor, Tokens, Until};
use crate::Spec;
use crate::words::{common_len, load32, load64};
use std::mem;

/// Number of bytes from a position on that hashes and comparisons may read.
const MARGIN: usize = 9;
/// Distance from the end of a block below which no match is searched for.
const MATCH_MARGIN: usize = 5;
/// Log of the number of bytes without a match after which each step is one byte longer.
const SKIP_SHIFT: u32 = 8;
/// Highest position. As positions are `u32`, the tables are cleared beyond it.
const POSITION_MAX: u32 = 1 << 31;

pub(super) struct Matcher {
    long: Box<[u32]>,
    short: Box<[u32]>,
    /// Log of the length of the tables, and number of bytes that are hashed for a short match.
    size: (u32, u32),
    window: u32,
    /// Position of the first byte of the input.
    base: u32,
    /// End of the positions that may be in the tables.
    end: u32,
}

impl Matcher {
    /// Creates a matcher; `None` for levels that need a better search.
    pub(super) fn new(spec: &Spec) -> Option<Self> {
        let (bits, short_len) = match spec.level {
            1 => (13, 5),
            2 => (14, 5),
            3 => (if spec.pcluster_len == 16 << 10 { 15 } else { 14 }, 4),
            _ => return None,
        };
        let table = vec![0; 1 << bits].into_boxed_slice();
        let (long, size) = (table.clone(), (bits, short_len));
        Some(Matcher { long, short: table, size, window: 1 << spec.zstd_window_log(), base: 1, end: 1 })
    }

    /// Begins another input, of at most 12 MiB.
    pub(super) fn start(&mut self) {
        self.base = self.end;
        if self.base > POSITION_MAX {
            self.long.fill(0);
            self.short.fill(0);
            (self.base, self.end) = (1, 1);
        }
    }

    /// Finds matches from the cursor on. The caller adds the literals after the last match.
    pub(super) fn parse(&mut self, input: &[u8], cursor: &mut Cursor, until: Until, tokens: &mut Tokens) {
        match self.size {
            (13, 5) => self.parse_sized::<13, 5>(input, cursor, until, tokens),
            (14, 5) => self.parse_sized::<14, 5>(input, cursor, until, tokens),
            (14, 4) => self.parse_sized::<14, 4>(input, cursor, until, tokens),
            (15, 4) => self.parse_sized::<15, 4>(input, cursor, until, tokens),
            size => unreachable!("no level has tables of {size:?}"),
        }
    }

    /// Parses with tables of `2^BITS` entries and short matches of `SHORT` bytes. These are
    /// constants, since shifts by variables take longer.
    fn parse_sized<const BITS: u32, const SHORT: u32>(
        &mut self,
        input: &[u8],
        cursor: &mut Cursor,
        until: Until,
        tokens: &mut Tokens,
    ) {
        let Until { stop, limit } = until;
        debug_assert!(stop <= limit && limit <= input.len());
        let end = stop.min(limit.saturating_sub(MATCH_MARGIN)).min(input.len().saturating_sub(MARGIN));
        while let Some(found) = self.next_match::<BITS, SHORT>(input, cursor, end) {
            let Match { mut at, dist, known } = found;
            let room = limit - at;
            // SAFETY: the match starts at `end` or before, so before `limit <= input.len()`, and
            // its source starts before it.
            let mut len = unsafe { common_len(input, at - dist, at, known.min(room), room) };
            while at > cursor.done && at > dist && input[at - 1] == input[at - 1 - dist] {
                (at, len) = (at - 1, len + 1);
            }
            tokens.add_literals(input, cursor.done, at);
            tokens.add_match(len, cursor.recent.value(dist as u32, tokens.pending == 0));
            let searched = cursor.at;
            cursor.matched_to(at + len);
            if cursor.at < end {
                // SAFETY: in bounds: all three are below `cursor.at`, which is below `end`.
                unsafe {
                    self.enter::<BITS, SHORT>(input, searched + 2);
                    self.enter_long::<BITS>(input, cursor.at - 2);
                    self.enter_short::<BITS, SHORT>(input, cursor.at - 1);
                    self.repeat::<BITS, SHORT>(input, cursor, Until { stop: end, limit }, tokens);
                }
            }
        }
        cursor.at = cursor.at.max(stop).min(limit);
        self.end = self.end.max(self.base + cursor.at as u32 + 2);
    }

    /// Searches from the cursor on, until a match is found or the cursor reaches `end`. The cursor
    /// stays at the position that was searched.
    #[inline(always)]
    fn next_match<const BITS: u32, const SHORT: u32>(
        &mut self,
        input: &[u8],
        cursor: &mut Cursor,
        end: usize,
    ) -> Option<Match> {
        let mut at = cursor.at;
        if at >= end {
            return None;
        }
        let last_dist = cursor.recent.0[0] as usize;
        let (mut step, mut next_step) = (1 + ((at - cursor.anchor) >> SKIP_SHIFT), at + (1 << SKIP_SHIFT));
        // SAFETY: in bounds.
        let mut word = unsafe { load64(input, at) };
        let mut hash = hash_long::<BITS>(word);
        // SAFETY: hashes.
        let mut long = unsafe { *self.long.get_unchecked(hash) };
        loop {
            let position = self.base + at as u32;
            let reach = (at as u32).min(self.window);
            let hash_short = hash_short::<BITS, SHORT>(word);
            // SAFETY: hashes.
            let short = unsafe {
                *self.long.get_unchecked_mut(hash) = position;
                mem::replace(self.short.get_unchecked_mut(hash_short), position)
            };
            // SAFETY: in bounds, as the distance is checked first.
            if last_dist <= at && unsafe { load32(input, at + 1 - last_dist) } == (word >> 8) as u32 {
                cursor.at = at;
                return Some(Match { at: at + 1, dist: last_dist, known: 4 });
            }
            let next = at + step;
            // SAFETY: the position is capped at 8 bytes before the end, and the input has at least
            // MARGIN bytes.
            let next_word = unsafe { load64(input, next.min(input.len() - 8)) };
            let next_hash = hash_long::<BITS>(next_word);
            // SAFETY: hashes.
            let next_long = unsafe { *self.long.get_unchecked(next_hash) };
            let dist = position.wrapping_sub(long);
            // SAFETY: in bounds: within `reach` are only positions of this input before `at`.
            if dist.wrapping_sub(1) < reach && unsafe { load64(input, at - dist as usize) } == word {
                cursor.at = at;
                return Some(Match { at, dist: dist as usize, known: 8 });
            }
            let dist = position.wrapping_sub(short);
            // SAFETY: in bounds, as `dist` is within `reach`.
            if dist.wrapping_sub(1) < reach && unsafe { load32(input, at - dist as usize) } == word as u32 {
                cursor.at = at;
                if step == 1 {
                    // SAFETY: hashes.
                    unsafe { *self.long.get_unchecked_mut(next_hash) = position + 1 };
                    let dist = (position + 1).wrapping_sub(next_long);
                    // SAFETY: in bounds: `next` is `at + 1` here, and `dist` is at least 1, so the
                    // candidate is `at` or before.
                    if dist.wrapping_sub(1) < reach && unsafe { load64(input, next - dist as usize) } == next_word {
                        return Some(Match { at: next, dist: dist as usize, known: 8 });
                    }
                }
                return Some(Match { at, dist: dist as usize, known: 4 });
            }
            (at, word, hash, long) = (next, next_word, next_hash, next_long);
            if at >= end {
                cursor.at = at;
                return None;
            }
            if at >= next_step {
                step += 1;
                next_step += 1 << SKIP_SHIFT;
            }
        }
    }

    /// Adds the matches that follow at once at the distance before the last one.
    ///
    /// # Safety
    /// `stop + MARGIN <= input.len()` and `stop + MATCH_MARGIN <= limit`.
    #[inline(always)]
    unsafe fn repeat<const BITS: u32, const SHORT: u32>(
        &mut self,
        input: &[u8],
        cursor: &mut Cursor,
        Until { stop, limit }: Until,
        tokens: &mut Tokens,
    ) {
        loop {
            let (at, dist) = (cursor.at, cursor.recent.0[1] as usize);
            // SAFETY: in bounds, guaranteed by the caller for `at` below `stop`.
            if at >= stop || dist > at || unsafe { load32(input, at - dist) != load32(input, at) } {
                return;
            }
            // SAFETY: in bounds, guaranteed by the caller for `at` below `stop`, and `limit` is
            // inside the input.
            let len = unsafe {
                self.enter::<BITS, SHORT>(input, at);
                common_len(input, at - dist, at, 4, limit - at)
            };
            tokens.add_match(len, cursor.recent.value(dist as u32, true));
            cursor.matched_to(at + len);
        }
    }

    /// Enters `at` in both tables.
    ///
    /// # Safety
    /// `at + 8 <= input.len()`.
    #[inline(always)]
    unsafe fn enter<const BITS: u32, const SHORT: u32>(&mut self, input: &[u8], at: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.enter_long::<BITS>(input, at);
            self.enter_short::<BITS, SHORT>(input, at);
        }
    }

    /// Enters `at` in the table of long matches.
    ///
    /// # Safety
    /// `at + 8 <= input.len()`.
    #[inline(always)]
    unsafe fn enter_long<const BITS: u32>(&mut self, input: &[u8], at: usize) {
        // SAFETY: in bounds, guaranteed by the caller, and hashes.
        unsafe { *self.long.get_unchecked_mut(hash_long::<BITS>(load64(input, at))) = self.base + at as u32 };
    }

    /// Enters `at` in the table of short matches.
    ///
    /// # Safety
    /// `at + 8 <= input.len()`.
    #[inline(always)]
    unsafe fn enter_short<const BITS: u32, const SHORT: u32>(&mut self, input: &[u8], at: usize) {
        // SAFETY: in bounds, guaranteed by the caller, and hashes.
        unsafe { *self.short.get_unchecked_mut(hash_short::<BITS, SHORT>(load64(input, at))) = self.base + at as u32 };
    }
}

/// Match with earlier text.
struct Match {
    at: usize,
    dist: usize,
    /// Number of bytes that have been compared.
    known: usize,
}

#[inline(always)]
fn hash_long<const BITS: u32>(word: u64) -> usize {
    (word.wrapping_mul(0xCF1B_BCDC_B7A5_6463) >> (64 - BITS)) as usize
}

#[inline(always)]
fn hash_short<const BITS: u32, const SHORT: u32>(word: u64) -> usize {
    ((word << (64 - 8 * SHORT)).wrapping_mul(0x9E37_79B1_85EB_CA87) >> (64 - BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method;
    use proptest::prelude::*;

    /// Returns the text of the tokens, by the simplest decoder.
    fn text_of(tokens: &Tokens) -> Vec<u8> {
        let (mut text, mut literals) = (Vec::new(), tokens.literals.as_slice());
        let mut recent = [1, 4, 8];
        for sequence in &tokens.sequences {
            let (these, rest) = literals.split_at(sequence.literal_len as usize);
            text.extend(these);
            literals = rest;
            let offset_bits = sequence.extra_bits - sequence.offset_code;
            let value = (1 << sequence.offset_code) + (sequence.extra >> offset_bits) as usize;
            let repeated = (value + usize::from(sequence.literal_len == 0)).checked_sub(1);
            let dist = match (value, repeated) {
                (1..=3, Some(3)) => recent[0] - 1,
                (1..=3, Some(i)) => recent[i],
                _ => value - 3,
            };
            match (value, repeated) {
                (1..=3, Some(0)) => {}
                (1..=3, Some(1)) => recent = [dist, recent[0], recent[2]],
                _ => recent = [dist, recent[0], recent[1]],
            }
            (0..sequence.match_len).for_each(|_| text.push(text[text.len() - dist]));
        }
        text.extend(literals);
        text
    }

    /// Generates text that repeats itself at several distances.
    fn any_text() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            prop::collection::vec(0..4u8, 1..40).prop_map(|bytes| (bytes, 1)),
            prop::collection::vec(any::<u8>(), 1..60).prop_map(|bytes| (bytes, 1)),
            (prop::collection::vec(any::<u8>(), 1..20), 1..30usize),
        ];
        prop::collection::vec((part, any::<prop::sample::Index>()), 1..60).prop_map(|parts| {
            let mut text = Vec::new();
            for ((bytes, times), again) in parts {
                text.extend(bytes.repeat(times));
                let from = again.index(text.len());
                text.extend_from_within(from..text.len().min(from + 70));
            }
            text
        })
    }

    proptest! {
        /// For any stops, the tokens decode to the text and do not depend on earlier searches.
        #[test]
        fn tokens_stand_for_the_text(
            text in any_text(), before in any_text(), level in 1..=3i32, stops in prop::collection::vec(1..500usize, 1..20),
        ) {
            let spec = Spec::new(Method::Zstd, Some(level), 1 << 16).unwrap();
            let parse = |matcher: &mut Matcher, text: &[u8]| {
                let (mut tokens, mut cursor) = (Tokens::default(), Cursor::START);
                matcher.start();
                for stop in stops.iter().scan(0, |at, stop| { *at += stop; Some(*at) }).chain([text.len()]) {
                    let stop = stop.min(text.len());
                    if stop > cursor.at {
                        matcher.parse(text, &mut cursor, Until { stop, limit: text.len() }, &mut tokens);
                    }
                    tokens.add_literals(text, cursor.done, cursor.at);
                    cursor.done = cursor.at;
                }
                tokens
            };
            let mut matcher = Matcher::new(&spec).unwrap();
            let tokens = parse(&mut matcher, &text);
            prop_assert!(text_of(&tokens) == text);
            parse(&mut matcher, &before);
            let again = parse(&mut matcher, &text);
            prop_assert_eq!(tokens.literals, again.literals);
            prop_assert_eq!(tokens.sequences.len(), again.sequences.len());
        }
    }

    #[test]
    fn positions_may_run_out() {
        let spec = Spec::new(Method::Zstd, Some(3), 1 << 16).unwrap();
        let mut matcher = Matcher::new(&spec).unwrap();
        let text = b"the same again and again, ".repeat(20);
        let mut lens = Vec::new();
        for end in [1, POSITION_MAX, POSITION_MAX + 1, POSITION_MAX + (12 << 20)] {
            matcher.end = end;
            matcher.start();
            let (mut tokens, mut cursor) = (Tokens::default(), Cursor::START);
            matcher.parse(&text, &mut cursor, Until { stop: text.len(), limit: text.len() }, &mut tokens);
            tokens.add_literals(&text, cursor.done, cursor.at);
            assert_eq!(text_of(&tokens), text);
            lens.push(tokens.literals.len());
        }
        assert!(lens.iter().all(|&len| len == lens[0] && len < 60), "{lens:?}");
    }
}
