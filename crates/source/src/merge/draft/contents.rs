//! Files of the host in a draft.

use kiln_tree::{Content, ContentError, ContentId, Contents, PlainContents, Version};
use rustix::fs::{Mode, OFlags, open};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::dir::contents::{Stamp, open_beneath, open_changed_beneath, open_stamped_beneath};
use crate::dir::entry::{Entry, look};

/// A file of the host.
pub(super) struct HostEntry {
    /// Path without symbolic links and leading slash, which later changes of links do not affect.
    pub(super) path: Box<[u8]>,
    pub(super) entry: Entry,
}

/// Reads the file that `path` leads to.
///
/// # Errors
/// I/O errors.
pub(super) fn look_at(path: &Path) -> io::Result<HostEntry> {
    let real = fs::canonicalize(path)?;
    let real = real.as_os_str().as_bytes().strip_prefix(b"/").ok_or(io::ErrorKind::InvalidInput)?;
    let (dir, name) = match real.iter().rposition(|&b| b == b'/') {
        Some(at) => (&real[..at], &real[at + 1..]),
        None => (&b""[..], real),
    };
    let dir = open_beneath(open_root()?.as_fd(), dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
    Ok(HostEntry { entry: look(dir.as_fd(), &CString::new(name)?)?.whole()?, path: real.into() })
}

fn open_root() -> io::Result<OwnedFd> {
    Ok(open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Consecutively added regular files of the host.
#[derive(Default)]
pub(super) struct HostFiles {
    /// Root directory of the host, opened once for all files of a draft.
    root: Option<Arc<OwnedFd>>,
    files: Vec<(Box<[u8]>, Stamp)>,
}

impl HostFiles {
    /// Adds a file with this stamp, whose path is that of a [`HostEntry`].
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn add(&mut self, path: Box<[u8]>, stamp: Stamp) -> io::Result<()> {
        if self.root.is_none() {
            self.root = Some(Arc::new(open_root()?));
        }
        self.files.push((path, stamp));
        Ok(())
    }

    /// Takes the files added since the last call: their number and contents.
    pub(super) fn take(&mut self) -> (u32, Box<dyn Contents>) {
        let files = Self { root: self.root.clone(), files: std::mem::take(&mut self.files) };
        (files.files.len() as u32, Box::new(files))
    }

    fn file(&self, id: ContentId) -> io::Result<(&OwnedFd, &[u8], Stamp)> {
        let (path, stamp) = &self.files[id.0 as usize];
        // The root is opened before the first file is added.
        let root = self.root.as_deref().ok_or(io::ErrorKind::NotFound)?;
        Ok((root, path, *stamp))
    }
}

impl PlainContents for HostFiles {
    fn open_plain(&self, id: ContentId, _: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        let (root, path, stamp) = self.file(id)?;
        match version {
            Version::Changed => open_changed_beneath(root.as_fd(), path, stamp),
            _ => open_stamped_beneath(root.as_fd(), path, stamp),
        }
    }
}
