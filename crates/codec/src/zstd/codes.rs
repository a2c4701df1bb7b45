//! Sequences as they are coded: RFC 8878, section 3.1.1.3.2.1.

/// Number of extra bits of each literal length code. Codes without any are their own length.
const LITERAL_BITS: [u8; CODES_LEN] = padded(&[
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
]);
/// Number of extra bits of each match length code. Codes without any are their own length minus 3.
const MATCH_BITS: [u8; CODES_LEN] = padded(&[
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2,
    3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
]);

/// Codes of the lengths that are looked up. Above them, there is one code per power of two.
const LITERAL_CODES: [(u8, u8); 64] = codes(&LITERAL_BITS);
const MATCH_CODES: [(u8, u8); 128] = codes(&MATCH_BITS);

use crate::words::for_processor;

/// Shortest match of the format.
const MATCH_MIN: u32 = 3;

const LITERAL_CODE_COUNT: usize = 36;
const MATCH_CODE_COUNT: usize = 53;
/// Number of offset codes: windows have at most 1 MiB, so offsets need at most 21 bits.
const OFFSET_CODE_COUNT: usize = 22;
/// Length of tables by code: a power of two, so that an index is masked and not checked.
pub(super) const CODES_LEN: usize = 64;

/// Some literals, and the match after them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    /// Offset as it is coded: comes from [`Recent::value`].
    pub(super) offset_value: u32,
    pub(super) literal_len: u32,
    /// At least 3.
    pub(super) match_len: u32,
    /// Codes of the three, and their extra bits together: set by [`Counts::add`].
    pub(super) literal_code: u8,
    pub(super) match_code: u8,
    pub(super) offset_code: u8,
    pub(super) extra_bits: u8,
}

impl Sequence {
    /// Returns a sequence without codes.
    #[inline(always)]
    pub(super) fn new(literal_len: u32, match_len: u32, offset_value: u32) -> Sequence {
        let (literal_code, match_code, offset_code, extra_bits) = (0, 0, 0, 0);
        Sequence { offset_value, literal_len, match_len, literal_code, match_code, offset_code, extra_bits }
    }

    /// Sets the codes.
    #[inline(always)]
    fn assign_codes(&mut self) {
        let (literal_code, literal_bits) = match LITERAL_CODES.get(self.literal_len as usize) {
            Some(&both) => both,
            None => (self.literal_len.ilog2() as u8 + 19, self.literal_len.ilog2() as u8),
        };
        let rest = self.match_len - MATCH_MIN;
        let (match_code, match_bits) = match MATCH_CODES.get(rest as usize) {
            Some(&both) => both,
            None => (rest.ilog2() as u8 + 36, rest.ilog2() as u8),
        };
        let offset_code = self.offset_value.ilog2() as u8;
        let extra_bits = literal_bits + match_bits + offset_code;
        (self.literal_code, self.match_code, self.offset_code, self.extra_bits) =
            (literal_code, match_code, offset_code, extra_bits);
    }

    #[inline(always)]
    fn literal_bits(&self) -> u8 {
        LITERAL_BITS[usize::from(self.literal_code) % CODES_LEN]
    }

    #[inline(always)]
    fn match_bits(&self) -> u8 {
        MATCH_BITS[usize::from(self.match_code) % CODES_LEN]
    }

    /// Returns the extra bits of the three codes: literal length lowest, then match length, then
    /// offset.
    #[inline(always)]
    pub(super) fn extra(&self) -> u64 {
        let (literal_bits, match_bits) = (self.literal_bits(), self.match_bits());
        // The lengths of a code start at a multiple of 2^bits: the lowest bits are the extra bits.
        let low = |value: u32, bits: u8| u64::from(value) & ((1 << bits) - 1);
        low(self.literal_len, literal_bits)
            | low(self.match_len - MATCH_MIN, match_bits) << literal_bits
            | low(self.offset_value, self.offset_code) << (literal_bits + match_bits)
    }
}

/// The last three offsets, which are cheap to repeat. They outlive the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recent(pub(super) [u32; 3]);

impl Recent {
    /// Offsets at the start of every frame.
    pub(super) const FIRST: Recent = Recent([1, 4, 8]);

    /// Returns the offset as it is coded: 1 to 3 for a recent one, else the offset plus 3. Without
    /// literals it cannot be the most recent one (the match before would be longer), and the
    /// numbers shift.
    #[inline]
    pub(super) fn value(&mut self, offset: u32, no_literals: bool) -> u32 {
        let [first, second, third] = self.0;
        let (value, recent) = match offset {
            _ if offset == first && !no_literals => (1, self.0),
            _ if offset == second => (2 - u32::from(no_literals), [second, first, third]),
            _ if offset == third => (3 - u32::from(no_literals), [third, first, second]),
            _ if no_literals && offset == first.wrapping_sub(1) => (3, [offset, first, second]),
            _ => (offset + 3, [offset, first, second]),
        };
        self.0 = recent;
        value
    }

    /// Returns the offset of a coded value, as a reader does.
    fn offset(&mut self, value: u32, no_literals: bool) -> u32 {
        let [first, second, third] = self.0;
        let (offset, recent) = match value + u32::from(no_literals && value <= 3) {
            1 => (first, self.0),
            2 => (second, [second, first, third]),
            3 => (third, [third, first, second]),
            4 if value == 3 => (first - 1, [first - 1, first, second]),
            _ => (value - 3, [value - 3, first, second]),
        };
        self.0 = recent;
        offset
    }
}

/// Recodes the offsets of `sequences` to follow `to` instead of `from`, and returns the recent
/// offsets after them.
pub(super) fn recode(sequences: &mut [Sequence], mut from: Recent, mut to: Recent) -> Recent {
    for sequence in sequences {
        let no_literals = sequence.literal_len == 0;
        let offset = from.offset(sequence.offset_value, no_literals);
        sequence.offset_value = to.value(offset, no_literals);
    }
    to
}

/// Counts of the symbols of a block.
#[derive(Clone)]
pub(super) struct Counts {
    pub(super) literals: [u32; 256],
    pub(super) literal_codes: [u32; CODES_LEN],
    pub(super) match_codes: [u32; CODES_LEN],
    pub(super) offset_codes: [u32; CODES_LEN],
    pub(super) extra_bits: u64,
    pub(super) literal_count: u32,
    pub(super) sequence_count: u32,
}

impl Counts {
    pub(super) const NONE: Counts = Counts {
        literals: [0; 256],
        literal_codes: [0; CODES_LEN],
        match_codes: [0; CODES_LEN],
        offset_codes: [0; CODES_LEN],
        extra_bits: 0,
        literal_count: 0,
        sequence_count: 0,
    };

    /// Returns the counts of the codes of literal lengths, of match lengths and of offsets.
    pub(super) fn codes(&self) -> [&[u32]; 3] {
        [
            &self.literal_codes[..LITERAL_CODE_COUNT],
            &self.match_codes[..MATCH_CODE_COUNT],
            &self.offset_codes[..OFFSET_CODE_COUNT],
        ]
    }

    /// Counts literals and sequences, and sets the codes of these.
    pub(super) fn add(&mut self, literals: &[u8], sequences: &mut [Sequence]) {
        for_processor!(
            Counts::add_now => (
                self => counts: &mut Counts,
                literals => literals: &[u8],
                sequences => sequences: &mut [Sequence]
            ) -> ()
        );
    }

    #[inline(always)]
    fn add_now(&mut self, literals: &[u8], sequences: &mut [Sequence]) {
        self.literal_count += literals.len() as u32;
        self.sequence_count += sequences.len() as u32;
        self.add_literals(literals);
        let mut extra_bits = 0;
        for sequence in sequences {
            sequence.assign_codes();
            self.literal_codes[usize::from(sequence.literal_code) % CODES_LEN] += 1;
            self.match_codes[usize::from(sequence.match_code) % CODES_LEN] += 1;
            self.offset_codes[usize::from(sequence.offset_code) % CODES_LEN] += 1;
            extra_bits += u64::from(sequence.extra_bits);
        }
        self.extra_bits += extra_bits;
    }

    pub(super) fn merge(&mut self, more: &Counts) {
        let add = |to: &mut [u32], from: &[u32]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        add(&mut self.literals, &more.literals);
        add(&mut self.literal_codes, &more.literal_codes);
        add(&mut self.match_codes, &more.match_codes);
        add(&mut self.offset_codes, &more.offset_codes);
        self.extra_bits += more.extra_bits;
        self.literal_count += more.literal_count;
        self.sequence_count += more.sequence_count;
    }

    /// Subtracts literals that were counted here.
    pub(super) fn remove_literals(&mut self, less: &Counts) {
        self.literals.iter_mut().zip(&less.literals).for_each(|(from, less)| *from -= less);
        self.literal_count -= less.literal_count;
    }

    /// Counts literals in four tables: to increment the same counter twice in a row would wait for
    /// the first sum.
    #[inline(always)]
    fn add_literals(&mut self, literals: &[u8]) {
        if literals.len() < 256 {
            return literals.iter().for_each(|&byte| self.literals[usize::from(byte)] += 1);
        }
        let mut more = [[0u32; 256]; 3];
        let (chunks, rest) = literals.as_chunks::<8>();
        for chunk in chunks {
            let word = u64::from_le_bytes(*chunk);
            for half in [word, word >> 32] {
                self.literals[usize::from(half as u8)] += 1;
                more[0][usize::from((half >> 8) as u8)] += 1;
                more[1][usize::from((half >> 16) as u8)] += 1;
                more[2][usize::from((half >> 24) as u8)] += 1;
            }
        }
        rest.iter().for_each(|&byte| self.literals[usize::from(byte)] += 1);
        for (i, sum) in self.literals.iter_mut().enumerate() {
            *sum += more[0][i] + more[1][i] + more[2][i];
        }
    }
}

/// Returns the table with zeros behind it.
const fn padded(bits: &[u8]) -> [u8; CODES_LEN] {
    let mut all = [0; CODES_LEN];
    all.split_at_mut(bits.len()).0.copy_from_slice(bits);
    all
}

/// Returns the code of each length and its extra bits, of codes for `1 << bits[i]` lengths.
const fn codes<const N: usize>(bits: &[u8]) -> [(u8, u8); N] {
    let mut codes = [(0, 0); N];
    let (mut len, mut code) = (0, 0);
    while len < N {
        let mut i = 0;
        while i < 1 << bits[code] && len < N {
            codes[len] = (code as u8, bits[code]);
            (i, len) = (i + 1, len + 1);
        }
        code += 1;
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sequence with codes.
    fn coded(literal_len: u32, match_len: u32, offset_value: u32) -> Sequence {
        let mut sequence = Sequence::new(literal_len, match_len, offset_value);
        sequence.assign_codes();
        sequence
    }

    /// Samples of the tables in RFC 8878.
    #[test]
    fn codes_are_the_standards() {
        let literal_codes = [15, 16, 17, 18, 24, 32, 48, 63, 64].map(|len| coded(len, 3, 1).literal_code);
        assert_eq!(literal_codes, [15, 16, 16, 17, 20, 22, 24, 24, 25]);
        let match_codes = [34, 35, 43, 67, 99, 130, 131].map(|len| coded(0, len, 1).match_code);
        assert_eq!(match_codes, [31, 32, 36, 40, 42, 42, 43]);
    }

    /// A code's first length plus its extra bits is the length.
    #[test]
    fn extra_bits_complete_the_codes() {
        let base = |bits: &[u8], code: u8| bits[..usize::from(code)].iter().map(|bits| 1 << bits).sum::<u32>();
        for len in (0..300).chain([1000, 4095, 4096, 65535, 65536, 131_071]) {
            let sequence = coded(len, len + 3, 5);
            let (literal_bits, match_bits) = (sequence.literal_bits(), sequence.match_bits());
            let low = |value: u64, bits: u8| (value & ((1 << bits) - 1)) as u32;
            let extra = sequence.extra();
            assert_eq!(base(&LITERAL_BITS, sequence.literal_code) + low(extra, literal_bits), len);
            assert_eq!(base(&MATCH_BITS, sequence.match_code) + low(extra >> literal_bits, match_bits), len);
            assert_eq!(extra >> (literal_bits + match_bits), 1, "5 is 2^2 and 1");
            assert_eq!(sequence.extra_bits, literal_bits + match_bits + 2);
        }
    }

    #[test]
    fn recent_offsets_are_cheap() {
        let mut recent = Recent::FIRST;
        assert_eq!(recent.value(100, false), 103);
        assert_eq!(recent.value(100, false), 1);
        assert_eq!(recent.value(1, false), 2); // second of 100, 1, 4
        assert_eq!(recent.value(100, true), 1); // of 1, 100, 4, without literals
        assert_eq!(recent.value(99, true), 3); // of 100, 1, 4
        assert_eq!(recent, Recent([99, 100, 1]));
    }
}
