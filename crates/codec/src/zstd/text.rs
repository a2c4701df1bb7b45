//! Text by position, as tables of match finders have it, read without bounds checks.

/// Number of bytes from a position on that hashes and comparisons may read.
pub(super) const MARGIN: usize = 9;
/// Distance from the end of a block below which no match is searched for.
pub(super) const MATCH_MARGIN: usize = 5;

/// Text whose bytes have consecutive positions. Each function requires that the bytes it reads are
/// in the input.
#[derive(Clone, Copy)]
pub(super) struct Text {
    /// Place of position 0, which may be outside the input.
    origin: *const u8,
    /// Position of the first byte of the input.
    pub(super) base: usize,
    /// End of the block, which no match crosses.
    pub(super) limit: usize,
}

impl Text {
    /// Returns the text of `input`, whose first byte has position `base`, with the end of the block
    /// at that many bytes.
    pub(super) fn new(input: &[u8], base: usize, limit: usize) -> Text {
        assert!(limit <= input.len());
        Text { origin: input.as_ptr().wrapping_sub(base), base, limit: base + limit }
    }

    /// Returns the number of equal bytes at both positions, before the end of the block. The first
    /// `known` are known to be, even behind it.
    ///
    /// # Safety
    /// `base <= from < at <= limit`.
    #[inline(always)]
    pub(super) unsafe fn common_len(self, from: usize, at: usize, known: usize) -> usize {
        let room = self.limit - at;
        let mut len = known;
        while len + 16 <= room {
            // SAFETY: before the end of the block.
            let equal = unsafe { self.equal_16(from + len, at + len) };
            if equal != 0xFFFF {
                return len + equal.trailing_ones() as usize;
            }
            len += 16;
        }
        // SAFETY: likewise.
        while len < room && unsafe { self.byte(from + len) == self.byte(at + len) } {
            len += 1;
        }
        len.min(room)
    }

    /// Returns the number of equal bytes before both positions, down to `done` before the second.
    ///
    /// # Safety
    /// `base <= from < at` and `done <= at`.
    #[inline(always)]
    pub(super) unsafe fn common_len_before(self, from: usize, at: usize, done: usize) -> usize {
        let room = (at - done).min(from - self.base);
        let mut len = 0;
        if from - self.base >= 8 {
            // Few are longer, and a loop over so few bytes would seldom be predicted.
            // SAFETY: not before the start of the input.
            let different = unsafe { self.word64(from - 8) ^ self.word64(at - 8) };
            len = different.leading_zeros() as usize / 8;
            if len < 8 {
                return len.min(room);
            }
        }
        // SAFETY: likewise.
        while len < room && unsafe { self.byte(from - len - 1) == self.byte(at - len - 1) } {
            len += 1;
        }
        len.min(room)
    }

    /// Returns a bit for each of the 16 bytes at both positions that are equal.
    ///
    /// # Safety
    /// The positions and the 15 behind them are in the input.
    #[inline(always)]
    unsafe fn equal_16(self, one: usize, other: usize) -> u32 {
        let [one, other] = [one, other].map(|at| self.origin.wrapping_add(at));
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
            // SAFETY: guaranteed by the caller; all processors of this kind have SSE2.
            unsafe {
                let equal = _mm_cmpeq_epi8(_mm_loadu_si128(one.cast()), _mm_loadu_si128(other.cast()));
                _mm_movemask_epi8(equal) as u32
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            // SAFETY: guaranteed by the caller.
            let bytes = unsafe { [one.cast::<[u8; 16]>().read(), other.cast::<[u8; 16]>().read()] };
            (0..16).map(|i| u32::from(bytes[0][i] == bytes[1][i]) << i).sum()
        }
    }

    /// Reads 8 bytes.
    ///
    /// # Safety
    /// The position and the 7 behind it are in the input.
    #[inline(always)]
    pub(super) unsafe fn word64(self, at: usize) -> u64 {
        // SAFETY: guaranteed by the caller.
        u64::from_le_bytes(unsafe { self.origin.wrapping_add(at).cast::<[u8; 8]>().read() })
    }

    /// Reads 4 bytes.
    ///
    /// # Safety
    /// The position and the 3 behind it are in the input.
    #[inline(always)]
    pub(super) unsafe fn word32(self, at: usize) -> u32 {
        // SAFETY: guaranteed by the caller.
        u32::from_le_bytes(unsafe { self.origin.wrapping_add(at).cast::<[u8; 4]>().read() })
    }

    /// Reads a byte.
    ///
    /// # Safety
    /// The position is in the input.
    #[inline(always)]
    unsafe fn byte(self, at: usize) -> u8 {
        // SAFETY: guaranteed by the caller.
        unsafe { self.origin.wrapping_add(at).read() }
    }

    /// Asks the processor to load the text at a position.
    #[inline(always)]
    pub(super) fn prefetch(self, at: usize) {
        prefetch(self.origin.wrapping_add(at));
    }
}

/// Asks the processor to load what is at this place.
#[inline(always)]
pub(super) fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which any address may have.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
