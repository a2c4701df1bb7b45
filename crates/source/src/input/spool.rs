//! Where sources keep what they cannot read twice, and how much of it.

use kiln_output::Spool;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::spool_error::spool_failed;

/// How many bytes the nameless files may hold together of all sources that were opened with this limit, or with a clone of it.
///
/// Without one, what a few bytes of a hostile archive unpack to fills a disk.
#[derive(Clone, Debug)]
pub struct SpoolLimit {
    max: u64,
    taken: Arc<AtomicU64>,
}

impl SpoolLimit {
    /// A limit of `max` bytes, of which nothing is taken.
    pub fn new(max: u64) -> Self {
        Self { max, taken: Arc::default() }
    }

    /// Take `len` bytes more.
    ///
    /// # Errors
    /// [`io::ErrorKind::QuotaExceeded`]: there would be more than are allowed.
    fn take(&self, len: u64) -> io::Result<()> {
        let within = |taken: u64| taken.checked_add(len).filter(|&taken| taken <= self.max);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(_) => Ok(()),
            Err(_) => {
                let reason = format!(
                    "what cannot be read twice takes more than {} bytes: allow more by --spool-max, if the source is to be trusted",
                    self.max
                );
                Err(spool_failed(io::ErrorKind::QuotaExceeded, reason))
            }
        }
    }
}

impl Default for SpoolLimit {
    /// None but the room on the disk.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

/// Where spools are made, and how much they may hold.
#[derive(Clone, Debug)]
pub(crate) struct SpoolPlace {
    pub(crate) dir: PathBuf,
    pub(crate) limit: SpoolLimit,
}

impl SpoolPlace {
    /// A spool, which takes of the limit what is written to it.
    ///
    /// # Errors
    /// One that cannot be made.
    pub(crate) fn create(&self) -> io::Result<Spool> {
        Spool::create(&self.dir).map_err(io::Error::other)
    }

    /// Take `len` bytes of the limit.
    ///
    /// # Errors
    /// There would be more than are allowed.
    pub(crate) fn take(&self, len: u64) -> io::Result<()> {
        self.limit.take(len)
    }

    /// Write `bytes` behind what is in `spool`.
    ///
    /// # Errors
    /// More than is allowed; errors of the system, with the directory.
    pub(crate) fn append(&self, spool: &Spool, bytes: &[u8]) -> io::Result<()> {
        self.take(bytes.len() as u64)?;
        spool.file().write_all(bytes).map_err(|error| self.write_error("what cannot be read twice", &error))
    }

    /// That `what`, which is kept here, could not be written.
    pub(crate) fn write_error(&self, what: &str, error: &io::Error) -> io::Error {
        spool_failed(error.kind(), format!("{what} is kept in {}: {error}", self.dir.display()))
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
        // What was refused is not taken.
        assert!(limit.take(4).is_ok());
        assert!(limit.take(1).is_err());
        assert!(SpoolLimit::default().take(1 << 62).is_ok());
    }
}
