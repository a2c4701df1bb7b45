//! Whether data is worth compressing at all.
//!
//! Compressors of the better kind spend as much time on random bytes as on any: a guess that costs almost nothing saves
//! it. The entropy of sampled bytes is the guess. It sees no repeats, so that LZ4 must agree; LZ4 in a hurry passes
//! over random bytes at gigabytes per second and runs only where the entropy is high. On the 480 units of 64 KiB of
//! `fixed-output-compression.md`, section 8 (93 of them incompressible), the entropy alone was wrong about one unit each
//! way; together with LZ4, at a threshold of 7.85, 14 incompressible ones were missed and no other was skipped.

use crate::{Method, lz4};

/// What is judged at a time, in bytes.
pub const UNIT_LEN: usize = lz4::SCRATCH_LEN;
const SAMPLES: usize = 16;
const SAMPLE_LEN: usize = 256;
/// Bits per byte. 4096 random bytes have about 7.95 by this measure, since some values come up more often by chance.
const ENTROPY_MIN: f64 = 7.9;

/// True if `data` will not compress: every unit of 64 KiB in it looks random. False is the safe answer, and the one for
/// less than 4 KiB, which is tried faster than judged.
pub fn is_incompressible(data: &[u8]) -> bool {
    data.len() >= SAMPLES * SAMPLE_LEN && data.chunks(UNIT_LEN).all(looks_random)
}

/// Bytes of a file that [`start_is_incompressible`] looks at.
pub const START_LEN: usize = 4 << 10;
/// Less is not worth judging.
const START_MIN_LEN: usize = 512;

/// Bits per byte from which on codes for single bytes save less than LZ4 has to.
const START_ENTROPY_MAX: f64 = 7.5;

/// Whether a file that starts with `start` (its first [`START_LEN`] bytes, or all of them) should stay out of data that is
/// compressed together by `method`: LZ4 saves less than 5 % of it, and so do codes for single bytes, if the method has some.
/// LZ4 alone would leave out what hardly repeats anything in few different bytes: digests in hex, base64, numbers.
pub fn start_is_incompressible(start: &[u8], method: Method) -> bool {
    let saves_by_codes = || method.has_entropy_coder() && unbiased_entropy(start) < START_ENTROPY_MAX;
    start.len() > START_MIN_LEN && !saves(start, 20, 1) && !saves_by_codes()
}

/// Entropy of all of `data`, in bits per byte. Of little data the values that did not come up would make it too low, by the
/// formula of Miller and Madow.
fn unbiased_entropy(data: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    data.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    let seen = counts.iter().filter(|&&n| n > 0).count();
    entropy_of(&counts, data.len()) + (seen as f64 - 1.0) / (2.0 * data.len() as f64 * std::f64::consts::LN_2)
}

/// Entropy of `total` bytes of which there are so many of each value, in bits per byte.
fn entropy_of(counts: &[u32; 256], total: usize) -> f64 {
    let total = total as f64;
    counts.iter().filter(|&&n| n > 0).map(|&n| f64::from(n) * (total / f64::from(n)).log2()).sum::<f64>() / total
}

/// Entropy of evenly spread samples of `data`, in bits per byte: 8 at most, and about 7.95 of random bytes.
pub fn entropy(data: &[u8]) -> f64 {
    if data.len() < SAMPLES * SAMPLE_LEN { 0.0 } else { sampled_entropy(data) }
}

fn looks_random(unit: &[u8]) -> bool {
    // A short last unit says little: the units before it decide.
    unit.len() < SAMPLES * SAMPLE_LEN || sampled_entropy(unit) > ENTROPY_MIN && !saves(unit, 200, 8)
}

/// Whether LZ4 saves at least one byte in `share` of `unit`.
fn saves(unit: &[u8], share: usize, acceleration: i32) -> bool {
    lz4::encoded_len(unit, unit.len() - unit.len() / share, acceleration).is_some()
}

/// About how many bytes `data` would take compressed, by LZ4's measure: better compressors get about 0.6 of it. Of data
/// over 64 KiB only the front is looked at.
pub fn estimated_len(data: &[u8]) -> usize {
    let unit = &data[..data.len().min(UNIT_LEN)];
    let len = lz4::encoded_len(unit, unit.len(), 1).unwrap_or(unit.len());
    if unit.is_empty() { 0 } else { (len as u64 * data.len() as u64 / unit.len() as u64) as usize }
}

/// Entropy of evenly spread samples, in bits per byte.
fn sampled_entropy(unit: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    let step = (unit.len() - SAMPLE_LEN) / (SAMPLES - 1);
    for sample in 0..SAMPLES {
        for &byte in &unit[sample * step..][..SAMPLE_LEN] {
            counts[usize::from(byte)] += 1;
        }
    }
    entropy_of(&counts, SAMPLES * SAMPLE_LEN)
}
