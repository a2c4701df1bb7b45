//! The objects of composefs images.

use crate::exit::Failure;
use kiln_read::{ObjectVerification, Objects, ReadError};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Directories of objects, which are verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct ObjectDirsArg {
    /// Directory with the objects of a composefs image; repeat for several
    #[arg(long, value_name = "DIR")]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub objects: Vec<PathBuf>,
}

/// Directories of objects, and the trust in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct ObjectsArgs {
    #[command(flatten)]
    pub dirs: ObjectDirsArg,

    /// Read these objects without comparing them with their digests
    #[arg(long, requires = "objects")]
    pub trust_objects: bool,
}

impl ObjectDirsArg {
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Opens the directories, if there are some.
    pub fn open(&self) -> Result<Option<Objects>, Failure> {
        self.open_as(ObjectVerification::Once)
    }

    fn open_as(&self, verification: ObjectVerification) -> Result<Option<Objects>, Failure> {
        if self.is_empty() {
            return Ok(None);
        }
        let failed = |source: ReadError| {
            let dir = source.path().map_or_else(PathBuf::new, |path| OsStr::from_bytes(path).into());
            Failure::Read { image: dir, source }
        };
        Objects::open(&self.objects, verification).map(Some).map_err(failed)
    }
}

impl ObjectsArgs {
    /// Returns true if objects are read, and compared with their digests.
    pub fn are_verified(&self) -> bool {
        !self.dirs.is_empty() && !self.trust_objects
    }

    /// Opens the directories, if there are some.
    pub fn open(&self) -> Result<Option<Objects>, Failure> {
        self.dirs.open_as(match self.trust_objects {
            false => ObjectVerification::Once,
            true => ObjectVerification::Never,
        })
    }
}
