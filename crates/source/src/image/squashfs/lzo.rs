//! Decoder of LZO1X, according to version 0 in the kernel's document "LZO stream format as
//! understood by Linux's LZO decompressor".
//!
//! A stream is a sequence of instructions. Most copy a match from the decoded text and then 0 to 3
//! literals; another one copies a long run of literals. The meaning of instructions below 16
//! depends on the number of literals that were copied last.

/// Distance that marks the end of the stream.
const END: usize = 0x4000;

/// Decodes all of `packed` to the front of `plain`. Returns the plain length in bytes, or `None` if
/// the stream is invalid or longer than `plain`.
pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Option<usize> {
    let (mut input, mut output) = (Input(packed), Output { buf: plain, len: 0 });
    // Number of literals that were copied last; 4 stands for more than 3.
    let mut literals = 0;
    if let [first @ 18..=255, rest @ ..] = packed {
        let count = usize::from(first - 17);
        input = Input(rest);
        output.push(input.take(count)?)?;
        literals = count.min(4);
    }
    loop {
        let op = input.byte()?;
        let (distance, len, next_literals) = match op {
            0..=15 if literals == 0 => {
                output.push(input.len(op, 15).and_then(|len| input.take(len + 3))?)?;
                literals = 4;
                continue;
            }
            0..=15 => {
                let near = usize::from(input.byte()?) << 2 | usize::from(op >> 2);
                let (farther, len) = if literals == 4 { (0x800, 3) } else { (0, 2) };
                (near + farther + 1, len, op)
            }
            16..=31 => {
                let len = input.len(op, 7)? + 2;
                let [low, high] = input.pair()?;
                let distance = END + (usize::from(op & 8) << 11) + (usize::from(high) << 6 | usize::from(low >> 2));
                if distance == END {
                    return Some(output.len);
                }
                (distance, len, low)
            }
            32..=63 => {
                let len = input.len(op, 31)? + 2;
                let [low, high] = input.pair()?;
                ((usize::from(high) << 6 | usize::from(low >> 2)) + 1, len, low)
            }
            64.. => {
                let len = if op < 128 { 3 + usize::from(op >> 5 & 1) } else { 5 + usize::from(op >> 5 & 3) };
                ((usize::from(input.byte()?) << 3 | usize::from(op >> 2 & 7)) + 1, len, op)
            }
        };
        output.copy(distance, len)?;
        literals = usize::from(next_literals & 3);
        output.push(input.take(literals)?)?;
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn pair(&mut self) -> Option<[u8; 2]> {
        Some([self.byte()?, self.byte()?])
    }

    /// Returns the length in the bits `mask` of `op`. If they are 0, it is `mask`, plus 255 for
    /// each following zero byte, plus the byte after these.
    fn len(&mut self, op: u8, mask: u8) -> Option<usize> {
        if op & mask != 0 {
            return Some(usize::from(op & mask));
        }
        let zeros = self.0.iter().position(|&byte| byte != 0)?;
        self.take(zeros)?;
        Some(usize::from(mask) + 255 * zeros + usize::from(self.byte()?))
    }
}

struct Output<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl Output<'_> {
    fn push(&mut self, literals: &[u8]) -> Option<()> {
        self.buf.get_mut(self.len..)?.get_mut(..literals.len())?.copy_from_slice(literals);
        self.len += literals.len();
        Some(())
    }

    /// Copies a match, which may overlap its own output.
    fn copy(&mut self, distance: usize, len: usize) -> Option<()> {
        let (start, end) = (self.len.checked_sub(distance)?, self.len + len);
        if end > self.buf.len() {
            return None;
        }
        while self.len < end {
            // The output repeats every `distance` bytes, so each step can copy twice as much.
            let part = (self.len - start).min(end - self.len);
            self.buf.copy_within(start..start + part, self.len);
            self.len += part;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(packed: &[u8]) -> Option<Vec<u8>> {
        let mut plain = vec![0xA5; 600];
        let len = decode(packed, &mut plain)?;
        plain.truncate(len);
        Some(plain)
    }

    const LAST: [u8; 3] = [0x11, 0, 0];

    #[test]
    fn each_instruction_is_decoded() {
        let cases: [(&[u8], &[u8]); 8] = [
            (&[], b""),
            // 4 literals from the first byte, then 3 bytes at distance 4 (64..127), then one
            // literal.
            (&[21, b'a', b'b', b'c', b'd', 0b0100_1101, 0, b'e'], b"abcdabce"),
            // 1 literal from the first byte; 2 bytes at distance 1 (below 16, after 1 to 3
            // literals).
            (&[18, b'x', 0, 0], b"xxx"),
            // 18 + 5 literals in the extended form.
            (
                &[0, 5, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65, 65],
                &[65; 23],
            ),
            // 33 + 2 bytes at distance 1 (32..63, extended), 2 literals.
            (&[18, b'z', 0x20, 2, 2, 0, b'e', b'f'], b"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzef"),
            // 6 bytes at distance 2 (128..255).
            (&[19, b'a', b'b', 0b1010_0100, 0], b"abababab"),
            // A long length: 31 + 255 + 1 + 2 bytes at distance 1.
            (&[18, b'z', 0x20, 0, 1, 0, 0], &[b'z'; 290]),
            // After a long run of literals without further literals: one more instruction.
            (&[0x01, b'a', b'b', b'c', b'd', 0b0100_1100, 0], b"abcdabc"),
        ];
        for (packed, plain) in cases {
            assert_eq!(decoded(&[packed, &LAST].concat()).as_deref(), Some(plain), "{packed:?}");
            assert_eq!(decoded(packed), None, "a stream without its end");
        }
    }

    #[test]
    fn streams_that_cannot_be_are_refused() {
        // Before the start, beyond the end of the output, truncated.
        for packed in [&[18, b'x', 4, 0, 0x11, 0, 0][..], &[0x20, 0, 0, 0, 0x11, 0, 0], &[255], &[0x11, 0], &[0, 0, 0]]
        {
            assert_eq!(decoded(packed), None, "{packed:?}");
        }
        let mut long = vec![18, b'z', 0x20, 0, 0, 255, 0, 0];
        long.extend(LAST);
        assert_eq!(decoded(&long), None);
    }

    #[test]
    fn noise_is_refused_or_decoded() {
        let (mut state, mut decoded_count, mut plain) = (1_u32, 0, [0; 300]);
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        for round in 0..100_000 {
            let mut packed: Vec<u8> = (0..round % 40).map(|_| noise() & noise()).collect();
            packed.extend(LAST);
            decoded_count += u32::from(decode(&packed, &mut plain).is_some());
        }
        assert!((1000..99_000).contains(&decoded_count), "{decoded_count}");
    }
}
