//! A file that appears under its name complete, or not at all.
//!
//! It is written without any name (`O_TMPFILE`), so that not even SIGKILL leaves something behind, and linked when it is
//! complete. File systems without nameless files get a hidden temporary one, removed on every way out but SIGKILL.

use crate::exit::Failure;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What happens to a file that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the output is refused.
    Keep,
    /// It is replaced, in one step, if it is a regular file.
    Replace,
}

/// A file in the making.
pub struct Output {
    path: PathBuf,
    dir: OwnedFd,
    name: OsString,
    file: File,
    existing: Existing,
    /// The hidden name, while there is one. Removed on drop.
    temporary: Option<OsString>,
}

impl Output {
    /// Start the file that shall be called `path`.
    pub fn create(path: &Path, existing: Existing) -> Result<Self, Failure> {
        let fail = |action| move |errno| failure(path, action, errno);
        let Some(name) = path.file_name() else {
            return Err(Failure::Usage(format!("{}: not the name of a file", path.display())));
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(parent, flags, Mode::empty()).map_err(fail("open its directory"))?;
        check_existing(&dir, name, path, existing)?;
        let (file, temporary) = create_in(&dir, name).map_err(fail("create"))?;
        Ok(Self { path: path.to_owned(), dir, name: name.to_owned(), file, existing, temporary })
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
        self.temporary = None;
        Ok(())
    }

    /// To a name that may exist: only renaming replaces in one step, and that needs a name to start from.
    fn replace(&mut self) -> Result<(), Errno> {
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => with_temporary_name(&self.name, |name| link_nameless(&self.file, &self.dir, name))?.1,
        };
        let renamed = rustix::fs::renameat(&self.dir, &temporary, &self.dir, &self.name);
        self.temporary = renamed.is_err().then_some(temporary);
        renamed
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // What has led here is the error to report.
            let _ = rustix::fs::unlinkat(&self.dir, temporary, AtFlags::empty());
        }
    }
}

/// Refuse early what cannot end well.
fn check_existing(dir: &OwnedFd, name: &OsStr, path: &Path, existing: Existing) -> Result<(), Failure> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        stat => stat.map_err(|errno| failure(path, "look at", errno))?,
    };
    if existing == Existing::Keep {
        return Err(Failure::Exists { path: path.to_owned() });
    }
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile | rustix::fs::FileType::Symlink => Ok(()),
        _ => Err(Failure::Usage(format!("{}: only a regular file is replaced", path.display()))),
    }
}

fn create_in(dir: &OwnedFd, name: &OsStr) -> Result<(File, Option<OsString>), Errno> {
    let mode = Mode::from_raw_mode(0o666); // less the umask
    match rustix::fs::openat(dir, ".", OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
        // As file systems and old kernels say that they do not know it.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        opened => return opened.map(|fd| (File::from(fd), None)),
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let (fd, temporary) = with_temporary_name(name, |name| rustix::fs::openat(dir, name, flags, mode))?;
    Ok((File::from(fd), Some(temporary)))
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

fn failure(path: &Path, action: &'static str, errno: Errno) -> Failure {
    Failure::File { path: path.to_owned(), action, source: io::Error::from(errno) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

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
    fn with_name(path: &Path, existing: Existing) -> Output {
        let mut output = Output::create(path, existing).unwrap();
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
        for create in
            [|path: &Path| Output::create(path, Existing::Keep).unwrap(), |path: &Path| with_name(path, Existing::Keep)]
        {
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
    fn what_exists_is_kept_unless_told_otherwise() {
        let scratch = Scratch::new("exists");
        let path = scratch.0.join("image");
        // Someone else is faster: only the end can tell.
        for create in
            [|path: &Path| Output::create(path, Existing::Keep).unwrap(), |path: &Path| with_name(path, Existing::Keep)]
        {
            let output = create(&path);
            fs::write(&path, b"other").unwrap();
            assert!(matches!(output.commit(), Err(Failure::Exists { .. })));
            assert_eq!(fs::read(&path).unwrap(), b"other");
            assert_eq!(scratch.names(), ["image"]);
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, b"old").unwrap();
        assert!(matches!(Output::create(&path, Existing::Keep), Err(Failure::Exists { .. })));
        for create in [
            |path: &Path| Output::create(path, Existing::Replace).unwrap(),
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
        assert!(matches!(Output::create(&path, Existing::Replace), Err(Failure::Usage(_))));
        assert!(matches!(Output::create(Path::new("/"), Existing::Keep), Err(Failure::Usage(_))));
    }
}
