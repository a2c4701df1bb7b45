//! LZ4 blocks, by liblz4: both encoders stop exactly where the room ends, in one pass.

use crate::{CodecError, Filled, Reason};
use kiln_format::Algorithm;
use std::ffi::{c_char, c_int, c_void};

// lz4-sys links liblz4 1.10 but declares none of these, which are in its lz4.h and lz4hc.h.
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

/// The version of liblz4.
pub(crate) fn library_version() -> u32 {
    // SAFETY: takes nothing and returns a constant.
    (unsafe { LZ4_versionNumber() }) as u32
}

/// Plain bytes whose encoding is estimated at once: what is encoded for that lies on the stack.
pub(crate) const SCRATCH_LEN: usize = 64 << 10;

/// The fast encoder. Its state, a table of 16 KiB, lives on liblz4's stack.
pub(crate) struct Lz4Encoder(());

impl Lz4Encoder {
    pub(crate) fn new() -> Self {
        Lz4Encoder(())
    }

    pub(crate) fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Filled {
        dest_size(input, out, |src, dst, src_len, dst_len| {
            // SAFETY: `dest_size` passes pointers to `src_len` readable and `dst_len` writable bytes; liblz4 stays
            // within both.
            unsafe { LZ4_compress_destSize(src, dst, src_len, dst_len) }
        })
    }
}

/// The slow encoder.
pub(crate) struct Lz4hcEncoder {
    level: c_int,
    state: Box<[u64]>, // liblz4 wants it aligned to 8 bytes
}

impl Lz4hcEncoder {
    pub(crate) fn new(level: i32) -> Self {
        // SAFETY: takes nothing and returns a constant.
        let len = unsafe { LZ4_sizeofStateHC() } as usize;
        Lz4hcEncoder { level, state: vec![0; len.div_ceil(8)].into_boxed_slice() }
    }

    pub(crate) fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Filled {
        dest_size(input, out, |src, dst, src_len, dst_len| {
            let state = self.state.as_mut_ptr().cast();
            // SAFETY: as above; `state` is exclusively ours, has the length that liblz4 asked for, and is initialised
            // by this call.
            unsafe { LZ4_compress_HC_destSize(state, src, dst, src_len, dst_len, self.level) }
        })
    }
}

/// Call one of the destSize functions, which take the lengths as `c_int` and return the input's share through a
/// pointer.
fn dest_size(
    input: &[u8],
    out: &mut [u8],
    call: impl FnOnce(*const c_char, *mut c_char, *mut c_int, c_int) -> c_int,
) -> Filled {
    // Both are far below 2 GiB: an extent has at most 12 MiB, a pcluster 1 MiB. Less is always allowed.
    let mut src_len = c_int::try_from(input.len()).unwrap_or(c_int::MAX);
    let dst_len = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
    let produced = call(input.as_ptr().cast(), out.as_mut_ptr().cast(), &mut src_len, dst_len);
    if produced <= 0 {
        return Filled::default(); // not even one token fits
    }
    Filled { consumed: src_len as usize, produced: produced as usize }
}

/// Length of `unit`, at most 64 KiB, by LZ4, or `None` if that is over `room` bytes. The acceleration is LZ4's: 1 looks at
/// every byte, more is faster.
pub(crate) fn encoded_len(unit: &[u8], room: usize, acceleration: c_int) -> Option<usize> {
    let mut scratch = [0u8; SCRATCH_LEN];
    let unit = &unit[..unit.len().min(scratch.len())];
    let room = room.min(scratch.len());
    // SAFETY: both buffers are valid for the lengths passed, which are at most 64 KiB; liblz4 gives up, and returns 0,
    // where the output would exceed `room`.
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

/// Decode all of `src` to exactly `dst.len()` bytes.
pub(crate) fn decode_whole(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let (src_len, dst_len) = lengths(src, dst)?;
    // SAFETY: both pointers are valid for the lengths passed; the function is made for untrusted input.
    let len = unsafe { LZ4_decompress_safe(src.as_ptr().cast(), dst.as_mut_ptr().cast(), src_len, dst_len) };
    expect(len, dst_len)
}

/// Decode the first `dst.len()` bytes; what lies behind them in `src` is not looked at.
pub(crate) fn decode_prefix(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let (src_len, dst_len) = lengths(src, dst)?;
    // SAFETY: as above. liblz4 warns of wrong output where `want_len` exceeds what the block decodes to and `src_len`
    // what the block has: then bytes behind the block are decoded as tokens, still within both buffers.
    let len =
        unsafe { LZ4_decompress_safe_partial(src.as_ptr().cast(), dst.as_mut_ptr().cast(), src_len, dst_len, dst_len) };
    expect(len, dst_len)
}

/// Refuse a block with a match at distance 0 among what makes its first `plain_len` bytes. The format forbids it, but
/// liblz4, like Linux, does not look: it leaves what was in the destination before. Looking costs almost half of the
/// decoder's speed, so only callers that need it look.
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

/// A length whose first 4 bits are in the token: 15 goes on in the bytes behind it, up to one that is not 255.
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
