//! How long a Zstandard block will be, from the entropy of its sequences: within 0.1 to 0.5 % for blocks of 64 KiB and
//! more, 2 % for a few KiB.
//!
//! Code numbers and extra bits are those of RFC 8878, section 3.1.1.3.2.1. The constants in [`Estimate::bytes`] are
//! those of `fixed-output-compression.md`, section 4.2, found by experiment with libzstd 1.5.7.

/// Extra bits of the literal length codes from 16 on; the codes below stand for their own number.
const LITERAL_BITS: [u8; 20] = [1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
/// Extra bits of the match length codes from 32 on; the codes below stand for their own number, plus 3.
const MATCH_BITS: [u8; 21] = [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

/// Codes of the lengths that are looked up; above, there is one code per power of two.
const LITERAL_CODES: [u8; 64] = codes(&LITERAL_BITS, 16);
const MATCH_CODES: [u8; 128] = codes(&MATCH_BITS, 32);

/// `n * log2(n)` is looked up below this.
const LOG_LEN: usize = 4096;

/// Statistics of the sequences of one block.
pub(super) struct Estimate {
    literals: [u32; 256],
    literal_codes: [u32; 36],
    match_codes: [u32; 53],
    offset_codes: [u32; 32],
    extra_bits: u32,
    /// The last three offsets, which repeat cheaply. They outlive the block.
    recent: [u32; 3],
    n_log_n: Box<[f32; LOG_LEN]>,
}

impl Estimate {
    pub(super) fn new() -> Self {
        let mut n_log_n = Box::new([0.0; LOG_LEN]);
        for (n, value) in n_log_n.iter_mut().enumerate().skip(1) {
            *value = n as f32 * (n as f32).log2();
        }
        let mut estimate = Estimate {
            literals: [0; 256],
            literal_codes: [0; 36],
            match_codes: [0; 53],
            offset_codes: [0; 32],
            extra_bits: 0,
            recent: [0; 3],
            n_log_n,
        };
        estimate.start_frame();
        estimate
    }

    pub(super) fn start_frame(&mut self) {
        self.start_block();
        self.recent = [1, 4, 8];
    }

    pub(super) fn start_block(&mut self) {
        self.literals = [0; 256];
        (self.literal_codes, self.match_codes, self.offset_codes) = ([0; 36], [0; 53], [0; 32]);
        self.extra_bits = 0;
    }

    /// Literals that a match of at least 3 bytes follows.
    pub(super) fn add_sequence(&mut self, literals: &[u8], match_len: u32, offset: u32) {
        self.add_literals(literals);
        let literal_len = literals.len() as u32;
        let literal_code = match LITERAL_CODES.get(literals.len()) {
            Some(&code) => usize::from(code),
            None => literal_len.ilog2() as usize + 19,
        };
        let rest = match_len - 3;
        let match_code = match MATCH_CODES.get(rest as usize) {
            Some(&code) => usize::from(code),
            None => rest.ilog2() as usize + 36,
        };
        let offset_code = self.offset_value(offset, literal_len == 0).ilog2();
        self.literal_codes[literal_code] += 1;
        self.match_codes[match_code] += 1;
        self.offset_codes[offset_code as usize] += 1;
        let bits = |table: &[u8], code: usize, first: usize| code.checked_sub(first).map_or(0, |i| table[i].into());
        self.extra_bits += offset_code + bits(&LITERAL_BITS, literal_code, 16) + bits(&MATCH_BITS, match_code, 32);
    }

    pub(super) fn add_literals(&mut self, literals: &[u8]) {
        for &byte in literals {
            self.literals[usize::from(byte)] += 1;
        }
    }

    /// The offset as it is coded: 1 to 3 for a recent one, 3 more than it is otherwise. Without literals the most
    /// recent one cannot be meant (the match before would be longer), and the numbers shift.
    fn offset_value(&mut self, offset: u32, no_literals: bool) -> u32 {
        let [first, second, third] = self.recent;
        let (value, recent) = match offset {
            _ if offset == first && !no_literals => (1, self.recent),
            _ if offset == second => (2 - u32::from(no_literals), [second, first, third]),
            _ if offset == third => (3 - u32::from(no_literals), [third, first, second]),
            _ if no_literals && offset == first.wrapping_sub(1) => (3, [offset, first, second]),
            _ => (offset + 3, [offset, first, second]),
        };
        self.recent = recent;
        value
    }

    /// The estimated length of the block, in bytes.
    pub(super) fn bytes(&self) -> f64 {
        let literals = self.entropy(&self.literals);
        let plain = f64::from(literals.count) + 3.0;
        let coded = literals.bits / 8.0 * 1.005 + 0.45 * literals.distinct + 5.0;
        let codes = [&self.literal_codes[..], &self.match_codes, &self.offset_codes].map(|counts| self.entropy(counts));
        let bits: f64 = codes.iter().map(|code| code.bits).sum();
        let distinct: f64 = codes.iter().map(|code| code.distinct).sum();
        coded.min(plain) + (bits + f64::from(self.extra_bits)) / 8.0 + 0.6 * distinct + 17.0
    }

    fn entropy(&self, counts: &[u32]) -> Entropy {
        let (mut count, mut distinct, mut sum) = (0, 0u32, 0.0f32);
        for &n in counts {
            count += n;
            distinct += u32::from(n != 0);
            sum += self.n_log_n(n);
        }
        Entropy { count, distinct: distinct.into(), bits: f64::from(self.n_log_n(count) - sum).max(0.0) }
    }

    fn n_log_n(&self, n: u32) -> f32 {
        match self.n_log_n.get(n as usize) {
            Some(&value) => value,
            None => n as f32 * (n as f32).log2(),
        }
    }
}

/// What one kind of symbols costs.
struct Entropy {
    count: u32,
    distinct: f64,
    bits: f64,
}

/// The code of each length: `first` codes of one length each, then codes of `1 << bits[i]` lengths.
const fn codes<const N: usize>(bits: &[u8], first: usize) -> [u8; N] {
    let mut codes = [0; N];
    let (mut len, mut code) = (0, 0);
    while len < N {
        let lengths = if code < first { 1 } else { 1 << bits[code - first] };
        let mut i = 0;
        while i < lengths && len < N {
            codes[len] = code as u8;
            (i, len) = (i + 1, len + 1);
        }
        code += 1;
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of the tables in RFC 8878.
    #[test]
    fn codes_are_the_standards() {
        assert_eq!([15, 16, 17, 18, 24, 32, 48, 63].map(|len| LITERAL_CODES[len]), [15, 16, 16, 17, 20, 22, 24, 24]);
        // Match lengths 34, 35, 43, 67, 99, 130.
        assert_eq!([31, 32, 40, 64, 96, 127].map(|len| MATCH_CODES[len]), [31, 32, 36, 40, 42, 42]);
        assert_eq!(64u32.ilog2() + 19, 25);
        assert_eq!(128u32.ilog2() + 36, 43);
    }

    #[test]
    fn recent_offsets_are_cheap() {
        let mut estimate = Estimate::new();
        assert_eq!(estimate.offset_value(100, false), 103);
        assert_eq!(estimate.offset_value(100, false), 1);
        assert_eq!(estimate.offset_value(1, false), 2); // second of 100, 1, 4
        assert_eq!(estimate.offset_value(100, true), 1); // of 1, 100, 4, without literals
        assert_eq!(estimate.offset_value(99, true), 3); // of 100, 1, 4
        assert_eq!(estimate.recent, [99, 100, 1]);
    }
}
