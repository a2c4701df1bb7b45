//! Foreign things as a tree: directories, archives, images.
//!
//! [`open`] finds out what is at a path, and gives a [`Source`], whatever it is. [`Source::scan`] makes a [`Tree`] of it, of which
//! [`ScanOptions::filter`] leaves out what is not wanted. A [`filter::Policy`] then changes owners, times, attributes and more.
//!
//! A further kind of source implements [`Source`] with [`Builder`], as [`image::erofs`] does, and is a [`SourceKind`] of [`KINDS`].
//!
//! [`Tree`]: kiln_builder::tree::Tree
//! [`Builder`]: kiln_builder::tree::Builder
#![warn(unreachable_pub)]
#![deny(unsafe_code)]

pub mod archive;
pub mod dir;
mod error;
pub mod filter;
pub mod image;
mod input;
mod kind;
mod limit;
pub mod manifest;
pub mod merge;
pub mod oci;
mod open;
mod source;
mod stored;
mod unknown;

pub use error::{SourceError, Unreadable};
pub use input::candidate::{Candidate, SourceOptions};
pub use input::spool::SpoolLimit;
pub use input::stream_format::StreamFormat;
pub use input::tape::Tape;
pub use kind::SourceKind;
pub use limit::MemoryLimit;
pub use open::{KINDS, open, open_as, open_bytes};
pub use source::{FileStamps, Scan, ScanOptions, Scanned, Source};
pub use stored::{Run, StoredFiles};
