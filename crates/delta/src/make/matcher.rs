//! Approximate matches of a text in a haystack: runs that are equal except for some bytes, as in
//! programs whose addresses have changed.
//!
//! The basic algorithm is that of bsdiff (Colin Percival, "Naive differences of executable code").
//! At each byte, look for the longest exact match until one beats the continuation at the last
//! offset by more than 8 bytes. Extend it backwards and the last one forwards while more than half
//! of the bytes are equal. Where both meet, cut where most bytes are equal. Departures:
//!
//! * Exact matches come from lists of places with the same hash of 8 bytes instead of a suffix
//!   array. Of a long list, only the places next to the continuation of the last offset are
//!   compared: text that occurs often, such as a licence, usually continues there.
//! * While text is equal at the last offset, nothing is looked up.
//! * Of a run of one byte, such as padding, only the first place is in the lists, so that a run of
//!   the text is one match wherever it is looked up.
//! * Steps are counted. Repetitive text could cost its length at each byte; once it has cost
//!   [`STEPS_PER_BYTE`], fewer places are tried.

use crate::make::region::Haystack;
use std::ops::Range;

/// Number of bytes that are hashed.
const KEY_LEN: usize = 8;
/// Maximum number of places compared per byte: those next to the continuation of the last offset.
const PLACES_MAX: usize = 32;
/// Length in bytes of a match from which on no longer one is sought.
const GOOD_LEN: usize = 512;
/// Number of equal bytes at the last offset from which on nothing is looked up.
const RUN_MIN: usize = 24;
/// Number of bytes by which a match at another offset must exceed the one at the last offset.
const GAIN_MIN: isize = 8;

/// Average number of steps per byte of text after which fewer places are tried. Ordinary text takes
/// at most a quarter of it.
const STEPS_PER_BYTE: u64 = 256;

/// Counter of comparisons: of places, words and bytes.
struct Steps {
    taken: u64,
    limit: u64,
}

impl Steps {
    fn for_text(len: usize) -> Self {
        Self { taken: 0, limit: (len as u64 + 4096) * STEPS_PER_BYTE }
    }

    fn take(&mut self, count: usize) {
        self.taken += count as u64;
    }

    /// Returns the maximum number of places to compare per byte, and of bytes by which a match is
    /// extended backwards or examined beyond [`GOOD_LEN`].
    fn effort(&self) -> (usize, usize) {
        if self.taken < self.limit { (PLACES_MAX, usize::MAX) } else { (1, GOOD_LEN) }
    }
}

/// A part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Bytes that match nothing.
    New { len: usize },
    /// Bytes that resemble as many bytes of the haystack from `at` on.
    Like { at: usize, len: usize },
}

/// Matcher, which reuses its tables from text to text.
#[derive(Default)]
pub(crate) struct Matcher {
    /// Index in `places` of the first place with each hash; the last element is the end.
    starts: Vec<u32>,
    /// Places by hash, in ascending order for each hash.
    places: Vec<u32>,
    shift: u32,
}

fn key(bytes: &[u8]) -> u64 {
    let mut key = [0; KEY_LEN];
    key.copy_from_slice(&bytes[..KEY_LEN]);
    u64::from_le_bytes(key)
}

/// Returns the number of equal first bytes.
fn equal_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let mut at = 0;
    while at + KEY_LEN <= len {
        let differ = key(&a[at..]) ^ key(&b[at..]);
        if differ != 0 {
            return at + (differ.trailing_zeros() / 8) as usize;
        }
        at += KEY_LEN;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}

impl Matcher {
    /// Splits `text` into parts.
    pub(crate) fn find(&mut self, text: &[u8], hay: &Haystack) -> Vec<Part> {
        self.find_in(text, hay, &mut Steps::for_text(text.len()))
    }

    fn find_in(&mut self, text: &[u8], hay: &Haystack, steps: &mut Steps) -> Vec<Part> {
        self.index(&hay.bytes);
        let mut parts = Parts { text, hay: &hay.bytes, list: Vec::new() };
        let mut last = Anchor { text: 0, at: 0, region: 0..0 };
        let (mut scan, mut len) = (0, 0);
        while scan < text.len() {
            let offset = last.at as isize - last.text as isize;
            let same = |scan: usize| {
                let at = scan as isize + offset;
                let at = usize::try_from(at).ok().filter(|at| last.region.contains(at));
                at.filter(|at| hay.bytes[*at] == text[scan])
            };
            let (mut found, mut score) = (0, 0isize);
            scan += len;
            let mut scored = scan;
            let mut goes_on = false;
            len = 0;
            while scan < text.len() {
                if let Some(at) = same(scan) {
                    let run = equal_len(&text[scan..], &hay.bytes[at..last.region.end]);
                    if run >= RUN_MIN {
                        (len, goes_on) = (run, true);
                        break;
                    }
                }
                (len, found) = self.longest(&text[scan..], (scan as isize + offset).max(0) as usize, hay, steps);
                while scored < scan + len {
                    score += same(scored).is_some() as isize;
                    scored += 1;
                }
                if len as isize == score && len > 0 {
                    goes_on = true;
                    break;
                }
                if len as isize > score + GAIN_MIN {
                    break;
                }
                score -= (scored > scan && same(scan).is_some()) as isize;
                scan += 1;
                scored = scored.max(scan);
            }
            if goes_on {
                continue;
            }
            let is_end = scan >= text.len();
            let next = Anchor { text: scan.min(text.len()), at: found, region: 0..0 };
            let next = match is_end {
                true => next,
                false => Anchor { region: hay.region_of(found), ..next },
            };
            last = parts.join(&last, next, is_end, steps);
            if is_end {
                break;
            }
        }
        if parts.end() < text.len() {
            let end = Anchor { text: text.len(), at: 0, region: 0..0 };
            parts.join(&last, end, true, steps);
        }
        parts.list
    }

    fn index(&mut self, hay: &[u8]) {
        let bits = (hay.len().max(1 << 12).ilog2()).min(22);
        self.shift = 64 - bits;
        self.starts.clear();
        self.starts.resize((1 << bits) + 1, 0);
        for (_, key) in keys(hay) {
            let slot = self.slot(key);
            self.starts[slot] += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += *start;
            *start = sum;
        }
        self.places.clear();
        self.places.resize(sum as usize, 0);
        // From the end, so that each start ends up in its final position and places ascend.
        for (at, key) in keys(hay).rev() {
            let slot = self.slot(key);
            self.starts[slot] -= 1;
            self.places[self.starts[slot] as usize] = at as u32;
        }
    }

    fn slot(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// Returns length and place of the longest match of the first bytes of `rest`; among equal
    /// ones, that next to `expected`.
    fn longest(&self, rest: &[u8], expected: usize, hay: &Haystack, steps: &mut Steps) -> (usize, usize) {
        let (places_max, reach) = steps.effort();
        let rest = &rest[..rest.len().min(reach)];
        if rest.len() < KEY_LEN {
            return (0, 0);
        }
        let slot = self.slot(key(rest));
        let places = &self.places[self.starts[slot] as usize..self.starts[slot + 1] as usize];
        let (mut best_len, mut best) = (0, 0);
        let middle = places.partition_point(|at| (*at as usize) < expected);
        let (mut below, mut above) = (places[..middle].iter().rev().peekable(), places[middle..].iter().peekable());
        for _ in 0..places_max {
            let nearer = match (below.peek(), above.peek()) {
                (Some(a), Some(b)) if expected - **a as usize <= **b as usize - expected => below.next(),
                (Some(_), None) => below.next(),
                _ => above.next(),
            };
            let Some(&at) = nearer else { break };
            let from = &hay.bytes[at as usize..];
            steps.take(1);
            // Skip places that cannot give a longer match.
            if best_len == 0 || from.get(best_len) == rest.get(best_len) {
                let len = equal_len(rest, from);
                steps.take(len / KEY_LEN);
                if len > best_len && len >= KEY_LEN {
                    (best_len, best) = (len, at as usize);
                    if len >= GOOD_LEN {
                        break;
                    }
                }
            }
        }
        if best_len > 0 {
            let end = hay.region_of(best).end;
            best_len = best_len.min(end - best);
        }
        (best_len, best)
    }
}

/// Returns the places at which keys are looked up, in bytes from the start of `hay`, and the keys.
/// Of a run of one byte, only the first place is returned.
fn keys(hay: &[u8]) -> impl DoubleEndedIterator<Item = (usize, u64)> {
    (0..hay.len().saturating_sub(KEY_LEN - 1)).map(|at| (at, key(&hay[at..]))).filter(|(at, key)| {
        let first = key & 0xFF;
        *key != first * 0x0101_0101_0101_0101 || *at == 0 || u64::from(hay[at - 1]) != first
    })
}

/// A byte of the text, and the byte of the haystack that it matches.
struct Anchor {
    text: usize,
    at: usize,
    region: Range<usize>,
}

/// Parts found so far.
struct Parts<'a> {
    text: &'a [u8],
    hay: &'a [u8],
    list: Vec<Part>,
}

impl Parts<'_> {
    fn end(&self) -> usize {
        self.list
            .iter()
            .rev()
            .map(|part| match part {
                Part::New { len } | Part::Like { len, .. } => *len,
            })
            .sum()
    }

    /// Adds the text between two anchors: the first is extended forwards and the other one
    /// backwards as far as it pays. Returns the other one, moved to its new start.
    fn join(&mut self, last: &Anchor, next: Anchor, is_end: bool, steps: &mut Steps) -> Anchor {
        let (_, reach) = steps.effort();
        let room = next.text - last.text;
        let forward = room.min(last.region.end.saturating_sub(last.at));
        let equal = |text: usize, at: usize| self.text[text] == self.hay[at];
        let mut ahead = best_len(forward, |n| equal(last.text + n, last.at + n));
        let mut back = 0;
        if !is_end {
            let backward = room.min(next.at - next.region.start).min(reach);
            back = best_len(backward, |n| equal(next.text - n - 1, next.at - n - 1));
        }
        steps.take(room);
        if ahead + back > room {
            // Both overlap: cut where most bytes are equal.
            let overlap = ahead + back - room;
            let (mut score, mut best, mut kept) = (0isize, 0isize, 0);
            for n in 0..overlap {
                let text = last.text + ahead - overlap + n;
                score += equal(text, last.at + ahead - overlap + n) as isize;
                score -= equal(text, next.at - back + n) as isize;
                if score > best {
                    (best, kept) = (score, n + 1);
                }
            }
            ahead -= overlap - kept;
            back -= kept;
        }
        if ahead > 0 {
            self.list.push(Part::Like { at: last.at, len: ahead });
        }
        if room > ahead + back {
            self.list.push(Part::New { len: room - ahead - back });
        }
        Anchor { text: next.text - back, at: next.at - back, region: next.region }
    }
}

/// Returns how many of the first `room` bytes to take, so that equal bytes exceed the others by the
/// largest number.
fn best_len(room: usize, equal: impl Fn(usize) -> bool) -> usize {
    let (mut score, mut best, mut len) = (0isize, 0isize, 0);
    for n in 0..room {
        score += if equal(n) { 1 } else { -1 };
        if score > best {
            (best, len) = (score, n + 1);
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make::region::Region;

    fn haystack(parts: &[&[u8]]) -> Haystack {
        let mut hay = Haystack::default();
        for (idx, part) in parts.iter().enumerate() {
            hay.regions.push((hay.bytes.len(), Region { source: idx as u32, range: 0..part.len() as u64 }));
            hay.bytes.extend_from_slice(part);
        }
        hay
    }

    /// Returns pseudorandom bytes.
    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..len).map(|_| byte()).collect()
    }

    /// Checks that the parts cover the text, and returns the number of bytes that nothing equals.
    fn cost(text: &[u8], hay: &Haystack, parts: &[Part]) -> usize {
        let (mut at, mut cost) = (0, 0);
        for part in parts {
            match *part {
                Part::New { len } => {
                    at += len;
                    cost += len;
                }
                Part::Like { at: from, len } => {
                    assert!(hay.region_of(from).end >= from + len, "over the end of a region");
                    cost += text[at..][..len].iter().zip(&hay.bytes[from..]).filter(|(a, b)| a != b).count();
                    at += len;
                }
            }
        }
        assert_eq!(at, text.len());
        cost
    }

    #[test]
    fn moved_and_modified_text_is_found() {
        let (a, b) = (noise(1, 20_000), noise(2, 30_000));
        let hay = haystack(&[&a, &b]);
        let mut text = [&b[1000..20_000], &noise(3, 100)[..], &a[..15_000], &b[..500]].concat();
        // A byte here and there, as addresses change.
        for at in (50..15_000).step_by(100) {
            text[at] ^= 0x55;
        }
        let parts = Matcher::default().find(&text, &hay);
        let cost = cost(&text, &hay, &parts);
        assert!(cost <= 100 + 150 + 20, "{cost}");
    }

    /// Searches `hay` for `text`. Returns the number of bytes that nothing equals, of parts, and of
    /// steps per byte of text.
    fn tried(text: &[u8], hay: &Haystack) -> (usize, usize, u64) {
        let mut steps = Steps::for_text(text.len());
        let parts = Matcher::default().find_in(text, hay, &mut steps);
        (cost(text, hay, &parts), parts.len(), steps.taken / text.len() as u64)
    }

    #[test]
    fn padding_is_found_in_few_steps() {
        // Files with padding to multiples of 1 MiB; one of the new files is a byte longer.
        let unit = |seed, len| [&noise(seed, len)[..], &vec![0; (1 << 20) - len]].concat();
        let old: Vec<u8> = (1..5).flat_map(|seed| unit(seed, 20_000)).collect();
        let new: Vec<u8> = (1..5).flat_map(|seed| unit(seed, 20_000 + usize::from(seed == 3))).collect();
        let padding = [&vec![0; 4096 - 128][..], &new[20_480..1 << 20], &new[(1 << 20) + 20_480..2 << 20]].concat();
        for text in [&new, &padding] {
            let (cost, parts, steps) = tried(text, &haystack(&[&old]));
            assert!(cost <= 2 && parts < 12 && steps < 8, "{cost} {parts} {steps}");
        }
    }

    #[test]
    fn text_that_repeats_itself_takes_steps_as_its_length_does() {
        let periods: [&[u8]; 3] = [&noise(1, 9), b"0123456789abcdef\n", &noise(2, 600)];
        for period in periods {
            let old: Vec<u8> = period.iter().copied().cycle().take(300_000).collect();
            let mut new = old.clone();
            // A byte here and there, so that each place of the old text matches equally well.
            for at in (700..new.len()).step_by(1300) {
                new[at] ^= 1;
            }
            let regions: Vec<&[u8]> = old.chunks(1000).collect();
            for hay in [haystack(&[&old]), haystack(&regions)] {
                let (cost, _, steps) = tried(&new, &hay);
                assert!(steps <= STEPS_PER_BYTE + 140 && cost < new.len() / 100, "{cost} {steps}");
            }
        }
    }

    #[test]
    fn all_of_any_text_is_told() {
        let mut matcher = Matcher::default();
        for seed in 0..200 {
            let a = noise(seed, (seed as usize * 7) % 300);
            let text = match seed % 4 {
                0 => Vec::new(),
                1 => a.clone(),
                2 => [&a[a.len() / 2..], &noise(seed + 1, 9)[..], &a[..a.len() / 2]].concat(),
                _ => vec![0; 100],
            };
            let hay =
                if a.is_empty() { Haystack::default() } else { haystack(&[&a[..a.len() / 3], &a[a.len() / 3..]]) };
            let hay = if a.len() < 3 { Haystack::default() } else { hay };
            let parts = matcher.find(&text, &hay);
            cost(&text, &hay, &parts);
        }
    }
}
