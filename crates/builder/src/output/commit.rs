//! How an output that is complete gets its final name, so that a crash at any moment leaves the whole of it there, or nothing.

use std::io;

use crate::output::Output;

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

/// Which step of [`commit`] failed.
#[derive(Debug)]
pub struct CommitError {
    /// The step, as in "cannot ...".
    pub action: &'static str,
    /// The system's error.
    pub source: io::Error,
}

/// Publish what is complete. Its contents are made durable before the name leads to them, and the name after that.
///
/// # Errors
/// Those of the steps, of which none is taken after one that failed.
pub fn commit(output: &mut impl Unpublished) -> Result<(), CommitError> {
    let failed = |action| move |source| CommitError { action, source };
    output.sync().map_err(failed("write"))?;
    output.publish().map_err(failed("give the file its name"))?;
    output.sync_name().map_err(failed("write its directory"))
}
