//! Threads, progress and the end of long work.

use kiln_parallel::Threads;
use std::sync::atomic::{AtomicBool, Ordering};

/// Threads of some work, and its ties to the caller.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// Threads that hash.
    pub threads: Threads,
    /// Set by the caller to stop early.
    pub stop: &'a AtomicBool,
    /// Called with numbers of bytes of data that are done.
    pub progress: &'a (dyn Fn(u64) + Sync),
}

impl Control<'_> {
    /// Returns a control for all processors, which runs to the end.
    pub fn unwatched() -> Control<'static> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Control { threads: Threads::PROCESSORS, stop: &NEVER, progress: &|_| {} }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn advance(&self, bytes: u64) {
        (self.progress)(bytes);
    }
}
