//! Objects of composefs images, and the reasons why one is not read.

use kiln_digest::{Digest, metacopy};
use kiln_format::Escaped;
use rustix::io::Errno;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Object that has the contents of a file of a composefs image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComposefsObject {
    /// The object's path in the store, from its root; `None` where the image does not name it: it
    /// has the file's own path then.
    pub path: Option<Vec<u8>>,
    /// Value of the attribute with the digest.
    metacopy: Vec<u8>,
}

impl ComposefsObject {
    /// Returns the object with this path, and this value of `trusted.overlay.metacopy`.
    pub fn new(path: Option<Vec<u8>>, metacopy: Vec<u8>) -> Self {
        Self { path, metacopy }
    }

    /// Returns the fs-verity digest of the contents, if the image has it.
    ///
    /// # Errors
    /// An attribute that is no digest.
    pub fn digest(&self) -> Result<Option<Digest>, ObjectProblem> {
        metacopy::parse(&self.metacopy).map_err(ObjectProblem::Metacopy)
    }
}

impl fmt::Display for ComposefsObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "the composefs object {}", Escaped(path.strip_prefix(b"/").unwrap_or(path))),
            None => f.write_str("a composefs object of the same path"),
        }
    }
}

/// Reason why an object is not read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectProblem {
    /// Nobody has said where it is.
    #[error("is not in the image, and no directory of objects is given")]
    NotGiven,
    /// No directory has it.
    #[error("is missing")]
    Missing,
    /// The image does not say where it is.
    #[error("has no name in the image")]
    Unnamed,
    /// A path that is none of a store.
    #[error("has a name that leads out of a store")]
    Path,
    /// A digest in the image of an unknown form.
    #[error("cannot be verified: trusted.overlay.metacopy is {0}")]
    Metacopy(&'static str),
    /// Something else than a regular file.
    #[error("is {0} and no file")]
    NoFile(&'static str),
    /// Another length than the file in the image has.
    #[error("has {found} bytes instead of {expected}")]
    Size {
        /// Its length in bytes.
        found: u64,
        /// The size of the file in the image.
        expected: u64,
    },
    /// Other contents.
    #[error("has contents with the digest {found}, and should have {expected}")]
    Digest {
        /// fs-verity digest of its contents.
        found: Box<Digest>,
        /// The digest in the image.
        expected: Box<Digest>,
    },
    /// Contents that changed while they were hashed.
    #[error("changes while it is read")]
    Changed,
    /// Error of the system.
    #[error("cannot be read: {0}")]
    Io(Arc<io::Error>),
}

impl ObjectProblem {
    /// Returns the problem of an object that cannot be opened.
    pub(crate) fn of(errno: Errno) -> Self {
        match errno {
            Errno::LOOP => ObjectProblem::NoFile("a symbolic link"),
            // The directory of the object is none, or a symbolic link.
            Errno::NOTDIR => ObjectProblem::NoFile("in something that is no directory"),
            Errno::NXIO => ObjectProblem::NoFile("a socket"),
            errno => ObjectProblem::Io(Arc::new(errno.into())),
        }
    }
}

impl From<io::Error> for ObjectProblem {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The length was right when it was opened.
            ErrorKind::UnexpectedEof => ObjectProblem::Changed,
            _ => ObjectProblem::Io(Arc::new(error)),
        }
    }
}
