//! Images that were built, before and after they get their names.

use kiln_builder::{BuildError, PhaseClock, Reasons, Summary};
use kiln_output::AtomicFile;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

/// An image that is complete, and has no name yet: the result of [`Scanned::build`](crate::Scanned::build).
pub struct Built<'t> {
    /// Contents and sizes of the image, and the time that each phase took, the scan included.
    pub summary: Summary,
    /// Reasons why each file is stored as it is.
    pub reasons: Reasons<'t>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Built<'_> {
    /// Gives the image in `file` its name: the last step, and the phase `sync` of the summary.
    ///
    /// # Errors
    /// An interruption; an output that cannot be synced or named.
    pub fn commit(&mut self, file: AtomicFile) -> Result<(), Error> {
        self.check_stop()?;
        self.commit_by(|_| Ok(file.commit()?))
    }

    /// Calls `commit`, which completes an output that is no [`AtomicFile`], as the phase `sync`.
    ///
    /// # Errors
    /// Those of `commit`.
    pub fn commit_by<E>(&mut self, commit: impl FnOnce(&Summary) -> Result<(), E>) -> Result<(), E> {
        let clock = PhaseClock::start();
        commit(&self.summary)?;
        clock.finish("sync");
        self.summary.phases.extend(clock.phases());
        Ok(())
    }

    pub(super) fn check_stop(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(BuildError::Interrupted.into()) } else { Ok(()) }
    }
}
