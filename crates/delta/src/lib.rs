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
//!
//! # Inside
//!
//! ```text
//!  make/                                                              format/                 apply, resumable, in_place
//!  map ──► stored ──► prover ──► neighbours ──► group, matcher  ──►   items, pieces    ──►  old_space ──► Refiller ──► new image
//!  spans   equal      encoders   what may       like parts            in three streams      text          encoded
//!          bytes      found      resemble it    of the text           of zstd                             again
//! ```
//!
//! * `kiln_builder::Refiller` fills pclusters as a build does: what one worker fills is a function of text, form and end. `make::prover` finds out
//!   which form gives the new image's bytes again, and where a build has cut the text; nothing is encoded again that was not proved.
//! * Applying is a sequence of steps that do not need each other (`apply::steps`): one thread at a time reads the patch and makes text, `ordered`
//!   (crate `parallel`) encodes on several, one writes. `old_space` keeps decoded extents itself: pieces are parts of them, and the cache of an image
//!   admits an extent when it is wanted twice.
//! * `resumable` makes a file whose front and notes say, after a crash, where to go on. `in_place` writes what changes
//!   to a journal first (`head`, `records`): a crash leaves the old image, or a journal that is complete. `survey`
//!   compares a target with a journal before `replay` writes to it.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod apply;
mod error;
pub mod first_block;
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
