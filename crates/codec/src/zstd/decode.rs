//! Decoding of frames.

use super::{check, error_code, ffi};
use crate::{CodecError, Reason, Want};
use kiln_format::Algorithm;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

pub(crate) struct ZstdDecoder {
    context: NonNull<ffi::ZSTD_DCtx>,
    window_len: u64,
}

// SAFETY: a context is plain memory, used by one thread at a time, which `&mut` guarantees.
unsafe impl Send for ZstdDecoder {}

impl ZstdDecoder {
    pub(crate) fn new(window_log: u8) -> Result<Self, CodecError> {
        // SAFETY: takes no argument; null means out of memory.
        let context = NonNull::new(unsafe { ffi::ZSTD_createDCtx() }).ok_or(CodecError::Memory)?;
        // libzstd rejects limits outside 10 to 31; the kernel's is 20. `accept` compares exactly.
        let window_log = window_log.clamp(10, 20);
        let decoder = ZstdDecoder { context, window_len: 1 << window_log };
        let param = ffi::ZSTD_dParameter::ZSTD_d_windowLogMax;
        // SAFETY: the context is alive and exclusively ours.
        check("ZSTD_DCtx_setParameter", unsafe {
            ffi::ZSTD_DCtx_setParameter(context.as_ptr(), param, window_log.into())
        })?;
        Ok(decoder)
    }

    pub(crate) fn decode(&mut self, src: &[u8], dst: &mut [u8], want: Want) -> Result<(), CodecError> {
        self.accept(src)?;
        match want {
            Want::Whole => self.decode_whole(src, dst),
            Want::Prefix => self.decode_prefix(src, dst),
        }
    }

    /// Checks the frame's header as the kernel does: it accepts one standard frame with magic
    /// bytes, and rejects windows beyond its configuration.
    fn accept(&self, src: &[u8]) -> Result<(), CodecError> {
        let mut header = MaybeUninit::<ffi::ZSTD_FrameHeader>::uninit();
        // SAFETY: `src` is valid for its length, and `header` is writable.
        let missing = unsafe { ffi::ZSTD_getFrameHeader(header.as_mut_ptr(), src.as_ptr().cast(), src.len()) };
        if missing != 0 {
            return Err(corrupt(Reason::Frame)); // an error, or a header that is cut off
        }
        // SAFETY: a result of 0 means that all fields are set.
        let header = unsafe { header.assume_init() };
        if header.frameType != ffi::ZSTD_FrameType_e::ZSTD_frame || header.dictID != 0 {
            return Err(corrupt(Reason::Frame));
        }
        if header.windowSize > self.window_len {
            return Err(corrupt(Reason::Window));
        }
        Ok(())
    }

    /// Decodes straight into `dst`. Bytes after the frame are legal and ignored.
    fn decode_whole(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
        // SAFETY: `src` is valid for its length.
        let frame_len = unsafe { ffi::ZSTD_findFrameCompressedSize(src.as_ptr().cast(), src.len()) };
        let frame = match error_code(frame_len) {
            None => src.get(..frame_len).ok_or(corrupt(Reason::Malformed))?,
            Some(_) => return Err(corrupt(Reason::Malformed)),
        };
        // SAFETY: the context is alive and exclusively ours, and both pointers are valid for the
        // lengths passed with them. The function is made for untrusted input.
        let len = unsafe {
            ffi::ZSTD_decompressDCtx(
                self.context.as_ptr(),
                dst.as_mut_ptr().cast(),
                dst.len(),
                frame.as_ptr().cast(),
                frame.len(),
            )
        };
        match error_code(len) {
            None if len == dst.len() => Ok(()),
            None => Err(corrupt(Reason::TooShort)),
            Some(ffi::ZSTD_ErrorCode::ZSTD_error_memory_allocation) => Err(CodecError::Memory),
            Some(_) => Err(corrupt(Reason::Malformed)),
        }
    }

    /// Decodes through libzstd's window, as blocks do not end where `dst` does.
    fn decode_prefix(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
        let mut input = ffi::ZSTD_inBuffer { src: src.as_ptr().cast(), size: src.len(), pos: 0 };
        let mut output = ffi::ZSTD_outBuffer { dst: dst.as_mut_ptr().cast(), size: dst.len(), pos: 0 };
        let session = ffi::ZSTD_ResetDirective::ZSTD_reset_session_only;
        // SAFETY: the context is alive and exclusively ours.
        check("ZSTD_DCtx_reset", unsafe { ffi::ZSTD_DCtx_reset(self.context.as_ptr(), session) })?;
        while output.pos < dst.len() {
            let before = (input.pos, output.pos);
            // SAFETY: the context is alive and exclusively ours; both buffers are valid for their
            // lengths, and libzstd keeps the positions within them.
            let result = unsafe { ffi::ZSTD_decompressStream(self.context.as_ptr(), &mut output, &mut input) };
            match error_code(result) {
                None if output.pos == dst.len() => break,
                // The end of the frame: bytes after it must not be decoded as another frame.
                None if result == 0 => return Err(corrupt(Reason::TooShort)),
                None if before == (input.pos, output.pos) => return Err(corrupt(Reason::Malformed)),
                None => {}
                Some(ffi::ZSTD_ErrorCode::ZSTD_error_memory_allocation) => return Err(CodecError::Memory),
                Some(_) => return Err(corrupt(Reason::Malformed)),
            }
        }
        Ok(())
    }
}

impl Drop for ZstdDecoder {
    fn drop(&mut self) {
        // SAFETY: created in `new`, freed once.
        unsafe { ffi::ZSTD_freeDCtx(self.context.as_ptr()) };
    }
}

fn corrupt(reason: Reason) -> CodecError {
    CodecError::corrupt(Algorithm::Zstd, reason)
}
