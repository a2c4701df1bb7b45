//! Reader of EROFS images.
//!
//! The scan reads inodes, names and attributes. Contents are read on demand by any number of
//! threads. Memory is bounded by the length of the image, whatever the image claims.
//!
//! An image can be the base of another one: [`ImageSource::with_base`] makes its contents say how
//! they are stored, as [`reusable_data`] finds it.

mod contents;
mod device;
mod digests;
mod problem;
mod reuse;
mod scan;
pub(crate) mod source;

pub use digests::{digest_name, has_visible_prefixes};
pub use reuse::{reusable_data, reusable_extents};
pub use source::ImageSource;
