//! A directory as a tree.
//!
//! Every access goes through the descriptor of the root directory and never follows a symbolic link, so a tree that is
//! rearranged meanwhile cannot lead elsewhere. The scan reads names and metadata only; contents are opened when they are
//! wanted, and are refused if they are no longer those of the scan.

pub(crate) mod contents;
pub(crate) mod entry;
pub(crate) mod file_id;
pub(crate) mod source;
mod walk;
mod xattrs;

pub use file_id::FileId;
pub use source::DirSource;
