//! The literals of a block: RFC 8878, sections 3.1.1.3.1 and 4.2.

use super::fse::Distribution;
use crate::bits::BitWriter;
use crate::huffman;
use crate::words::for_processor;

/// Longest code of a literal in bits.
const CODE_LEN_MAX: usize = 11;
/// Log of the largest table for the weights: `2^6` states.
const WEIGHTS_LOG_MAX: u32 = 6;
/// Largest number of weights that can be stored uncoded, in 4 bits each.
const PLAIN_WEIGHTS_MAX: usize = 128;
/// Number of literals from which on they are in four streams.
const FOUR_STREAMS_MIN: usize = 1024;
/// Longest header of a section in bytes: its kind and two lengths.
const HEADER_LEN_MAX: usize = 5;

/// Coding of the literals of a block.
pub(super) enum LiteralCode {
    /// Not coded.
    Plain,
    /// One byte: all literals are equal.
    Same,
    Huffman(Box<HuffmanCode>),
}

pub(super) struct HuffmanCode {
    lens: [u8; 256],
    /// Code of each literal above its length in 8 bits, so that one load gives both.
    codes: [u32; 256],
    /// Description of the code.
    tree: [u8; PLAIN_WEIGHTS_MAX],
    tree_len: usize,
}

impl LiteralCode {
    /// Returns the best coding for `count` literals with these counts, and its approximate length
    /// in bytes.
    pub(super) fn new(counts: &[u32; 256], count: usize) -> (LiteralCode, usize) {
        let plain = (LiteralCode::Plain, plain_header_len(count) + count);
        if counts.iter().any(|&n| n as usize == count) && count > 2 {
            return (LiteralCode::Same, plain_header_len(count) + 1);
        }
        let mut code = Box::new(HuffmanCode { lens: [0; 256], codes: [0; 256], tree: [0; _], tree_len: 0 });
        huffman::code_lens(counts, CODE_LEN_MAX, &mut code.lens);
        let bits: usize = counts.iter().zip(&code.lens).map(|(&n, &len)| n as usize * usize::from(len)).sum();
        let streams = if count < FOUR_STREAMS_MIN { 1 } else { 6 + 4 };
        if bits / 8 + streams + HEADER_LEN_MAX >= plain.1 || !code.describe() {
            return plain;
        }
        let len = HEADER_LEN_MAX + code.tree_len + streams + bits / 8;
        if len >= plain.1 { plain } else { (LiteralCode::Huffman(code), len) }
    }

    /// Returns the bits of a literal.
    pub(super) fn bits(&self, literal: u8) -> u32 {
        match self {
            LiteralCode::Plain => 8,
            LiteralCode::Same => 0,
            LiteralCode::Huffman(code) => code.lens[usize::from(literal)].into(),
        }
    }

    /// Writes the section to `out`, which must have room for the literals and 16 bytes. Returns its
    /// length.
    pub(super) fn write(&self, literals: &[u8], out: &mut [u8]) -> usize {
        let plain_len = plain_header_len(literals.len()) + literals.len();
        match self {
            LiteralCode::Huffman(code) => match code.write(literals, out) {
                len if len < plain_len => len,
                _ => write_plain(literals, out), // only few of the literals for which the code was made
            },
            LiteralCode::Same if literals.len() > 2 => {
                let header_len = write_header(1, literals.len(), out);
                out[header_len] = literals[0];
                header_len + 1
            }
            _ => write_plain(literals, out),
        }
    }
}

fn plain_header_len(count: usize) -> usize {
    match count {
        0..32 => 1,
        32..4096 => 2,
        _ => 3,
    }
}

/// Writes the header of a section without a code, and returns its length.
fn write_header(kind: usize, count: usize, out: &mut [u8]) -> usize {
    let len = plain_header_len(count);
    let word = match len {
        1 => kind | count << 3,
        2 => kind | 1 << 2 | count << 4,
        _ => kind | 3 << 2 | count << 4,
    };
    out[..len].copy_from_slice(&word.to_le_bytes()[..len]);
    len
}

fn write_plain(literals: &[u8], out: &mut [u8]) -> usize {
    let header_len = write_header(0, literals.len(), out);
    out[header_len..][..literals.len()].copy_from_slice(literals);
    header_len + literals.len()
}

impl HuffmanCode {
    /// Assigns the codes and describes them: section 4.2.1. Returns false if that is impossible.
    fn describe(&mut self) -> bool {
        let longest = self.lens.iter().copied().max().unwrap_or(0);
        // The longest codes come first.
        let mut counts = [0u16; CODE_LEN_MAX + 2];
        self.lens.iter().for_each(|&len| counts[usize::from(len)] += 1);
        let mut next = [0u16; CODE_LEN_MAX + 2];
        for len in (1..usize::from(longest)).rev() {
            next[len] = (next[len + 1] + counts[len + 1]) >> 1;
        }
        let mut weights = [0u8; 256];
        let mut last = 0;
        for (symbol, &len) in self.lens.iter().enumerate().filter(|(_, len)| **len > 0) {
            self.codes[symbol] = u32::from(next[usize::from(len)]) << 8 | u32::from(len);
            next[usize::from(len)] += 1;
            weights[symbol] = longest + 1 - len;
            last = symbol;
        }
        // The weight of the last symbol follows from the others.
        let weights = &weights[..last];
        match coded_weights(weights, &mut self.tree[1..])
            .filter(|len| *len < last.div_ceil(2) || last > PLAIN_WEIGHTS_MAX)
        {
            Some(len) => {
                self.tree[0] = len as u8;
                self.tree_len = len + 1;
            }
            None if last <= PLAIN_WEIGHTS_MAX => {
                self.tree[0] = (last + 127) as u8;
                for (byte, pair) in self.tree[1..].iter_mut().zip(weights.chunks(2)) {
                    *byte = pair[0] << 4 | pair.get(1).unwrap_or(&0);
                }
                self.tree_len = last.div_ceil(2) + 1;
            }
            None => return false,
        }
        true
    }

    fn write(&self, literals: &[u8], out: &mut [u8]) -> usize {
        let count = literals.len();
        let (header_len, format) = match count {
            0..FOUR_STREAMS_MIN => (3, 0),
            FOUR_STREAMS_MIN..0x4000 => (4, 2),
            _ => (5, 3),
        };
        let room = out.len();
        let mut end = header_len;
        out[end..][..self.tree_len].copy_from_slice(&self.tree[..self.tree_len]);
        end += self.tree_len;
        if format == 0 {
            end += self.write_stream(literals, &mut out[end..]);
        } else {
            let jumps = end;
            end += 6;
            for (i, stream) in literals.chunks(count.div_ceil(4)).enumerate() {
                let len = self.write_stream(stream, &mut out[end..room]);
                end += len;
                if i < 3 {
                    out[jumps + 2 * i..][..2].copy_from_slice(&(len as u16).to_le_bytes());
                }
            }
        }
        // Lengths have 10, 14 or 18 bits. A length that does not fit belongs to a section that is
        // longer than the literals.
        let (len, bits) = (end - header_len, [10, 10, 14, 18][format]);
        let word = 2 | (format as u64) << 2 | (count as u64) << 4 | (len as u64) << (4 + bits);
        out[..header_len].copy_from_slice(&word.to_le_bytes()[..header_len]);
        end
    }

    /// Writes the last literal first, as decoders start at the end. Returns the length in bytes.
    fn write_stream(&self, literals: &[u8], out: &mut [u8]) -> usize {
        for_processor!(
            HuffmanCode::write_stream_now => (
                self => code: &HuffmanCode,
                literals => literals: &[u8],
                out => out: &mut [u8]
            ) -> usize
        )
    }

    #[inline(always)]
    fn write_stream_now(&self, literals: &[u8], out: &mut [u8]) -> usize {
        const AT_ONCE: usize = BitWriter::PUT_MAX as usize / CODE_LEN_MAX;
        let mut writer = BitWriter::new(out);
        let (first, chunks) = literals.as_rchunks::<AT_ONCE>();
        for chunk in chunks.iter().rev() {
            let (mut bits, mut count) = (0, 0u32);
            for &literal in chunk.iter().rev() {
                let code = self.codes[usize::from(literal)];
                // The lowest bits of the sum are that of the lengths.
                bits |= u64::from(code >> 8) << (count % u64::BITS);
                count = count.wrapping_add(code);
            }
            writer.put(bits, count % u64::BITS);
        }
        for &literal in first.iter().rev() {
            let code = self.codes[usize::from(literal)];
            writer.put((code >> 8).into(), code & 0xFF);
        }
        writer.put(1, 1);
        writer.finish()
    }
}

/// Writes the weights, coded by two states that take turns, with the first for even indexes:
/// section 4.2.1.2. Returns their length, or `None` if that is impossible or does not fit in `out`.
fn coded_weights(weights: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut counts = [0u32; CODE_LEN_MAX + 2];
    weights.iter().for_each(|&weight| counts[usize::from(weight)] += 1);
    if weights.len() < 2 || counts.iter().filter(|&&n| n > 0).count() < 2 || counts.iter().all(|&n| n <= 1) {
        return None;
    }
    let distribution = Distribution::of(&counts, WEIGHTS_LOG_MAX);
    let table = distribution.table();
    let mut bytes = [0; 2 * PLAIN_WEIGHTS_MAX];
    let mut writer = BitWriter::new(&mut bytes);
    distribution.write(&mut writer);
    let (rest, last) = weights.split_at(weights.len() - 2);
    // The states of the last two weights are free. The decoder must run out of bits after the first
    // of them.
    let mut states = [table.start(last[0]), table.start(last[1])];
    for (i, &weight) in rest.iter().enumerate().rev() {
        let (bits, count) = table.code(&mut states[(rest.len() - i) % 2], weight);
        writer.put(bits, count);
    }
    // `states[0]` is that of the last weight but one, whose index is even if the number of weights
    // is.
    let [first, second] = if weights.len().is_multiple_of(2) { states } else { [states[1], states[0]] };
    table.finish(second, &mut writer);
    table.finish(first, &mut writer);
    writer.put(1, 1);
    let len = writer.finish();
    if len >= PLAIN_WEIGHTS_MAX {
        return None;
    }
    out.get_mut(..len)?.copy_from_slice(&bytes[..len]);
    Some(len)
}
