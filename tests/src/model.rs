//! The edits of `kiln update` (`--remove`, `--add`, `--replace`), applied to a directory.

use crate::copy::{Existing, copy, metadata};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Statx, StatxFlags, Timespec, Timestamps, openat, renameat, statx, utimensat,
};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Removes the file at `path` of the tree at `root`, and everything below it. Its directory keeps
/// its time.
///
/// # Errors
/// Errors of the system.
pub fn remove(root: &Path, path: &[u8]) -> io::Result<()> {
    let place = root.join(OsStr::from_bytes(path));
    keeping_time(&place, || {
        if place.symlink_metadata()?.is_dir() { fs::remove_dir_all(&place) } else { fs::remove_file(&place) }
    })
}

/// Merges the tree at `over` into the one at `root`: directories are merged, all other files are
/// replaced.
///
/// # Errors
/// Errors of the system.
pub fn add(root: &Path, over: &Path) -> io::Result<()> {
    copy(over, root, Existing::Replace)
}

/// Gives the regular file at `path` of the tree at `root` the contents and time of `file`; other
/// names of it are not changed.
///
/// # Errors
/// Errors of the system.
pub fn replace(root: &Path, path: &[u8], file: &Path) -> io::Result<()> {
    let place = root.join(OsStr::from_bytes(path));
    keeping_time(&place, || {
        let dir = open(&parent(&place))?;
        let name = place.file_name().unwrap_or_default();
        let stat = statx(&dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
        let new = Path::new(".kiln-replacement");
        fs::copy(file, parent(&place).join(new))?;
        metadata([&dir, &dir], [name.as_bytes(), new.as_os_str().as_bytes()], &stat)?;
        set_time(&dir, new, &statx(CWD, file, AtFlags::empty(), StatxFlags::BASIC_STATS)?)?;
        Ok(renameat(&dir, new, &dir, name)?)
    })
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

fn open(dir: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn set_time(dir: &OwnedFd, name: &Path, stat: &Statx) -> io::Result<()> {
    let time = Timespec { tv_sec: stat.stx_mtime.tv_sec, tv_nsec: stat.stx_mtime.tv_nsec.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Calls `act`, and then restores the time of the directory that contains `path`.
fn keeping_time(path: &Path, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let dir = open(&parent(path))?;
    let before = statx(&dir, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    act()?;
    set_time(&dir, Path::new("."), &before)
}
