//! Regions of an image that the scan has read.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use super::volume::invalid;

/// Kind of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Directory,
    /// Block table of a file.
    Table {
        has_holes: bool,
    },
    /// Block table that was found to be damaged.
    Damaged,
}

/// Disjoint regions, so that a scan reads no byte twice: it ends for every damaged image, and no
/// directory contains itself. Block tables may be shared by files with equal contents.
#[derive(Debug, Default)]
pub(super) struct Regions(BTreeMap<u64, (u64, Use)>);

/// Approximate memory per region, in bytes.
pub(super) const REGION_COST: usize = 2 * size_of::<(u64, (u64, Use))>();

impl Regions {
    /// Returns the known use of `range`, which must not be empty.
    ///
    /// # Errors
    /// A range that overlaps another region.
    pub(super) fn get(&self, range: &Range<u64>) -> io::Result<Option<Use>> {
        match self.0.range(..range.end).next_back() {
            Some((start, (end, found))) if *start == range.start && *end == range.end => Ok(Some(*found)),
            Some((start, (end, found))) if *end > range.start => {
                let other = if *found == Use::Directory { "a directory" } else { "a table of blocks" };
                let reason =
                    format!("bytes {} to {} overlap {other} at bytes {start} to {end}", range.start, range.end);
                Err(invalid(reason))
            }
            _ => Ok(None),
        }
    }

    /// Records the use of `range`, for which [`Regions::get`] returned `None`.
    pub(super) fn set(&mut self, range: Range<u64>, what: Use) {
        self.0.insert(range.start, (range.end, what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_do_not_overlap() {
        let mut regions = Regions::default();
        regions.set(10..20, Use::Directory);
        regions.set(20..30, Use::Table { has_holes: true });
        assert_eq!(regions.get(&(10..20)).unwrap(), Some(Use::Directory));
        assert_eq!(regions.get(&(20..30)).unwrap(), Some(Use::Table { has_holes: true }));
        for free in [0..10, 5..6, 30..31] {
            assert_eq!(regions.get(&free).unwrap(), None, "{free:?}");
        }
        for overlapping in [0..11, 10..19, 11..20, 19..21, 5..40, 29..50] {
            assert!(regions.get(&overlapping).is_err(), "{overlapping:?}");
        }
    }
}
