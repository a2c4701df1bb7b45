//! A real tree with every oddity that a filesystem can hold.
//!
//! Everything follows from a seed; an [`Editor`] edits trees in the same way. Files that the
//! machine does not allow (devices without privileges, attributes that the filesystem does not
//! support) are left out and reported.

mod dirs;
mod edits;
mod files;
mod links;
mod meta;
mod random;
mod sparse;
mod xattrs;

pub use edits::{Editor, Times, WantedType};
pub use random::make_random;

use crate::rng::Rng;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, StatxFlags, Timespec, Timestamps, XattrFlags, lsetxattr, mkdirat,
    mknodat, openat, statx, symlinkat, utimensat,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Amount of data to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Everything: 80 MiB of data.
    Full,
    /// Without the large files that are slow to compress: 30 MiB of data.
    Reduced,
    /// For slow encoders, only files of one segment, but for zeros: 10 MiB of data.
    Small,
}

/// Modification time of most files.
const USUAL_TIME: i64 = 1_700_000_000;

/// Makes a tree in the empty directory `root`. Returns descriptions of what had to be left out.
///
/// # Errors
/// Errors of the system, except those due to missing privileges or features of the filesystem.
pub fn make(root: &Path, seed: u64, scale: Scale) -> io::Result<BTreeSet<String>> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let mut maker = Maker::new(seed);
    let root = open_dir(root)?;
    let section = |name: &str| subdir(root.as_fd(), name.as_bytes());
    files::make(&mut maker, &section("files")?, scale)?;
    files::duplicates(&mut maker, &section("duplicates")?, scale)?;
    sparse::make(&mut maker, &section("sparse")?)?;
    links::make(&mut maker, &section("links")?)?;
    dirs::make(&mut maker, &section("dirs")?)?;
    dirs::names(&mut maker, &section("names")?)?;
    meta::nodes(&mut maker, &section("nodes")?)?;
    meta::owners_and_modes(&mut maker, &section("meta")?)?;
    meta::times(&section("times")?)?;
    xattrs::make(&mut maker, &section("xattrs")?)?;
    maker.settle(root.as_fd(), began)?;
    Ok(maker.left_out)
}

/// Opens a directory.
fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes a directory and opens it.
fn subdir(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    Ok(openat(parent, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes an empty file.
fn create(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(openat(dir, name, flags, Mode::from_raw_mode(0o644))?.into())
}

/// Makes a file with contents.
fn file(dir: BorrowedFd<'_>, name: &[u8], bytes: &[u8]) -> io::Result<()> {
    create(dir, name)?.write_all(bytes)
}

/// Makes a symbolic link.
fn symlink(dir: BorrowedFd<'_>, name: &[u8], target: &[u8]) -> io::Result<()> {
    Ok(symlinkat(target, dir, name)?)
}

/// Sets the modification time.
fn set_mtime(dir: BorrowedFd<'_>, name: &[u8], secs: i64, nsec: u32) -> io::Result<()> {
    let time = Timespec { tv_sec: secs, tv_nsec: nsec.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// State shared by all parts of the generator.
struct Maker {
    rng: Rng,
    left_out: BTreeSet<String>,
}

impl Maker {
    fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), left_out: BTreeSet::new() }
    }

    /// Evaluates the outcome of an action that a machine may not allow. Returns true if it
    /// succeeded.
    fn allowed(&mut self, what: &str, outcome: Result<(), Errno>) -> io::Result<bool> {
        match outcome {
            Ok(()) => Ok(true),
            Err(error @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL)) => {
                self.left_out.insert(format!("{what}: {error}"));
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a device, pipe or socket.
    fn node(&mut self, dir: BorrowedFd<'_>, name: &[u8], file_type: FileType, dev: (u32, u32)) -> io::Result<bool> {
        let made = mknodat(dir, name, file_type, Mode::from_raw_mode(0o640), rustix::fs::makedev(dev.0, dev.1));
        self.allowed(&format!("{file_type:?}"), made)
    }

    /// Sets an attribute. One that is too large for the filesystem is silently left out.
    fn xattr(&mut self, dir: BorrowedFd<'_>, name: &[u8], attr: &[u8], value: &[u8]) -> io::Result<bool> {
        let path = [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), name].concat();
        match lsetxattr(&path, attr, value, XattrFlags::empty()) {
            Err(Errno::NOSPC | Errno::RANGE | Errno::TOOBIG) => Ok(false),
            set => {
                let class = attr.split(|&byte| byte == b'.').next().unwrap_or(attr);
                self.allowed(&format!("{} attributes", String::from_utf8_lossy(class)), set)
            }
        }
    }

    /// Sets the times of `dir` and everything below it that still have the time of their creation.
    fn settle(&mut self, dir: BorrowedFd<'_>, began: i64) -> io::Result<()> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        for entry in Dir::read_from(dir)? {
            names.push(entry?.file_name().to_bytes().to_vec());
        }
        names.sort_unstable();
        for name in names.iter().filter(|name| !matches!(&name[..], b"." | b"..")) {
            let stat = statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
            if FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                self.settle(openat(dir, name, flags, Mode::empty())?.as_fd(), began)?;
            }
            self.settle_time(dir, name, &stat, began)?;
        }
        let stat = statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        self.settle_time(dir, b".", &stat, began)
    }

    fn settle_time(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        stat: &rustix::fs::Statx,
        began: i64,
    ) -> io::Result<()> {
        if !(began - 1..began + 86_400).contains(&stat.stx_mtime.tv_sec) {
            return Ok(());
        }
        // The time of hard links is set once for each name; the last one remains.
        match self.rng.below(4) {
            0 => {
                let secs = USUAL_TIME - self.rng.below(1 << 28) as i64;
                set_mtime(dir, name, secs, self.rng.below(1_000_000_000) as u32)
            }
            _ => set_mtime(dir, name, USUAL_TIME, 0),
        }
    }
}
