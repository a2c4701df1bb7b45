//! Trees as text: manifests that list a whole tree, and definitions that change one.
//!
//! An mtree manifest is a source. [`TreeEdits`] (pseudo definitions of mksquashfs, device tables of
//! makedevs) and [`FsConfig`] (owners and modes of Android) are parts of a
//! [`Policy`](crate::filter::Policy). Their errors name the line, the field and its value.

mod capability;
mod device_table;
pub(crate) mod edits;
mod fields;
pub(crate) mod fs_config;
mod lines;
pub(crate) mod mtree;
pub(crate) mod pseudo;

pub use edits::TreeEdits;
pub use fs_config::FsConfig;
pub use lines::ListError;
