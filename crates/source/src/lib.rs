//! Foreign things as a tree: a directory, an EROFS image.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

pub mod dir;
pub mod erofs;
pub mod filter;
