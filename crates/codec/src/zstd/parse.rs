//! libzstd's parse, for levels that have no search of our own.
//!
//! libzstd finds the matches of about as much text as should fit, and [`fill`](super::fill) takes
//! as many of them as do. If that is not enough text, more is parsed, with the text before it as
//! its prefix: the prefix is only entered into the tables again. libzstd's blocks do not matter: a
//! sequence may be cut anywhere.
//!
//! Upstream documents `ZSTD_generateSequences` as meant for debugging, and may remove it. It is
//! only called here.

use super::tokens::{Cursor, Tokens, Until};
use super::{Context, check, error_code, ffi};
use crate::{CodecError, Spec};

/// Length of the shortest match that a cut may leave; shorter ones become literals.
const MATCH_MIN: usize = 3;
/// Number of bytes to cut from an input whose end libzstd refuses to parse: it requires 7 bytes in
/// the last block.
const TAIL_LEN: usize = 64;
/// Least number of bytes to parse at once beyond the expected length.
const EXCESS_MIN: usize = 1 << 10;
/// Level from which on parsing a little too much costs less than entering a prefix again.
const EXPENSIVE_LEVEL: i32 = 13;

const NOTHING: ffi::ZSTD_Sequence = ffi::ZSTD_Sequence { offset: 0, litLength: 0, matchLength: 0, rep: 0 };

/// Parse of the beginning of one input.
pub(super) struct Parse {
    context: Context,
    window_len: usize,
    /// Divisor of the expected length that gives the excess to parse.
    margin: usize,
    sequences: Vec<ffi::ZSTD_Sequence>,
    /// Number of sequences of the input in `sequences`, which is longer.
    count: usize,
    /// Index of the next sequence, and start of its text.
    next: usize,
    start: usize,
    /// End of the text that has been parsed, or that libzstd cannot parse.
    parsed: usize,
    /// Length of the text that should be enough.
    pub(super) expected: usize,
}

impl Parse {
    pub(super) fn new(spec: &Spec) -> Result<Self, CodecError> {
        let window_log = spec.zstd_window_log();
        Ok(Parse {
            context: Context::new(spec.level, window_log)?,
            window_len: 1 << window_log,
            margin: if spec.level < EXPENSIVE_LEVEL { 32 } else { 8 },
            sequences: Vec::new(),
            count: 0,
            next: 0,
            start: 0,
            parsed: 0,
            expected: 0,
        })
    }

    /// Begins another input, of which `expected` bytes should be enough.
    pub(super) fn start(&mut self, expected: usize) {
        (self.count, self.next, self.start, self.parsed) = (0, 0, 0, 0);
        self.expected = expected;
    }

    /// Takes sequences from the cursor on. The caller adds the literals after the last match.
    pub(super) fn parse(
        &mut self,
        input: &[u8],
        cursor: &mut Cursor,
        Until { stop, limit }: Until,
        tokens: &mut Tokens,
    ) -> Result<(), CodecError> {
        while cursor.at < stop {
            if self.next == self.count && !self.generate(input, stop)? {
                cursor.at = stop; // the rest becomes literals
                break;
            }
            let sequence = self.sequences[self.next];
            let literals_end = self.start + sequence.litLength as usize;
            let end = literals_end + sequence.matchLength as usize;
            cursor.at = cursor.at.max(literals_end).min(limit);
            let len = end.min(limit) - cursor.at;
            // In a prefix, libzstd may look beyond the window: a dictionary is valid as a whole.
            if len >= MATCH_MIN && sequence.offset as usize <= self.window_len {
                tokens.add_literals(input, cursor.done, cursor.at);
                tokens.add_match(len, cursor.recent.value(sequence.offset, tokens.pending == 0));
                cursor.matched_to(cursor.at + len);
            } else {
                cursor.at += len;
            }
            if cursor.at == end {
                (self.start, self.next) = (end, self.next + 1);
            }
        }
        Ok(())
    }

    /// Parses the following text. Returns false if there are no more sequences.
    fn generate(&mut self, input: &[u8], stop: usize) -> Result<bool, CodecError> {
        const REFUSED: Option<ffi::ZSTD_ErrorCode> = Some(ffi::ZSTD_ErrorCode::ZSTD_error_sequenceProducer_failed);
        while self.parsed < stop {
            let start = self.parsed;
            let wanted = self.expected.max(stop) - start;
            let end = (start + wanted + wanted / self.margin + EXCESS_MIN).min(input.len());
            let mut count = self.sequences_of(input, start, end)?;
            if error_code(count) == REFUSED && end - start > TAIL_LEN {
                self.context.abort()?;
                count = self.sequences_of(input, start, end - TAIL_LEN)?;
            }
            if error_code(count) == REFUSED {
                // libzstd accepts no prefix in the middle of a frame.
                self.context.abort()?;
            }
            (self.next, self.start, self.parsed) = (0, start, end);
            self.count = if error_code(count) == REFUSED { 0 } else { check("ZSTD_generateSequences", count)? };
            if self.count > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs libzstd's parse of the text between the two positions, which may refer to the text
    /// before it. Returns the number of sequences, or an error code of libzstd.
    fn sequences_of(&mut self, input: &[u8], start: usize, end: usize) -> Result<usize, CodecError> {
        let (prefix, text) = (&input[..start], &input[start..end]);
        let prefix = &prefix[start.saturating_sub(self.window_len)..];
        // SAFETY: a pure function of a number.
        let bound = unsafe { ffi::ZSTD_sequenceBound(text.len()) };
        if self.sequences.len() < bound {
            self.sequences.resize(bound, NOTHING);
        }
        let context = self.context.0.as_ptr();
        // SAFETY: the context is alive and exclusively ours, and the prefix lives until it has been
        // used, below.
        let result = unsafe { ffi::ZSTD_CCtx_refPrefix(context, prefix.as_ptr().cast(), prefix.len()) };
        check("ZSTD_CCtx_refPrefix", result)?;
        let sequences = self.sequences.as_mut_ptr();
        // SAFETY: the context is alive and exclusively ours; sequences and text are valid for the
        // lengths passed with them.
        Ok(unsafe { ffi::ZSTD_generateSequences(context, sequences, bound, text.as_ptr().cast(), text.len()) })
    }
}
