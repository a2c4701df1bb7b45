//! Filling a buffer with one frame: parse until an estimate says that it is full, compute codes,
//! walk back.

use super::BLOCK_LEN;
use super::block::BlockCode;
use super::codes::{self, Counts, Recent};
use super::frame::{BlockTokens, Frame};
use super::matches::Matcher;
use super::parse::Parse;
use super::rows::RowMatcher;
use super::tokens::{Cursor, Tokens, Until};
use crate::entropy::EntropyTable;
use crate::{CodecError, Filled, Spec};

/// Bytes of text between two decisions to end a block. 4 KiB gain nothing more.
const CHUNK_LEN: usize = 16 << 10;
/// Bytes that a new block must save at least.
const SPLIT_GAIN: f64 = 60.0;
/// Overshoot: parsing goes on until the estimate exceeds the room by this fraction and some bytes.
const OVERSHOOT: f64 = 0.002;
const OVERSHOOT_LEN: f64 = 8.0;
/// Least number of input bytes between two estimates.
const STEP_MIN: usize = 64;
/// Input bytes per output byte, before anything is known.
const RATIO_FIRST: f64 = 2.5;
/// Highest ratio expected of a pcluster: text after a run of zeros seldom is another run.
const RATIO_MAX: f64 = 16.0;
/// Least number of sequences for which an estimate is compared with the result.
const CALIBRATION_SEQUENCES: u32 = 256;

/// Filler of pclusters, with a memory of the last one that helps to fill the next one.
pub(super) struct Filler {
    window_log: u8,
    finder: Finder,
    tokens: Tokens,
    entropy: EntropyTable,
    scratch: Vec<u8>,
    /// Input bytes per output byte of the previous pcluster.
    ratio: f64,
    /// Real size of blocks divided by their estimate.
    calibration: f64,
}

/// Match finder.
enum Finder {
    Quick(Matcher),
    Thorough(RowMatcher),
    Library(Parse),
}

/// The unfinished block, without its header.
struct OpenBlock {
    /// Counts of its complete chunks.
    before: Counts,
    /// Counts of the tokens since the last complete chunk.
    recent: Counts,
    /// Start of the block in the input.
    start: usize,
    /// Ends of its complete chunks in the input and in the tokens: after a match.
    end: usize,
    literals: usize,
    sequences: usize,
    /// Position at which the recent tokens make a chunk.
    chunk_end: usize,
    /// Recent offsets before the block, and after its complete chunks.
    offsets: Recent,
    end_offsets: Recent,
}

impl OpenBlock {
    fn new(start: usize, offsets: Recent) -> OpenBlock {
        let (before, recent, end_offsets) = (Counts::NONE, Counts::NONE, offsets);
        let chunk_end = start + CHUNK_LEN;
        OpenBlock { before, recent, start, end: start, literals: 0, sequences: 0, chunk_end, offsets, end_offsets }
    }

    /// Returns the counts of all of its tokens.
    fn counts(&self) -> Counts {
        let mut counts = self.before.clone();
        counts.merge(&self.recent);
        counts
    }
}

impl Filler {
    pub(super) fn new(spec: &Spec) -> Result<Self, CodecError> {
        let window_log = spec.zstd_window_log();
        let finder = match (Matcher::new(spec), RowMatcher::new(spec)) {
            (Some(matcher), _) => Finder::Quick(matcher),
            (_, Some(matcher)) => Finder::Thorough(matcher),
            _ => Finder::Library(Parse::new(spec)?),
        };
        Ok(Filler {
            window_log,
            finder,
            tokens: Tokens::default(),
            entropy: EntropyTable::new(),
            scratch: Vec::new(),
            ratio: RATIO_FIRST,
            calibration: 1.0,
        })
    }

    pub(super) fn reset(&mut self) {
        (self.ratio, self.calibration) = (RATIO_FIRST, 1.0);
    }

    /// Fills `out` with a prefix of `input`.
    pub(super) fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Result<Filled, CodecError> {
        let room = out.len();
        let mut scratch = std::mem::take(&mut self.scratch);
        let filled = match Frame::new(out, &mut scratch, self.window_log) {
            Some(frame) => self.fill_frame(input, room, frame),
            None => Ok(Filled::default()),
        };
        self.scratch = scratch;
        filled
    }

    fn fill_frame(&mut self, input: &[u8], room: usize, mut frame: Frame<'_>) -> Result<Filled, CodecError> {
        let goal = room as f64 * (1.0 + OVERSHOOT) + OVERSHOOT_LEN;
        let expected = ((room as f64 * self.ratio) as usize).min(input.len());
        self.finder.start(expected);
        self.tokens.clear();
        let block_len = BLOCK_LEN.min(1 << self.window_log);
        let (mut cursor, mut open) = (Cursor::START, OpenBlock::new(0, Recent::FIRST));
        let (mut checkpoint, mut calibration) = (expected * 7 / 10, self.calibration);
        loop {
            let limit = (open.start + block_len).min(input.len());
            let stop = checkpoint.max(cursor.at + 1).min(open.chunk_end).min(limit);
            let (literals, sequences) = (self.tokens.literals.len(), self.tokens.sequences.len());
            self.finder.parse(input, &mut cursor, Until { stop, limit }, &mut self.tokens)?;
            open.recent.add(&self.tokens.literals[literals..], &mut self.tokens.sequences[sequences..]);
            if cursor.at >= open.chunk_end && !self.end_chunk(input, &mut cursor, &mut open, &mut frame) {
                break;
            }
            let estimate = self.estimate([&open.before, &open.recent]);
            let mut len = frame.len as f64 + estimate * calibration;
            if len >= goal || cursor.at == limit {
                let code = BlockCode::new(&open.counts());
                self.calibrate(&code, &open, estimate);
                let text = &input[open.start..cursor.at];
                if frame.rest() < code.len.min(text.len()) || cursor.at == limit {
                    let used = frame.push(&code, self.tokens.all(text));
                    if !code.pays(text.len()) {
                        cursor.recent = open.offsets;
                    }
                    open = OpenBlock::new(open.start + used, cursor.recent);
                    if used < text.len() || cursor.at == input.len() {
                        break;
                    }
                    self.tokens.clear();
                    len = frame.len as f64;
                } else {
                    // Not yet full: this text is coded better than the text before.
                    len = (frame.len + code.len) as f64;
                    calibration = code.len as f64 / estimate;
                }
            }
            // The limit is for much denser text, as after zeros.
            let missing = (goal * (1.0 + OVERSHOOT / 2.0) - len) / len * cursor.at as f64;
            self.finder.expect(cursor.at + (missing as usize).min(2 * room));
            // Straight on, but less far while much is missing: the following text may be denser.
            let caution = if len < goal * (1.0 - 1.0 / 25.0) { 0.8 } else { 1.0 };
            checkpoint = cursor.at + ((missing * caution) as usize).min(2 * room).max(STEP_MIN);
        }
        let (consumed, produced) = (open.start, frame.finish());
        if produced == 0 {
            return Ok(Filled::default());
        }
        if consumed < input.len() {
            self.ratio = (consumed as f64 / produced as f64).clamp(1.0, RATIO_MAX);
        }
        Ok(Filled { consumed, produced })
    }

    /// Adds the recent tokens, which end at the cursor, to the open block, or to a new one if that
    /// is smaller. Returns false if the block that ends in that case does not fit: the part that
    /// fits is written.
    fn end_chunk(&mut self, input: &[u8], cursor: &mut Cursor, open: &mut OpenBlock, frame: &mut Frame<'_>) -> bool {
        if open.sequences > 0 && self.splits(open) {
            let text = &input[open.start..open.end];
            let (literals, sequences) =
                (&self.tokens.literals[..open.literals], &self.tokens.sequences[..open.sequences]);
            let tokens = BlockTokens { literals, sequences, pending: 0, text };
            let code = BlockCode::new(&open.before);
            let used = frame.push(&code, tokens);
            open.start += used;
            if used < text.len() {
                return false;
            }
            self.tokens.literals.drain(..open.literals);
            self.tokens.sequences.drain(..open.sequences);
            open.before = Counts::NONE;
            if code.pays(text.len()) {
                open.offsets = open.end_offsets;
            } else {
                cursor.recent = codes::recode(&mut self.tokens.sequences, open.end_offsets, open.offsets);
                open.recent = Counts::NONE;
                open.recent.add(&self.tokens.literals, &mut self.tokens.sequences);
            }
        }
        open.before.merge(&open.recent);
        // Literals after the last sequence belong to the next one.
        let pending = self.tokens.pending;
        let coded = self.tokens.literals.len() - pending;
        open.recent = Counts::NONE;
        open.recent.add(&self.tokens.literals[coded..], &mut []);
        open.before.remove_literals(&open.recent);
        (open.literals, open.sequences, open.end) = (coded, self.tokens.sequences.len(), cursor.at - pending);
        (open.end_offsets, open.chunk_end) = (cursor.recent, cursor.at + CHUNK_LEN);
        true
    }

    /// Returns true if the open block should end before the recent tokens.
    fn splits(&self, open: &OpenBlock) -> bool {
        let (before, recent) = (&open.before, &open.recent);
        self.estimate([before]) + self.estimate([recent]) + SPLIT_GAIN < self.estimate([before, recent])
    }

    /// Returns the estimated length in bytes of a block with these counts. The factors were found
    /// by experiment.
    fn estimate<const N: usize>(&self, counts: [&Counts; N]) -> f64 {
        let entropy = |counts: [&[u32]; N]| {
            let sum = |i: usize| counts.iter().map(|counts| counts[i]).sum();
            self.entropy.of((0..counts[0].len()).map(sum))
        };
        let literals = entropy(counts.map(|counts| &counts.literals[..]));
        let coded = literals.bits / 8.0 * 1.005 + 0.45 * f64::from(literals.distinct) + 5.0;
        let plain = counts.iter().map(|counts| counts.literal_count).sum::<u32>() + 3;
        let codes = [0, 1, 2].map(|kind| entropy(counts.map(|counts| counts.codes()[kind])));
        let extra: u64 = counts.iter().map(|counts| counts.extra_bits).sum();
        let bits = codes.iter().map(|code| code.bits).sum::<f64>() + extra as f64;
        let distinct: u32 = codes.iter().map(|code| code.distinct).sum();
        coded.min(plain.into()) + bits / 8.0 + 0.6 * f64::from(distinct) + 17.0
    }

    /// Adjusts the calibration by the error of the estimate.
    fn calibrate(&mut self, code: &BlockCode, open: &OpenBlock, estimate: f64) {
        if open.before.sequence_count + open.recent.sequence_count >= CALIBRATION_SEQUENCES {
            let error = code.len as f64 / estimate;
            self.calibration += 0.3 * (error.clamp(0.9, 1.1) - self.calibration);
        }
    }
}

impl Finder {
    fn start(&mut self, expected: usize) {
        match self {
            Finder::Quick(matcher) => matcher.start(),
            Finder::Thorough(matcher) => matcher.start(),
            Finder::Library(parse) => parse.start(expected),
        }
    }

    /// Announces that about `len` bytes of the input will be needed.
    fn expect(&mut self, len: usize) {
        if let Finder::Library(parse) = self {
            parse.expected = len;
        }
    }

    /// Finds matches from the cursor on, and adds the literals after the last one.
    fn parse(
        &mut self,
        input: &[u8],
        cursor: &mut Cursor,
        until: Until,
        tokens: &mut Tokens,
    ) -> Result<(), CodecError> {
        match self {
            Finder::Quick(matcher) => matcher.parse(input, cursor, until, tokens),
            Finder::Thorough(matcher) => matcher.parse(input, cursor, until, tokens),
            Finder::Library(parse) => parse.parse(input, cursor, until, tokens)?,
        }
        tokens.add_literals(input, cursor.done, cursor.at);
        cursor.done = cursor.at;
        Ok(())
    }
}
