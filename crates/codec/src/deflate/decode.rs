//! Decoding: whole streams by libdeflate; prefixes, which libdeflate cannot decode, by zlib-rs.

use crate::{CodecError, Reason};
use kiln_format::Algorithm;
use libdeflate_sys as ffi;
use std::ptr::{self, NonNull};
use zlib_rs::{Inflate, InflateFlush};

/// Both decoders, each created when it is first needed.
#[derive(Default)]
pub(crate) struct DeflateDecoder {
    whole: Option<Decompressor>,
    prefix: Option<Prefix>,
}

impl DeflateDecoder {
    /// Decodes to exactly `dst.len()` bytes and the end of the final block. Bytes after it are
    /// legal.
    pub(crate) fn decode_whole(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
        if self.whole.is_none() {
            self.whole = Some(Decompressor::new()?);
        }
        self.whole.as_mut().expect("just made").decompress(src, dst)
    }

    /// Decodes the first `dst.len()` bytes. The final block need not be reached.
    pub(crate) fn decode_prefix(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
        let Prefix(inflate) = self.prefix.get_or_insert_with(|| Prefix(Inflate::new(false, 15)));
        inflate.reset(false);
        // `Finish` means that all the room is here: nothing is copied to a window for a next call.
        match inflate.decompress(src, dst, InflateFlush::Finish) {
            _ if inflate.total_out() == dst.len() as u64 => Ok(()),
            Ok(_) => Err(CodecError::corrupt(Algorithm::Deflate, Reason::TooShort)),
            Err(_) => Err(CodecError::corrupt(Algorithm::Deflate, Reason::Malformed)),
        }
    }
}

struct Prefix(Inflate);

struct Decompressor(NonNull<ffi::libdeflate_decompressor>);

// SAFETY: same as for the compressor in `libdeflate.rs`.
unsafe impl Send for Decompressor {}

impl Decompressor {
    fn new() -> Result<Self, CodecError> {
        // SAFETY: takes no argument; null means out of memory.
        let decompressor = unsafe { ffi::libdeflate_alloc_decompressor() };
        NonNull::new(decompressor).map(Decompressor).ok_or(CodecError::Memory)
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
        // SAFETY: the decompressor is alive and exclusively ours, both pointers are valid for the
        // lengths passed with them, and a null length pointer requests exactly `dst.len()` bytes.
        // The function is made for untrusted input.
        let result = unsafe {
            ffi::libdeflate_deflate_decompress(
                self.0.as_ptr(),
                src.as_ptr().cast(),
                src.len(),
                dst.as_mut_ptr().cast(),
                dst.len(),
                ptr::null_mut(),
            )
        };
        let reason = match result {
            ffi::libdeflate_result_LIBDEFLATE_SUCCESS => return Ok(()),
            ffi::libdeflate_result_LIBDEFLATE_SHORT_OUTPUT => Reason::TooShort,
            _ => Reason::Malformed,
        };
        Err(CodecError::corrupt(Algorithm::Deflate, reason))
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once.
        unsafe { ffi::libdeflate_free_decompressor(self.0.as_ptr()) }
    }
}
