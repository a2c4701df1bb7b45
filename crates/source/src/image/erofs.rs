//! An EROFS image as a tree.
//!
//! The scan reads inodes, names and attributes; contents are read when they are wanted, by any number of threads. What is
//! kept in memory is bounded by the length of the image, whatever the image claims.

pub(crate) mod base;
mod contents;
mod device;
mod digests;
mod kept;
mod problem;
mod relayout;
mod scan;
pub(crate) mod source;
mod survey;

pub use base::BaseImage;
pub use relayout::Relayout;
pub use source::ImageSource;
