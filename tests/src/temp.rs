//! Temporary directories, gone when their test is.

use rustix::mount::UnmountFlags;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// A directory for all users, which is removed with all that is in it, after what is still mounted on it or on its children has been
/// detached.
#[derive(Debug)]
pub struct TempDir(tempfile::TempDir);

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

    /// A new directory in `parent`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn inside(parent: &Path, what: &str) -> io::Result<Self> {
        let parent = parent.canonicalize()?;
        let mode = fs::Permissions::from_mode(0o755);
        tempfile::Builder::new().prefix(&format!("kiln-{what}-")).permissions(mode).tempdir_in(parent).map(Self)
    }

    /// Its path, without symbolic links.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a name in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A new directory in it.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir(&path).expect("a new directory");
        path
    }

    /// A copy of `file` in it.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn copy(&self, file: &Path) -> PathBuf {
        let path = self.path().join(file.file_name().expect("a file has a name"));
        fs::copy(file, &path).expect("a copy");
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let children = fs::read_dir(self.path()).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in children.chain([self.path().to_owned()]) {
            while rustix::mount::unmount(&path, UnmountFlags::DETACH).is_ok() {}
        }
    }
}
