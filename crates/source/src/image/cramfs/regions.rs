//! What the parts of an image are used for.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use super::volume::invalid;

/// What a region holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Directory,
    /// The table of a file's blocks.
    Table {
        has_holes: bool,
    },
    /// A table that led nowhere.
    Damaged,
}

/// Regions that do not overlap, so that a scan reads no byte twice: whatever a damaged image says, it ends, and no directory is below
/// itself. Only tables of files with equal contents are one region for all of these.
#[derive(Debug, Default)]
pub(super) struct Regions(BTreeMap<u64, (u64, Use)>);

/// What a region takes in memory, about.
pub(super) const REGION_COST: usize = 2 * size_of::<(u64, (u64, Use))>();

impl Regions {
    /// What `range`, which is not empty, is used for already.
    ///
    /// # Errors
    /// It overlaps another region.
    pub(super) fn get(&self, range: &Range<u64>) -> io::Result<Option<Use>> {
        match self.0.range(..range.end).next_back() {
            Some((start, (end, found))) if *start == range.start && *end == range.end => Ok(Some(*found)),
            Some((start, (end, found))) if *end > range.start => {
                let other = if *found == Use::Directory { "a directory" } else { "a table of blocks" };
                let reason =
                    format!("bytes {} to {} are in {other}, which has {start} to {end}", range.start, range.end);
                Err(invalid(reason))
            }
            _ => Ok(None),
        }
    }

    /// Use `range`, of which [`Regions::get`] knew no use.
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
