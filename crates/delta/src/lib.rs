//! Patches between EROFS images: small, and applied byte for byte.
//!
//! A patch describes NEW front to back in terms of OLD: bytes that OLD also has, differences from
//! OLD's bytes and from the *text* (the decoded contents) of its files, and text to be encoded
//! again as the builder encodes it. [`make`] verifies each such step while it writes the patch, and
//! stores the encoded bytes if a step does not reproduce them. So NEW is restored byte for byte,
//! whichever program made the images.
//!
//! * [`make`] compares two images and writes a patch.
//! * [`Patch`] is an open patch; its header says which images it is for.
//! * [`Patch::apply`] writes NEW to another place, [`resumable::apply`] does so in a way that a
//!   later run can continue, and [`in_place::apply`] overwrites OLD.
//!
//! A patch is untrusted input: no byte of it can cause more than an error. `docs/delta-format.md`
//! describes the format.
//!
//! # Structure
//!
//! ```text
//! make/                       map ──► stored ──► prover ──► neighbours ──► group, matcher
//!                             spans   equal      encoders   similar        matching parts
//!                                     bytes      found      regions        of the text
//!                                                                               │
//!                                                                               ▼
//! format/                                              items and pieces in three zstd streams
//!                                                                               │
//!                                                                               ▼
//! apply, resumable, in_place                          old_space ──► Refiller ──► new image
//!                                                     text          encoded again
//! ```
//!
//! * `kiln_builder::Refiller` fills pclusters as a build does: the result is a function of text,
//!   form and end. `make::prover` finds the form that reproduces the new image's bytes, and the
//!   places where the build has cut the text. Nothing is encoded again without such a proof.
//! * Applying is a sequence of independent steps (`apply::steps`): one thread at a time reads the
//!   patch and makes text, several encode (`ordered` of crate `parallel`), and one writes.
//!   `old_space` caches decoded extents itself, because pieces are parts of extents, and the cache
//!   of an image admits an extent only on its second use.
//! * `resumable` writes a file whose first bytes and notes say, after a crash, where to continue.
//!   `in_place` writes all changes to a journal first (`head`, `records`), so that a crash leaves
//!   either the old image or a complete journal. `survey` compares a target with a journal before
//!   `replay` writes to it.
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

pub use apply::{ApplyReport, Patch, Sink};
pub use error::{DeltaError, PatchDefect, Side};
pub use format::header::{EncoderUse, Header, NewTree};
#[doc(hidden)]
pub use format::seal::{seal, unseal};
pub use make::made::{MakeOptions, MakeReport};
pub use make::make;
