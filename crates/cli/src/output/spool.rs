//! A nameless file in which an image waits that cannot be built where it is to go.

use super::{failure, new_file};
use crate::exit::Failure;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Where images wait if neither an option nor the environment says it: on a disk, as a rule, which /tmp is not.
const DEFAULT_DIR: &str = "/var/tmp";

/// A nameless file: nothing is left of it, however the program ends.
pub struct Spool {
    dir: PathBuf,
    file: File,
}

impl Spool {
    /// A new one in `dir`.
    pub fn create(dir: &Path) -> Result<Self, Failure> {
        let fail = |action| move |errno| failure(dir, action, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(dir, flags, Mode::empty()).map_err(fail("open the directory"))?;
        let name = OsStr::new("kiln-image");
        let (file, temporary) =
            new_file::create_in(&fd, name, Mode::RUSR | Mode::WUSR).map_err(fail("make a file in"))?;
        if let Some(temporary) = temporary {
            rustix::fs::unlinkat(&fd, &temporary, AtFlags::empty()).map_err(fail("remove a file in"))?;
        }
        Ok(Self { dir: dir.to_owned(), file })
    }

    /// Open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// That it could not be written.
    pub fn failure(&self, source: io::Error) -> Failure {
        Failure::Spool { dir: self.dir.clone(), source }
    }
}

/// The directory of spools: `asked`, what the environment says, or the default.
pub fn spool_dir(asked: Option<&Path>) -> PathBuf {
    let env = || std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let default = || if Path::new(DEFAULT_DIR).is_dir() { DEFAULT_DIR.into() } else { std::env::temp_dir() };
    asked.map(Path::to_owned).or_else(env).unwrap_or_else(default)
}
