//! Small and medium pclusters: parse once, cut the parse.
//!
//! A parse that is cut short is still a parse. So libzstd's own match finder runs once over a little more than what
//! should fit, [`Estimate`] says where to cut, and only the entropy coding is repeated until the result fits
//! ([`Fit`](crate::fit::Fit)): 1.2 to 1.9 times per pcluster. Against whole compressions it loses up to 1 % at 128 KiB,
//! where a pcluster has several blocks; the likely cause, not isolated, is that libzstd does not split blocks here
//! after the parse.
//!
//! `ZSTD_generateSequences` is meant for debugging, says upstream, and may go: it is called in one place, here, and
//! without it the search works over whole compressions.

use super::estimate::Estimate;
use super::{Context, FRAME_HEADER_LEN, Param, check, compressed, error_code, ffi};
use crate::CodecError;

/// `ZSTD_c_blockDelimiters`: blocks end where the sequences say so, as in the parse.
const BLOCK_DELIMITERS: Param = Param::ZSTD_c_experimentalParam11;
const EXPLICIT: i32 = 1;
/// `ZSTD_c_repcodeResolution`: libzstd finds repeated offsets itself. Off below level 10 unless asked for.
const REPCODE_RESOLUTION: Param = Param::ZSTD_c_experimentalParam19;
const ENABLE: i32 = 1;

/// The shortest match that a cut leaves; shorter ones become literals.
const MATCH_MIN: usize = 4;
/// What is taken off an input whose end libzstd refuses to parse, in bytes.
const TAIL_LEN: usize = 64;
/// The fraction by which more than asked for is parsed, as a divisor: the search will look a little further.
const MARGIN: usize = 8;
/// The part of the room that the first guess leaves free.
const AIM: f64 = 0.002;

/// The parse of the beginning of one input.
pub(super) struct Parse {
    /// A context for parsing: coding sequences leaves the other one in a state of its own.
    parser: Context,
    /// libzstd's sequences; one with offset and match length 0 ends a block. One slot more than `ends` for cutting.
    sequences: Vec<ffi::ZSTD_Sequence>,
    /// Where in the input each sequence ends.
    ends: Vec<u32>,
    estimate: Estimate,
    /// Real length by estimate, as seen lately.
    calibration: f64,
    /// What was guessed and not yet compared.
    first: Option<Guess>,
}

/// An estimate: `len` bytes of input should give `bytes` bytes of blocks.
#[derive(Clone, Copy)]
struct Guess {
    len: usize,
    bytes: f64,
}

const NOTHING: ffi::ZSTD_Sequence = ffi::ZSTD_Sequence { offset: 0, litLength: 0, matchLength: 0, rep: 0 };

impl Parse {
    /// `coder` is prepared for [`compress`](Self::compress).
    pub(super) fn new(level: i32, window_log: u8, coder: &mut Context) -> Result<Self, CodecError> {
        coder.set(BLOCK_DELIMITERS, EXPLICIT)?;
        coder.set(REPCODE_RESOLUTION, ENABLE)?;
        Ok(Parse {
            parser: Context::new(level, window_log)?,
            sequences: Vec::new(),
            ends: Vec::new(),
            estimate: Estimate::new(),
            calibration: 1.0,
            first: None,
        })
    }

    pub(super) fn reset(&mut self) {
        self.calibration = 1.0;
    }

    /// Begin with `input`: parse about `guess` bytes of it, or more, and estimate how many give a frame of `room`
    /// bytes. The answer exceeds `max` if that many do not suffice.
    pub(super) fn first_guess(
        &mut self,
        input: &[u8],
        guess: usize,
        room: usize,
        max: usize,
    ) -> Result<usize, CodecError> {
        let goal = (room as f64 * (1.0 - AIM) - FRAME_HEADER_LEN as f64) / self.calibration;
        let mut guess = guess.min(max);
        let mut check = guess / 2;
        self.first = None;
        self.ends.clear();
        loop {
            let before = self.parsed();
            let parsed = self.parse(input, guess)?;
            if parsed <= before {
                return Ok(guess.clamp(1, input.len())); // libzstd refused: a guess is all there is
            }
            let found = self.locate(input, goal, check);
            if found.len <= parsed || parsed == input.len() || parsed >= max {
                self.first = Some(found);
                return Ok(found.len.clamp(1, input.len()));
            }
            check = parsed;
            guess = found.len.min(2 * parsed).min(max);
        }
    }

    /// Where the estimate reaches `goal` bytes: within the parse, or extrapolated.
    fn locate(&mut self, input: &[u8], goal: f64, first_check: usize) -> Guess {
        let mut check = first_check;
        loop {
            let (found, passed_by) = self.walk(input, goal, check);
            // The line between two checks is good for little distances. If the goal was passed by far, go there again.
            if passed_by < goal / 64.0 || found.len + found.len / 32 >= check {
                return found;
            }
            check = found.len - found.len / 32;
        }
    }

    /// Estimate from the beginning of the parse on, checking first at `check` bytes of input, until `goal` is reached.
    /// Returns by how many bytes it was passed, too.
    fn walk(&mut self, input: &[u8], goal: f64, first_check: usize) -> (Guess, f64) {
        self.estimate.start_frame();
        let parsed = self.parsed();
        let (mut start, mut closed, mut before) = (0, 0.0, (0, 0.0));
        let mut check = first_check;
        for (sequence, &end) in self.sequences.iter().zip(&self.ends) {
            let end = end as usize;
            let literals = &input[start..][..sequence.litLength as usize];
            start = end;
            let mut bytes = None;
            if sequence.matchLength == 0 {
                self.estimate.add_literals(literals);
                closed += self.estimate.bytes();
                self.estimate.start_block();
                bytes = Some(closed);
            } else {
                self.estimate.add_sequence(literals, sequence.matchLength, sequence.offset);
            }
            if end < check && end < parsed {
                continue;
            }
            let bytes = bytes.unwrap_or_else(|| closed + self.estimate.bytes());
            let missing = goal - bytes;
            let average = bytes / end.max(1) as f64;
            let slope = ((bytes - before.1) / (end - before.0).max(1) as f64).max(average / 4.0);
            if missing <= 0.0 || end == parsed {
                let len = (end as f64 + missing / slope).max(1.0);
                let len = if end == input.len() { len.min(end as f64) } else { len };
                return (Guess { len: len as usize, bytes: bytes + (len - end as f64) * slope }, -missing);
            }
            before = (end, bytes);
            // Creep up to the goal: looking costs as much as some hundred sequences, passing it by far a walk.
            let part = if missing > goal / 25.0 { 0.7 } else { 1.0 };
            check = end + ((missing * part / slope.max(average)) as usize).max(32);
        }
        (Guess { len: parsed, bytes: closed }, 0.0)
    }

    fn parsed(&self) -> usize {
        self.ends.last().map_or(0, |&end| end as usize)
    }

    /// The first `len` bytes of `input` as one frame: its length, or `None` if it does not fit `out`.
    pub(super) fn compress(
        &mut self,
        coder: &mut Context,
        input: &[u8],
        len: usize,
        out: &mut [u8],
    ) -> Result<Option<usize>, CodecError> {
        if self.parsed() < len {
            self.parse(input, len)?;
        }
        if self.parsed() < len {
            return coder.compress(&input[..len], out);
        }
        let at = self.ends.partition_point(|&end| end as usize <= len);
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let kept = [self.sequences[at], self.sequences[at + 1]];
        let count = at + self.cut(at, len - start);
        // SAFETY: the context is alive and exclusively ours, all pointers are valid for the counts beside them. The
        // sequences are libzstd's own, and their lengths add up to `len`.
        let result = unsafe {
            ffi::ZSTD_compressSequences(
                coder.0.as_ptr(),
                out.as_mut_ptr().cast(),
                out.len(),
                self.sequences.as_ptr(),
                count,
                input.as_ptr().cast(),
                len,
            )
        };
        [self.sequences[at], self.sequences[at + 1]] = kept;
        let length = compressed("ZSTD_compressSequences", result)?;
        if let (Some(length), Some(first)) = (length, self.first.take_if(|first| first.len == len)) {
            self.learn(first, length - FRAME_HEADER_LEN);
        }
        Ok(length)
    }

    fn learn(&mut self, first: Guess, bytes: usize) {
        let error = bytes as f64 / first.bytes;
        // More is not a matter of calibration: a guess beyond what was parsed.
        if (0.9..1.1).contains(&error) {
            self.calibration += 0.2 * (error - self.calibration);
        }
    }

    /// Shorten the sequence `at` to `len` bytes and end the block there: how many sequences that takes.
    fn cut(&mut self, at: usize, len: usize) -> usize {
        let sequence = self.sequences[at];
        let literals = sequence.litLength as usize;
        if len == 0 && at > 0 && self.sequences[at - 1].matchLength == 0 {
            return 0; // a block ends here anyway
        }
        if len < literals + MATCH_MIN {
            self.sequences[at] = ffi::ZSTD_Sequence { litLength: len as u32, ..NOTHING };
            return 1;
        }
        self.sequences[at].matchLength = (len - literals) as u32;
        self.sequences[at + 1] = NOTHING;
        2
    }

    /// Parse a little more than `len` bytes of `input`: how many. 0, or less than `len` at the end of the input, if
    /// libzstd will not: it refuses inputs whose last block has less than 7 bytes.
    fn parse(&mut self, input: &[u8], len: usize) -> Result<usize, CodecError> {
        const REFUSED: Option<ffi::ZSTD_ErrorCode> = Some(ffi::ZSTD_ErrorCode::ZSTD_error_sequenceProducer_failed);
        let len = (len + len / MARGIN).clamp(1, input.len());
        let mut count = self.generate(&input[..len]);
        if error_code(count) == REFUSED && len > TAIL_LEN {
            count = self.generate(&input[..len - TAIL_LEN]);
        }
        self.ends.clear();
        if error_code(count) == REFUSED {
            return Ok(0);
        }
        let count = check("ZSTD_generateSequences", count)?;
        let mut end = 0;
        self.ends.extend(self.sequences[..count].iter().map(|s| {
            end += s.litLength + s.matchLength;
            end
        }));
        Ok(self.parsed())
    }

    /// libzstd's sequences for all of `input`: how many, or an error.
    fn generate(&mut self, input: &[u8]) -> usize {
        // SAFETY: a pure function of a number.
        let bound = unsafe { ffi::ZSTD_sequenceBound(input.len()) };
        if self.sequences.len() < bound + 2 {
            self.sequences.resize(bound + 2, NOTHING);
        }
        // SAFETY: the context is alive and exclusively ours; sequences and input are valid for the counts beside them.
        unsafe {
            ffi::ZSTD_generateSequences(
                self.parser.0.as_ptr(),
                self.sequences.as_mut_ptr(),
                bound,
                input.as_ptr().cast(),
                input.len(),
            )
        }
    }
}
