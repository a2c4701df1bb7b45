//! A nameless file in which an image waits if it cannot be built at its destination: builders go back in their
//! output, and pipes cannot.

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::atomic_file::create_in;
use crate::error::OutputError;

/// Directory of spools if neither an argument nor the environment names one: as a rule on a disk, unlike /tmp.
const DEFAULT_DIR: &str = "/var/tmp";
/// Bytes that are copied at once.
const PIECE_LEN: usize = 1 << 20;

/// A nameless file: nothing remains of it, however the program ends.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    file: File,
}

/// The reason why a spool could not be copied.
#[derive(Debug)]
pub enum CopyError {
    /// The spool could not be read.
    Read(io::Error),
    /// The writer failed.
    Write(io::Error),
    /// The caller asked to stop.
    Interrupted,
}

/// The action that fails if a directory is not fit for spools.
const KEEP: &str = "keep temporary files there (TMPDIR names another directory)";

impl Spool {
    /// Creates a spool in `dir`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn create(dir: &Path) -> Result<Self, OutputError> {
        let fail = |action| move |errno: Errno| OutputError::file(dir, action, errno.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(dir, flags, Mode::empty()).map_err(fail(KEEP))?;
        let name = OsStr::new("kiln-image");
        let (file, temporary) = create_in(&fd, name, Mode::RUSR | Mode::WUSR).map_err(fail(KEEP))?;
        if let Some(temporary) = temporary {
            rustix::fs::unlinkat(&fd, &temporary, AtFlags::empty()).map_err(fail("remove a file in"))?;
        }
        Ok(Self { dir: dir.to_owned(), file })
    }

    /// Returns the directory of spools: `$TMPDIR` if it is set, else `/var/tmp`.
    pub fn default_dir() -> PathBuf {
        let env = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let default = || if Path::new(DEFAULT_DIR).is_dir() { DEFAULT_DIR.into() } else { std::env::temp_dir() };
        env.unwrap_or_else(default)
    }

    /// Returns the file, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the file itself, which stays without a name.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Returns the directory whose room it takes.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes all of it to `writer`, front to back, holes as zeros, until `stop` is set.
    ///
    /// # Errors
    /// Errors of either side, and an interruption.
    pub fn copy_to(&self, writer: &mut dyn Write, stop: &AtomicBool) -> Result<(), CopyError> {
        let mut file = &self.file;
        file.rewind().map_err(CopyError::Read)?;
        let mut piece = vec![0; PIECE_LEN];
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(CopyError::Interrupted);
            }
            let len = match file.read(&mut piece) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                len => len.map_err(CopyError::Read)?,
            };
            writer.write_all(&piece[..len]).map_err(CopyError::Write)?;
        }
    }
}
