//! Thorough search for earlier occurrences of text: the last positions of each hash, in rows.
//!
//! The plain algorithm: at each position, look up the last positions with the same hash of some
//! bytes, and take the longest match. It gives way to a better one that starts one or two bytes
//! later, where each byte counts four bits, and the distance as many as it takes. Departures:
//!
//! * Each position of a row has 8 more bits of the hash, which are compared for the whole row at
//!   once, and text only where they are equal.
//! * The last distance is tried first, and the distance before that after each match.
//! * After a long text without a match, positions are skipped; most positions inside long matches
//!   are not entered.
//! * Rows are loaded some positions ahead, candidates before the first is compared.
//! * Tables have two entries for each byte of an ordinary text, and are not cleared between
//!   pclusters, as those of [`matches`](super::matches).
//!
//! libzstd searches alike at levels 5 to 12. Here, no text is searched twice or beyond what fits,
//! no second code is made, and the tables stay in the processor's cache.
//!
//! *In bounds* is as in [`matches`](super::matches). *Rows*: a hash has less than `rows` rows.

use super::text::{Text, prefetch};
use super::tokens::{Cursor, Tokens, Until};
use crate::Spec;
use crate::words::for_processor;
use std::mem::MaybeUninit;

/// Number of bytes from a position on that hashes and comparisons may read.
const MARGIN: usize = 9;
/// Distance from the end of a block below which no match is searched for.
const MATCH_MARGIN: usize = 5;
/// Number of positions in a row.
const ROW_LEN: usize = 32;
/// Shortest match, and number of bytes that are hashed.
const MATCH_MIN: usize = 4;
/// Length of a match that no better one is searched for.
const LEN_ENOUGH: usize = 48;
/// Log of the number of bytes without a match after which each step is one byte longer.
const SKIP_SHIFT: u32 = 8;
/// Longest step after which the positions before are entered.
const STEP_ENTERED: usize = 8;
/// Number of positions to enter of a text that is longer than `ENTERED_MAX`: at its start and end.
const ENTERED_MAX: usize = 384;
const ENTERED_FIRST: usize = 96;
const ENTERED_LAST: usize = 32;
/// Number of positions by which rows are loaded ahead.
const AHEAD: usize = 8;
/// Highest position at which an input starts. As positions are `u32`, the tables are cleared
/// beyond it.
const POSITION_MAX: u32 = 1 << 31;
/// Number of bits of a hash beside each position.
const TAG_BITS: u32 = 8;

/// Entries of a table by lines of the cache.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line<T, const N: usize>([T; N]);

pub(super) struct RowMatcher {
    positions: Box<[Line<u32, 16>]>,
    tags: Box<[Line<u8, 64>]>,
    /// Newest entry of each row; older ones follow, around its end.
    heads: Box<[u8]>,
    window: usize,
    /// Position of the first byte of the input.
    base: u32,
    /// End of the positions that may be in the tables.
    end: u32,
    /// Next position to enter.
    next: usize,
}

impl RowMatcher {
    /// Creates a matcher; `None` for levels that need another search.
    pub(super) fn new(spec: &Spec) -> Option<Self> {
        if spec.level != 9 {
            return None;
        }
        let entries = (4 * spec.pcluster_len as usize).next_power_of_two().clamp(1 << 16, 1 << 18);
        Some(RowMatcher {
            positions: vec![Line([0; 16]); entries / 16].into_boxed_slice(),
            tags: vec![Line([0; 64]); entries / 64].into_boxed_slice(),
            heads: vec![0; entries / ROW_LEN].into_boxed_slice(),
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
            self.positions.fill(Line([0; 16]));
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
                positions: self.positions.as_mut_ptr().cast(),
                tags: self.tags.as_mut_ptr().cast(),
                heads: self.heads.as_mut_ptr(),
                shift: 64 - self.heads.len().ilog2(),
                reach: base + end.saturating_sub(self.window),
                end: base + end,
                last: base + input.len() - 8,
                next: self.next,
            };
            // SAFETY: `end` leaves the margins, and the tables have a power of two of rows.
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
    positions: *mut u32,
    tags: *mut u8,
    heads: *mut u8,
    /// Shift of a product that leaves the row.
    shift: u32,
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
                if best.len < LEN_ENOUGH {
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
            for (i, gain) in GAINS.into_iter().enumerate() {
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
            let (row, tag) = self.hash(at);
            let head = u32::from(*self.heads.add(row));
            let positions = self.positions.add(row * ROW_LEN);
            let mut equal = equal_tags(self.tags.add(row * ROW_LEN), tag, head);
            let mut candidates = [MaybeUninit::<u32>::uninit(); ROW_LEN];
            let mut count = 0;
            // At most once for each bit.
            while equal != 0 {
                let slot = (equal.trailing_zeros() + head) as usize % ROW_LEN;
                let position = *positions.add(slot);
                if (position as usize) < self.reach {
                    break; // older ones are, too
                }
                self.text.prefetch(position as usize);
                candidates.get_unchecked_mut(count).write(position);
                count += 1;
                equal &= equal - 1;
            }
            self.enter(at, row, tag);
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
            let (row, _) = self.hash((at + AHEAD).min(self.last));
            self.load(row);
        }
    }

    /// # Safety
    /// As for [`run`](Self::run), and `to < end`.
    #[inline(always)]
    unsafe fn enter_all(&mut self, from: usize, to: usize) {
        // SAFETY: in bounds, and *rows*.
        unsafe {
            for at in from..to {
                let (row, _) = self.hash((at + AHEAD).min(self.last));
                self.load(row);
                let (row, tag) = self.hash(at);
                self.enter(at, row, tag);
            }
        }
    }

    /// Returns the row and the tag of the bytes at a position.
    ///
    /// # Safety
    /// `at <= last`.
    #[inline(always)]
    unsafe fn hash(&self, at: usize) -> (usize, u8) {
        // SAFETY: guaranteed by the caller.
        let word = unsafe { self.text.word64(at) };
        let product = (word << 32).wrapping_mul(0x9E37_79B1_85EB_CA87);
        ((product >> self.shift) as usize, (product >> (self.shift - TAG_BITS)) as u8)
    }

    /// Asks the processor to load a row.
    #[inline(always)]
    fn load(&self, row: usize) {
        let first = row * ROW_LEN;
        prefetch(self.tags.wrapping_add(first));
        prefetch(self.positions.wrapping_add(first));
        prefetch(self.positions.wrapping_add(first + ROW_LEN / 2));
    }

    /// Enters a position in the place of the oldest one of its row.
    ///
    /// # Safety
    /// *Rows*.
    #[inline(always)]
    unsafe fn enter(&self, at: usize, row: usize, tag: u8) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let head = &mut *self.heads.add(row);
            *head = head.wrapping_sub(1) % ROW_LEN as u8;
            let place = row * ROW_LEN + usize::from(*head);
            *self.tags.add(place) = tag;
            *self.positions.add(place) = at as u32;
        }
    }
}

/// Returns a bit for each tag of a row that is equal to `tag`, from the head on.
///
/// # Safety
/// `tags` points to a row.
#[inline(always)]
unsafe fn equal_tags(tags: *const u8, tag: u8, head: u32) -> u32 {
    // SAFETY: guaranteed by the caller.
    let halves = unsafe { [equal_16(tags, tag), equal_16(tags.add(ROW_LEN / 2), tag)] };
    (u32::from(halves[0]) | u32::from(halves[1]) << 16).rotate_right(head)
}

/// Returns a bit for each of 16 tags that is equal to `tag`.
///
/// # Safety
/// `tags` points to 16 tags.
#[inline(always)]
unsafe fn equal_16(tags: *const u8, tag: u8) -> u16 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: guaranteed by the caller; all processors of this kind have SSE2.
        unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128(tags.cast()), _mm_set1_epi8(tag as i8))) as u16 }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: guaranteed by the caller.
        let tags = unsafe { &*tags.cast::<[u8; 16]>() };
        tags.iter().enumerate().fold(0, |bits, (i, &other)| bits | u16::from(other == tag) << i)
    }
}
