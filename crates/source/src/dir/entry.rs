//! One entry of a directory: its metadata, without its contents.

use kiln_format::inode::Rdev;
use kiln_tree::{Metadata, ThinSlice, Xattr};
use rustix::fs::{AtFlags, FileType, RawDir, StatxAttributes, StatxFlags, readlinkat, statx};
use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

use super::contents::Stamp;
use super::file_id::FileId;
use super::xattrs;

/// Bytes of records of a directory that are asked for at a time.
const RECORDS_LEN: usize = 32 << 10;

/// What the scan of a directory finds under a name.
pub(crate) struct Entry {
    pub meta: Metadata,
    pub xattrs: ThinSlice<Xattr>,
    /// Why it has attributes that are not in `xattrs`, none of which is then: they cannot be read.
    pub unread: Option<io::Error>,
    pub what: What,
    /// What tells it from other files.
    pub id: FileId,
    /// The inode has several names.
    pub is_linked: bool,
    /// Something is mounted here.
    pub is_mount_point: bool,
}

impl Entry {
    /// The entry, with all of its attributes.
    ///
    /// # Errors
    /// Attributes that cannot be read.
    pub(crate) fn whole(mut self) -> io::Result<Self> {
        self.unread.take().map_or(Ok(self), Err)
    }
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

/// Names in a directory that was just opened, without dot entries, in the order the system gives them.
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
