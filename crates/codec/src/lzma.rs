//! MicroLZMA, by liblzma. Its encoder, made for EROFS, stops where the room ends.

use crate::{CodecError, Filled, Reason, Spec, Want};
use kiln_format::Algorithm;
use liblzma_sys as ffi;
use std::mem;

/// Length in bytes of the shortest MicroLZMA stream. liblzma rejects smaller buffers.
const STREAM_MIN_LEN: usize = 6;

/// Returns the version of liblzma.
pub(crate) fn library_version() -> u32 {
    // SAFETY: takes no argument and returns a constant.
    unsafe { ffi::lzma_version_number() }
}

/// An `lzma_stream`. It is boxed, as liblzma keeps a pointer to it. Its buffers are reused.
struct Stream(Box<ffi::lzma_stream>);

// SAFETY: liblzma has no thread-local state; a stream may be used from any thread, by one at a
// time, which `&mut` guarantees.
unsafe impl Send for Stream {}

impl Stream {
    fn new() -> Self {
        // SAFETY: all zeros is LZMA_STREAM_INIT: null pointers and numbers.
        Stream(Box::new(unsafe { mem::zeroed() }))
    }

    /// Runs the coder that has just been set up over all of `input`, until it ends or cannot
    /// continue.
    fn run(&mut self, input: &[u8], out: &mut [u8]) -> (ffi::lzma_ret, Filled) {
        let stream = &mut *self.0;
        (stream.next_in, stream.avail_in) = (input.as_ptr(), input.len());
        (stream.next_out, stream.avail_out) = (out.as_mut_ptr(), out.len());
        let mut ret = ffi::LZMA_OK;
        while ret == ffi::LZMA_OK {
            // SAFETY: the stream is initialised, and its buffers are borrowed for as long as this
            // function runs. The second call without progress returns LZMA_BUF_ERROR, which ends
            // the loop.
            ret = unsafe { ffi::lzma_code(stream, ffi::LZMA_FINISH) };
        }
        let filled = Filled { consumed: input.len() - stream.avail_in, produced: out.len() - stream.avail_out };
        // liblzma does not use the pointers between two runs, but nothing should dangle.
        (stream.next_in, stream.avail_in) = (std::ptr::null(), 0);
        (stream.next_out, stream.avail_out) = (std::ptr::null_mut(), 0);
        (ret, filled)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream was initialised in `new`; lzma_end accepts it in every state.
        unsafe { ffi::lzma_end(&mut *self.0) }
    }
}

pub(crate) struct LzmaEncoder {
    stream: Stream,
    options: Box<ffi::lzma_options_lzma>,
}

// SAFETY: the only pointer in the options is that to a preset dictionary, which is null.
unsafe impl Send for LzmaEncoder {}

impl LzmaEncoder {
    pub(crate) fn new(spec: &Spec) -> Result<Self, CodecError> {
        let preset = match spec.level {
            100.. => (spec.level - 100) as u32 | ffi::LZMA_PRESET_EXTREME,
            level => level as u32,
        };
        // SAFETY: zeros are valid for a record of numbers and nullable pointers; the call below
        // sets all fields that matter.
        let mut options: Box<ffi::lzma_options_lzma> = Box::new(unsafe { mem::zeroed() });
        // SAFETY: `options` is a writable record of the right type.
        if unsafe { ffi::lzma_lzma_preset(&mut *options, preset) } != 0 {
            return Err(CodecError::Level { method: spec.method, level: spec.level });
        }
        options.dict_size = spec.lzma_dict_size();
        Ok(LzmaEncoder { stream: Stream::new(), options })
    }

    /// Fills `out`. All of the input is passed to liblzma, even if little of it may fit: less costs
    /// 1 % of ratio.
    pub(crate) fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Result<Filled, CodecError> {
        if out.len() < STREAM_MIN_LEN {
            return Ok(Filled::default());
        }
        // SAFETY: stream and options are valid; the options live as long as the stream, and are
        // copied anyway.
        let ret = unsafe { ffi::lzma_microlzma_encoder(&mut *self.stream.0, &*self.options) };
        expect(ret, ffi::LZMA_OK, "lzma_microlzma_encoder")?;
        let (ret, filled) = self.stream.run(input, out);
        expect(ret, ffi::LZMA_STREAM_END, "lzma_code")?;
        Ok(filled)
    }
}

pub(crate) struct LzmaDecoder {
    stream: Stream,
    dict_size: u32,
}

impl LzmaDecoder {
    pub(crate) fn new(dict_size: u32) -> Self {
        LzmaDecoder { stream: Stream::new(), dict_size }
    }

    pub(crate) fn decode(&mut self, src: &[u8], dst: &mut [u8], want: Want) -> Result<(), CodecError> {
        let (src_len, dst_len, exact) = (src.len() as u64, dst.len() as u64, want == Want::Whole);
        // The dictionary is allocated once, and only touched as far as it is decoded.
        // SAFETY: the stream is initialised.
        let ret =
            unsafe { ffi::lzma_microlzma_decoder(&mut *self.stream.0, src_len, dst_len, exact.into(), self.dict_size) };
        expect(ret, ffi::LZMA_OK, "lzma_microlzma_decoder")?;
        match self.stream.run(src, dst) {
            // With an exact length, liblzma only ends if all of `src` was used, too.
            (ffi::LZMA_STREAM_END, filled) if filled.produced == dst.len() => Ok(()),
            (ffi::LZMA_MEM_ERROR, _) => Err(CodecError::Memory),
            _ => Err(CodecError::corrupt(Algorithm::Lzma, Reason::Malformed)),
        }
    }
}

fn expect(ret: ffi::lzma_ret, wanted: ffi::lzma_ret, call: &'static str) -> Result<(), CodecError> {
    match ret {
        _ if ret == wanted => Ok(()),
        ffi::LZMA_MEM_ERROR => Err(CodecError::Memory),
        _ => Err(CodecError::Library { algorithm: Algorithm::Lzma, call, code: ret.into() }),
    }
}
