//! Bits in the order of RFC 1951, section 3.1.1, and of RFC 8878: the first bit is the lowest of the
//! first byte.

/// Writer of bits to a slice. The caller provides enough room: bits that do not fit are lost, which
/// `debug_assert`s detect.
pub(crate) struct BitWriter<'a> {
    out: &'a mut [u8],
    /// Number of bytes that are complete and written.
    len: usize,
    /// Bits that are not yet written, the first one lowest.
    pending: u64,
    /// Number of pending bits: fewer than 8 between calls.
    count: u32,
}

impl<'a> BitWriter<'a> {
    /// Most bits that one [`put`](Self::put) takes.
    pub(crate) const PUT_MAX: u32 = 56;

    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        BitWriter { out, len: 0, pending: 0, count: 0 }
    }

    /// Writes the lowest `count` bits of `bits`. All others must be 0.
    #[inline(always)]
    pub(crate) fn put(&mut self, bits: u64, count: u32) {
        debug_assert!(count <= Self::PUT_MAX && bits >> count == 0);
        self.pending |= bits << self.count;
        self.count += count;
        let word = self.pending.to_le_bytes();
        // Eight bytes at once. The next call overwrites those that are not yet complete.
        match self.out.get_mut(self.len..).and_then(|rest| rest.first_chunk_mut()) {
            Some(slot) => *slot = word,
            None => self.put_at_end(&word),
        }
        self.len += self.count as usize / 8;
        self.pending >>= self.count & !7;
        self.count &= 7;
    }

    /// Writes as many bytes of `word` as there is room for.
    #[cold]
    fn put_at_end(&mut self, word: &[u8; 8]) {
        let rest = self.out.get_mut(self.len..).unwrap_or_default();
        let len = rest.len();
        debug_assert!(len * 8 >= self.count as usize, "bits behind the end");
        rest.copy_from_slice(&word[..len]);
    }

    /// Writes zeros up to the next byte boundary.
    pub(crate) fn align(&mut self) {
        self.put(0, (8 - self.count) % 8);
    }

    /// Writes whole bytes. The writer must be aligned.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        debug_assert_eq!(self.count, 0);
        self.out[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Sets a bit that was written as 0.
    pub(crate) fn set(&mut self, at: usize) {
        debug_assert!(at < self.bit_len());
        match self.out.get_mut(at / 8) {
            Some(byte) if at / 8 < self.len => *byte |= 1 << (at % 8),
            _ => self.pending |= 1 << (at % 8),
        }
    }

    /// Returns the number of bits written so far.
    pub(crate) fn bit_len(&self) -> usize {
        self.len * 8 + self.count as usize
    }

    /// Fills the last byte with zeros, and returns the number of bytes written.
    pub(crate) fn finish(mut self) -> usize {
        self.align();
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference implementation: one bit at a time.
    #[derive(Default)]
    struct Naive(Vec<bool>);

    impl Naive {
        fn put(&mut self, bits: u64, count: u32) {
            self.0.extend((0..count).map(|i| bits >> i & 1 == 1));
        }

        fn bytes(&self) -> Vec<u8> {
            let byte = |bits: &[bool]| bits.iter().enumerate().map(|(i, &bit)| u8::from(bit) << i).sum();
            self.0.chunks(8).map(byte).collect()
        }
    }

    proptest! {
        #[test]
        fn bits_are_the_naive_ones(
            puts in prop::collection::vec((any::<u64>(), 0..=BitWriter::PUT_MAX), 0..100),
            set in any::<prop::sample::Index>(),
            slack in 0usize..10,
        ) {
            let mut naive = Naive::default();
            let puts: Vec<_> = puts.into_iter().map(|(bits, count)| (bits & ((1 << count) - 1), count)).collect();
            puts.iter().for_each(|&(bits, count)| naive.put(bits, count));
            // Exactly the room that is needed, or a little more, which must stay untouched beyond a
            // word.
            let mut out = vec![0; naive.bytes().len() + slack];
            let mut writer = BitWriter::new(&mut out);
            puts.iter().for_each(|&(bits, count)| writer.put(bits, count));
            prop_assert_eq!(writer.bit_len(), naive.0.len());
            if !naive.0.is_empty() {
                let at = set.index(naive.0.len());
                writer.set(at);
                naive.0[at] = true;
            }
            let len = writer.finish();
            prop_assert_eq!(&out[..len], &naive.bytes()[..]);
        }
    }

    #[test]
    fn whole_bytes_follow_bits() {
        let mut out = [0; 4];
        let mut writer = BitWriter::new(&mut out);
        writer.put(0b101, 3);
        writer.align();
        writer.align();
        writer.bytes(b"ab");
        writer.put(1, 1);
        assert_eq!(writer.finish(), 4);
        assert_eq!(out, [0b101, b'a', b'b', 1]);
    }
}
