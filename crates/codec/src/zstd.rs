//! Zstandard frames.
//!
//! libzstd cannot stop where the room ends. From [`STREAM_MIN_LEN`] on, it streams one frame, which
//! is cut at a block boundary ([`stream`]). Below that, an encoder of our own ([`fill`]) codes the
//! matches once, into exactly the room there is. The plain algorithm: turn text into literals and
//! matches; after each, compute the best codes for the block so far, and stop when it exceeds the
//! room; write the block without its last token. Departures, as in [`deflate`](crate::deflate):
//!
//! * Codes are computed once per block. Until then, the size is estimated from the counts of the
//!   symbols, and only where the room might be full.
//! * From there, tokens are dropped until the block fits. Pclusters of 64 KiB are 0.9999 full, of 4
//!   KiB 0.9988.
//! * A new block begins where two blocks are smaller than one: 0.4 % at 64 KiB, 0.8 % at 128 KiB.
//! * Levels 1 to 3 have our own match finder ([`matches`]) with small tables, which stay in the
//!   processor's cache: libzstd's are 3 to 6 times as large. The loss is more than made up for by
//!   short matches of 4 bytes instead of 5. Levels 5 to 9 have another ([`rows`]), which takes the
//!   longest of many matches, as libzstd does. At the other levels, libzstd finds the matches
//!   ([`parse`]).
//!
//! Compared with libzstd's one-shot call for the same text (example `limit`, shared libraries and
//! sources, 64 and 128 KiB), level 1 has 0.67 to 0.75 of the speed, level 3 0.87 to 1.05, level 6
//! 0.92 to 1.01, and level 9 0.86 to 1.07. Frames have 0.96, 0.99 to 1.01, 0.97 to 1.00 and 0.97 to
//! 1.00 of the size. About 0.5 % more text is parsed than fits.
//!
//! All frames are bare: no content size, no checksum, no dictionary id. The image records the
//! length, and has its own checksums.

mod block;
mod codes;
mod decode;
mod fill;
mod frame;
mod fse;
mod literals;
mod matches;
mod parse;
mod row_table;
mod rows;
mod stream;
mod text;
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

/// Room in bytes from which on losing part of a block costs less than our own search gains.
const STREAM_MIN_LEN: usize = 256 << 10;
/// Longest block in bytes of plain text.
const BLOCK_LEN: usize = 128 << 10;
/// Length of the part before a frame's first block: magic bytes, descriptor, window.
const FRAME_HEADER_LEN: usize = 6;

/// Returns the version of libzstd.
pub(crate) fn library_version() -> u32 {
    // SAFETY: takes no argument and returns a constant.
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

/// Compression context with the parameters that all our frames share.
struct Context(NonNull<ffi::ZSTD_CCtx>);

// SAFETY: a context is plain memory, used by one thread at a time, which `&mut` guarantees.
unsafe impl Send for Context {}

impl Context {
    fn new(level: i32, window_log: u8) -> Result<Self, CodecError> {
        // SAFETY: takes no argument; null means out of memory.
        let context = unsafe { ffi::ZSTD_createCCtx() };
        let mut context = Context(NonNull::new(context).ok_or(CodecError::Memory)?);
        context.set(Param::ZSTD_c_compressionLevel, level)?;
        context.set(Param::ZSTD_c_windowLog, window_log.into())?;
        context.set(Param::ZSTD_c_contentSizeFlag, 0)?;
        context.set(Param::ZSTD_c_checksumFlag, 0)?;
        Ok(context)
    }

    /// Sets a parameter, between two frames.
    fn set(&mut self, param: Param, value: c_int) -> Result<(), CodecError> {
        // SAFETY: the context is alive and exclusively ours; libzstd checks parameters and values.
        check("ZSTD_CCtx_setParameter", unsafe { ffi::ZSTD_CCtx_setParameter(self.0.as_ptr(), param, value) })?;
        Ok(())
    }

    /// Drops a frame that was begun.
    fn abort(&mut self) -> Result<(), CodecError> {
        let session = ffi::ZSTD_ResetDirective::ZSTD_reset_session_only;
        // SAFETY: the context is alive and exclusively ours.
        check("ZSTD_CCtx_reset", unsafe { ffi::ZSTD_CCtx_reset(self.0.as_ptr(), session) })?;
        Ok(())
    }

    /// Compresses all of `input` as one frame. Returns its length, or `None` if it does not fit in
    /// `out`.
    fn compress(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError> {
        // SAFETY: the context is alive and exclusively ours, and both pointers are valid for the
        // lengths passed with them.
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

/// Returns the error code of a result, or `None` if it is not an error.
fn error_code(result: usize) -> Option<ffi::ZSTD_ErrorCode> {
    // SAFETY: pure functions of a number.
    unsafe { (ffi::ZSTD_isError(result) != 0).then(|| ffi::ZSTD_getErrorCode(result)) }
}

/// Checks a result that is an error only if memory is short or there is a bug.
fn check(call: &'static str, result: usize) -> Result<usize, CodecError> {
    match error_code(result) {
        None => Ok(result),
        Some(ffi::ZSTD_ErrorCode::ZSTD_error_memory_allocation) => Err(CodecError::Memory),
        Some(code) => Err(CodecError::Library { algorithm: Algorithm::Zstd, call, code: code as i64 }),
    }
}

/// Returns the length of a frame, or `None` if it did not fit.
fn compressed(call: &'static str, result: usize) -> Result<Option<usize>, CodecError> {
    match error_code(result) {
        Some(ffi::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) => Ok(None),
        _ => check(call, result).map(Some),
    }
}
