//! Contents of the files of a scanned directory.

use kiln_tree::{Content, ContentError, ContentId, PlainContents, Version};
use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, SeekFrom, Statx, StatxFlags, StatxTimestamp, openat, openat2, seek, statx,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Maximum length in bytes of a path passed to one system call; the kernel's limit is 4096
/// including the zero byte.
const PATH_STEP_LEN: usize = 4000;

/// Stamp that shows if a file has changed since it was scanned. It is small because each file has
/// one: a 32-bit hash of each value shows a change, and every change of a file also changes its
/// ctime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    ino: u32,
    len: u32,
    mtime: u32,
    ctime: u32,
    /// Owner and mode.
    access: u32,
}

impl Stamp {
    /// Returns the stamp of a file.
    pub(crate) fn new(stat: &Statx) -> Self {
        let time =
            |time: StatxTimestamp| (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.into());
        Self {
            ino: mixed(stat.stx_ino),
            len: mixed(stat.stx_size),
            mtime: mixed(time(stat.stx_mtime)),
            ctime: mixed(time(stat.stx_ctime)),
            access: mixed(u64::from(stat.stx_uid) << 32 | u64::from(stat.stx_gid)) ^ u32::from(stat.stx_mode),
        }
    }

    /// Returns the stamp of an open file.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn of(file: impl AsFd) -> Result<Self, ContentError> {
        let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map_err(io::Error::from)?;
        Ok(Self::new(&stat))
    }

    /// Checks that an open file is unchanged.
    ///
    /// # Errors
    /// [`ContentError::Changed`], which names the difference.
    pub fn verify(&self, file: impl AsFd) -> Result<(), ContentError> {
        self.compare(&Self::of(file)?)
    }

    /// Returns the parts of the stamp that depend on the contents: 32 bits each of inode number,
    /// length, mtime and ctime. If an inode number is reused for another file, the ctime differs.
    pub(crate) fn value(&self) -> u128 {
        [self.ino, self.len, self.mtime, self.ctime].into_iter().fold(0, |all, part| all << 32 | u128::from(part))
    }

    /// Compares the stamp with a newer one.
    ///
    /// # Errors
    /// [`ContentError::Resized`] or [`ContentError::Changed`], which names the difference.
    fn compare(&self, now: &Stamp) -> Result<(), ContentError> {
        let changed = match now {
            now if now.len != self.len => return Err(ContentError::Resized("its size")),
            now if now.ino != self.ino => "another file has its name",
            now if now.mtime != self.mtime => "its mtime",
            now if now.ctime != self.ctime => "its ctime",
            _ => return Ok(()),
        };
        Err(ContentError::Changed(changed))
    }
}

/// Returns a 32-bit hash of `value`.
fn mixed(value: u64) -> u32 {
    (value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// Contents of files beneath a directory.
pub(super) struct DirContents {
    pub root: OwnedFd,
    pub stamps: Arc<[Stamp]>,
}

impl PlainContents for DirContents {
    fn open_plain(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        let stamp = self.stamps[id.0 as usize];
        match version {
            Version::Changed => open_changed_beneath(self.root.as_fd(), path, stamp),
            _ => open_stamped_beneath(self.root.as_fd(), path, stamp),
        }
    }
}

/// Opens the file at `path` beneath `root`; fails if it no longer has this stamp.
pub(crate) fn open_stamped_beneath(
    root: BorrowedFd<'_>,
    path: &[u8],
    stamp: Stamp,
) -> Result<Box<dyn Content>, ContentError> {
    let file = open_file(root, path)?;
    stamp.verify(&file)?;
    Ok(Box::new(FileContent { file, stamp }))
}

/// Opens the file at `path` beneath `root` in its current state; it had this stamp when it was
/// scanned.
pub(crate) fn open_changed_beneath(
    root: BorrowedFd<'_>,
    path: &[u8],
    stamp: Stamp,
) -> Result<Box<dyn Content>, ContentError> {
    let file = open_file(root, path)?;
    let now = Stamp::of(&file)?;
    // A file that was rewritten and renamed into place is accepted as the new version. A file with
    // another owner or mode is not: it would be stored with the metadata that the scan found.
    match now.ino == stamp.ino || now.access == stamp.access {
        true => Ok(Box::new(ChangedContent { file, is_short: false })),
        false => Err(ContentError::Changed("another file has its name, with another owner or mode")),
    }
}

fn open_file(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<File> {
    // O_NONBLOCK: a pipe that has replaced the file must not block. The stamp shows the
    // replacement.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    open_beneath(root, path, flags).map(File::from)
}

/// Opens `path` beneath `root` without following symbolic links. The empty path is the root itself.
pub(crate) fn open_beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
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
            // A concurrent rename made the lookup fail; the kernel asks to try again.
            Err(Errno::AGAIN) => {}
            // Some sandboxes refuse the system call; opening the components one by one is equally
            // safe.
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
            io::ErrorKind::UnexpectedEof => ContentError::Resized("it has become shorter"),
            _ => error.into(),
        })
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        Ok(next_data(&self.file, off)?)
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        self.stamp.verify(&self.file)
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }
}

/// A changed file, in its current state.
struct ChangedContent {
    file: File,
    /// Bytes were missing. The length that the system states does not tell: files of sysfs have a page.
    is_short: bool,
}

impl Content for ChangedContent {
    fn read_exact_at(&mut self, mut buf: &mut [u8], mut off: u64) -> Result<(), ContentError> {
        while !buf.is_empty() {
            match self.file.read_at(buf, off) {
                Ok(0) => {
                    self.is_short = true;
                    break;
                }
                Ok(len) => (buf, off) = (&mut buf[len..], off + len as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The file has become shorter: the rest reads as zeros.
        buf.fill(0);
        Ok(())
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        Ok(next_data(&self.file, off)?)
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        if self.is_short { Err(ContentError::Resized("it has become shorter")) } else { Ok(()) }
    }
}

fn next_data(file: &File, off: u64) -> io::Result<Option<Range<u64>>> {
    let start = match seek(file, SeekFrom::Data(off)) {
        Err(Errno::NXIO) => return Ok(None),
        start => start?,
    };
    match seek(file, SeekFrom::Hole(start)) {
        // The file has become shorter since the first call.
        Err(Errno::NXIO) => Ok(None),
        end => Ok(Some(start..end?)),
    }
}
