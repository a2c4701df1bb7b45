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
//! * A position in a table has 8 more bits of the hash beside it. Text is compared only if these
//!   are equal, so that nearly every comparison finds a match, and the processor does not wait for
//!   text to learn that there is none: a fifth of the time.
//! * Words and tables are read without bounds checks, which the compiler cannot prove away.
//!
//! Two invariants make this sound. The SAFETY notes cite them by these names:
//!
//! * *in bounds*: a position `at` that is searched or entered lies below `end`, so
//!   `at + MARGIN <= input.len()`, and a candidate lies before it. So words of 8 bytes at both, and
//!   of 4 bytes one position later, are inside the input.
//! * *hashes*: the index of a hash is less than `2^BITS`, the length of both tables.

use super::text::{MARGIN, MATCH_MARGIN, Text};
use super::tokens::{Cursor, Tokens, Until};
use crate::Spec;
use crate::words::for_processor;

/// Log of the number of bytes without a match after which each step is one byte longer.
const SKIP_SHIFT: u32 = 8;
/// Number of bits of an entry that are a part of the hash.
const TAG_BITS: u32 = 8;
/// Multiplier of hashes: the golden ratio, which spreads them evenly.
const MULTIPLIER: u64 = 0x9E37_79B1_85EB_CA87;
/// Highest position at which an input starts: the tables are cleared beyond it. The longest input
/// behind it still has positions below the tags.
const POSITION_MAX: u32 = 3 << 20;

pub(super) struct Matcher {
    /// Entries of long matches, then those of short ones.
    table: Box<[u32]>,
    /// Log of the number of either, and number of bytes that are hashed for a short match.
    size: (u32, u32),
    window: usize,
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
        let (table, size) = (vec![0; 2 << bits].into_boxed_slice(), (bits, short_len));
        Some(Matcher { table, size, window: 1 << spec.zstd_window_log(), base: 1, end: 1 })
    }

    /// Begins another input, of at most 12 MiB.
    pub(super) fn start(&mut self) {
        self.base = self.end;
        if self.base > POSITION_MAX {
            self.table.fill(0);
            (self.base, self.end) = (1, 1);
        }
    }

    /// Finds matches from the cursor on. The caller adds the literals after the last match.
    pub(super) fn parse(&mut self, input: &[u8], cursor: &mut Cursor, until: Until, tokens: &mut Tokens) {
        macro_rules! sized {
            ($bits:literal, $short:literal) => {
                for_processor!(
                    Matcher::parse_sized::<$bits, $short> => (
                        self => matcher: &mut Matcher,
                        input => input: &[u8],
                        cursor => cursor: &mut Cursor,
                        until => until: Until,
                        tokens => tokens: &mut Tokens
                    ) -> ()
                )
            };
        }
        match self.size {
            (13, 5) => sized!(13, 5),
            (14, 5) => sized!(14, 5),
            (14, 4) => sized!(14, 4),
            (15, 4) => sized!(15, 4),
            size => unreachable!("no level has tables of {size:?}"),
        }
    }

    /// Parses with tables of `2^BITS` entries and short matches of `SHORT` bytes. These are
    /// constants, since shifts by variables take longer.
    #[inline(always)]
    fn parse_sized<const BITS: u32, const SHORT: u32>(
        &mut self,
        input: &[u8],
        cursor: &mut Cursor,
        until: Until,
        tokens: &mut Tokens,
    ) {
        let Until { stop, limit } = until;
        assert!(stop <= limit && limit <= input.len() && self.table.len() == 2 << BITS);
        let end = stop.min(limit.saturating_sub(MATCH_MARGIN)).min(input.len().saturating_sub(MARGIN));
        let base = self.base as usize;
        let search = Search::<BITS, SHORT> {
            text: Text::new(input, base, limit),
            table: self.table.as_mut_ptr(),
            reach: base + end.saturating_sub(self.window),
            end: base + end,
        };
        if cursor.at < end {
            // SAFETY: `end` leaves the margins, and the tables have the length that is checked
            // above.
            unsafe { search.run(input, cursor, tokens) };
        }
        cursor.at = cursor.at.max(stop).min(limit);
        self.end = self.end.max(self.base + cursor.at as u32 + 2);
    }
}

/// One search through a part of the input. All places are positions, which the tables have. Tables
/// are pointers, since the compiler would load those of a slice again after each store.
struct Search<const BITS: u32, const SHORT: u32> {
    text: Text,
    table: *mut u32,
    /// First position that a match may refer to: inside the window, wherever it starts.
    reach: usize,
    end: usize,
}

impl<const BITS: u32, const SHORT: u32> Search<BITS, SHORT> {
    /// Finds matches from the cursor on, until it reaches `end`.
    ///
    /// # Safety
    /// The cursor is before `end`, *in bounds* holds, and the tables have `2^BITS` entries.
    #[inline(always)]
    unsafe fn run(&self, input: &[u8], cursor: &mut Cursor, tokens: &mut Tokens) {
        let Search { text, end, .. } = *self;
        let base = text.base;
        let mut recent = cursor.recent;
        let (mut at, mut done, mut anchor) = (base + cursor.at, base + cursor.done, base + cursor.anchor);
        let mut writer = tokens.writer(input, cursor.done, end - base);
        // SAFETY: all reads are in bounds. All literals are before `end`, and all matches have at
        // least 4 bytes, as `writer` requires.
        unsafe {
            if at == base {
                // From the second byte on, the last distance is inside the input.
                self.enter(at);
                at += 1;
            }
            while at < end {
                let Some(found) = self.next_match(&mut at, anchor, recent.0[0] as usize) else { break };
                let Match { at: mut start, from, known } = found;
                let dist = start - from;
                let mut len = text.common_len(from, start, known);
                let more = text.common_len_before(from, start, done);
                (start, len) = (start - more, len + more);
                let value = recent.value(dist as u32, start == done && writer.pending == 0);
                writer.push(done - base, start - base, len, value);
                let searched = at;
                at = start + len;
                (done, anchor) = (at, at);
                if at >= end {
                    break;
                }
                self.enter(searched + 2);
                self.enter_long(at - 2);
                self.enter_short(at - 1);
                // Matches that follow at once at the distance before the last one.
                loop {
                    let dist = recent.0[1] as usize;
                    if at < base + dist || text.word32(at - dist) != text.word32(at) {
                        break;
                    }
                    self.enter(at);
                    let len = text.common_len(at - dist, at, 4);
                    writer.push(at - base, at - base, len, recent.value(dist as u32, true));
                    at += len;
                    (done, anchor) = (at, at);
                    if at >= end {
                        break;
                    }
                }
            }
        }
        writer.finish();
        *cursor = Cursor { at: at - base, done: done - base, anchor: anchor - base, recent };
    }

    /// Searches from `at` on, until a match is found or `at` reaches `end`; `at` becomes the
    /// position that was searched.
    ///
    /// # Safety
    /// The last distance is inside the input; the rest as for [`run`](Self::run).
    #[inline(always)]
    unsafe fn next_match(&self, at: &mut usize, anchor: usize, last_dist: usize) -> Option<Match> {
        let Search { text, table, reach, end } = *self;
        let mut here = *at;
        // SAFETY: *in bounds* for words, *hashes* for tables.
        unsafe {
            let mut word = text.word64(here);
            let mut hash = Hash::long::<BITS>(word);
            let mut long = *table.add(hash.index());
            loop {
                let step = 1 + ((here - anchor) >> SKIP_SHIFT);
                let next = here + step;
                if next >= end {
                    *at = next;
                    return None;
                }
                let short_hash = Hash::short::<BITS, SHORT>(word);
                let short = *table.add((1 << BITS) + short_hash.index());
                *table.add(hash.index()) = hash.entry(here);
                *table.add((1 << BITS) + short_hash.index()) = short_hash.entry(here);
                if text.word32(here + 1 - last_dist) == (word >> 8) as u32 {
                    *at = here;
                    return Some(Match { at: here + 1, from: here + 1 - last_dist, known: 4 });
                }
                let next_word = text.word64(next);
                let next_hash = Hash::long::<BITS>(next_word);
                if hash.is_of(long) {
                    let from = position(long);
                    if from >= reach && text.word64(from) == word {
                        *at = here;
                        return Some(Match { at: here, from, known: 8 });
                    }
                }
                let next_long = *table.add(next_hash.index());
                if short_hash.is_of(short) {
                    let from = position(short);
                    if from >= reach && text.word32(from) == word as u32 {
                        *at = here;
                        if step == 1 {
                            *table.add(next_hash.index()) = next_hash.entry(next);
                            let from = position(next_long);
                            if next_hash.is_of(next_long) && from >= reach && text.word64(from) == next_word {
                                return Some(Match { at: next, from, known: 8 });
                            }
                        }
                        return Some(Match { at: here, from, known: 4 });
                    }
                }
                (here, word, hash, long) = (next, next_word, next_hash, next_long);
            }
        }
    }

    /// Enters `at` in both tables.
    ///
    /// # Safety
    /// There are 8 bytes.
    #[inline(always)]
    unsafe fn enter(&self, at: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.enter_long(at);
            self.enter_short(at);
        }
    }

    /// Enters `at` in the table of long matches.
    ///
    /// # Safety
    /// There are 8 bytes.
    #[inline(always)]
    unsafe fn enter_long(&self, at: usize) {
        // SAFETY: guaranteed by the caller, and *hashes*.
        unsafe {
            let hash = Hash::long::<BITS>(self.text.word64(at));
            *self.table.add(hash.index()) = hash.entry(at);
        }
    }

    /// Enters `at` in the table of short matches.
    ///
    /// # Safety
    /// There are 8 bytes.
    #[inline(always)]
    unsafe fn enter_short(&self, at: usize) {
        // SAFETY: guaranteed by the caller, and *hashes*.
        unsafe {
            let hash = Hash::short::<BITS, SHORT>(self.text.word64(at));
            *self.table.add((1 << BITS) + hash.index()) = hash.entry(at);
        }
    }
}

/// Match with earlier text.
struct Match {
    at: usize,
    from: usize,
    /// Number of bytes that have been compared.
    known: usize,
}

/// Hash of some bytes, with [`TAG_BITS`] more than an index takes.
#[derive(Clone, Copy)]
struct Hash(usize);

impl Hash {
    #[inline(always)]
    fn long<const BITS: u32>(word: u64) -> Hash {
        Hash((word.wrapping_mul(MULTIPLIER) >> (64 - TAG_BITS - BITS)) as usize)
    }

    #[inline(always)]
    fn short<const BITS: u32, const SHORT: u32>(word: u64) -> Hash {
        Hash(((word << (64 - 8 * SHORT)).wrapping_mul(MULTIPLIER) >> (64 - TAG_BITS - BITS)) as usize)
    }

    #[inline(always)]
    fn index(self) -> usize {
        self.0 >> TAG_BITS
    }

    /// Returns the entry of a table for this position.
    #[inline(always)]
    fn entry(self, position: usize) -> u32 {
        (position as u32) << TAG_BITS | u32::from(self.0 as u8)
    }

    /// Returns true if the entry is of a position with the same hash.
    #[inline(always)]
    fn is_of(self, entry: u32) -> bool {
        entry as u8 == self.0 as u8
    }
}

/// Returns the position of an entry.
#[inline(always)]
fn position(entry: u32) -> usize {
    (entry >> TAG_BITS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method;
    use crate::zstd::tokens::testing::{any_text, parse_until, text_of};
    use proptest::prelude::*;

    proptest! {
        /// For any stops, the tokens decode to the text and do not depend on earlier searches.
        #[test]
        fn tokens_stand_for_the_text(
            text in any_text(),
            before in any_text(),
            level in 1..=3i32,
            stops in prop::collection::vec(1..500usize, 1..20),
        ) {
            let mut matcher = Matcher::new(&Spec::new(Method::Zstd, Some(level), 1 << 16).unwrap()).unwrap();
            let mut parse = |text: &[u8]| {
                matcher.start();
                parse_until(text, &stops, |cursor, until, tokens| matcher.parse(text, cursor, until, tokens))
            };
            let tokens = parse(&text);
            prop_assert!(text_of(&tokens) == text);
            parse(&before);
            let again = parse(&text);
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
