//! Why a patch cannot be made or applied, sorted by who must act.

use kiln_builder::BuildError;
use kiln_read::ReadError;
use std::fmt;
use std::io;

/// One of the two images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The image that there is.
    Old,
    /// The image that the patch makes of it.
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

/// What is wrong with a patch, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged patch: {record}, byte {at}: {field} is {value}: {reason}")]
pub struct PatchDefect {
    /// The part of the patch.
    pub record: &'static str,
    /// Byte in that part, behind the field.
    pub at: u64,
    /// The field.
    pub field: &'static str,
    /// Its value, or of what it counts.
    pub value: u64,
    /// Why it cannot be.
    pub reason: &'static str,
}

/// Why a patch cannot be made or applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// An image that is damaged, unknown, or cannot be read.
    #[error("{side}: {source}")]
    Image {
        /// Which one.
        side: Side,
        /// What is wrong.
        source: ReadError,
    },
    /// Bytes of an image that cannot be read.
    #[error("{side}: cannot read {len} bytes at {off}: {source}")]
    ImageBytes {
        /// Which one.
        side: Side,
        /// First byte.
        off: u64,
        /// How many.
        len: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no patch.
    #[error("not a patch of kiln: it begins with {0:02x?}")]
    NotAPatch([u8; 8]),
    /// A patch of a version that this program does not know.
    #[error("a patch of version {found}: this program applies version {known}: use a newer kiln")]
    Version {
        /// What it has.
        found: u64,
        /// What we know.
        known: u64,
    },
    /// A patch that is damaged.
    #[error(transparent)]
    Patch(#[from] PatchDefect),
    /// A patch that ends too early, or cannot be read.
    #[error("cannot read the patch at byte {at}: {source}")]
    PatchRead {
        /// Byte in the patch.
        at: u64,
        /// What the system said; [`io::ErrorKind::UnexpectedEof`] where it ends.
        source: io::Error,
    },
    /// The patch needs another encoder than this program has.
    #[error(
        "the patch encodes with {method} of version {wanted:#x}, but this program has {have:#x}: use the kiln that made it, or a patch made \
         with --portable"
    )]
    Encoder {
        /// Name of the method.
        method: &'static str,
        /// Version of the patch.
        wanted: u64,
        /// Ours.
        have: u64,
    },
    /// The old image is not the one that the patch was made for.
    #[error("not the image that the patch was made for: {what}")]
    WrongOld {
        /// How it shows.
        what: String,
    },
    /// What was made is not the new image.
    #[error(
        "what the patch gave is not the new image (BLAKE3 differs): the patch is damaged, or this program has a fault"
    )]
    WrongNew,
    /// The output cannot be written.
    #[error("cannot {action}: {source}")]
    Write {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A journal that belongs to something else, or is damaged.
    #[error("the journal {what}")]
    Journal {
        /// What is wrong with it.
        what: String,
    },
    /// The target is not the one that a journal was written for.
    #[error("not what the journal was written for: {what}; nothing was written")]
    WrongTarget {
        /// Reason why it is not.
        what: String,
    },
    /// Bytes that were written over the old image, and synced, are not the new image when they are read again.
    #[error(
        "what was written is not the new image when it is read again (BLAKE3 differs): the storage is at fault, or something else has written to \
         it; its first 4 KiB are zeros, and the journal is kept"
    )]
    NotWritten,
    /// An encoder failed.
    #[error("cannot encode: {0}")]
    Encode(#[from] BuildError),
    /// The caller has asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl DeltaError {
    pub(crate) fn image(side: Side) -> impl Fn(ReadError) -> Self {
        move |source| Self::Image { side, source }
    }

    pub(crate) fn write(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write { action, source }
    }
}
