//! Foreign things as a tree: a directory.
#![forbid(unsafe_code)]

pub mod dir;
