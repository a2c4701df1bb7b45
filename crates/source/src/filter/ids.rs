//! Owners: what becomes of user and group ids.

use std::fmt;
use std::str::FromStr;

use super::error::SyntaxError;

/// User or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    /// A user id.
    Uid,
    /// A group id.
    Gid,
}

/// What becomes of ids of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdPolicy {
    /// Where the id comes from.
    pub base: IdBase,
    /// What is added to it then.
    pub offset: i64,
}

/// Where ids come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IdBase {
    /// From the source.
    #[default]
    Keep,
    /// Everything has this one.
    All(u32),
    /// From the source, translated.
    Map(IdMap),
}

/// A translation of ids, as a user namespace has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap(Vec<IdRange>);

/// A run of ids of a map: INSIDE:OUTSIDE:COUNT, as in the maps of user namespaces and podman's `--uidmap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first id in the image.
    pub inside: u32,
    /// The first id in the source.
    pub outside: u32,
    /// How many ids follow each other, at least 1.
    pub count: u32,
}

/// Why an id has no successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdProblem {
    Unmapped,
    OutOfRange,
}

impl IdMap {
    /// A map of ranges in any order.
    ///
    /// # Errors
    /// Two ranges for the same id of the source.
    pub fn new(mut ranges: Vec<IdRange>) -> Result<Self, SyntaxError> {
        ranges.sort_unstable_by_key(|range| range.outside);
        for pair in ranges.windows(2) {
            if pair[1].outside - pair[0].outside < pair[0].count {
                let both = format!("{} {}", pair[0], pair[1]);
                return Err(SyntaxError::new("ranges", both.as_bytes(), "they overlap in the source"));
            }
        }
        Ok(Self(ranges))
    }

    fn to_inside(&self, id: u32) -> Option<u32> {
        let behind = self.0.partition_point(|range| range.outside <= id);
        let range = self.0[..behind].last()?;
        let idx = id - range.outside;
        (idx < range.count).then(|| range.inside + idx)
    }
}

impl IdPolicy {
    /// The id of a file that has `id` in the source.
    pub(super) fn apply(&self, id: u32) -> Result<u32, IdProblem> {
        let base = match &self.base {
            IdBase::Keep => id,
            IdBase::All(id) => *id,
            IdBase::Map(map) => map.to_inside(id).ok_or(IdProblem::Unmapped)?,
        };
        let id = self.offset.checked_add(base.into()).and_then(|id| u32::try_from(id).ok());
        // The highest number stands for no id in system calls.
        id.filter(|&id| id != u32::MAX).ok_or(IdProblem::OutOfRange)
    }

    /// The id that an attribute of a file names: translated as owners are, but never made that of everything.
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
            return Err(refuse("write it as INSIDE:OUTSIDE:COUNT, 0:100000:65536 for example"));
        };
        // Ids end one before the highest number, which stands for none.
        if *count == 0 || inside.checked_add(*count).is_none() || outside.checked_add(*count).is_none() {
            return Err(refuse("it must hold 1 id or more, and end at 4294967294"));
        }
        Ok(Self { inside: *inside, outside: *outside, count: *count })
    }
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.inside, self.outside, self.count)
    }
}

impl fmt::Display for IdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IdKind::Uid => "uid",
            IdKind::Gid => "gid",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(ranges: &[&str]) -> Result<IdMap, SyntaxError> {
        IdMap::new(ranges.iter().map(|range| range.parse()).collect::<Result<_, _>>()?)
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
    fn what_is_no_map_is_refused() {
        for text in ["", "0", "0:1", "0:1:2:3", "a:0:1", "0:-1:1", "0:0:0", "1:0:4294967295", "0:1:4294967295"] {
            assert!(text.parse::<IdRange>().is_err(), "{text}");
        }
        assert!(map(&["0:0:4294967295"]).is_ok());
        let error = map(&["0:100:10", "50:109:1"]).unwrap_err().to_string();
        assert_eq!(error, "ranges `0:100:10 50:109:1`: they overlap in the source");
        assert!(map(&["0:100:10", "0:110:1"]).is_ok(), "two ids may become one");
    }
}
