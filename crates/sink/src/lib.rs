//! Extraction and export of EROFS images.
//!
//! [`dir::extract`] writes an image, or the part of it that a [`Selection`] names, to a directory.
//! [`archive::export`] writes it as a tar, ZIP or cpio archive, or as a description of the tree for
//! other programs.
//!
//! Images are untrusted: no names, links or file types in one can touch anything outside the target
//! directory.
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
