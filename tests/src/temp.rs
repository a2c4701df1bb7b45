//! Temporary directories, which are removed after the test.

use rustix::mount::UnmountFlags;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// A directory accessible by all users. When dropped, it is removed with all its contents, after
/// mounts on it and on its children have been detached.
#[derive(Debug)]
pub struct TempDir(tempfile::TempDir);

impl TempDir {
    /// Creates a directory in the system's directory for temporary files.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn new(what: &str) -> io::Result<Self> {
        Self::inside(&env::temp_dir(), what)
    }

    /// Creates a directory in memory if the system supports it: fast, but without `user.`
    /// attributes.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn in_memory(what: &str) -> io::Result<Self> {
        let shm = Path::new("/dev/shm");
        if shm.is_dir() { Self::inside(shm, what) } else { Self::new(what) }
    }

    /// Creates a directory in `parent`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn inside(parent: &Path, what: &str) -> io::Result<Self> {
        let parent = parent.canonicalize()?;
        let mode = fs::Permissions::from_mode(0o755);
        tempfile::Builder::new().prefix(&format!("kiln-{what}-")).permissions(mode).tempdir_in(parent).map(Self)
    }

    /// Returns its path, without symbolic links.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of a name in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Creates a directory in it.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir(&path).expect("a new directory");
        path
    }

    /// Copies `file` into it.
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
