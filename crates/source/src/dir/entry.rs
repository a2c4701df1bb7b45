//! Entry of a directory: metadata without contents.

use kiln_format::inode::Rdev;
use kiln_tree::{Metadata, ThinSlice, Xattr};
use rustix::fs::{AtFlags, FileType, RawDir, StatxAttributes, StatxFlags, readlinkat, statx};
use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

use super::contents::Stamp;
use super::file_id::FileId;
use super::xattrs;

/// Length in bytes of the buffer for directory records.
const RECORDS_LEN: usize = 32 << 10;

/// An entry found by the scan of a directory.
pub(crate) struct Entry {
    pub meta: Metadata,
    pub xattrs: ThinSlice<Xattr>,
    /// Error of reading the extended attributes; `xattrs` is empty then.
    pub unread: Option<io::Error>,
    /// Type of the entry, with its data.
    pub what: EntryKind,
    /// Identity of the inode.
    pub id: FileId,
    /// True if the inode has several names.
    pub is_linked: bool,
    /// True if a filesystem is mounted here.
    pub is_mount_point: bool,
}

impl Entry {
    /// Returns the entry if all its attributes could be read.
    ///
    /// # Errors
    /// The error of reading the attributes.
    pub(crate) fn whole(mut self) -> io::Result<Self> {
        self.unread.take().map_or(Ok(self), Err)
    }
}

/// Type of an entry, with its data.
pub(crate) enum EntryKind {
    Directory,
    File { len: u64, stamp: Stamp, changed_at: i64, sparse: bool },
    Symlink(ThinSlice<u8>),
    CharDevice(Rdev),
    BlockDevice(Rdev),
    Fifo,
    Socket,
}

/// Returns the names in a newly opened directory, without `.` and `..`, in the order of the
/// filesystem.
pub(super) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<Box<CStr>>> {
    let mut records = Box::new_uninit_slice(RECORDS_LEN);
    let mut entries = RawDir::new(dir, &mut records);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name.into());
        }
    }
    Ok(names)
}

/// Returns true if `name` in `dir` is a directory.
pub(super) fn is_dir(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
    let stat = statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, StatxFlags::TYPE)?;
    Ok(FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory)
}

/// Reads the entry `name` in `dir`; an empty name is the directory itself.
pub(crate) fn look(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Entry> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let stat = statx(dir, name, flags, StatxFlags::BASIC_STATS)?;
    let file_type = FileType::from_raw_mode(stat.stx_mode.into());
    let rdev = Rdev { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor };
    let what = match file_type {
        FileType::Directory => EntryKind::Directory,
        FileType::RegularFile => {
            let stamp = Stamp::new(&stat);
            // Fewer blocks than the size needs: the file has holes, or the filesystem compresses.
            let sparse = stat.stx_blocks.saturating_mul(512) < stat.stx_size;
            EntryKind::File { len: stat.stx_size, stamp, changed_at: stat.stx_ctime.tv_sec, sparse }
        }
        FileType::Symlink => EntryKind::Symlink(readlinkat(dir, name, Vec::new())?.to_bytes().into()),
        FileType::CharacterDevice => EntryKind::CharDevice(rdev),
        FileType::BlockDevice => EntryKind::BlockDevice(rdev),
        FileType::Fifo => EntryKind::Fifo,
        FileType::Socket => EntryKind::Socket,
        FileType::Unknown => return Err(io::Error::other(format!("unknown file type {:o}", stat.stx_mode))),
    };
    let (xattrs, unread) = match xattrs::read(dir, name) {
        Ok(xattrs) => (xattrs, None),
        Err(error) => {
            let told = io::Error::new(error.kind(), format!("its extended attributes: {error}"));
            (ThinSlice::default(), Some(told))
        }
    };
    Ok(Entry {
        meta: Metadata {
            permissions: stat.stx_mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            mtime: stat.stx_mtime.tv_sec,
            mtime_nsec: stat.stx_mtime.tv_nsec,
        },
        xattrs,
        unread,
        what,
        id: FileId::from(&stat),
        is_linked: stat.stx_nlink > 1 && file_type != FileType::Directory,
        is_mount_point: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    })
}
