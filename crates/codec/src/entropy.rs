//! Entropy: lower bounds in bits for coded symbols, from their counts.
//!
//! Computed in integers: `f32::log2` may differ in the last bit between machines, and estimates
//! decide where pclusters end.

/// Logarithms of numbers below 2 to this power are looked up; for larger ones, their upper bits
/// are.
const TABLE_BITS: u32 = 12;
/// Number of bits after the binary point.
pub(crate) const FRACTION_BITS: u32 = 16;

/// Table of binary logarithms.
pub(crate) struct EntropyTable {
    /// `n * log2(n)`.
    n_log_n: Box<[u32; 1 << TABLE_BITS]>,
}

/// Entropy of symbols of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entropy {
    pub(crate) bits: f64,
    /// Number of different symbols.
    pub(crate) distinct: u32,
}

impl EntropyTable {
    pub(crate) fn new() -> Self {
        let mut n_log_n = Box::new([0; 1 << TABLE_BITS]);
        for (n, value) in (0..).zip(n_log_n.iter_mut()).skip(1) {
            *value = n * log2(n);
        }
        EntropyTable { n_log_n }
    }

    /// Returns the entropy of symbols with these counts.
    #[inline]
    pub(crate) fn of(&self, counts: impl Iterator<Item = u32>) -> Entropy {
        let (mut total, mut distinct, mut sum) = (0u32, 0, 0);
        for n in counts {
            total += n;
            distinct += u32::from(n != 0);
            sum += self.n_log_n(n);
        }
        let bits = self.n_log_n(total).saturating_sub(sum);
        Entropy { bits: bits as f64 / f64::from(1 << FRACTION_BITS), distinct }
    }

    #[inline]
    fn n_log_n(&self, n: u32) -> u64 {
        match self.n_log_n.get(n as usize) {
            Some(&value) => value.into(),
            None => self.large_n_log_n(n),
        }
    }

    /// Interpolates between the neighbours in the table.
    fn large_n_log_n(&self, n: u32) -> u64 {
        let shift = n.ilog2() + 2 - TABLE_BITS;
        let (upper, lower) = (n >> shift, n & ((1 << shift) - 1));
        let at = |upper: u32| {
            (u64::from(self.n_log_n[upper as usize]) << shift)
                + (u64::from(upper) << shift) * (u64::from(shift) << FRACTION_BITS)
        };
        at(upper) + (((at(upper + 1) - at(upper)) * u64::from(lower)) >> shift)
    }
}

/// Returns the binary logarithm of `n`, which is at least 1, with [`FRACTION_BITS`], rounded down.
/// Squaring doubles it.
pub(crate) const fn log2(n: u32) -> u32 {
    let mut log = n.ilog2();
    let mut x = (n as u64) << (31 - log); // between 1 and 2, with 31 bits behind the point
    let mut bit = 0;
    while bit < FRACTION_BITS {
        x = (x * x) >> 31;
        let carry = (x >> 32) as u32;
        x >>= carry;
        log = log << 1 | carry;
        bit += 1;
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_close_to_the_libraries() {
        let table = EntropyTable::new();
        for n in (1..20_000).chain((1..24).map(|log| (1 << log) + 12_345)) {
            let want = f64::from(n) * f64::from(n).log2();
            let got = table.n_log_n(n) as f64 / 65536.0;
            assert!((got - want).abs() <= 1e-6 * want + f64::from(n) / 32768.0, "{n}: {got}, not {want}");
        }
    }

    #[test]
    fn entropy_of_equal_counts() {
        let entropy = EntropyTable::new().of([1000, 0, 1000, 1000, 1000].into_iter());
        assert_eq!(entropy.distinct, 4);
        assert!((entropy.bits - 8000.0).abs() < 1.0, "{}", entropy.bits);
    }
}
