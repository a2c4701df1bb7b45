//! Temporary directories, gone when their test is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, io, process};

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// A directory that is removed with all that is in it.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// A new directory in the system's place for temporary files.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn new(what: &str) -> io::Result<Self> {
        Self::inside(&env::temp_dir(), what)
    }

    /// A new directory in memory where the system has such a place: fast, but without extended attributes of users.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn in_memory(what: &str) -> io::Result<Self> {
        let shm = Path::new("/dev/shm");
        if shm.is_dir() { Self::inside(shm, what) } else { Self::new(what) }
    }

    fn inside(parent: &Path, what: &str) -> io::Result<Self> {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("kiln-{what}-{}-{serial}", process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{}: cannot be removed: {error}", self.0.display());
        }
    }
}
