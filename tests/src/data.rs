//! Contents of files, as different as encoders see them in practice.

use crate::rng::Rng;

/// Kind of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Texture {
    /// Nothing but zeros.
    Zeros,
    /// Words and lines.
    Text,
    /// Records of small numbers.
    Binary,
    /// Noise, which no encoder compresses.
    Noise,
    /// Text and noise by turns, up to 200 KiB each.
    Mixed,
    /// A range of noise, repeated.
    Repeats,
}

impl Texture {
    /// All textures.
    pub const ALL: [Texture; 6] =
        [Texture::Zeros, Texture::Text, Texture::Binary, Texture::Noise, Texture::Mixed, Texture::Repeats];

    /// Returns `len` bytes; equal seeds give equal bytes.
    pub fn bytes(self, seed: u64, len: usize) -> Vec<u8> {
        let mut rng = Rng::new(seed);
        let mut out = Vec::with_capacity(len + 64);
        match self {
            Texture::Zeros => out.resize(len, 0),
            Texture::Text => text(&mut rng, len, &mut out),
            Texture::Binary => binary(&mut rng, len, &mut out),
            Texture::Noise => noise(&mut rng, len, &mut out),
            Texture::Mixed => mixed(&mut rng, len, &mut out),
            Texture::Repeats => repeats(&mut rng, len, &mut out),
        }
        out.truncate(len);
        out
    }
}

/// Returns `len` bytes of numbers in hexadecimal digits, of 3,000 that occur.
pub fn numbers(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        text.extend(format!("{:x} ", rng.below(3000) * 7919).bytes());
    }
    text.truncate(len);
    text
}

const WORDS: [&str; 24] = [
    "kiln",
    "clay",
    "fire",
    "the",
    "a",
    "of",
    "block",
    "cluster",
    "extent",
    "inode",
    "return",
    "let",
    "if",
    "0x1f",
    "=",
    "(self)",
    "{",
    "}",
    "// glaze",
    "once",
    "keeps its shape",
    "reads",
    "writes",
    "->",
];

/// Appends at least `len` bytes of text.
fn text(rng: &mut Rng, len: usize, out: &mut Vec<u8>) {
    let end = out.len() + len;
    while out.len() < end {
        let bits = rng.word();
        for shift in (0..60).step_by(6) {
            let choice = (bits >> shift & 63) as usize;
            match WORDS.get(choice) {
                Some(word) => out.extend_from_slice(word.as_bytes()),
                None => out.push(b'a' + (choice % 26) as u8),
            }
            out.push(if choice.is_multiple_of(11) { b'\n' } else { b' ' });
        }
    }
    out.truncate(end);
}

fn binary(rng: &mut Rng, len: usize, out: &mut Vec<u8>) {
    let end = out.len() + len;
    let mut count = rng.below(1 << 20) as u32;
    while out.len() < end {
        count = count.wrapping_add(rng.below(4) as u32);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&[0, 0, 0x48, rng.below(5) as u8]);
        out.extend_from_slice(&(rng.below(1 << 14) as u32).to_le_bytes());
        out.extend_from_slice(&[0xFF, 0x8B, 0, 0]);
    }
    out.truncate(end);
}

fn noise(rng: &mut Rng, len: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + len, 0);
    rng.fill(&mut out[start..]);
}

fn mixed(rng: &mut Rng, len: usize, out: &mut Vec<u8>) {
    while out.len() < len {
        for part in [text, noise] {
            let room = len.saturating_sub(out.len());
            part(rng, room.min(1 + rng.clone().below(200 << 10) as usize), out);
        }
    }
}

fn repeats(rng: &mut Rng, len: usize, out: &mut Vec<u8>) {
    let period = 300 + rng.below(70_000) as usize;
    noise(rng, period.min(len), out);
    while out.len() < len {
        let more = period.min(len - out.len());
        out.extend_from_within(out.len() - period..out.len() - period + more);
    }
}
