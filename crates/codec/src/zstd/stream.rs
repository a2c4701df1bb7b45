//! Large pclusters: one frame, streamed and cut.
//!
//! A frame may end after any of its blocks: the last one is only marked in its header. So the plain
//! algorithm is: compress block by block until one exceeds the room, and drop that one. Two
//! departures:
//!
//! * the first steps are half of the missing length, several blocks at once, which gives libzstd's
//!   block splitter more choice (2 to 10 % of speed); if such a step exceeds the room, which takes
//!   a sudden loss of half the ratio, the frame is started again in single blocks;
//! * the last steps are fractions of the length that should just fit, by the least favourable ratio
//!   seen, so that little is dropped: 0.2 % of the room at 1 MiB, 2 to 6 % at 256 KiB.
//!
//! Compressing several times, as [`Fit`](crate::fit::Fit) does, is up to 1 % smaller at 1 MiB, in
//! two to four times the time.

use super::{BLOCK_LEN, Context, FRAME_HEADER_LEN, Param, check, error_code, ffi};
use crate::{CodecError, Filled};

/// `ZSTD_c_srcSizeHint`: parameters for an input of about this length. Without it, level 1 loses 4
/// %.
const SRC_SIZE_HINT: Param = Param::ZSTD_c_experimentalParam7;
/// `ZSTD_c_stableInBuffer`: the input stays in place and need not be copied.
const STABLE_IN_BUFFER: Param = Param::ZSTD_c_experimentalParam9;

/// First guess before anything is known: input bytes per output byte.
const RATIO_FIRST: f64 = 2.5;
/// Lengths of the last steps, as fractions of the length that should fit. The ratio of blocks this
/// short varies, and the first that does not fit ends the frame.
const LAST_STEPS: [f64; 3] = [0.82, 0.90, 0.94];
/// Least number of input bytes that is worth another block.
const STEP_MIN: usize = 1 << 10;

/// State of streaming: what it learns from one pcluster for the next.
pub(super) struct Stream {
    /// Input bytes per output byte.
    ratio: f64,
    encodes: u64,
}

/// Rule for the choice of steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Several blocks at a time, while much is missing.
    Bold,
    /// At most one block at a time. The first one always fits.
    Careful,
}

impl Stream {
    pub(super) fn new() -> Self {
        Stream { ratio: RATIO_FIRST, encodes: 0 }
    }

    pub(super) fn reset(&mut self) {
        self.ratio = RATIO_FIRST;
    }

    pub(super) fn encodes(&self) -> u64 {
        self.encodes
    }

    /// Fills `out` with a prefix of `input`.
    pub(super) fn fill(&mut self, context: &mut Context, input: &[u8], out: &mut [u8]) -> Result<Filled, CodecError> {
        if (input.len() as f64) < 0.95 * self.ratio * out.len() as f64 {
            self.encodes += 1;
            context.abort()?;
            if let Some(produced) = context.compress(input, out)? {
                return Ok(Filled { consumed: input.len(), produced });
            }
        }
        let filled = match self.attempt(context, input, out, Pace::Bold)? {
            Some(filled) => filled,
            None => self.attempt(context, input, out, Pace::Careful)?.unwrap_or_default(),
        };
        if (1..input.len()).contains(&filled.consumed) {
            self.ratio = (filled.consumed as f64 / filled.produced as f64).max(1.0);
        }
        Ok(filled)
    }

    /// Writes one frame. Returns `None` if a step of several blocks exceeded the room.
    fn attempt(
        &mut self,
        context: &mut Context,
        input: &[u8],
        out: &mut [u8],
        pace: Pace,
    ) -> Result<Option<Filled>, CodecError> {
        self.encodes += 1;
        let room = out.len();
        let expected = (self.ratio * room as f64) as usize;
        context.abort()?;
        context.set(STABLE_IN_BUFFER, 1)?;
        context.set(SRC_SIZE_HINT, expected.min(input.len()) as i32)?;
        let mut frame = Frame::new();
        let mut last_steps = LAST_STEPS.iter();
        let mut local_ratio = self.ratio;
        while frame.consumed < input.len() && room - frame.produced > room / 333 {
            let want = ((room - frame.produced) as f64 * local_ratio) as usize;
            let step = match (want, pace) {
                (_, Pace::Bold) if want > 4 * BLOCK_LEN => want / 2 / BLOCK_LEN * BLOCK_LEN,
                _ if want > BLOCK_LEN + BLOCK_LEN / 2 => BLOCK_LEN,
                _ if want > BLOCK_LEN / 2 => want * 5 / 8,
                _ => match last_steps.next() {
                    Some(part) => (want as f64 * part) as usize,
                    None => break,
                },
            };
            let step = step.min(input.len() - frame.consumed);
            if step < STEP_MIN && step < input.len() - frame.consumed {
                break;
            }
            let before = frame.produced;
            if !frame.append(context, input, step, out)? {
                if step > BLOCK_LEN {
                    return Ok(None);
                }
                break; // the block that does not fit is dropped
            }
            // The least favourable ratio seen: a block too many costs more than another step.
            let average = frame.consumed as f64 / frame.produced as f64;
            local_ratio = average.min(step as f64 / (frame.produced - before) as f64);
        }
        Ok(Some(frame.finish(out)))
    }
}

/// Unfinished frame: whole blocks only.
struct Frame {
    consumed: usize,
    produced: usize,
    /// Offset of the last block's header; 0 if there is none yet.
    last_block: usize,
}

impl Frame {
    fn new() -> Self {
        Frame { consumed: 0, produced: 0, last_block: 0 }
    }

    /// Appends blocks with the next `step` bytes of `input`. Returns false if they do not fit.
    fn append(&mut self, context: &mut Context, input: &[u8], step: usize, out: &mut [u8]) -> Result<bool, CodecError> {
        let end = self.consumed + step;
        let mut src = ffi::ZSTD_inBuffer { src: input.as_ptr().cast(), size: end, pos: self.consumed };
        let mut dst = ffi::ZSTD_outBuffer { dst: out.as_mut_ptr().cast(), size: out.len(), pos: self.produced };
        // SAFETY: the context is alive and exclusively ours; both buffers are valid for their
        // sizes; `input` is the same in every call for this frame, as stableInBuffer requires,
        // because `attempt` borrows it throughout.
        let missing = unsafe {
            ffi::ZSTD_compressStream2(context.0.as_ptr(), &mut dst, &mut src, ffi::ZSTD_EndDirective::ZSTD_e_flush)
        };
        if let Some(ffi::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) = error_code(missing) {
            return Ok(false);
        }
        if check("ZSTD_compressStream2", missing)? > 0 || src.pos < end {
            return Ok(false);
        }
        let mut at = if self.produced == 0 { FRAME_HEADER_LEN } else { self.produced };
        while at < dst.pos {
            self.last_block = at;
            at += block_len(out, at);
        }
        debug_assert_eq!(at, dst.pos, "blocks end where the output ends");
        (self.consumed, self.produced) = (end, dst.pos);
        Ok(true)
    }

    /// Marks the last block, and returns the lengths.
    fn finish(self, out: &mut [u8]) -> Filled {
        if self.last_block == 0 {
            return Filled::default();
        }
        out[self.last_block] |= 1;
        Filled { consumed: self.consumed, produced: self.produced }
    }
}

/// Returns the length of the block at `at`, with its header. In the header, bit 0 marks the last
/// block, bits 1 and 2 are the type, and 21 bits are the length.
fn block_len(frame: &[u8], at: usize) -> usize {
    let header = u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], 0]);
    const RLE: u32 = 1; // its length is that of the decoded text
    match header >> 1 & 3 {
        RLE => 3 + 1,
        _ => 3 + (header >> 3) as usize,
    }
}
