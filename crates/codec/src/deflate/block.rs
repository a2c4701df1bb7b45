//! One block: its kind (the smallest of three), as many of its tokens as fit, and its bits.

use super::symbols::{DIST_COUNT, END_OF_BLOCK, Histogram, LEN_TABLE, LITLEN_COUNT, Token, dist_extra_bits};
use crate::bits::BitWriter;
use crate::huffman;

/// BFINAL and BTYPE.
const HEADER_BITS: usize = 3;
/// Order in which the code lengths of the code length alphabet are written.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const CODE_LEN_MAX: usize = 15;
const PRECODE_LEN_MAX: usize = 7;

/// Codes for the tokens of one block.
pub(super) struct BlockCode {
    litlen_lens: [u8; LITLEN_COUNT],
    dist_lens: [u8; 32],
    /// `None` for the static codes.
    preamble: Option<Preamble>,
    /// Length in bits of the block with all its tokens.
    pub(super) bits: usize,
}

impl BlockCode {
    /// Returns the better of the dynamic and the static codes for tokens with these counts.
    pub(super) fn new(tokens: &Histogram) -> BlockCode {
        let mut counts = tokens.clone();
        counts.litlen[END_OF_BLOCK] = 1;
        let mut code = BlockCode::dynamic(&counts);
        code.measure(&counts);
        // Static codes only win if the preamble is a large part of the block.
        let preamble_bits = code.preamble.as_ref().map_or(0, |preamble| preamble.bits);
        if code.bits < 8 * preamble_bits {
            let mut fixed = BlockCode::fixed();
            fixed.measure(&counts);
            if fixed.bits < code.bits {
                return fixed;
            }
        }
        code
    }

    fn dynamic(counts: &Histogram) -> BlockCode {
        let mut code = BlockCode { litlen_lens: [0; LITLEN_COUNT], dist_lens: [0; 32], preamble: None, bits: 0 };
        huffman::code_lens(&counts.litlen[..286], CODE_LEN_MAX, &mut code.litlen_lens[..286]);
        huffman::code_lens(&counts.dist[..30], CODE_LEN_MAX, &mut code.dist_lens[..30]);
        code.preamble = Some(Preamble::new(&code.litlen_lens[..286], &code.dist_lens[..30]));
        code
    }

    fn fixed() -> BlockCode {
        let mut litlen_lens = [8; LITLEN_COUNT];
        litlen_lens[144..256].fill(9);
        litlen_lens[256..280].fill(7);
        let mut dist_lens = [5; 32];
        dist_lens[30..].fill(0); // never used; all others have their places in the canonical order
        BlockCode { litlen_lens, dist_lens, preamble: None, bits: 0 }
    }

    fn measure(&mut self, counts: &Histogram) {
        let sum = |counts: &[u32], lens: &[u8]| -> usize {
            counts.iter().zip(lens).map(|(&n, &len)| n as usize * usize::from(len)).sum()
        };
        let preamble_bits = self.preamble.as_ref().map_or(0, |preamble| preamble.bits);
        self.bits = HEADER_BITS
            + preamble_bits
            + sum(&counts.litlen, &self.litlen_lens)
            + sum(&counts.dist, &self.dist_lens)
            + counts.extra_bits();
    }

    /// Returns the length in bits of a token, which must be one of those that the codes were made
    /// for.
    pub(super) fn token_bits(&self, token: Token) -> usize {
        let litlen = match token.litlen() {
            literal @ 0..256 => self.litlen_lens[literal],
            long => {
                let len = LEN_TABLE[long - 256];
                self.litlen_lens[usize::from(len.symbol)] + len.extra_bits
            }
        };
        let dist = token.dist_symbol();
        usize::from(litlen) + usize::from(self.dist_lens[dist]) + dist_extra_bits(dist) as usize
    }

    /// Writes a block of these tokens, not marked as the last one. There must be enough room.
    pub(super) fn write(&self, tokens: &[Token], out: &mut BitWriter<'_>) {
        match &self.preamble {
            Some(preamble) => {
                out.put(0b100, HEADER_BITS as u32);
                preamble.write(out);
            }
            None => out.put(0b010, HEADER_BITS as u32),
        }
        let codes = Codes::new(&self.litlen_lens, &self.dist_lens);
        for &token in tokens {
            let litlen = codes.litlen[token.litlen()];
            let dist = codes.dist[token.dist_symbol()];
            let bits = litlen.bits() | (dist.bits() | token.dist_extra() << dist.extra_at()) << litlen.len();
            out.put(bits, litlen.len() + dist.len());
        }
        out.put(codes.end_of_block.bits(), codes.end_of_block.len());
    }
}

/// Bits of a code and their number in one word: at most 20 bits, the position of a distance's extra
/// bits in bits 20 to 23, the number above.
#[derive(Clone, Copy, Default)]
struct Code(u32);

impl Code {
    fn new(code: u16, code_len: u8, extra: u8, extra_bits: u8) -> Code {
        let bits = u32::from(code) | u32::from(extra) << code_len;
        Code(bits | u32::from(code_len) << 20 | u32::from(code_len + extra_bits) << 24)
    }

    #[inline]
    fn bits(self) -> u64 {
        u64::from(self.0 & 0xF_FFFF)
    }

    #[inline]
    fn extra_at(self) -> u32 {
        self.0 >> 20 & 15
    }

    #[inline]
    fn len(self) -> u32 {
        self.0 >> 24
    }
}

/// Codes to write for each part of a token.
struct Codes {
    litlen: [Code; 512],
    dist: [Code; 32],
    end_of_block: Code,
}

impl Codes {
    fn new(litlen_lens: &[u8; LITLEN_COUNT], dist_lens: &[u8; 32]) -> Codes {
        let mut codes = [0; LITLEN_COUNT];
        codes.iter_mut().zip(huffman::codes(litlen_lens)).for_each(|(slot, code)| *slot = code);
        let plain = |symbol: usize| Code::new(codes[symbol], litlen_lens[symbol], 0, 0);
        let mut litlen = [Code::default(); 512];
        for (literal, code) in litlen[..256].iter_mut().enumerate() {
            *code = plain(literal);
        }
        for (code, len) in litlen[256..].iter_mut().zip(&LEN_TABLE) {
            let symbol = usize::from(len.symbol);
            *code = Code::new(codes[symbol], litlen_lens[symbol], len.extra, len.extra_bits);
        }
        let mut dist = [Code::default(); 32];
        for (symbol, code) in huffman::codes(dist_lens).enumerate().take(DIST_COUNT) {
            dist[symbol] = Code::new(code, dist_lens[symbol], 0, dist_extra_bits(symbol) as u8);
        }
        Codes { litlen, dist, end_of_block: plain(END_OF_BLOCK) }
    }
}

/// Code lengths of a dynamic block, as they are written in front of it.
struct Preamble {
    litlen_count: usize,
    dist_count: usize,
    runs: Vec<LenRun>,
    lens: [u8; 19],
    /// Number of `lens` that are written, in [`ORDER`].
    lens_count: usize,
    bits: usize,
}

/// Code length, or a repetition of one (symbols 16 to 18), with its extra bits.
#[derive(Clone, Copy)]
struct LenRun {
    symbol: u8,
    extra: u8,
}

/// Returns the number of extra bits in the code length alphabet.
fn run_extra_bits(symbol: u8) -> u32 {
    match symbol {
        16 => 2,
        17 => 3,
        18 => 7,
        _ => 0,
    }
}

impl Preamble {
    fn new(litlen_lens: &[u8], dist_lens: &[u8]) -> Preamble {
        let used = |lens: &[u8], min: usize| lens.iter().rposition(|&len| len > 0).map_or(min, |at| min.max(at + 1));
        let (litlen_count, dist_count) = (used(litlen_lens, 257), used(dist_lens, 1));
        let mut runs = Vec::with_capacity(litlen_count + dist_count);
        let mut all = [0; LITLEN_COUNT + 32];
        all[..litlen_count].copy_from_slice(&litlen_lens[..litlen_count]);
        all[litlen_count..][..dist_count].copy_from_slice(&dist_lens[..dist_count]);
        for same in all[..litlen_count + dist_count].chunk_by(|a, b| a == b) {
            push_runs(same[0], same.len(), &mut runs);
        }
        let mut counts = [0; 19];
        runs.iter().for_each(|run| counts[usize::from(run.symbol)] += 1);
        let mut lens = [0; 19];
        huffman::code_lens(&counts, PRECODE_LEN_MAX, &mut lens);
        let lens_count = ORDER.iter().rposition(|&symbol| lens[symbol] > 0).map_or(4, |at| (at + 1).max(4));
        let run_bits = |run: &LenRun| u32::from(lens[usize::from(run.symbol)]) + run_extra_bits(run.symbol);
        let bits = 5 + 5 + 4 + 3 * lens_count + runs.iter().map(run_bits).sum::<u32>() as usize;
        Preamble { litlen_count, dist_count, runs, lens, lens_count, bits }
    }

    fn write(&self, out: &mut BitWriter<'_>) {
        out.put(self.litlen_count as u64 - 257, 5);
        out.put(self.dist_count as u64 - 1, 5);
        out.put(self.lens_count as u64 - 4, 4);
        for &symbol in &ORDER[..self.lens_count] {
            out.put(self.lens[symbol].into(), 3);
        }
        let mut codes = [0; 19];
        codes.iter_mut().zip(huffman::codes(&self.lens)).for_each(|(slot, code)| *slot = code);
        for run in &self.runs {
            let symbol = usize::from(run.symbol);
            out.put(codes[symbol].into(), self.lens[symbol].into());
            out.put(run.extra.into(), run_extra_bits(run.symbol));
        }
    }
}

/// Appends `count` times the code length `len`.
fn push_runs(len: u8, mut count: usize, runs: &mut Vec<LenRun>) {
    let mut push = |symbol, extra: usize| runs.push(LenRun { symbol, extra: extra as u8 });
    if len == 0 {
        while count >= 11 {
            let n = count.min(138);
            push(18, n - 11);
            count -= n;
        }
        if count >= 3 {
            push(17, count - 3);
            count = 0;
        }
    } else {
        push(len, 0);
        count -= 1;
        while count >= 3 {
            // Never leave 1 or 2 that a shorter run could have included.
            let n = if count == 7 { 4 } else { count.min(6) };
            push(16, n - 3);
            count -= n;
        }
    }
    (0..count).for_each(|_| push(len, 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeLimits, Decoder, Want};
    use kiln_format::Algorithm;
    use proptest::prelude::*;

    fn histogram(tokens: &[Token]) -> Histogram {
        let mut histogram = Histogram::EMPTY;
        for &token in tokens {
            match token.litlen() {
                literal @ 0..256 => histogram.add_literal(literal as u8),
                _ => histogram.add_match(token),
            }
        }
        histogram
    }

    /// Generates literals, and matches that point to existing text.
    fn any_tokens() -> impl Strategy<Value = Vec<(u8, usize, usize)>> {
        let token = (any::<u8>(), prop_oneof![3 => Just(0), 1 => 3usize..=258], 1usize..=32768);
        prop::collection::vec(token, 1..3000)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// The measured size is the written size, and the block decodes to its text.
        #[test]
        fn blocks_decode(wanted in any_tokens()) {
            let (mut tokens, mut text) = (Vec::new(), Vec::new());
            for (byte, len, dist) in wanted {
                if len == 0 || text.len() < dist {
                    tokens.push(Token::literal(byte));
                    text.push(byte);
                } else {
                    tokens.push(Token::of_match(len, dist));
                    (0..len).for_each(|_| text.push(text[text.len() - dist]));
                }
            }
            let counts = histogram(&tokens);
            let code = BlockCode::new(&counts);
            let mut out = vec![0; code.bits.div_ceil(8)];
            let mut writer = BitWriter::new(&mut out);
            code.write(&tokens, &mut writer);
            prop_assert_eq!(writer.bit_len(), code.bits);
            writer.set(0);
            writer.finish();
            let mut plain = vec![0; text.len()];
            let mut decoder = Decoder::new(DecodeLimits::default());
            decoder.decode(Algorithm::Deflate, &out, &mut plain, Want::Whole).unwrap();
            prop_assert!(plain == text);
            // The sum over the tokens is the same number of bits.
            let empty = code.bits - tokens.iter().map(|&token| code.token_bits(token)).sum::<usize>();
            let preamble_bits = code.preamble.as_ref().map_or(0, |preamble| preamble.bits);
            prop_assert_eq!(empty, HEADER_BITS + preamble_bits + usize::from(code.litlen_lens[END_OF_BLOCK]));
        }

        #[test]
        fn runs_say_all_lens(lens in prop::collection::vec((0u8..4, 1usize..150), 1..20)) {
            let mut runs = Vec::new();
            lens.iter().for_each(|&(len, count)| push_runs(len, count, &mut runs));
            let mut said = Vec::new();
            for run in runs {
                let extra = usize::from(run.extra);
                prop_assert!(extra < 1 << run_extra_bits(run.symbol));
                match run.symbol {
                    16 => (0..extra + 3).for_each(|_| said.push(said[said.len() - 1])),
                    17 => said.resize(said.len() + extra + 3, 0),
                    18 => said.resize(said.len() + extra + 11, 0),
                    len => said.push(len),
                }
            }
            let want: Vec<u8> = lens.iter().flat_map(|&(len, count)| vec![len; count]).collect();
            prop_assert_eq!(said, want);
        }
    }

    #[test]
    fn few_tokens_take_static_codes() {
        let few = BlockCode::new(&histogram(&[Token::literal(b'a'), Token::of_match(9, 1)]));
        assert!(few.preamble.is_none());
        assert_eq!(few.bits, 3 + 8 + 7 + 5 + 7);
        let many = BlockCode::new(&histogram(&[Token::literal(b'a'); 1000]));
        assert!(many.preamble.is_some() && many.bits < 1200);
    }
}
