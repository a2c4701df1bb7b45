//! Spools: unnamed files for input that cannot be read twice, with a limit.

use kiln_output::Spool;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::spool_error::spool_failed;

/// Limit in bytes of the total length of spools, and of streams that are stored as they come, shared
/// by all sources opened with it or with a clone of it.
///
/// Without a limit, a few bytes of a hostile archive could expand to fill a disk.
#[derive(Clone, Debug)]
pub struct SpoolLimit {
    max: u64,
    taken: Arc<AtomicU64>,
}

impl SpoolLimit {
    /// Creates a limit of `max` bytes.
    pub fn new(max: u64) -> Self {
        Self { max, taken: Arc::default() }
    }

    /// Takes `len` bytes from the limit.
    ///
    /// # Errors
    /// [`io::ErrorKind::QuotaExceeded`] if the limit would be exceeded.
    fn take(&self, len: u64) -> io::Result<()> {
        let within = |taken: u64| taken.checked_add(len).filter(|&taken| taken <= self.max);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(_) => Ok(()),
            Err(_) => {
                let reason = format!(
                    "its stream or temporary file takes more than {} bytes; if you trust the source, allow more \
                     with --spool-max",
                    self.max
                );
                Err(spool_failed(io::ErrorKind::QuotaExceeded, reason))
            }
        }
    }
}

impl Default for SpoolLimit {
    /// Returns a limit that only the free space of the disk restricts.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

/// Directory of spools, with their limit.
#[derive(Clone, Debug)]
pub(crate) struct SpoolPlace {
    pub(crate) dir: PathBuf,
    pub(crate) limit: SpoolLimit,
}

impl SpoolPlace {
    /// Creates a spool. Data written with [`SpoolPlace::append`] count towards the limit.
    ///
    /// # Errors
    /// A spool that cannot be created.
    pub(crate) fn create(&self) -> io::Result<Spool> {
        Spool::create(&self.dir).map_err(io::Error::other)
    }

    /// Takes `len` bytes from the limit.
    ///
    /// # Errors
    /// A limit that would be exceeded.
    pub(crate) fn take(&self, len: u64) -> io::Result<()> {
        self.limit.take(len)
    }

    /// Appends `bytes` to `spool`.
    ///
    /// # Errors
    /// A limit that would be exceeded; write errors, with the directory.
    pub(crate) fn append(&self, spool: &Spool, bytes: &[u8]) -> io::Result<()> {
        self.take(bytes.len() as u64)?;
        spool.file().write_all(bytes).map_err(|error| self.write_error("the input stream", &error))
    }

    /// Returns the error for spooled data, named `what`, that could not be written.
    pub(crate) fn write_error(&self, what: &str, error: &io::Error) -> io::Error {
        spool_failed(error.kind(), format!("cannot spool {what} in {}: {error}", self.dir.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_limit_take_of_one_budget() {
        let limit = SpoolLimit::new(10);
        assert!(limit.take(6).is_ok());
        let error = limit.clone().take(5).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
        assert!(error.to_string().contains("more than 10 bytes"), "{error}");
        // A refused request takes nothing.
        assert!(limit.take(4).is_ok());
        assert!(limit.take(1).is_err());
        assert!(SpoolLimit::default().take(1 << 62).is_ok());
    }
}
