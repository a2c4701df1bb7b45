//! Reader of EROFS images.
//!
//! The scan reads inodes, names and attributes. Contents are read on demand by any number of
//! threads. Memory is bounded by the length of the image, whatever the image claims.

pub(crate) mod base;
mod contents;
mod device;
mod digests;
mod problem;
mod relayout;
mod reuse;
mod scan;
pub(crate) mod source;
mod survey;

pub use base::BaseImage;
pub use relayout::Relayout;
pub use source::ImageSource;
