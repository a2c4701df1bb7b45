//! Objects of composefs images: the directories that hold them, and opening one of them so that
//! nothing else is ever read.

use crate::error::ReadError;
use crate::error::object::{ComposefsObject, ObjectProblem};
use kiln_digest::Digest;
use kiln_digest::fsverity::FsVerity;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are hashed at once.
const PIECE_LEN: usize = 256 << 10;

/// Verification of the objects that are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ObjectVerification {
    /// The fs-verity digest of an object is computed before its first byte is given out, and again
    /// after its time of change has become another one. The open file that was hashed is the one
    /// that is read.
    #[default]
    Once,
    /// Only type and length are compared.
    Never,
}

/// Directories with the objects of composefs images, as `kiln composefs create` and `mkcomposefs`
/// fill them: the object with the digest `65840…` is the file `65/840…`.
///
/// With them in its [options](crate::ImageOptions::objects), an image is read as overlayfs shows it
/// over the same directories: its larger files have contents, and nothing is seen of what leads to
/// these. Objects are regular files below a directory of two hexadecimal digits; no symbolic link is
/// followed, and nothing else is opened.
///
/// ```no_run
/// use kiln_read::{Image, ImageOptions, ObjectVerification, Objects};
///
/// # fn main() -> Result<(), kiln_read::ReadError> {
/// let objects = Objects::open(&["objects"], ObjectVerification::Once)?;
/// let options = ImageOptions::default().with_objects(objects);
/// let image = Image::open_path("rootfs.cfs".as_ref(), &[], &options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Objects {
    dirs: Arc<[ObjectDir]>,
    verification: ObjectVerification,
}

struct ObjectDir {
    path: PathBuf,
    fd: OwnedFd,
}

impl Objects {
    /// Opens directories of objects, in the order in which objects are looked for. Of a repository of
    /// composefs-rs, that is the directory `objects` in it.
    ///
    /// # Errors
    /// A path that is no directory, or cannot be opened.
    pub fn open(dirs: &[impl AsRef<Path>], verification: ObjectVerification) -> Result<Self, ReadError> {
        let dirs = dirs.iter().map(|dir| ObjectDir::open(dir.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { dirs, verification })
    }

    /// Returns the verification.
    pub fn verification(&self) -> ObjectVerification {
        self.verification
    }

    /// Opens an object of `size` bytes, and verifies it unless that is not wanted.
    ///
    /// # Errors
    /// An object that is missing, or another one.
    pub fn open_verified(&self, object: &ComposefsObject, size: u64) -> Result<OpenObject, ObjectProblem> {
        let open = self.open_object(object, size)?;
        if self.verification == ObjectVerification::Once
            && let Some(digest) = object.digest()?
        {
            open.verify(&digest)?;
        }
        Ok(open)
    }

    /// Opens an object of `size` bytes. Its contents are not verified yet.
    pub(crate) fn open_object(&self, object: &ComposefsObject, size: u64) -> Result<OpenObject, ObjectProblem> {
        let path = object.path.as_deref().ok_or(ObjectProblem::Unnamed)?;
        let (dir, name) = parts(path).ok_or(ObjectProblem::Path)?;
        for store in self.dirs.iter() {
            match open_file(&store.fd, dir, name) {
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(ObjectProblem::of(errno)),
                Ok(file) => return OpenObject::of(file, size),
            }
        }
        Err(ObjectProblem::Missing)
    }
}

impl ObjectDir {
    fn open(path: &Path) -> Result<Self, ReadError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &Path| rustix::fs::open(path, flags, Mode::empty());
        let inner = path.join("objects");
        let (path, fd) = match open(&inner) {
            Ok(fd) => (inner, fd),
            // A store has no such directory: all its names are digits.
            Err(_) => (path.to_owned(), open(path).map_err(|errno| ReadError::open(path, errno.into()))?),
        };
        Ok(Self { path, fd })
    }
}

/// Objects are equal if they are clones.
impl PartialEq for Objects {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.dirs, &other.dirs) && self.verification == other.verification
    }
}

impl Eq for Objects {}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dirs: Vec<_> = self.dirs.iter().map(|dir| &dir.path).collect();
        f.debug_struct("Objects").field("dirs", &dirs).field("verification", &self.verification).finish()
    }
}

/// Returns the directory and the name of an object; `None` for every path that is none of a store.
fn parts(path: &[u8]) -> Option<(&[u8], &[u8])> {
    // The image has a slash in front of what it was given, which may have one itself.
    let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
    let (dir, rest) = path[slashes..].split_at_checked(2)?;
    let name = rest.strip_prefix(b"/")?;
    let is_dir = dir.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_name = !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0);
    (is_dir && is_name).then_some((dir, name))
}

/// Opens a file in a directory of a store, without following a link and without waiting for a pipe.
fn open_file(store: &OwnedFd, dir: &[u8], name: &[u8]) -> Result<File, Errno> {
    let dir_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(store, OsStr::from_bytes(dir), dir_flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(dir, OsStr::from_bytes(name), flags, Mode::empty())?.into())
}

/// State of a file that is another one after each change of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileState {
    device: u64,
    ino: u64,
    size: u64,
    ctime: (i64, i64),
}

impl FileState {
    // The types of the fields are those of the machine.
    #[allow(clippy::unnecessary_cast)]
    fn of(found: &Stat) -> Self {
        Self {
            device: found.st_dev as u64,
            ino: found.st_ino as u64,
            size: found.st_size as u64,
            ctime: (found.st_ctime as i64, found.st_ctime_nsec as i64),
        }
    }
}

/// An object that is open: a regular file of the right length.
#[derive(Debug)]
pub struct OpenObject {
    file: File,
    state: FileState,
}

impl OpenObject {
    fn of(file: File, size: u64) -> Result<Self, ObjectProblem> {
        let found = fstat(&file).map_err(io::Error::from)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(ObjectProblem::NoFile("a directory")),
            FileType::Fifo => return Err(ObjectProblem::NoFile("a pipe")),
            _ => return Err(ObjectProblem::NoFile("a device")),
        }
        let state = FileState::of(&found);
        match state.size == size {
            true => Ok(Self { file, state }),
            false => Err(ObjectProblem::Size { found: state.size, expected: size }),
        }
    }

    /// Returns its state when it was opened.
    pub(crate) fn state(&self) -> FileState {
        self.state
    }

    /// Returns true if nothing has changed since it was opened.
    pub fn is_unchanged(&self) -> bool {
        fstat(&self.file).is_ok_and(|found| FileState::of(&found) == self.state)
    }

    /// Compares the contents with their digest.
    pub(crate) fn verify(&self, expected: &Digest) -> Result<(), ObjectProblem> {
        let mut hasher = FsVerity::new(expected.algorithm());
        let mut buf = vec![0; PIECE_LEN.min(self.state.size as usize)];
        let mut off = 0;
        while off < self.state.size {
            let piece = &mut buf[..(self.state.size - off).min(PIECE_LEN as u64) as usize];
            self.file.read_exact_at(piece, off)?;
            hasher.update(piece);
            off += piece.len() as u64;
        }
        let found = hasher.finish();
        match (found == *expected, self.is_unchanged()) {
            (true, true) => Ok(()),
            (true, false) => Err(ObjectProblem::Changed),
            (false, _) => Err(ObjectProblem::Digest { found: found.into(), expected: (*expected).into() }),
        }
    }

    /// Fills `buf` from byte `off` on.
    ///
    /// # Errors
    /// An object that has become shorter; errors of the system.
    pub fn read_exact_at(&self, buf: &mut [u8], off: u64) -> Result<(), ObjectProblem> {
        Ok(self.file.read_exact_at(buf, off)?)
    }
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn only_paths_of_a_store_are_taken() {
        let found = Some((&b"ab"[..], &b"cd.file"[..]));
        for path in ["/ab/cd.file", "//ab/cd.file", "ab/cd.file"] {
            assert_eq!(parts(path.as_bytes()), found, "{path}");
        }
        for path in [
            "",
            "/",
            "/ab",
            "/ab/",
            "/ab//c",
            "/ab/.",
            "/ab/..",
            "/../c",
            "/ab/c/d",
            "/ab/../../c",
            "/a/bc",
            "/AB/c",
            "/zz/c",
            "/abc/d",
            "/ab/c\0",
        ] {
            assert_eq!(parts(path.as_bytes()), None, "{path}");
        }
    }
}
