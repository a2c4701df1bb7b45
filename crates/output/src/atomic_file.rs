//! A file that appears under its name complete, or not at all.
//!
//! The file is written without any name (`O_TMPFILE`), so that not even SIGKILL leaves something behind, and linked
//! when it is complete. On file systems without nameless files it gets a hidden temporary name, which is removed on
//! every way out but SIGKILL. A file that a later run may continue has a hidden name that this run can find.

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, RawMode, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Output;
use crate::commit::{Durability, Unpublished, commit};
use crate::error::OutputError;
use crate::{kept_file, unfinished};

/// Treatment of a file that has the name already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the output is refused.
    #[default]
    Keep,
    /// It is replaced, in one step, if it is a regular file.
    Replace,
}

/// A file being written. [`AtomicFile::commit`] gives it its name; if it is dropped before, nothing remains of it.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    dir: OwnedFd,
    name: OsString,
    file: File,
    existing: Existing,
    /// The file that had the name when this one was started.
    replaced: Option<OwnedFd>,
    /// The hidden name, while there is one. Removed on drop.
    temporary: Option<OsString>,
}

impl AtomicFile {
    /// Starts the file that will be called `path`.
    ///
    /// # Errors
    /// A path that names no file; with [`Existing::Keep`] a file that exists, with
    /// [`Existing::Replace`] one that is not regular; errors of the system.
    pub fn create(path: &Path, existing: Existing) -> Result<Self, OutputError> {
        Self::begin(path, existing, |dir, name, mode| {
            let failed = |source| OutputError::file(path, "create", source);
            let (file, temporary) = create_in(dir, name, mode).map_err(|errno| failed(errno.into()))?;
            if let Some(temporary) = &temporary {
                unfinished::note(dir, temporary).map_err(failed)?;
            }
            Ok((file, temporary))
        })
    }

    /// Starts the file that will be called `path`, or continues one that an earlier run has left
    /// ([`AtomicFile::keep`], or a crash) under a hidden name derived from `path`. No other process can continue it
    /// meanwhile.
    ///
    /// # Errors
    /// Those of [`AtomicFile::create`]; something under the hidden name that is not a file of this user; another
    /// process that is writing the file.
    pub fn resume(path: &Path, existing: Existing) -> Result<Self, OutputError> {
        Self::begin(path, existing, |dir, name, mode| {
            let failed = |source| OutputError::file(path, "go on with the unfinished file beside it", source);
            let temporary = kept_file::name_of(name);
            let file = kept_file::open(dir, &temporary, mode).map_err(failed)?;
            Ok((file, Some(temporary)))
        })
    }

    /// Starts the file that will be called `path`. `open` opens it, given its directory, its name and its mode, and
    /// returns the file and its hidden name, if it has one.
    fn begin(
        path: &Path,
        existing: Existing,
        open: impl FnOnce(&OwnedFd, &OsStr, Mode) -> Result<(File, Option<OsString>), OutputError>,
    ) -> Result<Self, OutputError> {
        let Some(name) = path.file_name() else {
            return Err(OutputError::NotAName { path: path.to_owned() });
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(parent(path), flags, Mode::empty());
        let dir = dir.map_err(|errno| OutputError::file(path, "open its directory", errno.into()))?;
        let replaced = check_existing(&dir, name, path, existing)?;
        // A replacement is as secret as the old file from the beginning, in case it needs a hidden name.
        let mode = Mode::from_raw_mode(if replaced.is_some() { 0o600 } else { 0o666 }); // less the umask
        let (file, temporary) = open(&dir, name, mode)?;
        Ok(Self { path: path.to_owned(), dir, name: name.to_owned(), file, existing, replaced, temporary })
    }

    /// Leaves the unfinished file for [`AtomicFile::resume`] and returns its path. A file without a hidden name
    /// disappears, and the result is `None`.
    pub fn keep(mut self) -> Option<PathBuf> {
        let temporary = self.temporary.take()?;
        unfinished::forget(&temporary);
        Some(self.dir_path().join(temporary))
    }

    /// Returns the same file, which will be called `name` in its directory: for a name that depends on the contents.
    /// The name may be a path into a directory below, whose name [`Durability::Synced`] does not make durable.
    pub fn with_name(mut self, name: &OsStr) -> Self {
        self.path.set_file_name(name);
        self.name = name.to_owned();
        self.replaced = None;
        self
    }

    /// Returns whether `other` will have the same name in the same directory.
    pub fn has_name_of(&self, other: &AtomicFile) -> bool {
        let dirs = [self, other].map(|file| rustix::fs::fstat(&file.dir).ok().map(|stat| (stat.st_dev, stat.st_ino)));
        self.name == other.name && dirs[0].is_some() && dirs[0] == dirs[1]
    }

    /// Returns the directory in which the file will appear.
    pub fn dir_path(&self) -> &Path {
        parent(&self.path)
    }

    /// Returns the file, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the file that it replaces, if there was one at the start; not open for reading.
    pub fn replaced(&self) -> Option<&OwnedFd> {
        self.replaced.as_ref()
    }

    /// Gives the file its name, and makes both durable.
    ///
    /// # Errors
    /// A file that has the name, unless it may be replaced; errors of the system. The name then refers to the same
    /// file as before, unless only the directory could not be synced.
    pub fn commit(self) -> Result<(), OutputError> {
        self.commit_as(Durability::Synced)
    }

    /// Commits like [`AtomicFile::commit`], but makes a new file durable only if `durability` says so. A file that
    /// replaces another is synced in any case: a crash must not destroy both.
    ///
    /// # Errors
    /// Those of [`AtomicFile::commit`].
    pub fn commit_as(mut self, durability: Durability) -> Result<(), OutputError> {
        let durability = if self.replaced.is_some() { Durability::Synced } else { durability };
        commit(&mut self, durability).map_err(|error| match Errno::from_io_error(&error.source) {
            Some(Errno::EXIST) => OutputError::Exists { path: self.path.clone() },
            _ => OutputError::file(&self.path, error.action, error.source),
        })
    }

    /// Links the file to a name that must not exist.
    fn publish_new(&mut self) -> Result<(), Errno> {
        let Some(temporary) = &self.temporary else { return link_nameless(&self.file, &self.dir, &self.name) };
        match rustix::fs::renameat_with(&self.dir, temporary, &self.dir, &self.name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {
                // The drop removes the temporary name.
                return rustix::fs::linkat(&self.dir, temporary, &self.dir, &self.name, AtFlags::empty());
            }
            renamed => renamed?,
        }
        unfinished::forget(temporary);
        self.temporary = None;
        Ok(())
    }

    /// Renames the file to a name that may exist. Only renaming replaces in one step, and it needs a name to start
    /// from.
    fn replace(&mut self) -> Result<(), Errno> {
        match rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(old) => inherit_access(&self.file, &old)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => with_temporary_name(&self.name, |name| link_nameless(&self.file, &self.dir, name))?.1,
        };
        unfinished::forget(&temporary);
        let renamed = rustix::fs::renameat(&self.dir, &temporary, &self.dir, &self.name);
        self.temporary = renamed.is_err().then_some(temporary);
        renamed
    }
}

impl Output for AtomicFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        Output::write_at(&self.file, bytes, offset)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Output::read_at(&self.file, buf, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Output::set_len(&self.file, len)
    }

    fn sync(&self) -> io::Result<()> {
        Output::sync(&self.file)
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }
}

impl Unpublished for AtomicFile {
    fn publish(&mut self) -> io::Result<()> {
        Ok(match self.existing {
            Existing::Keep => self.publish_new(),
            Existing::Replace => self.replace(),
        }?)
    }

    fn sync_name(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.dir)?)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            unfinished::forget(temporary);
            // The first error is the one to report.
            let _ = rustix::fs::unlinkat(&self.dir, temporary, AtFlags::empty());
        }
    }
}

/// Returns the directory of `path`.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the file to be replaced, if there is one. Refuses early if the commit would fail anyway.
fn check_existing(
    dir: &OwnedFd,
    name: &OsStr,
    path: &Path,
    existing: Existing,
) -> Result<Option<OwnedFd>, OutputError> {
    let fail = |errno: Errno| OutputError::file(path, "look at", errno.into());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let old = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        old => old.map_err(fail)?,
    };
    if existing == Existing::Keep {
        return Err(OutputError::Exists { path: path.to_owned() });
    }
    let stat = rustix::fs::fstat(&old).map_err(fail)?;
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile => Ok(Some(old)),
        _ => Err(OutputError::NotRegular { path: path.to_owned() }),
    }
}

/// Gives `file` the owner and the mode of `old`, which it replaces. If the group cannot be kept, no other group
/// gains access. Correct values are left alone: file systems without owners and modes refuse every change.
fn inherit_access(file: &File, old: &Stat) -> Result<(), Errno> {
    let new = rustix::fs::fstat(file)?;
    let (owner, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
    let chown = |owner, group| rustix::fs::fchown(file, owner, group);
    let group_kept = (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid)
        || chown(Some(owner), Some(group)).or_else(|_| chown(None, Some(group))).is_ok();
    let mode = old.st_mode & 0o777;
    let mode = if group_kept { mode } else { without_group(mode) };
    if new.st_mode & 0o777 == mode { Ok(()) } else { rustix::fs::fchmod(file, Mode::from_raw_mode(mode)) }
}

/// Returns `mode` for a file of another group: members of the old group become others, and others may be members of
/// the new one.
fn without_group(mode: RawMode) -> RawMode {
    let both = mode >> 3 & mode & 0o7;
    mode & 0o700 | both << 3 | both
}

/// Opens a file in `dir` without a name, or with a hidden one derived from `name` on file systems that require one.
pub(crate) fn create_in(dir: &OwnedFd, name: &OsStr, mode: Mode) -> Result<(File, Option<OsString>), Errno> {
    match rustix::fs::openat(dir, ".", OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
        // File systems and old kernels report in these ways that they lack it.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        opened => return opened.map(|fd| (File::from(fd), None)),
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let (fd, temporary) = with_temporary_name(name, |name| rustix::fs::openat(dir, name, flags, mode))?;
    Ok((File::from(fd), Some(temporary)))
}

/// Runs `make` with hidden names derived from `name` until one is free.
fn with_temporary_name<T>(name: &OsStr, make: impl Fn(&OsStr) -> Result<T, Errno>) -> Result<(T, OsString), Errno> {
    // Names have at most 255 bytes; the front of a long one is enough.
    let front = OsStr::from_bytes(&name.as_bytes()[..name.len().min(200)]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    for attempt in 0..1000 {
        let mut temporary = OsString::from(".");
        temporary.push(front);
        temporary.push(format!(".kiln-{:x}-{:x}", std::process::id(), now.wrapping_add(attempt)));
        match make(&temporary) {
            Err(Errno::EXIST) => {}
            made => return made.map(|made| (made, temporary)),
        }
    }
    Err(Errno::EXIST)
}

/// Gives a nameless file a name. By descriptor alone this needs a capability; through `/proc` it does not.
fn link_nameless(file: &File, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::linkat(file.as_fd(), "", dir, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT | Errno::PERM) => {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(CWD, &*path, dir, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use tempfile::TempDir;

    fn names(dir: &TempDir) -> Vec<String> {
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Creates an output as on file systems without nameless files.
    fn with_name(path: &Path, existing: Existing) -> AtomicFile {
        let mut output = AtomicFile::create(path, existing).unwrap();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let make = |name: &OsStr| rustix::fs::openat(&output.dir, name, flags, Mode::RUSR | Mode::WUSR);
        let (fd, temporary) = with_temporary_name(&output.name, make).unwrap();
        (output.file, output.temporary) = (fd.into(), Some(temporary));
        output
    }

    #[test]
    fn what_is_kept_is_gone_on_with() {
        let scratch = TempDir::new().unwrap();
        let path = scratch.path().join("image");
        let output = AtomicFile::resume(&path, Existing::Keep).unwrap();
        output.file().write_all(b"half").unwrap();
        let busy = AtomicFile::resume(&path, Existing::Keep).unwrap_err();
        assert!(busy.to_string().contains("another process"), "{busy}");
        let kept = output.keep().unwrap();
        assert_eq!(fs::read(&kept).unwrap(), b"half");
        assert_eq!(names(&scratch), [".image.kiln-unfinished"]);

        let output = AtomicFile::resume(&path, Existing::Keep).unwrap();
        std::os::unix::fs::FileExt::write_all_at(output.file(), b" and half", 4).unwrap();
        output.commit().unwrap();
        assert_eq!(names(&scratch), ["image"]);
        assert_eq!(fs::read(&path).unwrap(), b"half and half");
        let mode = fs::metadata(&path).unwrap().mode();
        assert!(matches!(AtomicFile::resume(&path, Existing::Keep), Err(OutputError::Exists { .. })));

        let output = AtomicFile::resume(&path, Existing::Replace).unwrap();
        assert_eq!(output.file().metadata().unwrap().mode() & 0o777, 0o600);
        output.file().write_all(b"new").unwrap();
        output.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode(), mode);

        drop(AtomicFile::resume(&path, Existing::Replace).unwrap());
        assert_eq!(names(&scratch), ["image"], "not kept");
        std::os::unix::fs::symlink("image", &kept).unwrap();
        assert!(AtomicFile::resume(&path, Existing::Replace).is_err(), "a link is not followed");
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn appears_at_the_end_or_not_at_all() {
        let scratch = TempDir::new().unwrap();
        let path = scratch.path().join("image");
        for create in [
            |path: &Path| AtomicFile::create(path, Existing::Keep).unwrap(),
            |path: &Path| with_name(path, Existing::Keep),
        ] {
            let output = create(&path);
            output.file().write_all(b"half").unwrap();
            assert!(!path.exists());
            drop(output);
            assert!(names(&scratch).is_empty(), "nothing is left");

            let output = create(&path);
            output.file().write_all(b"whole").unwrap();
            output.commit().unwrap();
            assert_eq!(names(&scratch), ["image"]);
            assert_eq!(fs::read(&path).unwrap(), b"whole");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_name_may_come_last() {
        let scratch = TempDir::new().unwrap();
        let path = scratch.path().join("first");
        for create in [
            |path: &Path| AtomicFile::create(path, Existing::Replace).unwrap(),
            |path: &Path| with_name(path, Existing::Replace),
        ] {
            for text in ["one", "two"] {
                let output = create(&path);
                output.file().write_all(text.as_bytes()).unwrap();
                output.with_name("last".as_ref()).commit().unwrap();
                assert_eq!(names(&scratch), ["last"]);
                assert_eq!(fs::read_to_string(scratch.path().join("last")).unwrap(), text);
            }
        }
    }

    #[test]
    fn what_replaces_a_file_has_its_mode_and_no_group_gains_access() {
        let scratch = TempDir::new().unwrap();
        let path = scratch.path().join("image");
        for create in [
            |path: &Path| AtomicFile::create(path, Existing::Replace).unwrap(),
            |path: &Path| with_name(path, Existing::Replace),
        ] {
            for mode in [0o600, 0o640, 0o666, 0o755] {
                fs::write(&path, b"old").unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                create(&path).commit().unwrap();
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
                fs::remove_file(&path).unwrap();
            }
        }
        for (mode, kept) in [(0o600, 0o600), (0o640, 0o600), (0o644, 0o644), (0o604, 0o600), (0o664, 0o644)] {
            assert_eq!(without_group(mode), kept, "{mode:o}");
        }
    }

    #[test]
    fn what_exists_is_kept_unless_told_otherwise() {
        let scratch = TempDir::new().unwrap();
        let path = scratch.path().join("image");
        // Another process is faster, which only the commit can notice.
        for create in [
            |path: &Path| AtomicFile::create(path, Existing::Keep).unwrap(),
            |path: &Path| with_name(path, Existing::Keep),
        ] {
            let output = create(&path);
            fs::write(&path, b"other").unwrap();
            assert!(matches!(output.commit(), Err(OutputError::Exists { .. })));
            assert_eq!(fs::read(&path).unwrap(), b"other");
            assert_eq!(names(&scratch), ["image"]);
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, b"old").unwrap();
        assert!(matches!(AtomicFile::create(&path, Existing::Keep), Err(OutputError::Exists { .. })));
        for create in [
            |path: &Path| AtomicFile::create(path, Existing::Replace).unwrap(),
            |path: &Path| with_name(path, Existing::Replace),
        ] {
            let output = create(&path);
            output.file().write_all(b"new").unwrap();
            output.commit().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(names(&scratch), ["image"]);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(AtomicFile::create(&path, Existing::Replace), Err(OutputError::NotRegular { .. })));
        assert!(matches!(AtomicFile::create(Path::new("/"), Existing::Keep), Err(OutputError::NotAName { .. })));
    }
}
