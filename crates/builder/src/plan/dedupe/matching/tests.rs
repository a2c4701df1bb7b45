//! Matches compared with the plain algorithm over slices; laws of runs; yield.

use super::*;
use crate::plan::dedupe::chunker::{ChunkSizes, Chunker, cpu_seconds};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index as Pick;
use proptest::test_runner::RngSeed;
use std::collections::HashMap;
use std::convert::Infallible;

const SMALL: ChunkSizes = ChunkSizes { min: 16, avg: 64, max: 256 };

type Hasher = fn(&[u8]) -> ChunkHash;

/// Returns a hash of eight bits, so that nearly every lookup finds a chunk with other bytes.
fn eight_bits(bytes: &[u8]) -> ChunkHash {
    ChunkHash([ChunkHash::of(bytes).0[0] & 0xFF, 0, 0])
}

/// Streams in memory.
pub(crate) struct Memory<'a>(pub &'a [Vec<u8>]);

impl Text for Memory<'_> {
    type Error = Infallible;

    fn gains(&mut self, _: Place, _: u64) -> Result<bool, Self::Error> {
        Ok(true)
    }

    fn read(&mut self, stream: u32, off: u64, buf: &mut [u8]) -> Result<(), Infallible> {
        buf.copy_from_slice(&self.0[stream as usize][off as usize..][..buf.len()]);
        Ok(())
    }
}

fn chunks(sizes: ChunkSizes, hasher: Hasher, stream: &[u8], window: usize) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let mut chunker = Chunker::new(sizes);
    for window in stream.chunks(window) {
        chunker.chunk(window, |range| {
            chunks.push(Chunk { len: range.len() as u32, hash: hasher(&window[range]) });
        });
    }
    chunks
}

/// Runs the plain algorithm.
fn plain(streams: &[Vec<u8>], chunks: &[Vec<Chunk>], min_match: u64) -> Vec<Vec<Run>> {
    let mut index: HashMap<ChunkHash, Place> = HashMap::new();
    let mut all: Vec<Vec<Run>> = Vec::new();
    for (stream, (text, chunks)) in streams.iter().zip(chunks).enumerate() {
        let stream = stream as u32;
        all.push(Vec::new());
        let (mut pos, mut next) = (0, 0);
        for chunk in chunks {
            let x = next;
            next += u64::from(chunk.len);
            if x < pos {
                continue;
            }
            let found = index.get(&chunk.hash).and_then(|&y| {
                let is_open = y.stream == stream && y.off >= pos;
                let open = Run { start: pos, len: x - pos, kind: RunKind::Stored };
                let closed = all[y.stream as usize].iter().copied().find(|run| (run.start..run.end()).contains(&y.off));
                let run = if is_open { open } else { closed? };
                let source = &streams[y.stream as usize];
                let equal = |a: u64, b: u64| source[a as usize] == text[b as usize];
                let mut f = 0;
                while y.off + f < run.end() && x + f < text.len() as u64 && equal(y.off + f, x + f) {
                    f += 1;
                }
                let half = if is_open { (x - y.off) / 2 } else { u64::MAX };
                let mut r = 0;
                while r < half && y.off - r > run.start && x - r > pos && equal(y.off - r - 1, x - r - 1) {
                    r += 1;
                }
                if is_open {
                    f = f.min(x - y.off - r);
                }
                let matches = run.kind == RunKind::Stored && f > 0 && f + r >= min_match;
                matches.then_some((x - r, x + f, Place { stream: y.stream, off: y.off - r }))
            });
            let Some((start, end, source)) = found else {
                index.entry(chunk.hash).or_insert(Place { stream, off: x });
                continue;
            };
            let runs = &mut all[stream as usize];
            if start > pos {
                runs.push(Run { start: pos, len: start - pos, kind: RunKind::Stored });
            }
            match runs.last_mut() {
                Some(Run { start: s, len, kind: RunKind::Ref(before) })
                    if *s + *len == start && before.stream == source.stream && before.off + *len == source.off =>
                {
                    *len += end - start;
                }
                _ => runs.push(Run { start, len: end - start, kind: RunKind::Ref(source) }),
            }
            pos = end;
        }
        if pos < text.len() as u64 {
            let len = text.len() as u64 - pos;
            all[stream as usize].push(Run { start: pos, len, kind: RunKind::Stored });
        }
    }
    all
}

/// Matches `streams`, and checks the laws of the outcome.
fn runs_of(streams: &[Vec<u8>], chunks: &[Vec<Chunk>], min_match: u64, budget: usize, at_once: usize) -> Runs {
    let mut matcher = Matcher::new(min_match, budget);
    for (text, chunks) in streams.iter().zip(chunks) {
        matcher.begin(0);
        matcher.grow(text.len() as u64);
        for chunks in chunks.chunks(at_once) {
            let Ok(()) = matcher.push(chunks, &mut Memory(streams));
        }
        matcher.settle();
    }
    let stats = matcher.stats();
    let runs = matcher.runs;
    let matched = check(streams, &runs, min_match);
    assert_eq!(stats.matched_bytes, matched);
    assert_eq!(stats.text_bytes, streams.iter().map(|text| text.len() as u64).sum::<u64>());
    assert!(stats.compared_bytes >= matched);
    runs
}

/// Checks all laws in the head of the module. Returns the bytes of Refs.
fn check(streams: &[Vec<u8>], runs: &Runs, min_match: u64) -> u64 {
    let mut matched = 0;
    assert_eq!(runs.len(), streams.len());
    for (stream, text) in streams.iter().enumerate() {
        let mut pos = 0;
        for run in runs.stream(stream as u32) {
            assert!(run.start == pos && run.len > 0, "{run:?} at {pos}");
            pos = run.end();
            let RunKind::Ref(source) = run.kind else { continue };
            matched += run.len;
            assert!(run.len >= min_match);
            let stored = runs.stored_at(source).expect("a source is stored");
            assert!(source.off + run.len <= stored.end, "a source is within one run");
            assert!(source.stream < stream as u32 || stored.end <= run.start, "a source comes first");
            let bytes = &streams[source.stream as usize][source.off as usize..][..run.len as usize];
            assert!(bytes == &text[run.start as usize..run.end() as usize], "not the same bytes: {run:?}");
        }
        assert_eq!(pos, text.len() as u64);
    }
    matched
}

/// A piece of a stream.
#[derive(Clone, Debug)]
enum Piece {
    Fresh(u64, usize),
    /// Bytes of any text before, perhaps of the same stream.
    Copy(Pick, Pick, usize),
    Repeat(u64, usize, usize),
}

fn streams() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let piece = prop_oneof![
        3 => (any::<u64>(), 0..1500_usize).prop_map(|(seed, len)| Piece::Fresh(seed, len)),
        4 => (any::<Pick>(), any::<Pick>(), 0..3000_usize).prop_map(|(stream, at, len)| Piece::Copy(stream, at, len)),
        1 => (0..9_u64, 1..300_usize, 0..3000_usize).prop_map(|(seed, period, len)| Piece::Repeat(seed, period, len)),
    ];
    vec(vec(piece, 0..7), 1..7).prop_map(|list| {
        let mut streams: Vec<Vec<u8>> = Vec::new();
        for pieces in list {
            streams.push(Vec::new());
            for piece in pieces {
                let bytes = match piece {
                    Piece::Fresh(seed, len) => random(seed, len),
                    Piece::Copy(stream, at, len) => {
                        let from = &streams[stream.index(streams.len())];
                        let at = at.index(from.len() + 1);
                        from[at..from.len().min(at + len)].to_vec()
                    }
                    Piece::Repeat(seed, period, len) => random(seed, period).into_iter().cycle().take(len).collect(),
                };
                streams.last_mut().unwrap().extend(bytes);
            }
        }
        streams
    })
}

fn random(seed: u64, len: usize) -> Vec<u8> {
    let word = |idx: u64| xxhash_rust::xxh3::xxh3_64_with_seed(&idx.to_le_bytes(), seed).to_le_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, rng_seed: RngSeed::Fixed(0x3A7C), failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn runs_are_those_of_the_plain_algorithm(
        streams in streams(),
        min_match in 1..600_u64,
        collide: bool,
        at_once in 1..50_usize,
    ) {
        let hasher = if collide { eight_bits } else { ChunkHash::of };
        let chunks: Vec<_> = streams.iter().map(|text| chunks(SMALL, hasher, text, 5000)).collect();
        let runs = runs_of(&streams, &chunks, min_match, 1 << 20, at_once);
        let plain = plain(&streams, &chunks, min_match);
        for (stream, plain) in plain.iter().enumerate() {
            prop_assert_eq!(runs.stream(stream as u32), &plain[..]);
        }
    }

    /// Streams are restored whatever is forgotten.
    #[test]
    fn any_budget_is_right(streams in streams(), budget in 0..5000_usize, collide: bool) {
        let hasher = if collide { eight_bits } else { ChunkHash::of };
        let chunks: Vec<_> = streams.iter().map(|text| chunks(SMALL, hasher, text, 5000)).collect();
        let runs = runs_of(&streams, &chunks, 64, budget, 1);
        let again = runs_of(&streams, &chunks, 64, budget, usize::MAX);
        for stream in 0..streams.len() as u32 {
            prop_assert_eq!(runs.stream(stream), again.stream(stream));
        }
    }
}

#[test]
fn nothing_is_found_without_memory() {
    let streams = [random(1, 100_000), random(1, 100_000)];
    let chunks: Vec<_> = streams.iter().map(|text| chunks(ChunkSizes::DEFAULT, ChunkHash::of, text, 1 << 24)).collect();
    let runs = runs_of(&streams, &chunks, 4096, 0, 100);
    assert_eq!(runs.stream(1), [Run { start: 0, len: 100_000, kind: RunKind::Stored }]);
    let runs = runs_of(&streams, &chunks, 4096, 1 << 20, 100);
    assert_eq!(runs.stream(1), [Run { start: 0, len: 100_000, kind: RunKind::Ref(Place { stream: 0, off: 0 }) }]);
}

/// Makes text with planted copies of 20 to 200 KiB, each preceded by fresh bytes of any length. Returns the bytes
/// planted.
fn planted(count: u64) -> (Vec<Vec<u8>>, u64) {
    let original = random(7, 4 << 20);
    let (mut text, mut bytes) = (Vec::new(), 0);
    for n in 0..count {
        let pick = |salt: u64, range: u64| xxhash_rust::xxh3::xxh3_64_with_seed(&n.to_le_bytes(), salt) % range;
        text.extend(random(1000 + n, pick(1, 50_000) as usize));
        let len = 20_000 + pick(2, 180_000);
        let at = pick(3, original.len() as u64 - len);
        text.extend(&original[at as usize..][..len as usize]);
        bytes += len;
    }
    (vec![original, text], bytes)
}

#[test]
fn planted_copies_are_found() {
    let (streams, planted) = planted(100);
    for (min_match, least) in [(4 << 10, 99), (16 << 10, 99), (32 << 10, 97)] {
        let chunks: Vec<_> =
            streams.iter().map(|text| chunks(ChunkSizes::DEFAULT, ChunkHash::of, text, 1 << 24)).collect();
        let runs = runs_of(&streams, &chunks, min_match, 1 << 24, 100);
        let matched = check(&streams, &runs, min_match);
        assert!(matched * 100 >= planted * least, "{matched} of {planted} bytes, matches of {min_match} and more");
    }
}

/// An index of a fraction of its size still finds long copies.
#[test]
fn a_small_budget_costs_yield_not_correctness() {
    let (streams, planted) = planted(100);
    let chunks: Vec<_> = streams.iter().map(|text| chunks(ChunkSizes::DEFAULT, ChunkHash::of, text, 1 << 24)).collect();
    let yields = [1 << 20, 40_000, 10_000, 2500].map(|budget| {
        let runs = runs_of(&streams, &chunks, 4 << 10, budget, 100);
        check(&streams, &runs, 4 << 10) * 100 / planted
    });
    assert!(yields.is_sorted_by(|a, b| a >= b) && yields[0] >= 99 && yields[1] >= 60 && yields[3] > 0, "{yields:?} %");
}

/// Text that arrives in pieces, each sealed before the next: what is decided stays, and copies are found all the same.
#[test]
fn sealed_decisions_stay() {
    let (streams, planted) = planted(100);
    let mut matcher = Matcher::new(16 << 10, 1 << 24);
    let mut refs = Vec::new();
    for (number, text) in streams.iter().enumerate() {
        matcher.begin(0);
        for piece in text.chunks(1 << 20) {
            matcher.grow(piece.len() as u64);
            let chunks = chunks(ChunkSizes::DEFAULT, ChunkHash::of, piece, 1 << 24);
            let Ok(()) = matcher.push(&chunks, &mut Memory(&streams));
            matcher.settle();
            refs.extend(matcher.runs().unsealed_refs(number as u32));
            matcher.seal();
        }
    }
    let of_runs = |runs: &Runs| {
        let run = |run: &Run| (run.kind != RunKind::Stored).then_some((run.start, run.len));
        runs.stream(1).iter().filter_map(run).collect::<Vec<_>>()
    };
    assert_eq!(refs.iter().map(|one| (one.target.off, one.len)).collect::<Vec<_>>(), of_runs(&matcher.runs));
    let matched = check(&streams, &matcher.runs, 16 << 10);
    assert!(matched * 100 >= planted * 97, "{matched} of {planted} bytes");
}

struct Failing;

impl Text for Failing {
    type Error = &'static str;

    fn gains(&mut self, _: Place, _: u64) -> Result<bool, Self::Error> {
        Ok(true)
    }

    fn read(&mut self, _: u32, _: u64, _: &mut [u8]) -> Result<(), &'static str> {
        Err("cannot be read")
    }
}

#[test]
fn errors_of_the_text_come_through() {
    let chunk = Chunk { len: 10_000, hash: ChunkHash([1, 2, 3]) };
    let mut matcher = Matcher::new(4096, 1 << 20);
    matcher.begin(0);
    matcher.grow(20_000);
    assert_eq!(matcher.push(&[chunk], &mut Failing), Ok(()), "nothing to compare yet");
    assert_eq!(matcher.push(&[chunk], &mut Failing), Err("cannot be read"));
}

/// Not a test: user time for each GB, for `cargo test --release -p kiln-builder matching -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn speed() {
    let fresh: Vec<Vec<u8>> = (0..16).map(|seed| random(seed, 16 << 20)).collect();
    // The second half is a copy of the first, moved by a byte in each stream.
    let mut halved = fresh[..8].to_vec();
    halved.extend(fresh[..8].iter().enumerate().map(|(n, text)| [&[n as u8], &text[1 << 20..]].concat()));
    let small: Vec<Vec<u8>> = fresh.iter().flat_map(|text| text.chunks(9000)).map(<[u8]>::to_vec).collect();
    for (what, streams) in [("fresh", &fresh), ("half copied", &halved), ("fresh, files of 9000 bytes", &small)] {
        let gb = streams.iter().map(Vec::len).sum::<usize>() as f64 / 1e9;
        let start = cpu_seconds();
        let window = 8 << 20;
        let chunks: Vec<_> =
            streams.iter().map(|text| chunks(ChunkSizes::DEFAULT, ChunkHash::of, text, window)).collect();
        let chunked = (cpu_seconds() - start) / gb;
        let mut matcher = Matcher::new(16 << 10, 1 << 30);
        let start = cpu_seconds();
        for (text, chunks) in streams.iter().zip(&chunks) {
            matcher.begin(0);
            matcher.grow(text.len() as u64);
            let Ok(()) = matcher.push(chunks, &mut Memory(streams));
            matcher.settle();
        }
        let matched = (cpu_seconds() - start) / gb;
        println!("{what}: chunks {chunked:.3} s/GB, matching {matched:.3} s/GB, {:?}", matcher.stats());
    }
}
