//! The next image of an image: images that reuse the stored data of an older one.
//!
//! * [`increment`] makes the tree of a source whose unchanged files reuse the data of a
//!   [`BaseImage`] (`kiln pack --base`).
//! * [`EditedImage`] is an image with edits, as a source (`kiln update --remove`, `--add`,
//!   `--replace`).
//! * [`update`] appends a new tree to an image in place; older trees stay in it.
//! * [`relayout()`] moves the data of an image to other places (`kiln relayout`).
//! * [`ImageStyle`] says how an image stores what it has.
//!
//! # Inside
//!
//! * `base` is the older image: its tree, whose contents say how they are stored, its identity and
//!   times. Building copies reused data, or leaves it in place if the image is appended to.
//! * `increment` scans source and base at the same time. `pairs` classifies files by time or
//!   [`Stamps`], `moved` finds files at other paths.
//! * `edited` merges sources over the tree of the base.
//! * `comparison` reads files that are in doubt, and changed files beside their previous versions, which `versions`
//!   finds: the builder reuses extents that have the same text. What differs is to be stored, so `held` keeps its text
//!   until then, up to 32 MiB for all files; more is read twice. So is the front of a long file without extents.
//! * `relayout` is a build whose tree and base are the same image: `stored_tree` has the stored form
//!   of each file.
//! * `style` surveys inodes: a sample for an update, all for a relayout.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod base;
mod comparison;
mod edited;
mod error;
mod held;
mod increment;
mod relayout;
mod same_paths;
mod style;
pub mod update;
mod versions;

pub use base::BaseImage;
pub use edited::EditedImage;
pub use error::ReviseError;
pub use increment::{IncrementBase, Stamps, Trust, increment};
pub use relayout::{Relaid, RelayoutRequest, relayout};
pub use style::{Depth, ImageStyle};
