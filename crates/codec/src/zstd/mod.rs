//! Zstandard frames.
//!
//! libzstd cannot stop where the room ends. From [`STREAM_MIN_LEN`] on, one frame is streamed by it and cut at a block
//! boundary ([`stream`]). Below, there is an encoder of our own ([`fill`]), which codes what it has found once, into
//! exactly the room there is. The plain algorithm: turn text into literals and matches; after each, make the best codes for
//! what the block has so far, and stop once it exceeds the room; write the block without its last token. Departures, as
//! in [`deflate`](crate::deflate):
//!
//! * Codes are made once per block. Until then an estimate from the counts of the symbols stands for the size, and it is
//!   asked only where the room might be full.
//! * From there tokens are dropped until the block fits its codes. Pclusters of 64 KiB are 0.9999 full, of 4 KiB 0.9988.
//! * A new block begins where two are smaller than one: 0.4 % at 64 KiB, 0.8 % at 128 KiB.
//! * Levels 1 to 3 have a match finder of our own ([`matches`]) with small tables, which stay in the processor's cache:
//!   libzstd's are 3 to 6 times as large. What this loses is more than made up for by short matches of 4 bytes, not 5.
//!   From level 4 on libzstd finds the matches ([`parse`]).
//!
//! On ELF files, sources and text, level 3 has 1.5 (4 KiB), 1.7 (64 KiB) and 1.9 times (128 KiB) the speed of coding
//! libzstd's parse by libzstd until it fits, and images are 0.2 to 0.4 % smaller.
//!
//! All frames are bare: no content size, no checksum, no dictionary id, since the image knows the length and has its
//! own means against decay.

mod block;
mod codes;
mod decode;
mod fill;
mod frame;
mod fse;
mod literals;
mod matches;
mod parse;
mod stream;
mod tokens;

pub(crate) use decode::ZstdDecoder;

use crate::{CodecError, Filled, Spec};
use fill::Filler;
use kiln_format::Algorithm;
use std::ffi::c_int;
use std::ptr::NonNull;
use stream::Stream;
use zstd_sys as ffi;
use zstd_sys::ZSTD_cParameter as Param;

/// From this room on, in bytes, losing part of a block costs less than an own search gains.
const STREAM_MIN_LEN: usize = 256 << 10;
/// The longest block, in bytes of plain text.
const BLOCK_LEN: usize = 128 << 10;
/// Magic bytes, descriptor, window: all that our frames have in front of their first block.
const FRAME_HEADER_LEN: usize = 6;

/// The version of libzstd.
pub(crate) fn library_version() -> u32 {
    // SAFETY: takes nothing and returns a constant.
    unsafe { ffi::ZSTD_versionNumber() }
}

pub(crate) struct ZstdEncoder {
    context: Context,
    filler: Filler,
    stream: Stream,
    encodes: u64,
}

impl ZstdEncoder {
    pub(crate) fn new(spec: &Spec) -> Result<Self, CodecError> {
        let context = Context::new(spec.level, spec.zstd_window_log())?;
        Ok(ZstdEncoder { context, filler: Filler::new(spec)?, stream: Stream::new(), encodes: 0 })
    }

    pub(crate) fn reset(&mut self) {
        self.filler.reset();
        self.stream.reset();
    }

    pub(crate) fn encodes(&self) -> u64 {
        self.encodes + self.stream.encodes()
    }

    pub(crate) fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError> {
        self.encodes += 1;
        self.context.compress(input, out)
    }

    pub(crate) fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Result<Filled, CodecError> {
        if out.len() >= STREAM_MIN_LEN {
            return self.stream.fill(&mut self.context, input, out);
        }
        self.encodes += 1;
        self.filler.fill(input, out)
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
