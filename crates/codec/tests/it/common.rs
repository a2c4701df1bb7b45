//! Seeded inputs: the same bytes in every run.
#![allow(dead_code, reason = "each test binary uses a part")]

use kiln_codec::{DecodeLimits, Decoder, Encoder, Filled, Method, Spec, Want};

/// splitmix64: small, and good enough to generate inputs.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Returns words of a small vocabulary, the first ones most often.
pub fn text(random: &mut Random, len: usize) -> Vec<u8> {
    let words: Vec<Vec<u8>> = (0..2000)
        .map(|_| {
            let letters = 2 + random.below(8);
            (0..letters).map(|_| b'a' + (random.below(26).min(random.below(26))) as u8).collect()
        })
        .collect();
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        let rank = random.below(words.len()).min(random.below(words.len())).min(random.below(words.len()));
        out.extend_from_slice(&words[rank]);
        out.push(if random.below(12) == 0 { b'\n' } else { b' ' });
    }
    out.truncate(len);
    out
}

/// Returns records of counters, small numbers and some noise.
pub fn binary(random: &mut Random, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 24);
    let mut counter = 0u32;
    while out.len() < len {
        counter += random.below(40) as u32;
        out.extend_from_slice(&counter.to_le_bytes());
        out.extend_from_slice(&(random.below(16) as u32).to_be_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&(random.next() as u16).to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Returns stretches of all kinds and lengths, so that ratios change within a pcluster.
pub fn mixed(random: &mut Random, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let stretch = 1 + random.below(40_000).min(random.below(40_000)).min(len - out.len() - 1);
        let piece = match random.below(4) {
            0 => text(random, stretch),
            1 => binary(random, stretch),
            2 => vec![random.next() as u8; stretch],
            _ => random.bytes(stretch),
        };
        out.extend_from_slice(&piece);
    }
    out
}

/// Returns named inputs of about `len` bytes.
pub fn inputs(len: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut random = Random(1);
    vec![
        ("text", text(&mut random, len)),
        ("binary", binary(&mut random, len)),
        ("zeros", vec![0; len]),
        ("random", random.bytes(len)),
        ("mixed", mixed(&mut random, len)),
    ]
}

/// Returns the fastest, the usual and some slow level of a method.
pub fn levels(method: Method) -> &'static [i32] {
    match method {
        Method::Lz4 => &[1],
        Method::Lz4hc => &[1, 9, 12],
        Method::Lzma => &[0, 6, 101],
        Method::Deflate => &[1, 6, 12],
        Method::Zstd => &[1, 3, 9, 19],
    }
}

pub fn decoder() -> Decoder {
    Decoder::new(DecodeLimits::default())
}

/// One pcluster: the length of its text, and its stream.
pub struct Packed {
    pub filled: Filled,
    pub stream: Vec<u8>,
}

/// Fills pclusters with `input`, front to back as one part. Text that does not compress is skipped,
/// one pcluster length at a time.
pub fn pack(encoder: &mut Encoder, spec: &Spec, input: &[u8]) -> Vec<Packed> {
    let mut out = vec![0; spec.pcluster_len as usize];
    let mut packed = Vec::new();
    let mut rest = input;
    encoder.reset();
    while !rest.is_empty() {
        let filled = encoder.fill(rest, &mut out).expect("encoding never fails");
        let consumed = if filled.consumed == 0 { rest.len().min(out.len()) } else { filled.consumed };
        rest = &rest[consumed..];
        packed.push(Packed { filled, stream: out[..filled.produced].to_vec() });
    }
    packed
}

/// Decodes the stream as a whole and as prefixes, and compares with `plain`.
pub fn verify(decoder: &mut Decoder, method: Method, stream: &[u8], plain: &[u8]) {
    let mut dst = vec![0xAA; plain.len()];
    decoder.decode(method.algorithm(), stream, &mut dst, Want::Whole).expect("whole");
    assert!(dst == plain, "whole: decoded bytes differ");
    for len in [0, 1, plain.len() / 3, plain.len() - 1, plain.len()] {
        let dst = &mut dst[..len];
        dst.fill(0xAA);
        decoder.decode(method.algorithm(), stream, dst, Want::Prefix).expect("prefix");
        assert!(dst == &plain[..len], "prefix of {len}: decoded bytes differ");
    }
}
