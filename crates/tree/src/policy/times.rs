//! Changes of modification times.

use crate::Metadata;
use std::str::FromStr;

use crate::syntax::SyntaxError;

/// Change of modification times, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// No change.
    #[default]
    Keep,
    /// Later times are set to this one.
    Clamp(i64),
    /// All times are set to these seconds and nanoseconds (below 10^9).
    All(i64, u32),
}

impl Times {
    pub(super) fn apply(self, meta: &mut Metadata) {
        let (secs, nsec) = match self {
            Times::Keep => return,
            Times::Clamp(secs) => (meta.mtime, meta.mtime_nsec).min((secs, 0)),
            Times::All(secs, nsec) => (secs, nsec),
        };
        (meta.mtime, meta.mtime_nsec) = (secs, nsec);
    }
}

impl FromStr for Times {
    type Err = SyntaxError;

    /// Parses `keep`, `clamp:SECS` or `SECS`.
    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        let secs = |secs: &str| {
            let reason = "write keep, clamp:SECS or SECS, in seconds since 1970";
            secs.parse().map_err(|_| SyntaxError::new("time", text.as_bytes(), reason))
        };
        match (text, text.strip_prefix("clamp:")) {
            ("keep", _) => Ok(Times::Keep),
            (_, Some(rest)) => Ok(Times::Clamp(secs(rest)?)),
            _ => Ok(Times::All(secs(text)?, 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_cut_or_set() {
        let after = |rule: &str, mtime: i64, mtime_nsec: u32| {
            let mut meta = Metadata { mtime, mtime_nsec, ..Metadata::default() };
            rule.parse::<Times>().unwrap().apply(&mut meta);
            (meta.mtime, meta.mtime_nsec)
        };
        assert_eq!(after("keep", 5, 6), (5, 6));
        assert_eq!(after("clamp:5", 5, 6), (5, 0));
        assert_eq!(after("clamp:5", 4, 6), (4, 6));
        assert_eq!(after("clamp:5", 9, 0), (5, 0));
        assert_eq!(after("-7", 9, 3), (-7, 0));
        for text in ["", "now", "clamp:", "clamp:x", "1.5", "clamp"] {
            assert!(text.parse::<Times>().is_err(), "{text}");
        }
    }
}
