//! Zstandard frames, by libzstd.
//!
//! libzstd cannot stop where the room ends. Below [`STREAM_MIN_LEN`] its match finder runs once, on about the right
//! length, and the result is cut and coded until it fits ([`parse`], with [`estimate`] to cut in the right place at
//! once); this is 1.5 (level 1) to 2.3 (level 9) times as fast as searching over whole compressions, at the same ratio
//! up to 64 KiB and up to 1 % less at 128 KiB. From there on one frame is streamed and cut at a block boundary
//! ([`stream`]).
//!
//! All frames are bare: no content size, no checksum, no dictionary id, since the image knows the length and has its
//! own means against decay.

mod decode;
mod estimate;
mod parse;
mod stream;

pub(crate) use decode::ZstdDecoder;

use crate::fit::Fit;
use crate::{CodecError, Filled, Spec};
use kiln_format::Algorithm;
use parse::Parse;
use std::ffi::c_int;
use std::ptr::NonNull;
use stream::Stream;
use zstd_sys as ffi;
use zstd_sys::ZSTD_cParameter as Param;

/// From this room on, in bytes, losing part of a block costs less than compressing everything several times.
const STREAM_MIN_LEN: usize = 256 << 10;

/// The part of a pcluster that may stay unused where it is searched for. 0.003 costs 0.2 encodes more per pcluster.
const TOLERANCE: f64 = 0.005;
/// More input than this many pclusters is not parsed ahead: sequences take up to 16 bytes for 3 of input.
const PARSE_MAX: usize = 16;
/// The longest block, in bytes of plain text.
const BLOCK_LEN: usize = 128 << 10;
/// Magic bytes, descriptor, window: all that our frames have in front of their first block.
const FRAME_HEADER_LEN: usize = 6;

pub(crate) struct ZstdEncoder {
    context: Context,
    fit: Fit,
    parse: Parse,
    stream: Stream,
}

impl ZstdEncoder {
    pub(crate) fn new(spec: &Spec) -> Result<Self, CodecError> {
        let mut context = Context::new(spec.level, spec.zstd_window_log())?;
        let parse = Parse::new(spec.level, spec.zstd_window_log(), &mut context)?;
        Ok(ZstdEncoder { context, parse, fit: Fit::new(TOLERANCE), stream: Stream::new() })
    }

    pub(crate) fn reset(&mut self) {
        self.fit.reset();
        self.parse.reset();
        self.stream.reset();
    }

    pub(crate) fn encodes(&self) -> u64 {
        self.fit.encodes() + self.stream.encodes()
    }

    pub(crate) fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError> {
        self.context.compress(input, out)
    }

    pub(crate) fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Result<Filled, CodecError> {
        if out.len() >= STREAM_MIN_LEN {
            return self.stream.fill(&mut self.context, input, out);
        }
        let parse_max = PARSE_MAX * out.len();
        let guess = self.fit.first_guess(input.len(), out.len());
        let first = self.parse.first_guess(input, guess, out.len(), parse_max)?;
        self.fit.fill(input.len(), first, out, |len, out| match len {
            _ if len > parse_max => self.context.compress(&input[..len], out),
            _ => self.parse.compress(&mut self.context, input, len, out),
        })
    }
}

/// A compression context with the parameters that all our frames share.
struct Context(NonNull<ffi::ZSTD_CCtx>);

// SAFETY: a context is plain memory, used by one thread at a time, which `&mut` guarantees.
unsafe impl Send for Context {}

impl Context {
    fn new(level: i32, window_log: u8) -> Result<Self, CodecError> {
        // SAFETY: takes nothing; null means no memory.
        let context = unsafe { ffi::ZSTD_createCCtx() };
        let mut context = Context(NonNull::new(context).ok_or(CodecError::Memory)?);
        context.set(Param::ZSTD_c_compressionLevel, level)?;
        context.set(Param::ZSTD_c_windowLog, window_log.into())?;
        context.set(Param::ZSTD_c_contentSizeFlag, 0)?;
        context.set(Param::ZSTD_c_checksumFlag, 0)?;
        Ok(context)
    }

    /// Change a parameter, between two frames.
    fn set(&mut self, param: Param, value: c_int) -> Result<(), CodecError> {
        // SAFETY: the context is alive and exclusively ours; parameters and values are checked by libzstd.
        check("ZSTD_CCtx_setParameter", unsafe { ffi::ZSTD_CCtx_setParameter(self.0.as_ptr(), param, value) })?;
        Ok(())
    }

    /// Forget a frame that was begun.
    fn abort(&mut self) -> Result<(), CodecError> {
        let session = ffi::ZSTD_ResetDirective::ZSTD_reset_session_only;
        // SAFETY: the context is alive and exclusively ours.
        check("ZSTD_CCtx_reset", unsafe { ffi::ZSTD_CCtx_reset(self.0.as_ptr(), session) })?;
        Ok(())
    }

    /// All of `input` as one frame: its length, or `None` if it does not fit `out`.
    fn compress(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError> {
        // SAFETY: the context is alive and exclusively ours, both pointers are valid for the lengths beside them.
        let result = unsafe {
            ffi::ZSTD_compress2(self.0.as_ptr(), out.as_mut_ptr().cast(), out.len(), input.as_ptr().cast(), input.len())
        };
        compressed("ZSTD_compress2", result)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: created in `new`, freed once.
        unsafe { ffi::ZSTD_freeCCtx(self.0.as_ptr()) };
    }
}

/// What kind of error a result is, if it is one.
fn error_code(result: usize) -> Option<ffi::ZSTD_ErrorCode> {
    // SAFETY: pure functions of a number.
    unsafe { (ffi::ZSTD_isError(result) != 0).then(|| ffi::ZSTD_getErrorCode(result)) }
}

/// A result that is an error only if memory is short, or by our mistake.
fn check(call: &'static str, result: usize) -> Result<usize, CodecError> {
    match error_code(result) {
        None => Ok(result),
        Some(ffi::ZSTD_ErrorCode::ZSTD_error_memory_allocation) => Err(CodecError::Memory),
        Some(code) => Err(CodecError::Library { algorithm: Algorithm::Zstd, call, code: code as i64 }),
    }
}

/// The length of a frame, or `None` if it did not fit.
fn compressed(call: &'static str, result: usize) -> Result<Option<usize>, CodecError> {
    match error_code(result) {
        Some(ffi::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) => Ok(None),
        _ => check(call, result).map(Some),
    }
}
