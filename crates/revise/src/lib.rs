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
//!   [`Stamps`], `moved` finds files at other paths, `comparison` reads files that are in doubt.
//!   `versions` finds previous versions of changed files, for the builder to reuse in extents.
//! * `edited` merges sources over the tree of the base.
//! * `relayout` is a build whose tree and base are the same image: `stored_tree` has the stored form
//!   of each file.
//! * `style` surveys inodes: a sample for an update, all for a relayout.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod base;
mod edited;
mod error;
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
