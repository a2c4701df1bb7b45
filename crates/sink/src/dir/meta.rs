//! Owners, extended attributes, modes and times, in this order, because each step clears or changes
//! later ones.
//!
//! Writing and changing the owner clear suid bits and file capabilities, so both come before
//! attributes and mode. Setting `user.` attributes needs write permission, so they come before the
//! mode. An ACL and the mode share the group bits and agree in an image, so their order does not
//! matter. Every step changes the time.

use super::node::Entry;
use super::run::Extraction;
use crate::SinkError;
use kiln_format::inode::FileType;
use kiln_read::Inode;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RawMode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const SUID: u16 = 0o4000;
const SGID: u16 = 0o2000;

/// Sets the metadata of an open file or directory.
pub(super) fn restore(run: &Extraction<'_>, file: impl AsFd, path: &[u8], inode: &Inode) -> Result<(), SinkError> {
    let file = file.as_fd();
    if let Some((uid, gid)) = owner(run, inode) {
        rustix::fs::fchown(file, Some(uid), Some(gid)).map_err(run.io(path, "set the owner"))?;
    }
    restore_xattrs(run, path, inode, |name, value| rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()))?;
    rustix::fs::fchmod(file, mode(run, inode)).map_err(run.io(path, "set the mode"))?;
    rustix::fs::futimens(file, &times(inode)).map_err(run.io(path, "set the time"))
}

/// Sets the metadata of a symbolic link, device, fifo or socket, which cannot be opened without
/// side effects.
pub(super) fn restore_other(run: &Extraction<'_>, entry: &Entry) -> Result<(), SinkError> {
    let (parent, name, path, inode) = (&entry.parent, entry.name(), &entry.path, &entry.inode);
    if let Some((uid, gid)) = owner(run, inode) {
        rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(run.io(path, "set the owner"))?;
    }
    let is_symlink = inode.meta.file_type == FileType::Symlink;
    if !is_symlink || inode.meta.xattr_len() > 0 {
        let node = Node::open(entry).map_err(run.io(path, "open"))?;
        let set = |name: &[u8], value: &[u8]| rustix::fs::setxattr(&*node.path, name, value, XattrFlags::empty());
        restore_xattrs(run, path, inode, set)?;
        if !is_symlink {
            rustix::fs::chmod(&*node.path, mode(run, inode)).map_err(run.io(path, "set the mode"))?;
        }
    }
    rustix::fs::utimensat(parent, name, &times(inode), AtFlags::SYMLINK_NOFOLLOW).map_err(run.io(path, "set the time"))
}

/// A file opened with `O_PATH`. Calls that take a path reach it through `/proc/self/fd`, so that
/// they do not follow another file that takes its name meanwhile.
struct Node {
    path: String,
    _fd: OwnedFd,
}

impl Node {
    fn open(entry: &Entry) -> rustix::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&entry.parent, entry.name(), flags, Mode::empty())?;
        Ok(Self { path: format!("/proc/self/fd/{}", fd.as_raw_fd()), _fd: fd })
    }
}

/// Returns the owner to restore, if owners are restored.
fn owner(run: &Extraction<'_>, inode: &Inode) -> Option<(Uid, Gid)> {
    run.owners.then(|| (Uid::from_raw(inode.meta.uid), Gid::from_raw(inode.meta.gid)))
}

/// Returns the permission bits to set. If owners are not restored, suid and sgid bits for another
/// user or group are cleared.
fn mode(run: &Extraction<'_>, inode: &Inode) -> Mode {
    let mut bits = inode.meta.permissions & !run.options.umask;
    if !run.owners && inode.meta.file_type != FileType::Directory {
        if inode.meta.uid != run.euid {
            bits &= !SUID;
        }
        if inode.meta.gid != run.egid {
            bits &= !SGID;
        }
    }
    Mode::from_raw_mode(RawMode::from(bits))
}

/// Returns the modification time, the only time that an image stores.
fn times(inode: &Inode) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: inode.meta.mtime, tv_nsec: inode.meta.mtime_nsec.into() },
    }
}

/// Sets all extended attributes. Those that the caller may not set or the filesystem does not
/// support are noted, and are not an error.
fn restore_xattrs(
    run: &Extraction<'_>,
    path: &[u8],
    inode: &Inode,
    set: impl Fn(&[u8], &[u8]) -> rustix::io::Result<()>,
) -> Result<(), SinkError> {
    if !run.options.xattrs || inode.meta.xattr_len() == 0 {
        return Ok(());
    }
    for xattr in run.image.list_xattrs(inode).map_err(|error| error.at_path(path))? {
        match set(&xattr.name, &xattr.value) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => run.note_unset_xattr(path, &xattr.name),
            Err(errno) => return Err(run.io(path, "set an extended attribute")(errno)),
        }
    }
    Ok(())
}
