//! Reader of directories.
//!
//! Every access goes through the descriptor of the root directory and never follows a symbolic
//! link, so changes to the tree during a scan cannot redirect it elsewhere. The scan reads names
//! and metadata only. Contents are opened on demand, and refused if the file has changed since the
//! scan.

pub(crate) mod contents;
pub(crate) mod entry;
pub(crate) mod file_id;
mod ignore;
pub(crate) mod source;
mod walk;
mod xattrs;

pub use contents::Stamp as FileStamp;
pub use file_id::FileId;
pub use source::DirSource;
