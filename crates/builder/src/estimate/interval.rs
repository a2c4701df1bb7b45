//! Estimates with their errors.

use std::iter::Sum;
use std::ops::{Add, Div};

/// An estimated number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Half the length of the interval around it that contains the truth in 95 of 100 samples.
    pub error: f64,
}

impl Interval {
    /// Returns a known number, without an error.
    pub fn exact(value: f64) -> Self {
        Self { value, error: 0.0 }
    }

    /// Adds an independent error, a `share` of the value.
    pub fn with_error(self, share: f64) -> Self {
        Self { error: self.error.hypot(share * self.value), ..self }
    }

    /// Estimates the sum of y over a population of `count` with the sum `total_x` of x, from a sample of pairs (x,
    /// y). Suits y that is about proportional to x.
    pub fn ratio(pairs: &[(f64, f64)], total_x: f64, count: usize) -> Self {
        let n = pairs.len();
        let (sum_x, sum_y) = pairs.iter().fold((0.0, 0.0), |(x, y), pair| (x + pair.0, y + pair.1));
        if sum_x == 0.0 {
            return Self::default();
        }
        let ratio = sum_y / sum_x;
        let value = ratio * total_x;
        if n >= count {
            return Self::exact(value);
        }
        if n < 2 {
            return Self { value, error: value };
        }
        let squares: f64 = pairs.iter().map(|(x, y)| (y - ratio * x).powi(2)).sum();
        let left = 1.0 - n as f64 / count as f64;
        let mean_error = (left * squares / (n - 1) as f64 / n as f64).sqrt();
        Self { value, error: t95(n - 1) * count as f64 * mean_error }
    }

    /// Estimates the mean of y, from a few pairs (z, y) and many more `LZ4 samples` of z alone, which cover the
    /// share `seen` of the population. Suits y that is nearly linear in z.
    pub fn regression(pairs: &[(f64, f64)], lz4_samples: &[f64], seen: f64) -> Self {
        if pairs.is_empty() {
            return Self::default();
        }
        let n = pairs.len() as f64;
        let mean_z = pairs.iter().map(|pair| pair.0).sum::<f64>() / n;
        let mean_y = pairs.iter().map(|pair| pair.1).sum::<f64>() / n;
        if pairs.len() < 4 || lz4_samples.len() < 2 {
            return Self { value: mean_y, error: mean_y };
        }
        let (mut zz, mut zy) = (0.0, 0.0);
        for (z, y) in pairs {
            zz += (z - mean_z).powi(2);
            zy += (z - mean_z) * (y - mean_y);
        }
        let slope = if zz > 0.0 { zy / zz } else { 0.0 };
        let residual = |&(z, y): &(f64, f64)| y - mean_y - slope * (z - mean_z);
        let residuals: f64 = pairs.iter().map(|pair| residual(pair).powi(2)).sum();
        let m = lz4_samples.len() as f64;
        let sampled_mean = lz4_samples.iter().sum::<f64>() / m;
        // Neighbours are alike: in a systematic sample only their differences are random.
        let steps: f64 = lz4_samples.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
        let sample_error = slope * (1.0 - seen).max(0.0).sqrt() * (steps / 2.0 / (m - 1.0) / m).sqrt();
        // The line is uncertain, too, the more so the farther from the mean of its points.
        let far = if zz > 0.0 { (sampled_mean - mean_z).powi(2) / zz } else { 0.0 };
        let line_error = (residuals / (n - 2.0) * (1.0 / n + far)).sqrt();
        let (sample_error, line_error) = (t95(lz4_samples.len() - 1) * sample_error, t95(pairs.len() - 2) * line_error);
        Self { value: mean_y + slope * (sampled_mean - mean_z), error: sample_error.hypot(line_error) }
    }

    /// Returns the number times `factor`.
    pub fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, error: self.error * factor }
    }
}

impl Add for Interval {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { value: self.value + other.value, error: self.error.hypot(other.error) }
    }
}

impl Div<f64> for Interval {
    type Output = Self;

    fn div(self, by: f64) -> Self {
        self.times(1.0 / by)
    }
}

impl Sum for Interval {
    fn sum<I: Iterator<Item = Self>>(intervals: I) -> Self {
        intervals.fold(Self::default(), Add::add)
    }
}

/// Returns the two-sided 95 % quantile of Student's t distribution, by its expansion around the normal one: within 1
/// % from 4 degrees of freedom on.
fn t95(degrees: usize) -> f64 {
    const Z: f64 = 1.959_964;
    let n = degrees.max(1) as f64;
    let (z3, z5, z7) = (Z.powi(3), Z.powi(5), Z.powi(7));
    Z + (z3 + Z) / (4.0 * n)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * n.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * n.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from 0 to 1, the same for the same seed.
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        for (degrees, quantile) in [(4, 2.776), (6, 2.447), (10, 2.228), (30, 2.042), (1000, 1.962)] {
            assert!((t95(degrees) / quantile - 1.0).abs() < 0.01, "{degrees}: {}", t95(degrees));
        }
    }

    #[test]
    fn a_census_is_exact() {
        let pairs = [(1.0, 2.0), (3.0, 5.0)];
        assert_eq!(Interval::ratio(&pairs, 4.0, 2), Interval::exact(7.0));
        assert_eq!(Interval::ratio(&[], 0.0, 0), Interval::default());
    }

    #[test]
    fn intervals_hold_the_truth_about_as_often_as_they_say() {
        let (mut ratios, mut regressions) = (0, 0);
        for seed in 0..400 {
            let mut next = noise(seed);
            let all: Vec<(f64, f64)> = (0..600)
                .map(|_| {
                    let x = 1.0 + next();
                    (x, x * (0.3 + 0.4 * next()))
                })
                .collect();
            let truth: f64 = all.iter().map(|pair| pair.1).sum();
            let total_x = all.iter().map(|pair| pair.0).sum();
            let sample: Vec<_> = all.iter().copied().step_by(20).collect();
            let interval = Interval::ratio(&sample, total_x, all.len());
            ratios += u32::from((interval.value - truth).abs() <= interval.error);
            assert!(interval.error < 0.2 * interval.value);

            let linear: Vec<_> = all.iter().map(|(x, y)| (*x, 0.2 + 0.5 * x + 0.1 * y)).collect();
            let truth = linear.iter().map(|pair| pair.1).sum::<f64>() / linear.len() as f64;
            let pairs: Vec<_> = linear.iter().copied().step_by(50).collect();
            let lz4_samples: Vec<_> = linear.iter().map(|pair| pair.0).step_by(3).collect();
            let interval = Interval::regression(&pairs, &lz4_samples, 0.0);
            regressions += u32::from((interval.value - truth).abs() <= interval.error);
        }
        // 380 expected; fewer than 364 happen to an honest interval once in thousands.
        assert!(ratios >= 364 && regressions >= 364, "{ratios} and {regressions} of 400");
    }
}
