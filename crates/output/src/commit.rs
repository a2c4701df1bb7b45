//! The last steps of a complete output, which give it its final name. As a rule, a crash at any moment leaves either
//! all of it there or nothing.

use std::io;

use crate::Output;

/// An output that has no final name yet.
pub trait Unpublished: Output {
    /// Gives the output its final name, which no longer refers to anything older from then on.
    ///
    /// # Errors
    /// A name that is not available; errors of the system.
    fn publish(&mut self) -> io::Result<()>;

    /// Makes the name durable.
    ///
    /// # Errors
    /// Errors of the system.
    fn sync_name(&self) -> io::Result<()>;
}

/// The moment from which an output survives a crash of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It is durable from the moment when it gets its name.
    #[default]
    Synced,
    /// It is durable when the system has written it, or the caller has synced it, like most programs' output.
    LeftToCaller,
}

/// A failed step of [`commit`].
#[derive(Debug)]
pub struct CommitError {
    /// The step, as in "cannot ...".
    pub action: &'static str,
    /// The system's error.
    pub source: io::Error,
}

/// Publishes a complete output. Its contents are made durable before the name refers to them, and the name after
/// that, unless that is left to the caller.
///
/// # Errors
/// Those of the steps; none is taken after one that failed.
pub fn commit(output: &mut impl Unpublished, durability: Durability) -> Result<(), CommitError> {
    let failed = |action| move |source| CommitError { action, source };
    let synced = durability == Durability::Synced;
    if synced {
        output.sync().map_err(failed("write"))?;
    }
    output.publish().map_err(failed("give the file its name"))?;
    if synced { output.sync_name().map_err(failed(SYNC_NAME)) } else { Ok(()) }
}

/// The last step. If it fails, the output is in place all the same.
const SYNC_NAME: &str = "sync its directory (the new file is in place all the same, but a crash may undo that)";

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Records the calls, and fails in one step.
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
