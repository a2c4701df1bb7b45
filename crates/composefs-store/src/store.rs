//! The directory of a store.

use crate::error::StoreError;
use kiln_composefs::tree::object_path;
use kiln_digest::Digest;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, openat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory of objects.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    pub(crate) dir: OwnedFd,
    is_repository: bool,
    /// Directories of objects that exist, and to which this process has added.
    known: Vec<AtomicBool>,
    /// The last long contents were an object already.
    pub(crate) finds_objects: AtomicBool,
    /// The last object got fs-verity, or none was added yet.
    pub(crate) has_verity: AtomicBool,
}

impl Store {
    /// Opens a store to read it: a directory of objects, or a repository of composefs-rs.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let objects = path.join("objects");
        let is_repository = path.join("meta.json").is_file() || is_dir(&objects);
        let path = if is_repository && is_dir(&objects) { objects } else { path.to_owned() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&path, flags, Mode::empty()).map_err(StoreError::file(&path, "open the store"))?;
        let known = (0..256).map(|_| AtomicBool::new(false)).collect();
        Ok(Self {
            path,
            dir,
            is_repository,
            known,
            finds_objects: AtomicBool::new(false),
            has_verity: AtomicBool::new(true),
        })
    }

    /// Opens a store to add objects. A directory that does not exist is created.
    ///
    /// # Errors
    /// A repository of composefs-rs; errors of the system.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(path).map_err(StoreError::file(path, "create the store"))?;
        let store = Self::open(path)?;
        store.refuse_repository()?;
        flock(&store.dir, FlockOperation::LockShared).map_err(StoreError::file(path, "lock the store"))?;
        Ok(store)
    }

    /// Returns the directory of objects.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the store has an object, whatever its contents.
    ///
    /// # Errors
    /// Something else of the object's name; errors of the system.
    pub fn has(&self, digest: &Digest) -> Result<bool, StoreError> {
        Ok(self.len_of(Path::new(&object_path(digest)))?.is_some())
    }

    /// Returns true if the store has an object of this path, which an image names; false for paths that
    /// lead out of the store.
    ///
    /// # Errors
    /// As [`Store::has`].
    pub fn has_path(&self, object: &[u8]) -> Result<bool, StoreError> {
        let object = Path::new(OsStr::from_bytes(object));
        let is_inside = object.components().all(|part| matches!(part, Component::Normal(_)));
        Ok(is_inside && self.len_of(object)?.is_some())
    }

    /// Opens an object, whose contents may be others than its name says.
    ///
    /// # Errors
    /// Something else of the object's name; errors of the system, among them that there is none.
    pub fn open_object(&self, digest: &Digest) -> Result<File, StoreError> {
        self.open_path(&object_path(digest))
    }

    /// Makes the names of all objects that this process has added survive a crash. Their contents do
    /// already.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn sync(&self) -> Result<(), StoreError> {
        let added = (0..256).filter(|&byte| self.known[byte].load(Ordering::Relaxed));
        for name in added.map(|byte| format!("{byte:02x}")) {
            self.sync_dir(&self.path.join(name))?;
        }
        self.sync_dir(&self.path)
    }

    fn sync_dir(&self, path: &Path) -> Result<(), StoreError> {
        File::open(path).and_then(|dir| dir.sync_all()).map_err(StoreError::file(path, "sync"))
    }

    /// Refuses to change what another program manages.
    pub(crate) fn refuse_repository(&self) -> Result<(), StoreError> {
        match self.is_repository {
            true => Err(StoreError::Repository { path: self.path.clone() }),
            false => Ok(()),
        }
    }

    /// Creates the directory of an object, unless that was done before.
    pub(crate) fn make_dir(&self, digest: &Digest) -> Result<(), StoreError> {
        let first = digest.as_bytes()[0];
        let known = &self.known[usize::from(first)];
        if known.load(Ordering::Relaxed) {
            return Ok(());
        }
        let name = format!("{first:02x}");
        let path = self.path.join(&name);
        match mkdirat(&self.dir, &*name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(StoreError::file(path, "create")(errno)),
        }
        let found = statat(&self.dir, &*name, AtFlags::SYMLINK_NOFOLLOW).map_err(StoreError::file(&path, "look at"))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return Err(StoreError::NoObject { path, found: "not even a directory" });
        }
        known.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the length of an object in bytes, if it exists.
    pub(crate) fn len_of(&self, object: &Path) -> Result<Option<u64>, StoreError> {
        match statat(&self.dir, object, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => match kind(found.st_mode) {
                None => Ok(Some(found.st_size as u64)),
                Some(found) => Err(StoreError::NoObject { path: self.path.join(object), found }),
            },
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(StoreError::file(self.path.join(object), "look at")(errno)),
        }
    }

    /// Opens a regular file of the store, without following a link and without waiting for a pipe.
    pub(crate) fn open_path(&self, object: &str) -> Result<File, StoreError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let path = || self.path.join(object);
        let (dir, name) = object.split_once('/').unwrap_or((".", object));
        let dir_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = openat(&self.dir, dir, dir_flags, Mode::empty()).map_err(StoreError::file(path(), "open"))?;
        let file = match openat(dir, name, flags, Mode::empty()) {
            Err(Errno::LOOP) => return Err(StoreError::NoObject { path: path(), found: "a symbolic link" }),
            Err(Errno::NXIO) => return Err(StoreError::NoObject { path: path(), found: "a socket" }),
            opened => opened.map_err(StoreError::file(path(), "open"))?,
        };
        let found = fstat(&file).map_err(StoreError::file(path(), "look at"))?;
        match kind(found.st_mode) {
            None => Ok(file.into()),
            Some(found) => Err(StoreError::NoObject { path: path(), found }),
        }
    }
}

/// Returns the type of a file that is no object, in words.
fn kind(mode: u32) -> Option<&'static str> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => None,
        FileType::Symlink => Some("a symbolic link"),
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a pipe"),
        FileType::Socket => Some("a socket"),
        _ => Some("a device"),
    }
}

fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}
