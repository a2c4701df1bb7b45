//! libdeflate's compressor, which can only produce whole streams.

use crate::CodecError;
use libdeflate_sys as ffi;
use std::ffi::c_int;
use std::ptr::NonNull;

pub(super) struct Compressor(NonNull<ffi::libdeflate_compressor>);

// SAFETY: a compressor is plain memory, used by one thread at a time, which `&mut` guarantees.
unsafe impl Send for Compressor {}

impl Compressor {
    pub(super) fn new(level: c_int) -> Result<Self, CodecError> {
        // SAFETY: takes a number; null means out of memory (or an unknown level, which `Spec`
        // excludes).
        let compressor = unsafe { ffi::libdeflate_alloc_compressor(level) };
        Ok(Compressor(NonNull::new(compressor).ok_or(CodecError::Memory)?))
    }

    /// Returns the length of the stream, or `None` if it does not fit in `out`.
    pub(super) fn compress(&mut self, input: &[u8], out: &mut [u8]) -> Option<usize> {
        // SAFETY: the compressor is alive and exclusively ours; both pointers are valid for the
        // lengths passed with them.
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
