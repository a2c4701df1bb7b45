//! Errors of updates in place.

use kiln_format::generation::NUMBER_MAX;
use std::io;

/// Error of an update in place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// A property of the image that excludes updates in place.
    #[error(
        "{what}: such an image is not updated in place; pack a new one (kiln pack --base reuses what has not changed)"
    )]
    Unsupported {
        /// The property, its field and value.
        what: String,
    },
    /// Data of unknown origin behind the image.
    #[error(
        "{len} bytes lie behind the end of the image (byte {end}), where what is new would go, and nothing says that they are the \
         remains of an update: {what}"
    )]
    SomethingBehind {
        /// End of the blocks that the superblock counts, in bytes.
        end: u64,
        /// Length in bytes of the data behind it.
        len: u64,
        /// Probable origin, and advice.
        what: &'static str,
    },
    /// The image is shorter than its superblock says.
    #[error(
        "damaged: its superblock counts {blocks_len} bytes (blocks), but it has {len}: kiln log lists what is whole, \
         and kiln repair shows the newest of it"
    )]
    Short {
        /// Length in bytes that the superblock counts.
        blocks_len: u64,
        /// Length in bytes of the file.
        len: u64,
    },
    /// The image has the maximum number of generations.
    #[error("the image has {NUMBER_MAX} generations, the most that can be told apart; pack a new one")]
    TooManyGenerations,
    /// A generation that is shown already, or does not exist.
    #[error("generation {number} {what}")]
    Generation {
        /// Number of the generation.
        number: u32,
        /// Description of the problem.
        what: &'static str,
    },
    /// Another process updates the image.
    #[error("another process updates it: try again when that has ended")]
    Locked,
    /// The image cannot be written to.
    #[error("cannot {action}: {source}")]
    Io {
        /// Action that failed.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

/// Last step of an update, as in "cannot ..."; when it fails, the new tree is complete.
pub(super) const NEW_IS_IN_PLACE: &str =
    "sync the superblock (the image shows the new tree all the same, but a crash may bring back what it was)";

/// Returns a closure that adds the failed action to an error of the system.
pub(super) fn io_error(action: &'static str) -> impl Fn(io::Error) -> UpdateError {
    move |source| UpdateError::Io { action, source }
}
