//! One entry of a directory: its metadata, without its contents.

use kiln_builder::tree::{Metadata, ThinSlice, Xattr};
use kiln_format::inode::Rdev;
use rustix::fs::{AtFlags, Dir, FileType, StatxAttributes, StatxFlags, lgetxattr, llistxattr, readlinkat, statx};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::contents::Stamp;
use super::file_id::FileId;

/// What the scan of a directory finds under a name.
pub(crate) struct Entry {
    pub meta: Metadata,
    pub xattrs: ThinSlice<Xattr>,
    pub what: What,
    /// What tells it from other files.
    pub id: FileId,
    /// The inode has several names.
    pub is_linked: bool,
    /// Something is mounted here.
    pub is_mount_point: bool,
}

/// Type of an entry.
pub(crate) enum What {
    Directory,
    File { len: u64, stamp: Stamp, changed_at: i64, sparse: bool },
    Symlink(ThinSlice<u8>),
    CharDevice(Rdev),
    BlockDevice(Rdev),
    Fifo,
    Socket,
}

/// Names in a directory, without dot entries, in the order the system gives them.
pub(super) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<Box<CStr>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name.into());
        }
    }
    Ok(names)
}

/// Whether `name` in `dir` is a directory.
pub(super) fn is_dir(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
    let stat = statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, StatxFlags::TYPE)?;
    Ok(FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory)
}

/// What `name` in `dir` is; an empty name is the directory itself.
pub(crate) fn look(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Entry> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let stat = statx(dir, name, flags, StatxFlags::BASIC_STATS)?;
    let file_type = FileType::from_raw_mode(stat.stx_mode.into());
    let rdev = Rdev { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor };
    let what = match file_type {
        FileType::Directory => What::Directory,
        FileType::RegularFile => {
            let stamp = Stamp::new(&stat);
            // Fewer blocks than its size needs: holes, or a filesystem that compresses.
            let sparse = stat.stx_blocks.saturating_mul(512) < stat.stx_size;
            What::File { len: stat.stx_size, stamp, changed_at: stat.stx_ctime.tv_sec, sparse }
        }
        FileType::Symlink => What::Symlink(readlinkat(dir, name, Vec::new())?.to_bytes().into()),
        FileType::CharacterDevice => What::CharDevice(rdev),
        FileType::BlockDevice => What::BlockDevice(rdev),
        FileType::Fifo => What::Fifo,
        FileType::Socket => What::Socket,
        FileType::Unknown => return Err(io::Error::other(format!("unknown file type {:o}", stat.stx_mode))),
    };
    Ok(Entry {
        meta: Metadata {
            permissions: stat.stx_mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            mtime: stat.stx_mtime.tv_sec,
            mtime_nsec: stat.stx_mtime.tv_nsec,
        },
        xattrs: read_xattrs(dir, name)?,
        what,
        id: FileId::from(&stat),
        is_linked: stat.stx_nlink > 1 && file_type != FileType::Directory,
        is_mount_point: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    })
}

/// Extended attributes, read without opening the file (which devices, pipes and permissions forbid).
fn read_xattrs(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<ThinSlice<Xattr>> {
    // There is no lgetxattrat before Linux 6.13; the way through /proc names the directory by its descriptor.
    let fd = dir.as_fd().as_raw_fd();
    let path = [format!("/proc/self/fd/{fd}/").as_bytes(), name.to_bytes()].concat();
    let names = match fill(|buf| llistxattr(&path, buf)) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP | Errno::NODATA) => return Ok(ThinSlice::default()),
        Err(error) => return Err(named(error, "cannot list its extended attributes")),
    };
    let mut xattrs = Vec::new();
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        match fill(|buf| lgetxattr(&path, name, buf)) {
            Ok(value) => xattrs.push(Xattr { name: name.into(), value: value.into() }),
            // Removed since it was listed.
            Err(Errno::NODATA) => {}
            Err(error) => {
                let name = String::from_utf8_lossy(name);
                return Err(named(error, &format!("cannot read its extended attribute {name}")));
            }
        }
    }
    Ok(xattrs.into())
}

/// Call with a buffer that grows until the answer fits.
fn fill(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buf = vec![0; 256];
    loop {
        match call(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            // The largest list or value that Linux has is 64 KiB.
            Err(Errno::RANGE) if buf.len() <= 64 << 10 => buf.resize(buf.len() * 4, 0),
            Err(error) => return Err(error),
        }
    }
}

fn named(error: Errno, what: &str) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
