//! Owners, extended attributes, modes, times: in this order, because each clears or changes some of those before it.
//!
//! Writing and changing the owner clear suid bits and file capabilities, so both come before attributes and mode. Attributes of
//! the user need write permission, so they come before the mode. An ACL and the mode share the group bits and agree in an
//! image, so their order does not matter. Everything changes the time.

use super::node::Entry;
use super::run::Run;
use crate::SinkError;
use kiln_format::inode::FileType;
use kiln_read::Inode;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RawMode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const SUID: u16 = 0o4000;
const SGID: u16 = 0o2000;

/// Complete a file or directory that is open.
pub(super) fn restore(run: &Run<'_>, file: impl AsFd, path: &[u8], inode: &Inode) -> Result<(), SinkError> {
    let file = file.as_fd();
    if let Some((uid, gid)) = owner(run, inode) {
        rustix::fs::fchown(file, Some(uid), Some(gid)).map_err(run.io(path, "set the owner"))?;
    }
    restore_xattrs(run, path, inode, |name, value| rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()))?;
    rustix::fs::fchmod(file, mode(run, inode)).map_err(run.io(path, "set the mode"))?;
    rustix::fs::futimens(file, &times(inode)).map_err(run.io(path, "set the time"))
}

/// Complete a symbolic link, device, fifo or socket, which cannot be opened without side effects.
pub(super) fn restore_other(run: &Run<'_>, entry: &Entry) -> Result<(), SinkError> {
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

/// Something that is opened as a place only. Calls that take a path reach it through `/proc`, and it alone: another file that
/// takes its name meanwhile is not followed.
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

/// The owner to restore, if owners are restored.
fn owner(run: &Run<'_>, inode: &Inode) -> Option<(Uid, Gid)> {
    run.owners.then(|| (Uid::from_raw(inode.meta.uid), Gid::from_raw(inode.meta.gid)))
}

/// Permissions. Where owners are not restored, a file must not run as someone that the image did not mean.
fn mode(run: &Run<'_>, inode: &Inode) -> Mode {
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

/// The image has one time, that of modification.
fn times(inode: &Inode) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: inode.meta.mtime, tv_nsec: inode.meta.mtime_nsec.into() },
    }
}

/// Set all attributes. What the caller may not set, or the file system does not have, is noted and no error.
fn restore_xattrs(
    run: &Run<'_>,
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
