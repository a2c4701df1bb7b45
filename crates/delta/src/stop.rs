//! The caller's stop flag.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::DeltaError;

/// Checks the stop flag.
///
/// # Errors
/// [`DeltaError::Interrupted`] if the flag is set.
pub(crate) fn check_stop(stop: &AtomicBool) -> Result<(), DeltaError> {
    if stop.load(Ordering::Relaxed) { Err(DeltaError::Interrupted) } else { Ok(()) }
}
