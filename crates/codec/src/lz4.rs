//! LZ4 blocks, by liblz4. Both encoders stop exactly where the room ends, in one pass.

use crate::{CodecError, Filled, Reason};
use kiln_format::Algorithm;
use std::ffi::{c_char, c_int, c_void};

// lz4-sys links liblz4 1.10 but does not declare these functions of its lz4.h and lz4hc.h.
unsafe extern "C" {
    fn LZ4_compress_destSize(src: *const c_char, dst: *mut c_char, src_len: *mut c_int, dst_len: c_int) -> c_int;
    fn LZ4_compress_HC_destSize(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: *mut c_int,
        dst_len: c_int,
        level: c_int,
    ) -> c_int;
    fn LZ4_sizeofStateHC() -> c_int;
    fn LZ4_versionNumber() -> c_int;
    fn LZ4_decompress_safe(src: *const c_char, dst: *mut c_char, src_len: c_int, dst_len: c_int) -> c_int;
    fn LZ4_decompress_safe_partial(
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        want_len: c_int,
        dst_len: c_int,
    ) -> c_int;
}

/// Returns the version of liblz4.
pub(crate) fn library_version() -> u32 {
    // SAFETY: takes no argument and returns a constant.
    (unsafe { LZ4_versionNumber() }) as u32
}

/// Bytes of plain text whose encoded length is estimated at once. The buffer for the stream is on
/// the stack.
pub(crate) const SCRATCH_LEN: usize = 64 << 10;

/// Fast encoder. Its state, a table of 16 KiB, is on liblz4's stack.
pub(crate) struct Lz4Encoder(());

impl Lz4Encoder {
    pub(crate) fn new() -> Self {
        Lz4Encoder(())
    }

    pub(crate) fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Filled {
        dest_size(input, out, |src, dst, src_len, dst_len| {
            // SAFETY: `dest_size` passes pointers to `src_len` readable and `dst_len` writable
            // bytes; liblz4 stays within both.
            unsafe { LZ4_compress_destSize(src, dst, src_len, dst_len) }
        })
    }
}

/// Slow encoder.
pub(crate) struct Lz4hcEncoder {
    level: c_int,
    state: Box<[u64]>, // liblz4 requires alignment to 8 bytes
}

impl Lz4hcEncoder {
    pub(crate) fn new(level: i32) -> Self {
        // SAFETY: takes no argument and returns a constant.
        let len = unsafe { LZ4_sizeofStateHC() } as usize;
        Lz4hcEncoder { level, state: vec![0; len.div_ceil(8)].into_boxed_slice() }
    }

    pub(crate) fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Filled {
        dest_size(input, out, |src, dst, src_len, dst_len| {
            let state = self.state.as_mut_ptr().cast();
            // SAFETY: `dest_size` passes pointers to `src_len` readable and `dst_len` writable
            // bytes. `state` is exclusively ours, has the length that liblz4 requires, and is
            // initialised by this call.
            unsafe { LZ4_compress_HC_destSize(state, src, dst, src_len, dst_len, self.level) }
        })
    }
}

/// Calls one of the destSize functions, which take lengths as `c_int` and return the consumed input
/// through a pointer.
fn dest_size(
    input: &[u8],
    out: &mut [u8],
    call: impl FnOnce(*const c_char, *mut c_char, *mut c_int, c_int) -> c_int,
) -> Filled {
    // Both are far below 2 GiB: an extent has at most 12 MiB, a pcluster 1 MiB. Less is always
    // allowed.
    let mut src_len = c_int::try_from(input.len()).unwrap_or(c_int::MAX);
    let dst_len = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
    let produced = call(input.as_ptr().cast(), out.as_mut_ptr().cast(), &mut src_len, dst_len);
    if produced <= 0 {
        return Filled::default(); // not even one token fits
    }
    Filled { consumed: src_len as usize, produced: produced as usize }
}

/// Returns the length of `unit`, at most 64 KiB, compressed by LZ4; `None` if that exceeds `room`
/// bytes. The acceleration is LZ4's: 1 looks at every byte, more is faster.
pub(crate) fn encoded_len(unit: &[u8], room: usize, acceleration: c_int) -> Option<usize> {
    let mut scratch = [0u8; SCRATCH_LEN];
    let unit = &unit[..unit.len().min(scratch.len())];
    let room = room.min(scratch.len());
    // SAFETY: both buffers are valid for the lengths passed, which are at most 64 KiB; liblz4 stops
    // and returns 0 if the output would exceed `room`.
    let len = unsafe {
        lz4_sys::LZ4_compress_fast(
            unit.as_ptr().cast(),
            scratch.as_mut_ptr().cast(),
            unit.len() as c_int,
            room as c_int,
            acceleration,
        )
    };
    (len > 0).then_some(len as usize)
}

/// Decodes all of `src` to exactly `dst.len()` bytes.
pub(crate) fn decode_whole(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let (src_len, dst_len) = lengths(src, dst)?;
    // SAFETY: both pointers are valid for the lengths passed; the function is made for untrusted
    // input.
    let len = unsafe { LZ4_decompress_safe(src.as_ptr().cast(), dst.as_mut_ptr().cast(), src_len, dst_len) };
    expect(len, dst_len)
}

/// Decodes the first `dst.len()` bytes. The rest of `src` is ignored.
pub(crate) fn decode_prefix(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let (src_len, dst_len) = lengths(src, dst)?;
    // SAFETY: both pointers are valid for the lengths passed, and the function is made for
    // untrusted input. liblz4 warns of wrong output if `want_len` exceeds the decoded length and
    // `src_len` the length of the block: then it decodes the bytes after the block as tokens, but
    // stays within both buffers.
    let len =
        unsafe { LZ4_decompress_safe_partial(src.as_ptr().cast(), dst.as_mut_ptr().cast(), src_len, dst_len, dst_len) };
    expect(len, dst_len)
}

/// Rejects a block with a match at distance 0 in the tokens of its first `plain_len` bytes. The
/// format forbids it, but liblz4, like Linux, does not check: it leaves the previous bytes of the
/// destination. The check costs almost half of the decoder's speed, so only callers that need it
/// call this.
///
/// # Errors
/// [`CodecError::Corrupt`] if there is such a match.
pub(crate) fn check_distances(src: &[u8], plain_len: usize) -> Result<(), CodecError> {
    let mut rest = src;
    let mut produced = 0;
    while let Some((&token, behind)) = rest.split_first() {
        let (literals, behind) = length(token >> 4, behind);
        let Some((_, behind)) = behind.split_at_checked(literals) else { break };
        produced += literals;
        let Some((&distance, behind)) = behind.split_first_chunk::<2>() else { break };
        if produced >= plain_len {
            break;
        }
        if distance == [0, 0] {
            return Err(CodecError::corrupt(Algorithm::Lz4, Reason::Malformed));
        }
        let (more, behind) = length(token & 0xF, behind);
        produced += 4 + more;
        rest = behind;
    }
    Ok(())
}

/// Decodes a length whose first 4 bits are in the token: 15 continues in the bytes after it, up to
/// one that is not 255. Returns the length and the rest.
fn length(bits: u8, behind: &[u8]) -> (usize, &[u8]) {
    if bits != 0xF {
        return (bits.into(), behind);
    }
    let full = behind.iter().take_while(|&&byte| byte == 0xFF).count();
    let last = behind.get(full).map_or(0, |&byte| usize::from(byte));
    (0xF + 0xFF * full + last, behind.get(full + 1..).unwrap_or_default())
}

fn lengths(src: &[u8], dst: &[u8]) -> Result<(c_int, c_int), CodecError> {
    match (c_int::try_from(src.len()), c_int::try_from(dst.len())) {
        (Ok(src_len), Ok(dst_len)) => Ok((src_len, dst_len)),
        _ => Err(CodecError::corrupt(Algorithm::Lz4, Reason::Length)),
    }
}

fn expect(len: c_int, wanted: c_int) -> Result<(), CodecError> {
    match len {
        _ if len == wanted => Ok(()),
        0.. => Err(CodecError::corrupt(Algorithm::Lz4, Reason::TooShort)),
        _ => Err(CodecError::corrupt(Algorithm::Lz4, Reason::Malformed)),
    }
}
