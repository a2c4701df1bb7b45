//! Why an image cannot be updated.

use kiln_format::generation::NUMBER_MAX;
use std::io;

/// Why an image cannot be updated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// Something that is not done in place.
    #[error(
        "{what}: such an image is not updated in place; pack a new one (kiln pack --base takes over what has not changed)"
    )]
    Unsupported {
        /// The property, its field and value.
        what: String,
    },
    /// Something lies behind the image.
    #[error(
        "{len} bytes lie behind the end of the image (byte {end}), where what is new would go, and nothing says that they are the remains of an \
         update: {what}"
    )]
    SomethingBehind {
        /// Byte behind the blocks that the superblock counts.
        end: u64,
        /// Bytes behind it.
        len: u64,
        /// What they may be, and what to do.
        what: &'static str,
    },
    /// The image is shorter than its superblock says.
    #[error(
        "damaged: its superblock counts {blocks_len} bytes (blocks), but it has {len}: kiln log lists what is whole, and kiln repair \
         shows the newest of it"
    )]
    Short {
        /// Bytes that the superblock counts.
        blocks_len: u64,
        /// Bytes that are there.
        len: u64,
    },
    /// No more generations have room.
    #[error("the image has {NUMBER_MAX} generations, the most that can be told apart; pack a new one")]
    TooManyGenerations,
    /// A generation that is there already, or not at all.
    #[error("generation {number} {what}")]
    Generation {
        /// Which one.
        number: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Another process updates the image.
    #[error("another process updates it: try again when that has ended")]
    Locked,
    /// The image cannot be written to.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// The last step of an update, as in "cannot ...": it fails when everything is there.
pub(super) const NEW_IS_IN_PLACE: &str =
    "sync the superblock (the image shows the new tree all the same, but a crash may bring back what it was)";

/// An error of the system, and what was tried.
pub(super) fn io_error(action: &'static str) -> impl Fn(io::Error) -> UpdateError {
    move |source| UpdateError::Io { action, source }
}
