//! Counters. They saturate: sizes in a hostile image add up to anything.

use crate::map::extent::ExtentKind;
use kiln_format::Algorithm;

/// Number of items, and the sum of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of items.
    pub count: u64,
    /// Bytes of all.
    pub bytes: u64,
}

impl Count {
    pub(super) fn add(&mut self, bytes: u64) {
        self.merge(&Count { count: 1, bytes });
    }

    pub(super) fn merge(&mut self, other: &Count) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Number of extents, and the sums of their lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentCount {
    /// Number of items.
    pub count: u64,
    /// Bytes of file contents.
    pub logical: u64,
    /// Stored bytes that hold them; those of a shared pcluster count for each extent that names it.
    pub stored: u64,
}

impl ExtentCount {
    pub(super) fn add(&mut self, logical: u64, stored: u64) {
        self.merge(&ExtentCount { count: 1, logical, stored });
    }

    pub(super) fn merge(&mut self, other: &ExtentCount) {
        self.count += other.count;
        self.logical = self.logical.saturating_add(other.logical);
        self.stored = self.stored.saturating_add(other.stored);
    }
}

/// Values by powers of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// By the number of bits of the value.
    buckets: [Count; 65],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [Count::default(); 65] }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, value: u64) {
        self.buckets[(u64::BITS - value.leading_zeros()) as usize].add(value);
    }

    pub(super) fn merge(&mut self, other: &Histogram) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, count)| sum.merge(count));
    }

    /// Returns the buckets that hold something, in order: the smallest value of each (0, 1, 2, 4,
    /// 8, ...; it ends before the double of that), and what it holds.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, Count)> {
        let start = |bits: usize| if bits == 0 { 0 } else { 1 << (bits - 1) };
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, count)| count.count > 0).map(move |(bits, count)| (start(bits), *count))
    }

    /// Returns all buckets together.
    pub fn total(&self) -> Count {
        let mut sum = Count::default();
        self.buckets.iter().for_each(|count| sum.merge(count));
        sum
    }
}

/// Form in which the bytes of an extent are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoredAs {
    /// Not at all: zeros.
    Hole,
    /// Plain, in blocks.
    Raw,
    /// Plain, beside the inode.
    Inline,
    /// Plain, in a pcluster.
    Plain,
    /// As a part of the packed inode.
    Fragment,
    /// Compressed.
    Encoded(Algorithm),
}

impl StoredAs {
    /// All kinds: those without an algorithm, then one for each algorithm.
    pub const ALL: [StoredAs; 5 + Algorithm::ALL.len()] = {
        let mut all = [StoredAs::Hole; 5 + Algorithm::ALL.len()];
        all[1] = StoredAs::Raw;
        all[2] = StoredAs::Inline;
        all[3] = StoredAs::Plain;
        all[4] = StoredAs::Fragment;
        let mut idx = 0;
        while idx < Algorithm::ALL.len() {
            all[5 + idx] = StoredAs::Encoded(Algorithm::ALL[idx]);
            idx += 1;
        }
        all
    };

    /// Returns its name for people.
    pub fn name(self) -> &'static str {
        match self {
            StoredAs::Hole => "hole",
            StoredAs::Raw => "raw",
            StoredAs::Inline => "inline",
            StoredAs::Plain => "plain",
            StoredAs::Fragment => "fragment",
            StoredAs::Encoded(algorithm) => algorithm.name(),
        }
    }
}

impl From<&ExtentKind> for StoredAs {
    fn from(kind: &ExtentKind) -> Self {
        match kind {
            // An object takes no space in the image either.
            ExtentKind::Hole | ExtentKind::Object => StoredAs::Hole,
            ExtentKind::Raw { .. } => StoredAs::Raw,
            ExtentKind::Meta { .. } => StoredAs::Inline,
            ExtentKind::Plain { .. } => StoredAs::Plain,
            ExtentKind::Fragment { .. } => StoredAs::Fragment,
            ExtentKind::Encoded { algorithm, .. } => StoredAs::Encoded(*algorithm),
        }
    }
}

/// Returns the value of `key`; all keys are in the list from the start.
pub(super) fn entry<K: PartialEq, V>(list: &mut [(K, V)], key: K) -> &mut V {
    &mut list.iter_mut().find(|(known, _)| *known == key).expect("a list of all keys").1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        let mut histogram = Histogram::default();
        [0, 1, 2, 3, 4, 7, 8, 4095, 4096, u64::MAX].into_iter().for_each(|value| histogram.add(value));
        let buckets: Vec<_> = histogram.buckets().map(|(start, count)| (start, count.count)).collect();
        assert_eq!(buckets, [(0, 1), (1, 1), (2, 2), (4, 2), (8, 1), (2048, 1), (4096, 1), (1 << 63, 1)]);
        assert_eq!(histogram.total(), Count { count: 10, bytes: u64::MAX });
    }
}
