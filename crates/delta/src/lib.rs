//! What turns one EROFS image into the next: made small, applied exactly.
//!
//! A patch says what NEW is, front to back, in terms of OLD: bytes that OLD has, too; differences from OLD's bytes and from the *plain text* of
//! its files; and where text is to be encoded again, as the builder encodes it. [`make`] verifies each such step while it makes the patch, and
//! carries the encoded bytes where a step does not give them: so NEW comes out byte for byte, whatever made the images.
//!
//! * [`make`] compares two images and writes a patch.
//! * [`Patch`] is an open patch: what it needs, and what it makes.
//! * [`Patch::apply`] writes NEW elsewhere, [`resumable::apply`] so that a later run goes on where one has ended, [`in_place::apply`] over OLD.
//!
//! A patch is untrusted input: each of its bytes may cause an error and nothing else. The format is described in `docs/delta-format.md`.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod apply;
mod error;
mod format;
pub mod in_place;
mod make;
mod old_space;
mod recorder;
pub mod resumable;
mod stop;

pub use apply::{Applied, Patch, Sink};
pub use error::{DeltaError, PatchDefect, Side};
pub use format::header::{EncoderUse, Header};
#[doc(hidden)]
pub use format::seal::{seal, unseal};
pub use make::made::{Made, MakeOptions};
pub use make::make;
