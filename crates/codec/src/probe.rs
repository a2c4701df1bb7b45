//! Prediction of whether data is worth compressing.
//!
//! The better compressors spend as much time on random bytes as on others. A guess that costs
//! almost nothing saves that time. The guess is the entropy of sampled bytes. As it sees no
//! repeats, LZ4 must agree; with a high acceleration LZ4 passes over random bytes at gigabytes per
//! second, and it runs only if the entropy is high. On the 480 units of 64 KiB of
//! `fixed-output-compression.md`, section 8 (93 of them incompressible), the entropy alone was
//! wrong about one unit each way; together with LZ4, at a threshold of 7.85, 14 incompressible ones
//! were missed and no other was skipped.

use crate::{Method, lz4};

/// Length in bytes of the units that are judged.
pub const UNIT_LEN: usize = lz4::SCRATCH_LEN;
const SAMPLES: usize = 16;
const SAMPLE_LEN: usize = 256;
/// Lowest entropy of random data, in bits per byte. 4096 random bytes have about 7.95 by this
/// measure, as some values are more frequent by chance.
const ENTROPY_MIN: f64 = 7.9;

/// Returns true if `data` will not compress: every unit of 64 KiB in it looks random. False is the
/// safe answer, and the one for less than 4 KiB, which are compressed faster than judged.
pub fn is_incompressible(data: &[u8]) -> bool {
    data.len() >= SAMPLES * SAMPLE_LEN && data.chunks(UNIT_LEN).all(looks_random)
}

/// Number of bytes of a file that [`start_is_incompressible`] looks at.
pub const START_LEN: usize = 4 << 10;
/// Number of bytes below which a file is not judged.
const START_MIN_LEN: usize = 512;

/// Entropy in bits per byte from which on codes for single bytes save less than LZ4 is required to.
const START_ENTROPY_MAX: f64 = 7.5;

/// Returns true if a file should not be compressed together with others by `method`. `start` is its
/// first [`START_LEN`] bytes, or all of them. True means that LZ4 saves less than 5 % of it, and so
/// do codes for single bytes, if the method has them. LZ4 alone would exclude data of few different
/// bytes that hardly repeats: digests in hex, base64, numbers.
pub fn start_is_incompressible(start: &[u8], method: Method) -> bool {
    let saves_by_codes = || method.has_entropy_coder() && unbiased_entropy(start) < START_ENTROPY_MAX;
    // The entropy costs less than LZ4, whose table is cleared for each call.
    start.len() > START_MIN_LEN && !saves_by_codes() && !saves(start, 20, 1)
}

/// Returns the entropy of all of `data`, in bits per byte. The formula of Miller and Madow corrects
/// for little data, where missing values would make it too low.
fn unbiased_entropy(data: &[u8]) -> f64 {
    // Several tables, or equal bytes in a row would wait for each other.
    let mut tables = [[0u32; 256]; 4];
    let (fours, rest) = data.as_chunks::<4>();
    for four in fours {
        tables.iter_mut().zip(four).for_each(|(table, &byte)| table[usize::from(byte)] += 1);
    }
    rest.iter().for_each(|&byte| tables[0][usize::from(byte)] += 1);
    let counts: [u32; 256] = std::array::from_fn(|byte| tables.iter().map(|table| table[byte]).sum());
    let seen = counts.iter().filter(|&&n| n > 0).count();
    entropy_of(&counts, data.len()) + (seen as f64 - 1.0) / (2.0 * data.len() as f64 * std::f64::consts::LN_2)
}

/// Returns the entropy in bits per byte of `total` bytes, with the count of each value.
fn entropy_of(counts: &[u32; 256], total: usize) -> f64 {
    let total = total as f64;
    counts.iter().filter(|&&n| n > 0).map(|&n| f64::from(n) * (total / f64::from(n)).log2()).sum::<f64>() / total
}

/// Returns the entropy of evenly spread samples of `data`, in bits per byte: at most 8, about 7.95
/// for random bytes, and 0 for less than 4 KiB.
pub fn entropy(data: &[u8]) -> f64 {
    if data.len() < SAMPLES * SAMPLE_LEN { 0.0 } else { sampled_entropy(data) }
}

fn looks_random(unit: &[u8]) -> bool {
    // A short last unit says little: the units before it decide.
    unit.len() < SAMPLES * SAMPLE_LEN || sampled_entropy(unit) > ENTROPY_MIN && !saves(unit, 200, 8)
}

/// Returns true if LZ4 saves at least one in `share` bytes of `unit`.
fn saves(unit: &[u8], share: usize, acceleration: i32) -> bool {
    lz4::encoded_len(unit, unit.len() - unit.len() / share, acceleration).is_some()
}

/// Returns the approximate length of `data` compressed by LZ4; better compressors get about 0.6 of
/// it. Only the first 64 KiB are looked at.
pub fn estimated_len(data: &[u8]) -> usize {
    let unit = &data[..data.len().min(UNIT_LEN)];
    let len = lz4::encoded_len(unit, unit.len(), 1).unwrap_or(unit.len());
    if unit.is_empty() { 0 } else { (len as u64 * data.len() as u64 / unit.len() as u64) as usize }
}

/// Returns the entropy of evenly spread samples, in bits per byte.
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
