//! Literals, lengths and distances as coded by RFC 1951, section 3.2.5.

/// Number of literals, end of block, and lengths. The last two are never used, but have codes in
/// static blocks.
pub(super) const LITLEN_COUNT: usize = 288;
/// Number of distances, and one more for "none".
pub(super) const DIST_COUNT: usize = 31;
pub(super) const END_OF_BLOCK: usize = 256;

pub(super) const MATCH_MIN: usize = 3;
pub(super) const MATCH_MAX: usize = 258;
/// Longest distance in bytes.
pub(super) const WINDOW_LEN: usize = 32 << 10;

const LEN_SYMBOLS: usize = 29;
/// Number of extra bits after the symbol of a length. Lengths start at 3 and are consecutive.
const LEN_EXTRA: [u8; LEN_SYMBOLS] =
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
/// Distance symbol of literals, which have no distance.
const NO_DIST: u32 = 30;

/// Symbol of a length, and the extra bits after it. Indexed by the length minus 3.
#[derive(Clone, Copy)]
pub(super) struct LenSymbol {
    pub(super) symbol: u16,
    pub(super) extra: u8,
    pub(super) extra_bits: u8,
}

pub(super) const LEN_TABLE: [LenSymbol; 256] = {
    let mut table = [LenSymbol { symbol: 0, extra: 0, extra_bits: 0 }; 256];
    let (mut symbol, mut at) = (0, 0);
    while symbol < LEN_SYMBOLS {
        let mut extra = 0;
        while extra < 1 << LEN_EXTRA[symbol] && at < 256 {
            let extra_bits = LEN_EXTRA[symbol];
            table[at] = LenSymbol { symbol: (257 + symbol) as u16, extra, extra_bits };
            (extra, at) = (extra + 1, at + 1);
        }
        symbol += 1;
    }
    // 258 has its own symbol, although the one before could express it.
    table[255] = LenSymbol { symbol: 285, extra: 0, extra_bits: 0 };
    table
};

/// Returns the number of extra bits after a distance's symbol.
pub(super) fn dist_extra_bits(symbol: usize) -> u32 {
    match symbol {
        2..30 => symbol as u32 / 2 - 1,
        _ => 0,
    }
}

/// Literal or match, ready to be coded without a branch.
///
/// Bits 0 to 8 hold the literal, or the length plus 253. Bits 9 to 13 hold the symbol of the
/// distance, which for literals is one that takes no bits. The bits above hold the distance's extra
/// bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token(u32);

impl Token {
    #[inline]
    pub(super) fn literal(byte: u8) -> Token {
        Token(u32::from(byte) | NO_DIST << 9)
    }

    #[inline]
    pub(super) fn of_match(len: usize, dist: usize) -> Token {
        debug_assert!((MATCH_MIN..=MATCH_MAX).contains(&len) && (1..=WINDOW_LEN).contains(&dist));
        let dist = dist as u32 - 1;
        // Two symbols per power of two. The bits below the upper two are extra bits.
        let (symbol, extra) = if dist < 4 {
            (dist, 0)
        } else {
            let log = dist.ilog2();
            (2 * log + (dist >> (log - 1) & 1), dist & ((1 << (log - 1)) - 1))
        };
        Token((len as u32 + 253) & 511 | symbol << 9 | extra << 14)
    }

    /// Returns the number of the literal or length, below 512.
    #[inline]
    pub(super) fn litlen(self) -> usize {
        (self.0 & 511) as usize
    }

    #[inline]
    pub(super) fn dist_symbol(self) -> usize {
        (self.0 >> 9 & 31) as usize
    }

    #[inline]
    pub(super) fn dist_extra(self) -> u64 {
        u64::from(self.0 >> 14)
    }

    /// Returns the length of the token's text in bytes.
    #[inline]
    pub(super) fn len(self) -> usize {
        match self.litlen() {
            0..256 => 1,
            long => long - 253,
        }
    }
}

/// Counts of the symbols.
#[derive(Clone)]
pub(super) struct Histogram {
    pub(super) litlen: [u32; LITLEN_COUNT],
    pub(super) dist: [u32; 32],
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::EMPTY
    }
}

impl Histogram {
    pub(super) const EMPTY: Histogram = Histogram { litlen: [0; LITLEN_COUNT], dist: [0; 32] };

    #[inline]
    pub(super) fn add_literal(&mut self, byte: u8) {
        self.litlen[usize::from(byte)] += 1;
    }

    #[inline]
    pub(super) fn add_match(&mut self, token: Token) {
        let len = LEN_TABLE[token.litlen() & 255];
        self.litlen[usize::from(len.symbol)] += 1;
        self.dist[token.dist_symbol()] += 1;
    }

    pub(super) fn merge(&mut self, other: &Histogram) {
        self.litlen.iter_mut().zip(&other.litlen).for_each(|(a, b)| *a += b);
        self.dist.iter_mut().zip(&other.dist).for_each(|(a, b)| *a += b);
    }

    /// Returns the number of extra bits after the symbols.
    pub(super) fn extra_bits(&self) -> usize {
        let lens = self.litlen[257..][..LEN_SYMBOLS].iter().zip(&LEN_EXTRA).map(|(&n, &bits)| n * u32::from(bits));
        let dists = self.dist.iter().enumerate().map(|(symbol, &n)| n * dist_extra_bits(symbol));
        lens.chain(dists).sum::<u32>() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation: the tables of the RFC, searched.
    const LEN_BASE: [usize; LEN_SYMBOLS] = [
        3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227,
        258,
    ];
    const DIST_BASE: [usize; 30] = [
        1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097,
        6145, 8193, 12289, 16385, 24577,
    ];

    #[test]
    fn symbols_are_the_standards() {
        for len in MATCH_MIN..=MATCH_MAX {
            let entry = LEN_TABLE[len - 3];
            let symbol = LEN_BASE.iter().rposition(|&base| base <= len).unwrap();
            assert_eq!(usize::from(entry.symbol), 257 + symbol, "{len}");
            assert_eq!(usize::from(entry.extra), len - LEN_BASE[symbol], "{len}");
            assert_eq!(entry.extra_bits, LEN_EXTRA[symbol], "{len}");
            assert_eq!(Token::of_match(len, 1).len(), len);
        }
        for dist in 1..=WINDOW_LEN {
            let token = Token::of_match(3, dist);
            let symbol = DIST_BASE.iter().rposition(|&base| base <= dist).unwrap();
            assert_eq!(
                (token.dist_symbol(), token.dist_extra() as usize),
                (symbol, dist - DIST_BASE[symbol]),
                "{dist}"
            );
            assert!(token.dist_extra() < 1 << dist_extra_bits(symbol));
        }
        assert_eq!(Token::literal(255).len(), 1);
        assert_eq!(Token::literal(7).dist_symbol(), NO_DIST as usize);
    }
}
