//! Directory to extract into.

use super::Existing;
use super::beneath::open_dir;
use crate::SinkError;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directory to extract into.
pub(super) struct Target {
    path: PathBuf,
    dir: OwnedFd,
}

impl Target {
    /// Opens `path`, or creates it, and checks that it is empty if `existing` demands that.
    pub(super) fn prepare(path: &Path, existing: Existing) -> Result<Self, SinkError> {
        let io = |action| move |source: io::Error| SinkError::Io { path: path.to_owned(), action, source };
        match fs::create_dir(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(io("make the directory"))?,
        }
        let target = Self::open_at(path)?;
        if existing == Existing::Refuse && fs::read_dir(path).map_err(io("list"))?.next().is_some() {
            return Err(SinkError::TargetNotEmpty { path: path.to_owned() });
        }
        Ok(target)
    }

    /// Returns the parent directory of the file `path`, which need not exist, and the file's name.
    pub(super) fn around(path: &Path) -> Result<(Self, Vec<u8>), SinkError> {
        let Some(name) = path.file_name() else {
            let source = ErrorKind::IsADirectory.into();
            return Err(SinkError::Io { path: path.to_owned(), action: "create", source });
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok((Self::open_at(parent)?, name.as_bytes().to_vec()))
    }

    fn open_at(path: &Path) -> Result<Self, SinkError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(dir) => Ok(Self { path: path.to_owned(), dir }),
            Err(errno) => Err(SinkError::Io { path: path.to_owned(), action: "open", source: errno.into() }),
        }
    }

    /// Opens the target's directory that corresponds to `path` in the image.
    pub(super) fn open(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        open_dir(self.dir.as_fd(), path, flags)
    }

    /// Returns the path in the target that corresponds to `path` in the image, for messages.
    pub(super) fn path_of(&self, path: &[u8]) -> PathBuf {
        match path {
            b"" => self.path.clone(),
            _ => self.path.join(OsStr::from_bytes(path)),
        }
    }
}
