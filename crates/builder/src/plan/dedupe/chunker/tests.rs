//! Chunks against the plain algorithm, and the properties that finding duplicates relies on.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::HashSet;

const SMALL: ChunkSizes = ChunkSizes { min: 16, avg: 64, max: 256 };

/// Returns seeded bytes.
fn random(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|idx| splitmix64(splitmix64(seed) ^ (idx / 8)).to_le_bytes()[idx as usize % 8]).collect()
}

fn chunks(sizes: ChunkSizes, window: &[u8]) -> Vec<Range<usize>> {
    let mut chunks = Vec::new();
    Chunker::new(sizes).chunk(window, |chunk| chunks.push(chunk));
    chunks
}

/// Runs the plain algorithm: a hash of the last 64 bytes for each byte, a decision for each byte.
fn plain(sizes: ChunkSizes, window: &[u8]) -> Vec<Range<usize>> {
    let (mut chunks, mut start) = (Vec::new(), 0);
    for end in 1..=window.len() {
        let reach = window[..end].iter().rev().take(64).enumerate();
        let hash = reach.fold(0_u64, |hash, (age, &byte)| hash.wrapping_add(GEAR[usize::from(byte)] << age));
        let len = end - start;
        let zeros = if len < sizes.avg { sizes.avg.ilog2() + 2 } else { sizes.avg.ilog2() - 2 };
        let hit = len >= sizes.min && hash.leading_zeros() >= zeros;
        if hit || len == sizes.max || end == window.len() {
            chunks.push(start..end);
            start = end;
        }
    }
    chunks
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, rng_seed: RngSeed::Fixed(0xC41A), failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn chunks_are_those_of_the_plain_algorithm(seed: u64, len in 0..20_000_usize, alphabet in 1..=256_u32, big: bool) {
        let window: Vec<u8> = random(seed, len).iter().map(|&b| (u32::from(b) * alphabet / 256) as u8).collect();
        let sizes = if big { ChunkSizes::DEFAULT } else { SMALL };
        prop_assert_eq!(chunks(sizes, &window), plain(sizes, &window));
    }
}

#[test]
fn blocks_and_lanes_leave_no_trace() {
    for len in [BLOCK_LEN - 1, BLOCK_LEN, BLOCK_LEN + 1, 2 * BLOCK_LEN + 3] {
        let window = random(len as u64, len);
        assert_eq!(chunks(SMALL, &window), plain(SMALL, &window), "{len} bytes");
        assert_eq!(chunks(ChunkSizes::DEFAULT, &window), plain(ChunkSizes::DEFAULT, &window), "{len} bytes");
    }
}

#[test]
fn a_chunker_remembers_nothing() {
    let mut chunker = Chunker::new(ChunkSizes::DEFAULT);
    let windows: Vec<_> = (0..4).map(|seed| random(seed, 100_000 * (4 - seed as usize))).collect();
    for window in windows.iter().chain(windows.iter().rev()) {
        let mut reused = Vec::new();
        chunker.chunk(window, |chunk| reused.push(chunk));
        assert_eq!(reused, chunks(ChunkSizes::DEFAULT, window));
    }
}

#[test]
fn shifted_text_is_cut_alike() {
    let text = random(1, 1 << 20);
    let hashes = |text: &[u8]| -> HashSet<ChunkHash> {
        chunks(ChunkSizes::DEFAULT, text).into_iter().map(|chunk| ChunkHash::of(&text[chunk])).collect()
    };
    let original = hashes(&text);
    let average = text.len() / original.len();
    assert!((3500..6000).contains(&average), "{average} bytes on average");
    for shift in [1, 100, 4095, 5000] {
        let shifted = hashes(&[random(2, shift), text.clone()].concat());
        let known = shifted.intersection(&original).count();
        assert!(original.len() - known <= 8, "{known} of {} chunks are known, shift {shift}", original.len());
    }
}

/// Runs of one byte, zeros above all, would otherwise become chunks of the least length.
#[test]
fn runs_of_a_byte_become_long_chunks() {
    for byte in 0..=255 {
        let run = vec![byte; 100_000];
        let len = chunks(ChunkSizes::DEFAULT, &run).len();
        assert!(len <= 8, "{len} chunks of 100,000 bytes {byte}");
    }
}

/// Chunks in one lane, with cuts chosen on the way: a baseline for the gains of the departures.
fn one_pass(sizes: ChunkSizes, window: &[u8], mut each: impl FnMut(Range<usize>)) {
    let (mut hash, mut start, weak) = (0, 0, sizes.weak());
    while start < window.len() {
        let longest = &window[start..window.len().min(start + sizes.max)];
        let mut len = longest.len();
        for (idx, &byte) in longest.iter().enumerate() {
            hash = step(hash, byte);
            if hash <= weak && idx + 1 >= sizes.min && (idx + 1 >= sizes.avg || hash <= sizes.strong()) {
                len = idx + 1;
                break;
            }
        }
        each(start..start + len);
        start += len;
    }
}

/// Not a test: speeds, for `cargo test --release -p kiln-builder chunker -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn speed() {
    let text = random(3, 64 << 20);
    let measure = |what: &str, len: u64, chunk: &mut dyn FnMut(&[u8]) -> u32| {
        let mut best = f64::MAX;
        for _ in 0..8 {
            let start = cpu_seconds();
            std::hint::black_box(text.chunks(len as usize).map(&mut *chunk).fold(0, |a, b| a ^ b));
            best = best.min(cpu_seconds() - start);
        }
        println!("{what}: {:.2} GB/s", text.len() as f64 / best / 1e9);
    };
    let mut chunker = Chunker::new(ChunkSizes::DEFAULT);
    let mut ends = |window: &[u8]| {
        let mut sum = 0;
        chunker.chunk(window, |chunk| sum ^= chunk.end as u32);
        sum
    };
    measure("chunks", 8 << 20, &mut ends);
    measure("chunks of files of 16 KiB", 16 << 10, &mut ends);
    let mut hashes = |window: &[u8]| {
        let mut sum = 0;
        chunker.chunk(window, |chunk| sum ^= ChunkHash::of(&window[chunk]).0[0]);
        sum
    };
    measure("chunks and hashes", 8 << 20, &mut hashes);
    measure("chunks and hashes of files of 16 KiB", 16 << 10, &mut hashes);
    measure("chunks, one lane", 8 << 20, &mut |window| {
        let mut sum = 0;
        one_pass(ChunkSizes::DEFAULT, window, |chunk| sum ^= chunk.end as u32);
        sum
    });
}
