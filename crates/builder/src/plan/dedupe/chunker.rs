//! Content-defined chunks: where text repeats, it is cut alike, wherever it lies.
//!
//! A gear hash rolls over the text; the hash behind a byte depends on the 64 bytes that end there. The plain algorithm:
//!
//! ```text
//! for each byte, with the length of the chunk that would end behind it:
//!     cut if length >= min and the hash has strong_bits leading zeros (weak_bits from length avg on)
//!     cut if length == max
//! ```
//!
//! Departures, with their gain:
//! * Bytes where any cut is thinkable (weak bits) are found first, cuts are chosen among them later. So the hash
//!   never waits for a decision, and four lanes of a block run side by side: 1.1 GB/s become 3.0.
//! * Blocks, not windows, are divided into lanes: candidates take bounded room, and what hashes the chunks next finds
//!   them in the cache.

use std::ops::Range;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes that influence the hash: one bit is shifted out with every byte.
const REACH: usize = 64;
const LANES: usize = 4;
const BLOCK_LEN: usize = 256 << 10;

/// Lengths of chunks, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkSizes {
    /// The shortest length, except for the last chunk of a window.
    pub min: usize,
    /// Up to here cuts are rarer than 1 in `avg`, from here on more frequent: most chunks are about this long.
    pub avg: usize,
    /// The longest.
    pub max: usize,
}

impl ChunkSizes {
    /// Lengths for finding duplicates: half the length gains 0.4 to 3 % of the size and doubles the index, twice the
    /// length loses 0.6 to 6 %.
    pub(crate) const DEFAULT: Self = Self { min: 1 << 10, avg: 4 << 10, max: 16 << 10 };

    /// Returns the hash below which there may be a cut in a chunk of `avg` bytes and more.
    const fn weak(self) -> u64 {
        u64::MAX >> (self.avg.ilog2() - 2)
    }

    /// Returns the hash below which there may be a cut in any chunk.
    const fn strong(self) -> u64 {
        u64::MAX >> (self.avg.ilog2() + 2)
    }
}

/// 96 bits of XXH3-128 of a chunk: enough to find equal ones; bytes decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChunkHash(pub [u32; 3]);

impl ChunkHash {
    /// Returns the hash of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let hash = xxh3_128(bytes);
        Self([hash as u32, (hash >> 32) as u32, (hash >> 64) as u32])
    }

    /// Returns the hash of a chunk that equals only those of its group. Group 0 changes nothing.
    pub(crate) fn in_group(self, group: u32) -> Self {
        let Self([a, b, c]) = self;
        Self([a, b ^ group.wrapping_mul(0x9E37_79B9), c])
    }
}

/// Cuts windows into chunks. Keep one for each thread: it owns the room that it needs.
pub(crate) struct Chunker {
    sizes: ChunkSizes,
    /// Candidates of each lane.
    found: [Vec<Candidate>; LANES],
}

/// A byte, by its place in its lane, behind which a cut may be.
#[derive(Clone, Copy)]
struct Candidate {
    idx: u32,
    strong: bool,
}

impl Chunker {
    /// Creates a chunker with these lengths. `avg` must be a power of two from 8 on, and `min <= avg <= max`.
    pub(crate) fn new(sizes: ChunkSizes) -> Self {
        debug_assert!(sizes.avg.is_power_of_two() && sizes.avg >= 8);
        debug_assert!(0 < sizes.min && sizes.min <= sizes.avg && sizes.avg <= sizes.max);
        Self { sizes, found: Default::default() }
    }

    /// Calls `each` with the chunks of `window`, in order.
    pub(crate) fn chunk(&mut self, window: &[u8], mut each: impl FnMut(Range<usize>)) {
        let mut cutter = Cutter { sizes: self.sizes, start: 0 };
        if window.len() > self.sizes.min {
            for start in (0..window.len()).step_by(BLOCK_LEN) {
                let end = window.len().min(start + BLOCK_LEN);
                let lane_len = self.scan(window, start..end);
                for (lane, found) in self.found.iter().enumerate() {
                    for candidate in found {
                        let pos = start + lane * lane_len + candidate.idx as usize + 1;
                        cutter.candidate(pos, candidate.strong, &mut each);
                    }
                }
            }
        }
        cutter.finish(window.len(), &mut each);
    }

    /// Finds the candidates of a block. Returns the length of all lanes but the last, which may be longer.
    fn scan(&mut self, window: &[u8], block: Range<usize>) -> usize {
        let lane_len = block.len() / LANES;
        let starts: [usize; LANES] = std::array::from_fn(|lane| block.start + lane * lane_len);
        let lanes = starts.map(|start| &window[start..start + lane_len]);
        let mut hashes = starts.map(|start| roll(0, &window[start.saturating_sub(REACH)..start]));
        self.found.iter_mut().for_each(Vec::clear);
        scan_lanes(lanes, &mut hashes, self.sizes, &mut self.found);
        let rest = &window[starts[LANES - 1] + lane_len..block.end];
        let mut hash = hashes[LANES - 1];
        for (idx, &byte) in rest.iter().enumerate() {
            hash = step(hash, byte);
            if hash <= self.sizes.weak() {
                note(&mut self.found[LANES - 1], lane_len + idx, hash, self.sizes);
            }
        }
        lane_len
    }
}

/// Rolls a hash over each of four lanes of the same length, and notes where it is small.
fn scan_lanes(
    lanes: [&[u8]; LANES],
    hashes: &mut [u64; LANES],
    sizes: ChunkSizes,
    found: &mut [Vec<Candidate>; LANES],
) {
    let [a, b, c, d] = lanes;
    let [mut h0, mut h1, mut h2, mut h3] = *hashes;
    let weak = sizes.weak();
    for (idx, (((&a, &b), &c), &d)) in a.iter().zip(b).zip(c).zip(d).enumerate() {
        h0 = step(h0, a);
        h1 = step(h1, b);
        h2 = step(h2, c);
        h3 = step(h3, d);
        if h0 <= weak {
            note(&mut found[0], idx, h0, sizes);
        }
        if h1 <= weak {
            note(&mut found[1], idx, h1, sizes);
        }
        if h2 <= weak {
            note(&mut found[2], idx, h2, sizes);
        }
        if h3 <= weak {
            note(&mut found[3], idx, h3, sizes);
        }
    }
    *hashes = [h0, h1, h2, h3];
}

/// Records a candidate. One byte in a thousand comes here: out of line, or the loop runs out of registers.
#[cold]
#[inline(never)]
fn note(found: &mut Vec<Candidate>, idx: usize, hash: u64, sizes: ChunkSizes) {
    found.push(Candidate { idx: idx as u32, strong: hash <= sizes.strong() });
}

#[inline(always)]
fn step(hash: u64, byte: u8) -> u64 {
    (hash << 1).wrapping_add(GEAR[usize::from(byte)])
}

fn roll(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| step(hash, byte))
}

/// Chooses cuts among candidates.
struct Cutter {
    sizes: ChunkSizes,
    /// Start of the current chunk.
    start: usize,
}

impl Cutter {
    /// Considers a cut at `pos`, which grows from call to call.
    fn candidate(&mut self, pos: usize, strong: bool, each: &mut impl FnMut(Range<usize>)) {
        self.cut_longest(pos, each);
        let len = pos - self.start;
        if len >= self.sizes.min && (strong || len >= self.sizes.avg) {
            self.cut(pos, each);
        }
    }

    /// Cuts as often as needed for the chunk that ends at `pos` to be short enough.
    fn cut_longest(&mut self, pos: usize, each: &mut impl FnMut(Range<usize>)) {
        while pos - self.start > self.sizes.max {
            self.cut(self.start + self.sizes.max, each);
        }
    }

    fn cut(&mut self, pos: usize, each: &mut impl FnMut(Range<usize>)) {
        each(self.start..pos);
        self.start = pos;
    }

    fn finish(&mut self, end: usize, each: &mut impl FnMut(Range<usize>)) {
        self.cut_longest(end, each);
        if self.start < end {
            self.cut(end, each);
        }
    }
}

/// Random numbers from a constant: the same image from the same input, for ever.
static GEAR: [u64; 256] = gear(0x6B69_6C6E);

const fn gear(seed: u64) -> [u64; 256] {
    let mut table = [0; 256];
    let mut state = seed;
    let mut idx = 0;
    while idx < table.len() {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        table[idx] = splitmix64(state);
        idx += 1;
    }
    table
}

const fn splitmix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the processor time of this thread, for measurements on busy machines.
#[cfg(test)]
pub(crate) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests;
