//! Pseudorandom numbers that are the same to the bit everywhere: xoshiro256\*\* (Blackman and Vigna
//! 2018), seeded by SplitMix64 (Steele, Lea and Flood 2014), Lemire's bounded draw (2019),
//! Fisher–Yates permutations.
//!
//! Saved orders are reproduced from these numbers: any change to this file is a new
//! [`ALGORITHM`](crate::ALGORITHM).

/// Odd number next to 2^64 / φ: the step of SplitMix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64, which passes through all states of 64 bits. It seeds the generator.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates the sequence of `seed`; each seed has its own.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Generator xoshiro256\*\*, period 2^256 − 1.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// Creates a generator whose state is the next four numbers of SplitMix64, as its authors
    /// advise.
    pub fn new(seed: u64) -> Self {
        let mut words = SplitMix64::new(seed);
        Self(std::array::from_fn(|_| words.next_u64()))
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number below `bound`, each with the same probability: the upper half of a product
    /// of 128 bits. Products whose lower half is among the 2^64 mod `bound` smallest are drawn
    /// again, as they would favour some numbers. Returns 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            let rejected = bound.wrapping_neg() % bound;
            while (product as u64) < rejected {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// Permutes `items`, every order with the same probability as far as 256 bits of state go:
    /// Fisher–Yates from the last item down, one [`below`](Self::below) for each item but the
    /// first.
    pub fn permute<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Purpose of a generator. The numbers are part of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The order of all blocks.
    Blocks = 1,
    /// The order of the samples of one window.
    Window = 2,
}

/// Key of a generator. Keys that differ in anything have independent generators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Seed chosen by the user.
    pub seed: u64,
    /// Number of the epoch, counted from 0.
    pub epoch: u64,
    /// Object of the permutation.
    pub purpose: Purpose,
    /// Lane of a window; 0 for blocks.
    pub lane: u64,
    /// Number of the window, counted from 0 in its lane; 0 for blocks.
    pub window: u64,
}

impl Key {
    /// Returns the generator of this key. Its seed is a chain over the words seed, purpose, epoch,
    /// lane and window: each is XORed with the result of the words before it, and goes through
    /// SplitMix64, whose output is a bijection of its seed.
    pub fn rng(self) -> Rng {
        let Self { seed, epoch, purpose, lane, window } = self;
        let words = [purpose as u64, epoch, lane, window];
        let chain = |key, word| SplitMix64::new(key ^ word).next_u64();
        Rng::new(words.into_iter().fold(SplitMix64::new(seed).next_u64(), chain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected numbers, computed by these lines of Python, which were written from the definitions
    /// of the generators alone:
    ///
    /// ```python
    /// M = 2**64 - 1
    /// rotl = lambda x, k: ((x << k) | (x >> (64 - k))) & M
    /// def splitmix(x):
    ///     while True:
    ///         x = (x + 0x9E3779B97F4A7C15) & M
    ///         z = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & M
    ///         z = ((z ^ z >> 27) * 0x94D049BB133111EB) & M
    ///         yield z ^ z >> 31
    /// def xoshiro(s):
    ///     while True:
    ///         yield rotl(s[1] * 5 & M, 7) * 9 & M
    ///         t = s[1] << 17 & M
    ///         s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= t; s[3] = rotl(s[3], 45)
    /// ```
    ///
    /// SplitMix64 of 1234567 is the vector published on Rosetta Code; xoshiro256** of the state 1,
    /// 2, 3, 4 is that of rand's tests.
    #[test]
    fn generators_give_the_published_numbers() {
        let mut words = SplitMix64::new(1_234_567);
        let expected: [u64; 5] = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| words.next_u64()), expected);

        let mut rng = Rng([1, 2, 3, 4]);
        let expected: [u64; 6] =
            [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240, 1_216_172_134_540_287_360, 607_988_272_756_665_600];
        assert_eq!(expected.map(|_| rng.next_u64()), expected);
        assert_eq!(Rng::new(0).0[0], 0xE220_A839_7B1D_CDAF, "the first number of SplitMix64 of 0");
    }

    #[test]
    fn bounded_draws_are_below_their_bound_and_uniform() {
        let mut rng = Rng::new(1);
        for bound in [1, 2, 3, 1000, u64::MAX / 2 + 2, u64::MAX] {
            (0..1000).for_each(|_| assert!(rng.below(bound) < bound));
        }
        assert_eq!(rng.below(0), 0);
        // With bounds of three quarters of all numbers, products without the second draw would
        // favour every third number.
        let bound = 3 << 62;
        let mut counts = [0_i32; 3];
        (0..30_000).for_each(|_| counts[(rng.below(bound) % 3) as usize] += 1);
        assert!(counts.iter().all(|count| (count - 10_000).abs() < 400), "{counts:?}");
    }

    #[test]
    fn permutations_are_uniform() {
        let mut rng = Rng::new(5);
        let mut counts = std::collections::BTreeMap::<[u8; 4], u32>::new();
        for _ in 0..24_000 {
            let mut items = [0, 1, 2, 3];
            rng.permute(&mut items);
            *counts.entry(items).or_default() += 1;
        }
        assert_eq!(counts.len(), 24);
        // Pearson's statistic of 23 degrees of freedom is above 49.7 with probability 0.001.
        let chi: f64 = counts.values().map(|&count| (f64::from(count) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 49.7, "{chi}");
        rng.permute::<u8>(&mut []);
    }

    #[test]
    fn each_word_of_a_key_makes_another_generator() {
        let key = |seed, epoch, purpose, lane, window| Key { seed, epoch, purpose, lane, window };
        let keys = [
            key(0, 0, Purpose::Blocks, 0, 0),
            key(1, 0, Purpose::Blocks, 0, 0),
            key(0, 1, Purpose::Blocks, 0, 0),
            key(0, 0, Purpose::Window, 0, 0),
            key(0, 0, Purpose::Window, 1, 0),
            key(0, 0, Purpose::Window, 0, 1),
            key(3, 0, Purpose::Blocks, 0, 0),
            key(0, 3, Purpose::Window, 0, 0),
        ];
        let firsts: std::collections::BTreeSet<u64> = keys.iter().map(|key| key.rng().next_u64()).collect();
        assert_eq!(firsts.len(), keys.len());
        assert_eq!(key(42, 3, Purpose::Window, 1, 7).rng().next_u64(), 14_895_389_088_542_048_203);
    }
}
