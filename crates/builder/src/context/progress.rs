//! Progress of a running build, and its interruption.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::BuildError;

/// Progress of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of input that are done.
    pub done_bytes: u64,
    /// Bytes of input in total; 0 if that is not known, as of a stream.
    pub total_bytes: u64,
}

/// Control over a running build: progress and interruption.
pub struct Control<'a> {
    /// Ends the build early with [`BuildError::Interrupted`] once set.
    pub stop: &'a AtomicBool,
    /// Called from one thread as data is written.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

impl Control<'_> {
    /// Checks if the caller has asked to stop.
    ///
    /// # Errors
    /// [`BuildError::Interrupted`] once the caller has asked to stop.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if self.stop.load(Ordering::Relaxed) { Err(BuildError::Interrupted) } else { Ok(()) }
    }
}
