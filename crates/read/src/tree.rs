//! The tree of names: directories, paths, walks, scans, digests of contents.

pub(crate) mod digest;
pub(crate) mod dir;
pub(crate) mod entries;
pub(crate) mod file_table;
pub(crate) mod resolve;
pub(crate) mod scan;
pub(crate) mod walk;
