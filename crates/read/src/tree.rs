//! The tree of names: directories, paths, walks, digests of contents.

pub(crate) mod digest;
pub(crate) mod dir;
pub(crate) mod resolve;
pub(crate) mod walk;
