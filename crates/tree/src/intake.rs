//! Contents that a source can give only once, in its own order: from a pipe, or from a compressed archive.

use std::io::{self, Read};
use std::ops::Range;

use super::content::ContentId;

/// A regular file whose contents come next.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Length in bytes.
    pub len: u64,
    /// Ranges of data, sorted and disjoint; zeros are between them.
    pub data: &'a [Range<u64>],
    /// Most bytes that the names and values of its attributes take together, and the number of attributes.
    pub xattrs: (usize, usize),
}

/// Error of taking contents.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The contents cannot be read. Those of further files can be taken.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The taker has ended, and tells why itself.
    #[error("nothing takes the contents")]
    Closed,
}

/// Takes contents as they come, before the tree that has the files is complete.
pub trait Intake {
    /// Takes the contents of a file: its data, from `text`. The node of the file gets the id that is returned.
    ///
    /// # Errors
    /// Those of `text`; an intake that is closed.
    fn take(&mut self, file: Incoming<'_>, text: &mut dyn Read) -> Result<ContentId, IntakeError>;
}
