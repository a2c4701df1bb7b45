//! Times of files and image, from `-T`, related options and the environment.

use kiln_tree::policy::Times;

/// The options about times, in seconds since 1970.
#[derive(Default)]
pub struct TimeWishes {
    /// `-T`
    pub fixed: Option<i64>,
    /// `--all-time` or `--mkfs-time`, the last of them.
    pub scope: Option<Scope>,
    /// `--ignore-mtime`, or compact inodes, which have no times of their own.
    pub ignore_mtime: bool,
}

/// The scope of a fixed time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    All,
    ImageOnly,
}

impl TimeWishes {
    /// Returns the build time, if only that was fixed.
    pub fn build_time(&self) -> Option<i64> {
        self.fixed.filter(|_| self.scope == Some(Scope::ImageOnly) && !self.ignore_mtime)
    }

    /// Returns the treatment of the times of files, and the latest time in the image. `epoch` comes from the
    /// environment and overrides `-T`; `now` is called if no other time is given.
    pub fn resolve(&self, epoch: Option<i64>, now: impl Fn() -> i64) -> (Times, Option<i64>) {
        match (epoch, self.fixed) {
            (Some(epoch), _) if self.ignore_mtime => (Times::All(epoch, 0), Some(epoch)),
            (Some(epoch), _) => (Times::Keep, Some(epoch)),
            (None, Some(fixed)) if self.scope != Some(Scope::ImageOnly) || self.ignore_mtime => {
                (Times::All(fixed, 0), Some(fixed))
            }
            (None, None) if self.scope == Some(Scope::All) || self.ignore_mtime => {
                let now = now();
                (Times::All(now, 0), Some(now))
            }
            // The builder stores no build time without a latest time.
            (None, _) => (Times::Keep, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of the original.
    #[test]
    fn the_environment_overrides() {
        let all = |secs| (Times::All(secs, 0), Some(secs));
        let (keep, clamp) = ((Times::Keep, None), |secs| (Times::Keep, Some(secs)));
        let (every, image) = (Some(Scope::All), Some(Scope::ImageOnly));
        for (epoch, fixed, scope, ignore_mtime, expected) in [
            (None, None, None, false, keep),
            (None, None, image, false, keep),
            (None, None, every, false, all(99)),
            (None, None, None, true, all(99)),
            (None, Some(7), None, false, all(7)),
            (None, Some(7), every, false, all(7)),
            (None, Some(7), image, false, keep),
            (None, Some(7), image, true, all(7)),
            (Some(5), None, None, false, clamp(5)),
            (Some(5), Some(7), None, false, clamp(5)),
            (Some(5), None, every, false, clamp(5)),
            (Some(5), None, None, true, all(5)),
        ] {
            let wishes = TimeWishes { fixed, scope, ignore_mtime };
            assert_eq!(wishes.resolve(epoch, || 99), expected);
        }
    }
}
