//! Files of the host that definitions name.

use kiln_tree::{Kind, Node};
use rustix::fs::{Mode, OFlags, open};
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::added_files::AddedFilesBuilder;
use crate::dir::contents::open_beneath;
use crate::dir::entry::{EntryKind, look};

/// Treatment of a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    Kept,
    Followed,
}

/// Creates a node of the file at `path` and adds its contents to `files`. Opens the root directory
/// of the host into `host`.
///
/// # Errors
/// I/O errors; a directory.
pub(super) fn host_file(
    path: &[u8],
    links: Links,
    files: &mut AddedFilesBuilder,
    host: &mut Option<OwnedFd>,
) -> io::Result<Node> {
    let path = Path::new(OsStr::from_bytes(path));
    // A path without symbolic links is not affected by later changes of the links.
    let real = match links {
        Links::Followed => fs::canonicalize(path)?,
        Links::Kept => {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            fs::canonicalize(dir)?.join(path.file_name().ok_or(io::ErrorKind::IsADirectory)?)
        }
    };
    let real = real.as_os_str().as_bytes().strip_prefix(b"/").ok_or(io::ErrorKind::InvalidInput)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match host {
        Some(root) => root,
        None => host.insert(open("/", flags, Mode::empty())?),
    };
    let (dir, name) = match real.iter().rposition(|&b| b == b'/') {
        Some(at) => (&real[..at], &real[at + 1..]),
        None => (&b""[..], real),
    };
    let dir = open_beneath(root.as_fd(), dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let entry = look(dir.as_fd(), &CString::new(name)?)?.whole()?;
    let kind = match entry.what {
        EntryKind::Directory => return Err(io::ErrorKind::IsADirectory.into()),
        EntryKind::File { len, stamp, sparse, .. } => Kind::File { len, content: files.host(real, stamp), sparse },
        EntryKind::Symlink(target) => Kind::Symlink(target),
        EntryKind::CharDevice(rdev) => Kind::CharDevice(rdev),
        EntryKind::BlockDevice(rdev) => Kind::BlockDevice(rdev),
        EntryKind::Fifo => Kind::Fifo,
        EntryKind::Socket => Kind::Socket,
    };
    Ok(Node { meta: entry.meta, xattrs: entry.xattrs, kind })
}
