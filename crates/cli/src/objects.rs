//! The objects of composefs images.

use crate::exit::Failure;
use clap::ValueEnum;
use kiln_read::{ObjectVerification, Objects, ReadError};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Directories of objects, and their verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct ObjectsArgs {
    /// Directory with the objects of a composefs image; repeat for several
    #[arg(long, value_name = "DIR")]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub objects: Vec<PathBuf>,

    /// Compare objects with their digests before they are read, or never
    #[arg(long, value_enum, default_value_t, hide_default_value = true, requires = "objects")]
    pub verify_objects: VerifyObjects,
}

/// Value of `--verify-objects`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum VerifyObjects {
    #[default]
    Once,
    Never,
}

impl ObjectsArgs {
    /// Returns true if objects are read, and compared with their digests.
    pub fn are_verified(&self) -> bool {
        !self.objects.is_empty() && self.verify_objects == VerifyObjects::Once
    }

    /// Opens the directories, if there are some.
    pub fn open(&self) -> Result<Option<Objects>, Failure> {
        if self.objects.is_empty() {
            return Ok(None);
        }
        let verification = match self.verify_objects {
            VerifyObjects::Once => ObjectVerification::Once,
            VerifyObjects::Never => ObjectVerification::Never,
        };
        let failed = |source: ReadError| {
            let dir = source.path().map_or_else(PathBuf::new, |path| OsStr::from_bytes(path).into());
            Failure::Read { image: dir, source }
        };
        Objects::open(&self.objects, verification).map(Some).map_err(failed)
    }
}
