//! Foreign things as a tree: a directory, an EROFS image.
//!
//! [`open`] finds out what is at a path, and gives a [`Source`], whatever it is. [`Source::scan`] makes a [`Tree`] of it, of which
//! [`ScanOptions::filter`] leaves out what is not wanted. A [`filter::Policy`] then changes owners, times, attributes and more.
//!
//! A further kind of source implements [`Source`] with [`Builder`], as [`erofs`] does, and is a [`SourceKind`] of [`KINDS`].
//!
//! [`Tree`]: kiln_builder::tree::Tree
//! [`Builder`]: kiln_builder::tree::Builder
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

pub mod dir;
pub mod erofs;
mod error;
pub mod filter;
mod kind;
mod open;
mod source;

pub use error::{SourceError, Unreadable};
pub use kind::{Candidate, SourceKind, SourceOptions};
pub use open::{KINDS, open, open_as};
pub use source::{Scan, ScanOptions, Scanned, Source};
