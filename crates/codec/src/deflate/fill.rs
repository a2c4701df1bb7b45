//! Filling a buffer with one stream: parse until an estimate says that it is full, code, walk back.

use super::block::BlockCode;
use super::parse::{Level, Parser, Stop, Tokens};
use super::stream::Stream;
use super::symbols::Histogram;
use crate::Filled;
use crate::entropy::EntropyTable;

/// Number of tokens between two decisions to end a block. 2048 lose 0.2 % of ratio, 512 gain
/// nothing.
const CHUNK_TOKENS: usize = 1024;
/// Largest number of tokens in a block.
const BLOCK_TOKENS: usize = 60_000;
/// Bits that a new block must save at least.
const SPLIT_GAIN: f64 = 100.0;
/// Overshoot: parsing goes on until the estimate exceeds the room by this fraction and some bits.
const OVERSHOOT: f64 = 0.002;
const OVERSHOOT_BITS: f64 = 24.0;
/// Least number of input bytes between two estimates.
const STEP_MIN: usize = 48;
/// Input bytes per output byte, before anything is known.
const RATIO_FIRST: f64 = 2.5;
/// Highest ratio expected of a pcluster: text after a run of zeros seldom is another run.
const RATIO_MAX: f64 = 16.0;
/// Least number of tokens for which an estimate is compared with the result.
const CALIBRATION_TOKENS: usize = 256;

/// Filler of pclusters, with a memory of the last one that helps to fill the next one.
pub(super) struct Filler {
    parser: Parser,
    tokens: Tokens,
    entropy: EntropyTable,
    /// Input bytes per output byte of the previous pcluster.
    ratio: f64,
    /// Real size of blocks divided by their estimate.
    calibration: f64,
}

/// The unfinished block, without the recent tokens, whose chunk is not complete.
struct OpenBlock {
    histogram: Histogram,
    /// Number of its tokens.
    tokens: usize,
    /// Range of its text in the input.
    start: usize,
    end: usize,
}

impl OpenBlock {
    fn new(at: usize) -> OpenBlock {
        OpenBlock { histogram: Histogram::EMPTY, tokens: 0, start: at, end: at }
    }
}

impl Filler {
    pub(super) fn new(level: Level, window_len: usize) -> Self {
        let (parser, tokens, entropy) = (Parser::new(level, window_len), Tokens::default(), EntropyTable::new());
        Filler { parser, tokens, entropy, ratio: RATIO_FIRST, calibration: 1.0 }
    }

    pub(super) fn reset(&mut self) {
        (self.ratio, self.calibration) = (RATIO_FIRST, 1.0);
    }

    /// Fills `out` with a prefix of `input`.
    pub(super) fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Filled {
        let room = out.len();
        let goal = (room * 8) as f64 * (1.0 + OVERSHOOT) + OVERSHOOT_BITS;
        let expected = ((room as f64 * self.ratio) as usize).min(input.len());
        self.parser.start(expected);
        self.tokens.clear();
        let mut stream = Stream::new(out);
        let mut open = OpenBlock::new(0);
        let (mut at, mut checkpoint, mut calibration) = (0, expected * 7 / 10, self.calibration);
        let mut full = None;
        while at < input.len() {
            let stop = Stop { at: checkpoint.max(at + 1), tokens: open.tokens + CHUNK_TOKENS };
            at = self.parser.parse(input, at, stop, &mut self.tokens);
            if self.tokens.all.len() >= stop.tokens && !self.end_chunk(input, at, &mut open, &mut stream) {
                at = open.end;
                break;
            }
            let estimate = self.estimate([&open.histogram, &self.tokens.recent]);
            let mut bits = stream.bit_len() as f64 + estimate * calibration;
            if bits >= goal {
                let code = self.code(&open);
                if code.bits > stream.rest() {
                    full = Some(code);
                    break;
                }
                // Not yet full: this text is coded better than the text before.
                bits = (stream.bit_len() + code.bits) as f64;
                calibration = code.bits as f64 / estimate;
            }
            // The limit is for much denser text, as after zeros.
            checkpoint = at + step(bits, goal, at).min(2 * room).max(STEP_MIN);
        }
        let code = full.unwrap_or_else(|| self.code(&open));
        self.calibrate(&code, &open);
        let consumed = open.start + stream.push_prefix(&code, &self.tokens.all, &input[open.start..at]);
        let produced = stream.finish();
        if produced == 0 {
            return Filled::default();
        }
        if consumed < input.len() {
            self.ratio = (consumed as f64 / produced as f64).clamp(1.0, RATIO_MAX);
        }
        Filled { consumed, produced }
    }

    /// Adds the recent tokens, which end at `at`, to the open block, or to a new one if that is
    /// smaller. Returns false if the block that ends in that case does not fit: it stays open, and
    /// the recent tokens are dropped.
    fn end_chunk(&mut self, input: &[u8], at: usize, open: &mut OpenBlock, stream: &mut Stream<'_>) -> bool {
        if self.splits(open) {
            let code = BlockCode::new(&open.histogram);
            let (tokens, text) = (&self.tokens.all[..open.tokens], &input[open.start..open.end]);
            if !stream.push(&code, tokens, text) {
                self.tokens.all.truncate(open.tokens);
                self.tokens.recent = Histogram::EMPTY;
                return false;
            }
            self.tokens.all.drain(..open.tokens);
            *open = OpenBlock::new(open.end);
        }
        open.histogram.merge(&self.tokens.recent);
        self.tokens.recent = Histogram::EMPTY;
        (open.tokens, open.end) = (self.tokens.all.len(), at);
        true
    }

    /// Returns true if the open block should end before the recent tokens.
    fn splits(&self, open: &OpenBlock) -> bool {
        if open.tokens == 0 {
            return false;
        }
        let (before, recent) = (&open.histogram, &self.tokens.recent);
        open.tokens > BLOCK_TOKENS
            || self.estimate([before]) + self.estimate([recent]) + SPLIT_GAIN < self.estimate([before, recent])
    }

    /// Returns the estimated bits of a block of the tokens counted in these histograms. The factors
    /// were found by experiment.
    fn estimate<const N: usize>(&self, histograms: [&Histogram; N]) -> f64 {
        let sum = |counts: [&[u32]; N], i: usize| counts.iter().map(|counts| counts[i]).sum::<u32>();
        let (litlen, dist) = (histograms.map(|h| &h.litlen[..]), histograms.map(|h| &h.dist[..]));
        let litlen = self.entropy.of((0..286).map(|i| sum(litlen, i)));
        let dist = self.entropy.of((0..30).map(|i| sum(dist, i)));
        let extra: usize = histograms.iter().map(|h| h.extra_bits()).sum();
        let preamble = 60.0 + 3.4 * f64::from(litlen.distinct + dist.distinct);
        (litlen.bits + dist.bits) * 1.004 + extra as f64 + preamble
    }

    /// Returns the codes for the open block with the recent tokens.
    fn code(&self, open: &OpenBlock) -> BlockCode {
        let mut histogram = open.histogram.clone();
        histogram.merge(&self.tokens.recent);
        BlockCode::new(&histogram)
    }

    /// Adjusts the calibration by the error of the estimate.
    fn calibrate(&mut self, code: &BlockCode, open: &OpenBlock) {
        if self.tokens.all.len() >= CALIBRATION_TOKENS {
            let error = code.bits as f64 / self.estimate([&open.histogram, &self.tokens.recent]);
            self.calibration += 0.3 * (error.clamp(0.9, 1.1) - self.calibration);
        }
    }
}

/// Returns the bytes of text that should bring the output just past `goal`. The first `at` bytes
/// took `bits`.
fn step(bits: f64, goal: f64, at: usize) -> usize {
    let missing = goal * (1.0 + OVERSHOOT / 2.0) - bits;
    // Straight on, but less far while much is missing: the following text may be denser.
    let caution = if missing > goal / 25.0 { 0.8 } else { 1.0 };
    (missing / bits * at as f64 * caution) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deflate::symbols::{Token, WINDOW_LEN};

    fn text(len: usize) -> Vec<u8> {
        let words = ["kiln ", "fires ", "clay ", "once\n", "after ", "that, ", "it ", "keeps ", "its ", "shape. "];
        let mut state = 1u32;
        let mut out = Vec::new();
        while out.len() < len {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            out.extend_from_slice(words[(state >> 24) as usize % words.len()].as_bytes());
            out.extend_from_slice((state >> 20).to_string().as_bytes());
        }
        out
    }

    /// Reference implementation for one block: makes codes for every number of tokens.
    fn naive(level: Level, input: &[u8], room: usize) -> usize {
        let (mut parser, mut tokens) = (Parser::new(level, WINDOW_LEN), Tokens::default());
        parser.start(input.len());
        let stop = Stop { at: input.len(), tokens: usize::MAX / 8 };
        parse_all(&mut parser, input, stop, &mut tokens);
        let (mut histogram, mut consumed, mut best) = (Histogram::EMPTY, 0, 0);
        for &token in &tokens.all {
            count(&mut histogram, token);
            consumed += token.len();
            if BlockCode::new(&histogram).bits <= 8 * room {
                best = consumed;
            }
        }
        best
    }

    fn parse_all(parser: &mut Parser, input: &[u8], stop: Stop, tokens: &mut Tokens) {
        let mut at = 0;
        while at < input.len() {
            let stop = Stop { tokens: tokens.all.len() + 1000, ..stop };
            at = parser.parse(input, at, stop, tokens);
        }
    }

    fn count(histogram: &mut Histogram, token: Token) {
        match token.litlen() {
            literal @ 0..256 => histogram.add_literal(literal as u8),
            _ => histogram.add_match(token),
        }
    }

    #[test]
    fn extents_are_nearly_as_long_as_the_naive_ones() {
        let input = text(40_000);
        for level in [1, 6, 9] {
            let level = Level::new(level).unwrap();
            let mut filler = Filler::new(level, WINDOW_LEN);
            for room in [300, 1000, 4096] {
                filler.reset();
                let mut out = vec![0; room];
                let filled = filler.fill(&input, &mut out);
                let naive = naive(level, &input[..filled.consumed * 5 / 4], room);
                assert!(filled.consumed * 1000 >= naive * 985, "{room}: {filled:?}, naive {naive}");
                assert!(filled.produced + 4 >= room, "{room}: {filled:?}");
            }
        }
    }

    /// Zeros, then noise: the length that the zeros suggest is far too long, and must not be parsed
    /// in one go.
    #[test]
    fn overshoot_is_bounded() {
        let mut input = vec![0; 3 << 20];
        let mut state = 1u64;
        input.extend((0..2 << 20).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        }));
        let mut filler = Filler::new(Level::new(6).unwrap(), WINDOW_LEN);
        let room = 16 << 10;
        let filled = filler.fill(&input, &mut vec![0; room]);
        assert!(filled.consumed > 3 << 20);
        assert!(filler.tokens.all.len() < 64 << 10, "{} tokens", filler.tokens.all.len());
    }
}
