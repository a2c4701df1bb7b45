//! Copies of a tree: one that differs in everything that must not matter (inode numbers, the order
//! of directories, change times), or one over another tree.

use crate::snapshot::{names, xattrs};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, SeekFrom, Statx, StatxFlags, Timespec, Timestamps, Uid, XattrFlags,
    chmodat, chownat, linkat, lremovexattr, lsetxattr, mkdirat, mknodat, openat, readlinkat, seek, statx, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Copies the contents of `source` to the empty directory `target`, with all metadata and holes,
/// last names first.
///
/// # Errors
/// Errors of the system.
pub fn backwards(source: &Path, target: &Path) -> io::Result<()> {
    copy(source, target, Existing::None)
}

/// Treatment of existing files in the target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// There are none.
    None,
    /// They are removed, except directories, which are merged and get the source's metadata.
    Replace,
}

pub(crate) fn copy(source: &Path, target: &Path, existing: Existing) -> io::Result<()> {
    let open = |path| openat(CWD, path, DIR_FLAGS, Mode::empty());
    let (source, target) = (open(source)?, open(target)?);
    let mut copied = HashMap::new();
    below(source.as_fd(), target.as_fd(), existing, &mut copied)?;
    let stat = statx(&source, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    metadata([&source, &target], [b"."; 2], &stat)
}

const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Directory and name of the first name of each inode with several.
type Copied = HashMap<(u32, u32, u64), (OwnedFd, Vec<u8>)>;

fn below(source: BorrowedFd<'_>, target: BorrowedFd<'_>, existing: Existing, copied: &mut Copied) -> io::Result<()> {
    for name in names(source)?.iter().rev() {
        let stat = statx(source, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
        let file_type = FileType::from_raw_mode(stat.stx_mode.into());
        let is_there = existing == Existing::Replace && make_way(target, name, file_type)?;
        let identity = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        if let Some((dir, first)) = copied.get(&identity) {
            linkat(dir, first, target, name, AtFlags::empty())?;
            continue;
        }
        match file_type {
            FileType::Directory => {
                if !is_there {
                    mkdirat(target, name, Mode::RWXU)?;
                }
                let open = |dir| openat(dir, name, DIR_FLAGS, Mode::empty());
                below(open(source)?.as_fd(), open(target)?.as_fd(), existing, copied)?;
            }
            FileType::Symlink => symlinkat(readlinkat(source, name, Vec::new())?, target, name)?,
            FileType::RegularFile => contents(source, target, name, stat.stx_size)?,
            _ => {
                let dev = rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor);
                mknodat(target, name, file_type, Mode::RWXU, dev)?;
            }
        }
        metadata([source, target], [name; 2], &stat)?;
        if stat.stx_nlink > 1 && file_type != FileType::Directory {
            copied.insert(identity, (target.try_clone_to_owned()?, name.clone()));
        }
    }
    Ok(())
}

/// Removes the file of this name, unless both are directories. Returns true if it remains.
fn make_way(target: BorrowedFd<'_>, name: &[u8], file_type: FileType) -> io::Result<bool> {
    let found = match statx(target, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
        Err(Errno::NOENT) => return Ok(false),
        found => FileType::from_raw_mode(found?.stx_mode.into()),
    };
    match (found, file_type) {
        (FileType::Directory, FileType::Directory) => return Ok(true),
        (FileType::Directory, _) => {
            let dir = openat(target, name, DIR_FLAGS, Mode::empty())?;
            for below in names(dir.as_fd())? {
                // No directory may remain.
                make_way(dir.as_fd(), &below, FileType::Unknown)?;
            }
            unlinkat(target, name, AtFlags::REMOVEDIR)?;
        }
        _ => unlinkat(target, name, AtFlags::empty())?,
    }
    Ok(false)
}

fn contents(source: BorrowedFd<'_>, target: BorrowedFd<'_>, name: &[u8], size: u64) -> io::Result<()> {
    let from = File::from(openat(source, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let to = File::from(openat(target, name, flags, Mode::RWXU)?);
    to.set_len(size)?;
    let mut end = 0;
    loop {
        let start = match seek(&from, SeekFrom::Data(end)) {
            Err(Errno::NXIO) => return Ok(()),
            start => start?,
        };
        end = seek(&from, SeekFrom::Hole(start))?;
        let mut buf = vec![0; (end - start) as usize];
        from.read_exact_at(&mut buf, start)?;
        to.write_all_at(&buf, start)?;
    }
}

/// Copies metadata from the first name in the first directory to the second name in the second
/// directory. The owner comes first because setting it clears other metadata; times come last.
pub(crate) fn metadata(dirs: [impl AsFd; 2], names: [&[u8]; 2], stat: &Statx) -> io::Result<()> {
    let [(source, from), (target, name)] = [(dirs[0].as_fd(), names[0]), (dirs[1].as_fd(), names[1])];
    let (owner, group) = (Some(Uid::from_raw(stat.stx_uid)), Some(Gid::from_raw(stat.stx_gid)));
    chownat(target, name, owner, group, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::Symlink {
        chmodat(target, name, Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o7777), AtFlags::empty())?;
    }
    let path = [format!("/proc/self/fd/{}/", target.as_raw_fd()).as_bytes(), name].concat();
    for attr in xattrs(target, name)?.into_keys() {
        lremovexattr(&path, &*attr)?;
    }
    for (attr, value) in xattrs(source, from)? {
        lsetxattr(&path, &*attr, &value, XattrFlags::empty())?;
    }
    let time = Timespec { tv_sec: stat.stx_mtime.tv_sec, tv_nsec: stat.stx_mtime.tv_nsec.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(target, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
