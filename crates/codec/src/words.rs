//! Words of text for the match finders, read without bounds checks, which the compiler cannot prove
//! away.

/// Returns the number of bytes, up to `len_max`, that are equal at both positions. The first
/// `known` are known to be.
///
/// # Safety
/// `earlier < at` and `at + len_max <= input.len()`.
#[inline(always)]
pub(crate) unsafe fn common_len(input: &[u8], earlier: usize, at: usize, known: usize, len_max: usize) -> usize {
    let mut len = known;
    while len + 8 <= len_max {
        // SAFETY: at + len + 8 <= at + len_max.
        let different = unsafe { load64(input, earlier + len) ^ load64(input, at + len) };
        if different != 0 {
            return len + different.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    while len < len_max && input[earlier + len] == input[at + len] {
        len += 1;
    }
    len
}

/// Reads 4 bytes, little-endian, at `at`.
///
/// # Safety
/// `at + 4 <= input.len()`.
#[inline(always)]
pub(crate) unsafe fn load32(input: &[u8], at: usize) -> u32 {
    debug_assert!(at + 4 <= input.len());
    // SAFETY: guaranteed by the caller.
    u32::from_le_bytes(unsafe { input.as_ptr().add(at).cast::<[u8; 4]>().read() })
}

/// Reads 8 bytes, little-endian, at `at`.
///
/// # Safety
/// `at + 8 <= input.len()`.
#[inline(always)]
pub(crate) unsafe fn load64(input: &[u8], at: usize) -> u64 {
    debug_assert!(at + 8 <= input.len());
    // SAFETY: guaranteed by the caller.
    u64::from_le_bytes(unsafe { input.as_ptr().add(at).cast::<[u8; 8]>().read() })
}

/// Calls a function, which must be `inline(always)`, in a copy that is compiled for processors with
/// BMI2 and LZCNT if this is one: shifts and masks by variable counts take fewer instructions.
macro_rules! for_processor {
    ($function:path => ($($argument:expr => $name:ident: $type:ty),*) -> $result:ty) => {{
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            #[target_feature(enable = "bmi1,bmi2,lzcnt")]
            fn copy($($name: $type),*) -> $result {
                $function($($name),*)
            }
            if has!("bmi1") && has!("bmi2") && has!("lzcnt") {
                // SAFETY: the processor has these instructions.
                return unsafe { copy($($argument),*) };
            }
        }
        $function($($argument),*)
    }};
}
pub(crate) use for_processor;
