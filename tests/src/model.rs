//! What `kiln update` makes of a tree by `--remove`, `--add` and `--replace`, done to a directory.

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

/// Remove what is at `path` of the tree at `root`, with all below it. Its directory keeps its time.
///
/// # Errors
/// Errors of the system.
pub fn remove(root: &Path, path: &[u8]) -> io::Result<()> {
    let place = root.join(OsStr::from_bytes(path));
    keeping_time(&place, || {
        if place.symlink_metadata()?.is_dir() { fs::remove_dir_all(&place) } else { fs::remove_file(&place) }
    })
}

/// Lay the tree at `over` over the one at `root`: directories become one, all else replaces what was there.
///
/// # Errors
/// Errors of the system.
pub fn add(root: &Path, over: &Path) -> io::Result<()> {
    copy(over, root, Existing::Replace)
}

/// Give the regular file at `path` of the tree at `root` contents and time of `file`, alone of all its names.
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

/// Do something in the directory that holds `path`, which keeps its time.
fn keeping_time(path: &Path, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let dir = open(&parent(path))?;
    let before = statx(&dir, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    act()?;
    set_time(&dir, Path::new("."), &before)
}
