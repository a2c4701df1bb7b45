//! Contents of the files of a scanned directory.

use kiln_build::tree::{Content, ContentError, ContentId, Contents};
use rustix::fs::{Mode, OFlags, ResolveFlags, SeekFrom, fstat, openat, openat2, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Longest path that is opened at once; the kernel's limit is 4096 with its end.
const PATH_STEP_LEN: usize = 4000;

/// What tells that a file is still the one that was scanned. There is one for each file, so it is small: 32 bits of each value
/// tell a change, and what changes a file changes its ctime beside the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    ino: u32,
    len: u32,
    mtime: u32,
    ctime: u32,
}

impl Stamp {
    /// The stamp of a file with these values; times are seconds and nanoseconds.
    pub fn new(ino: u64, len: u64, mtime: (i64, u32), ctime: (i64, u32)) -> Self {
        let nanoseconds =
            |(secs, nsec): (i64, u32)| (secs as u64).wrapping_mul(1_000_000_000).wrapping_add(nsec.into());
        let [ino, len, mtime, ctime] = [ino, len, nanoseconds(mtime), nanoseconds(ctime)].map(mixed);
        Self { ino, len, mtime, ctime }
    }

    /// The stamp of an open file.
    fn of(file: impl AsFd) -> Result<Self, ContentError> {
        let stat = fstat(file).map_err(io::Error::from)?;
        let mtime = (stat.st_mtime, stat.st_mtime_nsec as u32);
        let ctime = (stat.st_ctime, stat.st_ctime_nsec as u32);
        Ok(Self::new(stat.st_ino, stat.st_size as u64, mtime, ctime))
    }

    /// # Errors
    /// [`ContentError::Changed`], naming what is different.
    fn compare(&self, now: &Stamp) -> Result<(), ContentError> {
        let changed = match now {
            now if now.ino != self.ino => "another file has its name",
            now if now.len != self.len => "its size",
            now if now.mtime != self.mtime => "its mtime",
            now if now.ctime != self.ctime => "its ctime",
            _ => return Ok(()),
        };
        Err(ContentError::Changed(changed))
    }
}

/// 32 bits that depend on all of `value`.
fn mixed(value: u64) -> u32 {
    (value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// Opens files beneath a directory.
pub struct DirContents {
    pub root: OwnedFd,
    pub stamps: Vec<Stamp>,
}

impl Contents for DirContents {
    fn open(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        // O_NONBLOCK: a pipe that has taken the file's place must not block; it fails the comparison below.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(open_beneath(self.root.as_fd(), path, flags)?);
        let stamp = self.stamps[id.0 as usize];
        stamp.compare(&Stamp::of(&file)?)?;
        Ok(Box::new(FileContent { file, stamp }))
    }
}

/// Open `path` beneath `root` without following any symbolic link. The empty path is the root itself.
pub fn open_beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir: Option<OwnedFd> = None;
    let mut rest = if path.is_empty() { &b"."[..] } else { path };
    while rest.len() > PATH_STEP_LEN {
        let Some(cut) = rest[..PATH_STEP_LEN].iter().rposition(|&b| b == b'/') else { break };
        let at = dir.as_ref().map_or(root, |dir| dir.as_fd());
        dir = Some(open_step(at, &rest[..cut], OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?);
        rest = &rest[cut + 1..];
    }
    Ok(open_step(dir.as_ref().map_or(root, |dir| dir.as_fd()), rest, flags)?)
}

fn open_step(at: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match openat2(at, path, flags, Mode::empty(), resolve) {
            // A rename elsewhere raced with the walk: the kernel asks to try again.
            Err(Errno::AGAIN) => {}
            // Sandboxes refuse the system call; step by step it is as safe.
            Err(Errno::NOSYS | Errno::PERM) => return open_by_name(at, path, flags),
            other => return other,
        }
    }
}

fn open_by_name(at: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut names = path.split(|&b| b == b'/').peekable();
    let mut dir: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        let at = dir.as_ref().map_or(at, |dir| dir.as_fd());
        if names.peek().is_none() {
            return openat(at, name, flags | OFlags::NOFOLLOW, Mode::empty());
        }
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        dir = Some(openat(at, name, step, Mode::empty())?);
    }
    Err(Errno::NOENT)
}

struct FileContent {
    file: File,
    stamp: Stamp,
}

impl Content for FileContent {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        self.file.read_exact_at(buf, off).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ContentError::Changed("it became shorter"),
            _ => error.into(),
        })
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        let start = match seek(&self.file, SeekFrom::Data(off)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        let end = seek(&self.file, SeekFrom::Hole(start)).map_err(io::Error::from)?;
        Ok(Some(start..end))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        self.stamp.compare(&Stamp::of(&self.file)?)
    }
}
