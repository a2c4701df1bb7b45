//! An EROFS image as other things.
//!
//! [`archive::export`] writes an image, or the part of it that a [`Selection`] names, as a tar, ZIP or cpio archive and the like.
//!
//! [`dir::extract`] writes an image, or the part of it that a [`Selection`] names, as a directory tree. Images are
//! untrusted: whatever names, links and types one holds, nothing outside the target directory is touched.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

pub mod archive;
mod control;
pub mod dir;
mod error;
mod salvage;
mod selection;

pub use error::SinkError;
pub use selection::Selection;
