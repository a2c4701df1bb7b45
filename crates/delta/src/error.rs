//! Errors of making and applying patches.

use kiln_builder::BuildError;
use kiln_read::ReadError;
use std::fmt;
use std::io;

/// One of the two images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The image to be updated.
    Old,
    /// The image that the patch produces.
    New,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Old => "the old image",
            Side::New => "the new image",
        })
    }
}

/// A defect of a patch, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged patch: {record}, byte {at}: {field} is {value}: {reason}")]
pub struct PatchDefect {
    /// Part of the patch: `front`, `header`, `block` or `end`.
    pub record: &'static str,
    /// Offset after the field: in the part, or for `block` and `end` in the patch.
    pub at: u64,
    /// The field.
    pub field: &'static str,
    /// Value of the field, or a related number.
    pub value: u64,
    /// The reason.
    pub reason: &'static str,
}

/// An error of making or applying a patch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// An image is damaged, not supported, or cannot be read.
    #[error("{side}: {source}")]
    Image {
        /// The image.
        side: Side,
        /// The error.
        source: ReadError,
    },
    /// Bytes of an image cannot be read.
    #[error("{side}: cannot read {len} bytes at {off}: {source}")]
    ImageBytes {
        /// The image.
        side: Side,
        /// Offset in the image.
        off: u64,
        /// Number of bytes.
        len: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is not a patch.
    #[error("not a kiln patch: it begins with {0:02x?}")]
    NotAPatch([u8; 8]),
    /// The patch has a version that this program does not support.
    #[error("patch version {found} is not supported: this program applies versions up to {known}; use a newer kiln")]
    Version {
        /// Version of the patch.
        found: u64,
        /// Newest version that this program supports.
        known: u64,
    },
    /// The patch is damaged.
    #[error(transparent)]
    Patch(#[from] PatchDefect),
    /// The patch ends early, or cannot be read.
    #[error("cannot read the patch at byte {at}: {source}")]
    PatchRead {
        /// Offset in the patch.
        at: u64,
        /// The operating system's error; [`io::ErrorKind::UnexpectedEof`] if the patch ends.
        source: io::Error,
    },
    /// The patch needs another version of an encoder.
    #[error(
        "the patch needs version {wanted:#x} of the {method} encoder, but this program has {have:#x}: use the kiln that \
         made it, or a patch made with --portable"
    )]
    Encoder {
        /// Name of the method.
        method: &'static str,
        /// Version that the patch needs.
        wanted: u64,
        /// Version of this program.
        have: u64,
    },
    /// The old image is not the one that the patch was made for.
    #[error("not the image that the patch was made for: {what}")]
    WrongOld {
        /// The mismatch.
        what: String,
    },
    /// The result is not the new image.
    #[error("the result is not the new image (BLAKE3 differs): the patch is damaged, or this program has a bug")]
    WrongNew,
    /// The output cannot be written.
    #[error("cannot {action}: {source}")]
    Write {
        /// The action that failed.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The journal is damaged, or was written for something else.
    #[error("the journal {what}")]
    Journal {
        /// The problem, as the predicate of "the journal".
        what: String,
    },
    /// The target is not the one that the journal was written for.
    #[error("the journal was written for another target: {what}; nothing was written")]
    WrongTarget {
        /// The mismatch.
        what: String,
    },
    /// Bytes that were written over the old image and synced differ from the new image when read
    /// back.
    #[error(
        "the new image differs when it is read back (BLAKE3): the storage is faulty, or another program has written to \
         it; its first 4 KiB are zeros, and the journal is kept"
    )]
    NotWritten,
    /// An encoder failed.
    #[error("cannot encode: {0}")]
    Encode(#[from] BuildError),
    /// The caller set the stop flag.
    #[error("interrupted")]
    Interrupted,
}

impl DeltaError {
    pub(crate) fn image(side: Side) -> impl Fn(ReadError) -> Self {
        move |source| Self::Image { side, source }
    }

    /// Returns the error of a patch that ends early, at byte `at`.
    pub(crate) fn patch_end(at: u64) -> Self {
        Self::PatchRead { at, source: io::ErrorKind::UnexpectedEof.into() }
    }

    pub(crate) fn write(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write { action, source }
    }
}
