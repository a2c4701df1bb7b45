//! Snapshots of trees on disk or mounted, by descriptors.

use super::{Record, Snapshot, hash, joined};
use kiln_format::inode::FileType;
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, SeekFrom, Statx, StatxFlags, lgetxattr, llistxattr, openat, readlinkat, seek,
    statx,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Returns a snapshot of the directory `root` and everything below it, with paths of any length.
///
/// # Errors
/// Errors of the system, with the path.
pub fn of_dir(root: &Path) -> io::Result<Snapshot> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(CWD, root, flags, Mode::empty())?;
    let mut walk = DirWalk::default();
    walk.record(dir.as_fd(), b"", Vec::new())?;
    walk.below(dir.as_fd(), b"")?;
    Ok(walk.snapshot)
}

#[derive(Default)]
struct DirWalk {
    snapshot: Snapshot,
    first_names: HashMap<(u32, u32, u64), Vec<u8>>,
}

impl DirWalk {
    fn below(&mut self, dir: BorrowedFd<'_>, dir_path: &[u8]) -> io::Result<()> {
        for name in names(dir)? {
            let path = joined(dir_path, &name);
            let named = |error| at_path(error, &path);
            if self.record(dir, &name, path.clone()).map_err(named)? {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let child = openat(dir, &name, flags, Mode::empty()).map_err(|error| named(error.into()))?;
                self.below(child.as_fd(), &path)?;
            }
        }
        Ok(())
    }

    /// Records one entry; an empty name is the directory itself. Returns true if it is a directory.
    fn record(&mut self, dir: BorrowedFd<'_>, name: &[u8], path: Vec<u8>) -> io::Result<bool> {
        let stat = statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        let file_type = FileType::from_mode(stat.stx_mode).ok_or_else(|| io::Error::other("no known type"))?;
        let identity = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let first_name = self.first_names.entry(identity).or_insert_with(|| path.clone()).clone();
        // A further name of an inode need not be read again.
        let record = match self.snapshot.get(&first_name) {
            Some(record) if file_type != FileType::Directory => record.clone(),
            _ => record(dir, name, file_type, &stat, first_name)?,
        };
        self.snapshot.insert(path, record);
        Ok(file_type == FileType::Directory)
    }
}

fn record(
    dir: BorrowedFd<'_>,
    name: &[u8],
    file_type: FileType,
    stat: &Statx,
    first_name: Vec<u8>,
) -> io::Result<Record> {
    let has_size = matches!(file_type, FileType::Regular | FileType::Symlink);
    let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
    Ok(Record {
        file_type,
        permissions: stat.stx_mode & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: stat.stx_nlink,
        mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        size: if has_size { stat.stx_size } else { 0 },
        rdev: if is_device { (stat.stx_rdev_major, stat.stx_rdev_minor) } else { (0, 0) },
        target: match file_type {
            FileType::Symlink => readlinkat(dir, name, Vec::new())?.into_bytes(),
            _ => Vec::new(),
        },
        xattrs: xattrs(dir, name)?,
        contents: match file_type {
            FileType::Regular => hash_file(dir, name, stat.stx_size)?,
            _ => 0,
        },
        first_name,
    })
}

fn hash_file(dir: BorrowedFd<'_>, name: &[u8], size: u64) -> io::Result<u128> {
    let file = File::from(openat(dir, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?);
    let next_data = |off| match seek(&file, SeekFrom::Data(off)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    };
    hash(size, next_data, |buf, off| file.read_exact_at(buf, off))
}

/// Returns the names in a directory in byte order, without dot entries, which must exist
/// nevertheless.
pub(crate) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        names.push(entry?.file_name().to_bytes().to_vec());
    }
    names.sort_unstable();
    for dot in [&b"."[..], b".."] {
        let at = names.binary_search_by(|name| (**name).cmp(dot));
        names.remove(at.map_err(|_| io::Error::other("a dot entry is missing"))?);
    }
    Ok(names)
}

/// Returns the attributes of an entry; an empty name is the directory itself.
pub(crate) fn xattrs(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let path = [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), name].concat();
    let mut buf = vec![0; 64 << 10];
    let len = match llistxattr(&path, &mut buf) {
        Err(Errno::OPNOTSUPP) => 0,
        listed => listed?,
    };
    let names: Vec<Vec<u8>> = buf[..len].split(|&b| b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
    let value = |name: Vec<u8>| {
        let len = lgetxattr(&path, &*name, &mut buf)?;
        Ok((name, buf[..len].to_vec()))
    };
    names.into_iter().map(value).collect()
}

fn at_path(error: io::Error, path: &[u8]) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.escape_ascii()))
}
