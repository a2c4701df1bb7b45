//! A file that appears under its name complete, or not at all.
//!
//! It is written without any name (`O_TMPFILE`), so that not even SIGKILL leaves something behind, and linked when it is
//! complete. File systems without nameless files get a hidden temporary one, removed on every way out but SIGKILL.

use super::{Existing, failure};
use crate::exit::Failure;
use crate::memory;
use kiln_source::dir::FileId;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, RawMode, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A file in the making.
pub struct NewFile {
    path: PathBuf,
    dir: OwnedFd,
    name: OsString,
    file: File,
    existing: Existing,
    /// What had the name when the file was begun.
    replaces: Option<FileId>,
    /// The hidden name, while there is one. Removed on drop.
    temporary: Option<OsString>,
}

impl NewFile {
    /// Start the file that shall be called `path`.
    pub fn create(path: &Path, existing: Existing) -> Result<Self, Failure> {
        let fail = |action| move |errno| failure(path, action, errno);
        let Some(name) = path.file_name() else {
            return Err(Failure::Usage(format!("{}: not the name of a file", path.display())));
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(parent(path), flags, Mode::empty()).map_err(fail("open its directory"))?;
        let replaces = check_existing(&dir, name, path, existing)?;
        // What replaces a file is as secret as that from the beginning, in case it needs a hidden name.
        let mode = Mode::from_raw_mode(if replaces.is_some() { 0o600 } else { 0o666 }); // less the umask
        let (file, temporary) = create_in(&dir, name, mode).map_err(fail("create"))?;
        if let Some(temporary) = &temporary {
            let registered = memory::remove_at_end(&dir, &c_name(temporary));
            registered.map_err(|source| Failure::File { path: path.to_owned(), action: "create", source })?;
        }
        Ok(Self { path: path.to_owned(), dir, name: name.to_owned(), file, existing, replaces, temporary })
    }

    /// Whether `other` is to have the same name in the same directory.
    pub fn has_name_of(&self, other: &NewFile) -> bool {
        let dirs = [self, other].map(|file| FileId::of(&file.dir).ok());
        self.name == other.name && dirs[0].is_some() && dirs[0] == dirs[1]
    }

    /// The directory that it appears in.
    pub fn dir_path(&self) -> &Path {
        parent(&self.path)
    }

    /// The file itself, and what it replaces.
    pub fn ids(&self) -> impl Iterator<Item = FileId> {
        FileId::of(&self.file).ok().into_iter().chain(self.replaces)
    }

    /// The file, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Give the file its name, and see that both survive a crash.
    pub fn commit(mut self) -> Result<(), Failure> {
        rustix::fs::fsync(&self.file).map_err(|errno| failure(&self.path, "write", errno))?;
        match self.existing {
            Existing::Keep => self.publish(),
            Existing::Replace => self.replace(),
        }
        .map_err(|errno| match errno {
            Errno::EXIST => Failure::Exists { path: self.path.clone() },
            errno => failure(&self.path, "give the file its name", errno),
        })?;
        rustix::fs::fsync(&self.dir).map_err(|errno| failure(&self.path, "write its directory", errno))
    }

    /// To a name that must not exist.
    fn publish(&mut self) -> Result<(), Errno> {
        let Some(temporary) = &self.temporary else { return link_nameless(&self.file, &self.dir, &self.name) };
        match rustix::fs::renameat_with(&self.dir, temporary, &self.dir, &self.name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {
                // The temporary name goes with the drop.
                return rustix::fs::linkat(&self.dir, temporary, &self.dir, &self.name, AtFlags::empty());
            }
            renamed => renamed?,
        }
        memory::keep(&c_name(temporary));
        self.temporary = None;
        Ok(())
    }

    /// To a name that may exist: only renaming replaces in one step, and that needs a name to start from.
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
        memory::keep(&c_name(&temporary));
        let renamed = rustix::fs::renameat(&self.dir, &temporary, &self.dir, &self.name);
        self.temporary = renamed.is_err().then_some(temporary);
        renamed
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            memory::keep(&c_name(temporary));
            // What has led here is the error to report.
            let _ = rustix::fs::unlinkat(&self.dir, temporary, AtFlags::empty());
        }
    }
}

/// The directory of `path`.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What is to be replaced, if there is something. Refuse early what cannot end well.
fn check_existing(dir: &OwnedFd, name: &OsStr, path: &Path, existing: Existing) -> Result<Option<FileId>, Failure> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let old = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        old => old.map_err(|errno| failure(path, "look at", errno))?,
    };
    if existing == Existing::Keep {
        return Err(Failure::Exists { path: path.to_owned() });
    }
    let stat = rustix::fs::fstat(&old).map_err(|errno| failure(path, "look at", errno))?;
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile => FileId::of(&old).map(Some).map_err(|source| Failure::File {
            path: path.to_owned(),
            action: "look at",
            source,
        }),
        _ => Err(Failure::Usage(format!("{}: only a regular file is replaced", path.display()))),
    }
}

/// Give `file` the owner and the mode of `old`, which it replaces. Where the group cannot be kept, no other one gains access.
/// What is right already is not touched: file systems without owners and modes refuse every change.
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

/// `mode` for a file of another group: the old group's members become others, and others may be members of the new one.
fn without_group(mode: RawMode) -> RawMode {
    let both = mode >> 3 & mode & 0o7;
    mode & 0o700 | both << 3 | both
}

/// A file in `dir` without a name, or with a hidden one, derived from `name`, where none can do without.
pub fn create_in(dir: &OwnedFd, name: &OsStr, mode: Mode) -> Result<(File, Option<OsString>), Errno> {
    match rustix::fs::openat(dir, ".", OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
        // As file systems and old kernels say that they do not know it.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        opened => return opened.map(|fd| (File::from(fd), None)),
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let (fd, temporary) = with_temporary_name(name, |name| rustix::fs::openat(dir, name, flags, mode))?;
    Ok((File::from(fd), Some(temporary)))
}

/// As system calls have names. Those made here have no zero byte.
fn c_name(name: &OsStr) -> CString {
    CString::new(name.as_bytes()).unwrap_or_default()
}

/// Run `make` with hidden names derived from `name` until one is free.
fn with_temporary_name<T>(name: &OsStr, make: impl Fn(&OsStr) -> Result<T, Errno>) -> Result<(T, OsString), Errno> {
    // Names have 255 bytes; of a long one the front will do.
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

/// Give a nameless file a name. By descriptor alone this needs a capability; through `/proc` it does not.
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

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("kiln-output-{}-{name}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// An output of the kind for file systems without nameless files.
    fn with_name(path: &Path, existing: Existing) -> NewFile {
        let mut output = NewFile::create(path, existing).unwrap();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let make = |name: &OsStr| rustix::fs::openat(&output.dir, name, flags, Mode::RUSR | Mode::WUSR);
        let (fd, temporary) = with_temporary_name(&output.name, make).unwrap();
        (output.file, output.temporary) = (fd.into(), Some(temporary));
        output
    }

    #[test]
    fn appears_at_the_end_or_not_at_all() {
        let scratch = Scratch::new("appears");
        let path = scratch.0.join("image");
        for create in [
            |path: &Path| NewFile::create(path, Existing::Keep).unwrap(),
            |path: &Path| with_name(path, Existing::Keep),
        ] {
            let output = create(&path);
            output.file().write_all(b"half").unwrap();
            assert!(!path.exists());
            drop(output);
            assert!(scratch.names().is_empty(), "nothing is left");

            let output = create(&path);
            output.file().write_all(b"whole").unwrap();
            output.commit().unwrap();
            assert_eq!(scratch.names(), ["image"]);
            assert_eq!(fs::read(&path).unwrap(), b"whole");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_replaces_a_file_has_its_mode_and_no_group_gains_access() {
        let scratch = Scratch::new("mode");
        let path = scratch.0.join("image");
        for create in [
            |path: &Path| NewFile::create(path, Existing::Replace).unwrap(),
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
        let scratch = Scratch::new("exists");
        let path = scratch.0.join("image");
        // Someone else is faster: only the end can tell.
        for create in [
            |path: &Path| NewFile::create(path, Existing::Keep).unwrap(),
            |path: &Path| with_name(path, Existing::Keep),
        ] {
            let output = create(&path);
            fs::write(&path, b"other").unwrap();
            assert!(matches!(output.commit(), Err(Failure::Exists { .. })));
            assert_eq!(fs::read(&path).unwrap(), b"other");
            assert_eq!(scratch.names(), ["image"]);
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, b"old").unwrap();
        assert!(matches!(NewFile::create(&path, Existing::Keep), Err(Failure::Exists { .. })));
        for create in [
            |path: &Path| NewFile::create(path, Existing::Replace).unwrap(),
            |path: &Path| with_name(path, Existing::Replace),
        ] {
            let output = create(&path);
            output.file().write_all(b"new").unwrap();
            output.commit().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(scratch.names(), ["image"]);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(NewFile::create(&path, Existing::Replace), Err(Failure::Usage(_))));
        assert!(matches!(NewFile::create(Path::new("/"), Existing::Keep), Err(Failure::Usage(_))));
    }
}
