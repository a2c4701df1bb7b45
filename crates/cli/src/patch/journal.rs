//! The file of a journal.

use super::applying::file_failure;
use super::left_over::{default_place, is_ours};
use crate::exit::Failure;
use kiln_delta::in_place::{Resize, Target};
use kiln_output::Output;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A journal, locked.
pub(super) struct Journal {
    pub path: PathBuf,
    pub file: File,
}

/// Returns the path of the journal of `old`: the default, or the `given` one.
pub(super) fn place(old: &Path, target: &Target<File>, given: Option<&Path>) -> PathBuf {
    given.map_or_else(|| default_place(old, target.resize == Resize::Never), Path::to_owned)
}

impl Journal {
    /// Opens the journal at `path`, or creates it.
    pub(super) fn create(path: PathBuf) -> Result<Self, Failure> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let journal = Self::open_with(path, &mut options, File::try_lock)?;
        journal.sync_dir()?;
        Ok(journal)
    }

    /// Opens the journal at `path` to replay it; `None` if there is none.
    pub(super) fn open(path: PathBuf) -> Result<Option<Self>, Failure> {
        Self::there(Self::open_with(path, File::options().read(true).write(true), File::try_lock))
    }

    /// Opens the journal at `path` to look at it; `None` if there is none. Other processes may look at it, too.
    pub(super) fn look(path: PathBuf) -> Result<Option<Self>, Failure> {
        Self::there(Self::open_with(path, File::options().read(true), File::try_lock_shared))
    }

    fn there(opened: Result<Self, Failure>) -> Result<Option<Self>, Failure> {
        match opened {
            Err(Failure::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn open_with(
        path: PathBuf,
        options: &mut OpenOptions,
        lock: fn(&File) -> Result<(), TryLockError>,
    ) -> Result<Self, Failure> {
        // A link that another user has put there is not followed.
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
        let file = options.open(&path).map_err(file_failure(&path, "open"))?;
        let refuse = |what: &str| Err(Failure::Usage(format!("{}: {what}", path.display())));
        let metadata = file.metadata().map_err(file_failure(&path, "look at"))?;
        if !metadata.is_file() {
            return refuse("a journal is a regular file");
        }
        // The contents of the journal would be written to the target.
        if !is_ours(&metadata) {
            return refuse(
                "another user could have written this journal: remove it, or name another one with --journal",
            );
        }
        let locked = lock(&file).map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::new(ErrorKind::ResourceBusy, "another process writes or replays it"),
            TryLockError::Error(source) => source,
        });
        locked.map_err(file_failure(&path, "lock"))?;
        Ok(Self { path, file })
    }

    /// Returns whether the journal's head was not begun: then the old image is unchanged.
    pub(super) fn is_empty(&self) -> bool {
        let mut head = [0; 8];
        Output::read_at(&self.file, &mut head, 0).is_ok() && head == [0; 8]
    }

    pub(super) fn remove(&self) -> Result<(), Failure> {
        std::fs::remove_file(&self.path).map_err(file_failure(&self.path, "remove"))?;
        self.sync_dir()
    }

    /// Makes the name, or its removal, durable.
    fn sync_dir(&self) -> Result<(), Failure> {
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(file_failure(dir, "sync"))
    }
}
