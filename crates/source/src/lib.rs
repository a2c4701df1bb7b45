//! Foreign things as a tree: a directory, an EROFS image. And what is different between two trees.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

pub mod diff;
pub mod dir;
pub mod erofs;
pub mod filter;
