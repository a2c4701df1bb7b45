//! How an output that is complete gets its final name: as a rule so that a crash at any moment
//! leaves the whole of it there, or nothing.

use std::io;

use crate::Output;

/// An output that has no final name yet.
pub trait Unpublished: Output {
    /// Give it its final name, which from then on leads to it and no more to what was there before.
    ///
    /// # Errors
    /// A name that cannot be had; errors of the system.
    fn publish(&mut self) -> io::Result<()>;

    /// See that the name survives a crash.
    ///
    /// # Errors
    /// Errors of the system.
    fn sync_name(&self) -> io::Result<()>;
}

/// When an output survives a crash of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// From the moment when it gets its name.
    #[default]
    Synced,
    /// When the system has written it, or the caller has synced it: as what most programs write.
    LeftToCaller,
}

/// Which step of [`commit`] failed.
#[derive(Debug)]
pub struct CommitError {
    /// The step, as in "cannot ...".
    pub action: &'static str,
    /// The system's error.
    pub source: io::Error,
}

/// Publish what is complete. Its contents are made durable before the name leads to them, and the
/// name after that, unless that is the caller's affair.
///
/// # Errors
/// Those of the steps, of which none is taken after one that failed.
pub fn commit(output: &mut impl Unpublished, durability: Durability) -> Result<(), CommitError> {
    let failed = |action| move |source| CommitError { action, source };
    let synced = durability == Durability::Synced;
    if synced {
        output.sync().map_err(failed("write"))?;
    }
    output.publish().map_err(failed("give the file its name"))?;
    if synced { output.sync_name().map_err(failed(SYNC_NAME)) } else { Ok(()) }
}

/// The last step, which fails when everything is there.
const SYNC_NAME: &str = "sync its directory (the new file is in place all the same, but a crash may undo that)";

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Notes what is done to it, and fails in one step.
    #[derive(Default)]
    struct Noted(RefCell<Vec<&'static str>>, Option<&'static str>);

    impl Noted {
        fn note(&self, step: &'static str) -> io::Result<()> {
            self.0.borrow_mut().push(step);
            if self.1 == Some(step) { Err(io::Error::other("no")) } else { Ok(()) }
        }
    }

    impl Output for Noted {
        fn write_at(&self, bytes: &[u8], _: u64) -> io::Result<usize> {
            self.note("write").map(|()| bytes.len())
        }

        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            self.note("read").map(|()| 0)
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            self.note("set_len")
        }

        fn sync(&self) -> io::Result<()> {
            self.note("sync")
        }
    }

    impl Unpublished for Noted {
        fn publish(&mut self) -> io::Result<()> {
            self.note("publish")
        }

        fn sync_name(&self) -> io::Result<()> {
            self.note("sync_name")
        }
    }

    #[test]
    fn contents_are_durable_before_the_name_unless_that_is_left_to_the_caller() {
        let cases =
            [(Durability::Synced, &["sync", "publish", "sync_name"][..]), (Durability::LeftToCaller, &["publish"])];
        for (durability, steps) in cases {
            let mut noted = Noted::default();
            commit(&mut noted, durability).unwrap();
            assert_eq!(noted.0.into_inner(), steps);
        }
    }

    #[test]
    fn an_error_says_whether_the_new_file_is_in_place() {
        for (step, is_in_place) in [("sync", false), ("publish", false), ("sync_name", true)] {
            let mut noted = Noted(RefCell::default(), Some(step));
            let error = commit(&mut noted, Durability::Synced).unwrap_err();
            assert_eq!(error.action.contains("is in place"), is_in_place, "{step}: {}", error.action);
        }
    }
}
