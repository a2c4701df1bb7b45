//! Progress and cancellation.

use std::sync::atomic::AtomicBool;

/// Progress callback and stop flag of an extraction or an export.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// Ends the work early once it is true.
    pub stop: &'a AtomicBool,
    /// Called by the workers with the number of bytes finished since the last call.
    pub progress: &'a (dyn Fn(u64) + Sync),
}
