//! Error of applying a policy.

use crate::TreeError;
use crate::syntax::FileError;
use kiln_format::acl::IdKind;
use std::borrow::Cow;

/// Error of applying a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// An owner that is in no range of the map.
    #[error("{}: {kind} {id} is in no range of the map", lossy(path))]
    Unmapped {
        /// Path in the tree.
        path: Vec<u8>,
        /// Kind of the id.
        kind: IdKind,
        /// The owner.
        id: u32,
    },
    /// An owner that is out of range after the offset was added.
    #[error("{}: {kind} {id} with the offset {offset} is not in 0..=4294967294", lossy(path))]
    OutOfRange {
        /// Path in the tree.
        path: Vec<u8>,
        /// Kind of the id.
        kind: IdKind,
        /// The owner.
        id: u32,
        /// Offset that was added.
        offset: i64,
    },
    /// A definition that cannot be applied.
    #[error(transparent)]
    Edit(#[from] FileError),
    /// A file that is missing in a list.
    #[error("{}: not in {name}, which must list all files", lossy(path))]
    NotListed {
        /// Path in the list.
        path: Vec<u8>,
        /// Name of the list, as given by the caller.
        name: String,
    },
    /// The changed tree is invalid: two files of one name, or more than 2^32 files.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

fn lossy(path: &[u8]) -> Cow<'_, str> {
    match path {
        b"" => "/".into(),
        path => String::from_utf8_lossy(path),
    }
}
