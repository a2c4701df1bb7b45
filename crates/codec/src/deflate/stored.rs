//! Stored blocks. A long text takes several.

use crate::bits::BitWriter;

/// BFINAL and BTYPE.
const HEADER_BITS: usize = 3;
/// Length and its complement.
const LEN_BITS: usize = 32;
const TEXT_MAX: usize = 0xFFFF;

/// Returns the number of bits that `len` bytes take if the first block begins at bit `at`.
pub(super) fn bits(at: usize, len: usize) -> usize {
    let end = (at + HEADER_BITS).next_multiple_of(8) + LEN_BITS;
    let more = len.div_ceil(TEXT_MAX).saturating_sub(1);
    end - at + len * 8 + more * (8 + LEN_BITS)
}

/// Returns the number of bytes that fit in `room` bits if the first block begins at bit `at`.
pub(super) fn len_that_fits(at: usize, room: usize) -> usize {
    let Some(rest) = room.checked_sub(bits(at, 0)) else { return 0 };
    let rest = rest / 8;
    let block = TEXT_MAX + 5;
    rest / block * TEXT_MAX + (rest % block).min(TEXT_MAX)
}

/// Writes blocks, none marked as the last, and returns the bit position of the last one's header.
/// There must be enough room.
pub(super) fn write(text: &[u8], out: &mut BitWriter<'_>) -> Option<usize> {
    let mut header = None;
    for part in text.chunks(TEXT_MAX) {
        header = Some(out.bit_len());
        out.put(0, HEADER_BITS as u32);
        out.align();
        let len = part.len() as u64;
        out.put(len | (len ^ 0xFFFF) << 16, LEN_BITS as u32);
        out.bytes(part);
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_is_written() {
        let mut out = vec![0; 300_000];
        for at in 0..9 {
            for len in [0, 1, 2, 65_534, 65_535, 65_536, 131_070, 131_071, 200_000] {
                let mut writer = BitWriter::new(&mut out);
                writer.put(0, at);
                write(&vec![7; len], &mut writer);
                let at = at as usize;
                let written = writer.bit_len() - at;
                assert!(len == 0 || written == bits(at, len), "{at} {len}");
                let fits = len_that_fits(at, bits(at, len));
                assert!(fits == len, "{at}: {fits}, not {len}");
                assert!(len == 0 || len_that_fits(at, bits(at, len) - 1) < len);
            }
        }
    }
}
