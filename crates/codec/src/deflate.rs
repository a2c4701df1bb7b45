//! Raw DEFLATE, by libdeflate, which knows whole streams only; prefixes are decoded by zlib-rs.

use crate::fit::Fit;
use crate::{CodecError, Filled, Reason, Spec};
use kiln_format::Algorithm;
use libdeflate_sys as ffi;
use std::ptr::{self, NonNull};
use zlib_rs::{Inflate, InflateFlush};

/// The part of a pcluster that may stay unused: less costs a compression for every tenth of a percent.
const TOLERANCE: f64 = 0.003;

pub(crate) struct DeflateEncoder {
    compressor: Compressor,
    fit: Fit,
}

impl DeflateEncoder {
    pub(crate) fn new(spec: &Spec) -> Result<Self, CodecError> {
        // SAFETY: takes a number; null means no memory (or no such level, which `Spec` excludes).
        let compressor = unsafe { ffi::libdeflate_alloc_compressor(spec.level) };
        let compressor = Compressor(NonNull::new(compressor).ok_or(CodecError::Memory)?);
        Ok(DeflateEncoder { compressor, fit: Fit::new(TOLERANCE) })
    }

    pub(crate) fn reset(&mut self) {
        self.fit.reset();
    }

    pub(crate) fn encodes(&self) -> u64 {
        self.fit.encodes()
    }

    pub(crate) fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Result<Filled, CodecError> {
        let first = self.fit.first_guess(input.len(), out.len());
        let compress = |len: usize, out: &mut [u8]| Ok(self.compressor.compress(&input[..len], out));
        let filled = self.fit.fill(input.len(), first, out, compress)?;
        unlike_padding(&mut out[..filled.produced]);
        Ok(filled)
    }

    pub(crate) fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError> {
        let len = self.compressor.compress(input, out);
        unlike_padding(&mut out[..len.unwrap_or(0)]);
        Ok(len)
    }
}

/// Readers take zeros in front of a stream for padding. A stored block that is not the last starts with a zero byte; its
/// bits 3 to 7 are unused.
fn unlike_padding(stream: &mut [u8]) {
    if let Some(first @ 0) = stream.first_mut() {
        *first = 0x08;
    }
}

struct Compressor(NonNull<ffi::libdeflate_compressor>);

// SAFETY: a compressor is plain memory, used by one thread at a time, which `&mut` guarantees.
unsafe impl Send for Compressor {}

impl Compressor {
    /// The length of the stream, or `None` if it does not fit `out`.
    fn compress(&mut self, input: &[u8], out: &mut [u8]) -> Option<usize> {
        // SAFETY: the compressor is alive and exclusively ours, both pointers are valid for the lengths beside them.
        let len = unsafe {
            ffi::libdeflate_deflate_compress(
                self.0.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                out.as_mut_ptr().cast(),
                out.len(),
            )
        };
        (len != 0).then_some(len)
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once.
        unsafe { ffi::libdeflate_free_compressor(self.0.as_ptr()) }
    }
}

/// Both decoders, each made when it is first needed.
#[derive(Default)]
pub(crate) struct DeflateDecoder {
    whole: Option<Decompressor>,
    prefix: Option<Prefix>,
}

impl DeflateDecoder {
    /// Decode to exactly `dst.len()` bytes and the end of the final block. Bytes behind it are legal.
    pub(crate) fn decode_whole(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
        if self.whole.is_none() {
            self.whole = Some(Decompressor::new()?);
        }
        self.whole.as_mut().expect("just made").decompress(src, dst)
    }

    /// Decode the first `dst.len()` bytes; the final block need not be reached.
    pub(crate) fn decode_prefix(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
        let Prefix(inflate) = self.prefix.get_or_insert_with(|| Prefix(Inflate::new(false, 15)));
        inflate.reset(false);
        // `Finish` says that all the room is here: nothing is copied to a window for a next call.
        match inflate.decompress(src, dst, InflateFlush::Finish) {
            _ if inflate.total_out() == dst.len() as u64 => Ok(()),
            Ok(_) => Err(CodecError::corrupt(Algorithm::Deflate, Reason::TooShort)),
            Err(_) => Err(CodecError::corrupt(Algorithm::Deflate, Reason::Malformed)),
        }
    }
}

struct Prefix(Inflate);

struct Decompressor(NonNull<ffi::libdeflate_decompressor>);

// SAFETY: as for the compressor.
unsafe impl Send for Decompressor {}

impl Decompressor {
    fn new() -> Result<Self, CodecError> {
        // SAFETY: takes nothing; null means no memory.
        let decompressor = unsafe { ffi::libdeflate_alloc_decompressor() };
        NonNull::new(decompressor).map(Decompressor).ok_or(CodecError::Memory)
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
        // SAFETY: the decompressor is alive and exclusively ours, both pointers are valid for the lengths beside them,
        // and a null length pointer asks for exactly `dst.len()` bytes. The function is made for untrusted input.
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
