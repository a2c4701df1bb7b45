//! The caller's wish to stop.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::DeltaError;

/// # Errors
/// [`DeltaError::Interrupted`] once the caller has asked to stop.
pub(crate) fn check_stop(stop: &AtomicBool) -> Result<(), DeltaError> {
    if stop.load(Ordering::Relaxed) { Err(DeltaError::Interrupted) } else { Ok(()) }
}
