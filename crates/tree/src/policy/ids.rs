//! Translation of user and group ids.

use std::fmt;
use std::str::FromStr;

use crate::syntax::SyntaxError;

/// Translation of ids of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdPolicy {
    /// Source of the id.
    pub base: IdBase,
    /// Offset added to the id.
    pub offset: i64,
}

/// Source of ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IdBase {
    /// The id in the source.
    #[default]
    Keep,
    /// This id, for all files.
    All(u32),
    /// The id in the source, translated by a map.
    Map(IdMap),
}

/// Map of ids, as in user namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap(Vec<IdRun>);

/// A range of consecutive ids and their translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IdRun {
    from: u32,
    to: u32,
    count: u32,
}

/// A range of ids: INSIDE:OUTSIDE:COUNT, as in the maps of user namespaces and podman's `--uidmap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// First id in the image.
    pub inside: u32,
    /// First id in the source.
    pub outside: u32,
    /// Number of consecutive ids, at least 1.
    pub count: u32,
}

/// Reason why an id cannot be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdProblem {
    Unmapped,
    OutOfRange,
}

impl IdMap {
    /// Creates a map from the source to the image; the ranges may be in any order.
    ///
    /// # Errors
    /// Ranges that overlap in the source.
    pub fn inward(ranges: &[IdRange]) -> Result<Self, SyntaxError> {
        let runs = ranges.iter().map(|range| IdRun { from: range.outside, to: range.inside, count: range.count });
        Self::of(runs.collect()).map_err(|both| overlap(&both, "they overlap in the source"))
    }

    /// Creates the inverse map, from the image to the source.
    ///
    /// # Errors
    /// Ranges that overlap in the image.
    pub fn outward(ranges: &[IdRange]) -> Result<Self, SyntaxError> {
        let runs = ranges.iter().map(|range| IdRun { from: range.inside, to: range.outside, count: range.count });
        let swapped = |[a, b]: [IdRange; 2]| [a, b].map(|r| IdRange { inside: r.outside, outside: r.inside, ..r });
        Self::of(runs.collect()).map_err(|both| overlap(&swapped(both), "they overlap in the image"))
    }

    /// Returns the translation of an id, if it is in any range.
    pub fn get(&self, id: u32) -> Option<u32> {
        let behind = self.0.partition_point(|run| run.from <= id);
        let run = self.0[..behind].last()?;
        let idx = id - run.from;
        (idx < run.count).then(|| run.to + idx)
    }

    /// Creates a map. The error has the first two ranges that overlap.
    fn of(mut runs: Vec<IdRun>) -> Result<Self, [IdRange; 2]> {
        runs.sort_unstable_by_key(|run| run.from);
        let overlapping = runs.windows(2).find(|pair| pair[1].from - pair[0].from < pair[0].count);
        match overlapping {
            None => Ok(Self(runs)),
            Some(pair) => {
                Err([pair[0], pair[1]].map(|run| IdRange { inside: run.to, outside: run.from, count: run.count }))
            }
        }
    }
}

impl IdPolicy {
    /// Returns the translation of an owner.
    pub(super) fn apply(&self, id: u32) -> Result<u32, IdProblem> {
        let base = match &self.base {
            IdBase::Keep => id,
            IdBase::All(id) => *id,
            IdBase::Map(map) => map.get(id).ok_or(IdProblem::Unmapped)?,
        };
        let id = self.offset.checked_add(base.into()).and_then(|id| u32::try_from(id).ok());
        // The highest number means "no id" in system calls.
        id.filter(|&id| id != u32::MAX).ok_or(IdProblem::OutOfRange)
    }

    /// Returns the translation of an id in an attribute, such as an ACL. Unlike an owner it is
    /// never replaced by [`IdBase::All`].
    pub(super) fn apply_named(&self, id: u32) -> Result<u32, IdProblem> {
        match self.base {
            IdBase::All(_) => Ok(id),
            _ => self.apply(id),
        }
    }
}

impl FromStr for IdRange {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        let refuse = |reason: &str| SyntaxError::new("range of ids", text.as_bytes(), reason);
        let numbers: Option<Vec<u32>> = text.split(':').map(|number| number.parse().ok()).collect();
        let Some([inside, outside, count]) = numbers.as_deref() else {
            return Err(refuse("write it as INSIDE:OUTSIDE:COUNT, for example 0:100000:65536"));
        };
        // The highest number means "no id", so ranges end below it.
        if *count == 0 || inside.checked_add(*count).is_none() || outside.checked_add(*count).is_none() {
            return Err(refuse("it must have at least 1 id and end at 4294967294 at most"));
        }
        Ok(Self { inside: *inside, outside: *outside, count: *count })
    }
}

fn overlap([first, second]: &[IdRange; 2], reason: &str) -> SyntaxError {
    SyntaxError::new("ranges", format!("{first} {second}").as_bytes(), reason)
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.inside, self.outside, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(ranges: &[&str]) -> Result<Vec<IdRange>, SyntaxError> {
        ranges.iter().map(|range| range.parse()).collect()
    }

    fn map(ranges: &[&str]) -> Result<IdMap, SyntaxError> {
        IdMap::inward(&parsed(ranges)?)
    }

    #[test]
    fn maps_lead_inside() {
        let base = IdBase::Map(map(&["1:100000:65535", "0:1000:1", "4294967290:5:5"]).unwrap());
        let policy = IdPolicy { base, offset: 0 };
        for (outside, inside) in [(1000, 0), (100_000, 1), (165_534, 65_535), (5, 4_294_967_290), (9, 4_294_967_294)] {
            assert_eq!(policy.apply(outside), Ok(inside), "{outside}");
        }
        for outside in [0, 4, 10, 999, 1001, 99_999, 165_535, u32::MAX] {
            assert_eq!(policy.apply(outside), Err(IdProblem::Unmapped), "{outside}");
        }
    }

    #[test]
    fn a_map_leads_back() {
        let ranges = parsed(&["1:100000:65535", "0:1000:1"]).unwrap();
        let [inward, outward] = [IdMap::inward(&ranges).unwrap(), IdMap::outward(&ranges).unwrap()];
        for id in [1000, 100_000, 165_534] {
            assert_eq!(inward.get(id).and_then(|id| outward.get(id)), Some(id));
        }
        assert_eq!(outward.get(65_536), None);
        // Two users may map to one in an image, but then there is no inverse.
        let both = parsed(&["0:100:10", "5:200:1"]).unwrap();
        assert!(IdMap::inward(&both).is_ok());
        let error = IdMap::outward(&both).unwrap_err().to_string();
        assert_eq!(error, "ranges `0:100:10 5:200:1`: they overlap in the image");
    }

    #[test]
    fn offsets_stay_in_range() {
        let at = |base: IdBase, offset: i64, id: u32| IdPolicy { base, offset }.apply(id);
        assert_eq!(at(IdBase::Keep, 100_000, 5), Ok(100_005));
        assert_eq!(at(IdBase::Keep, -5, 5), Ok(0));
        assert_eq!(at(IdBase::All(7), 1, 5), Ok(8));
        for (offset, id) in [(-6, 5), (i64::MIN, 5), (i64::MAX, 5), (1, u32::MAX - 1), (0, u32::MAX)] {
            assert_eq!(at(IdBase::Keep, offset, id), Err(IdProblem::OutOfRange), "{offset} {id}");
        }
    }

    #[test]
    fn invalid_maps_are_refused() {
        for text in ["", "0", "0:1", "0:1:2:3", "a:0:1", "0:-1:1", "0:0:0", "1:0:4294967295", "0:1:4294967295"] {
            assert!(text.parse::<IdRange>().is_err(), "{text}");
        }
        assert!(map(&["0:0:4294967295"]).is_ok());
        let error = map(&["0:100:10", "50:109:1"]).unwrap_err().to_string();
        assert_eq!(error, "ranges `0:100:10 50:109:1`: they overlap in the source");
        assert!(map(&["0:100:10", "0:110:1"]).is_ok(), "two ids may become one");
    }
}
