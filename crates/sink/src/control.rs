//! How work is watched and ended.

use std::sync::atomic::AtomicBool;

/// How an extraction or an export is watched and ended.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// Ends the work early, as soon as it is true.
    pub stop: &'a AtomicBool,
    /// Called by the workers with counts of bytes just done.
    pub progress: &'a (dyn Fn(u64) + Sync),
}
