//! Parsers of text about trees: manifests that list a whole tree, definitions that change one, and
//! lists of files.
//!
//! An mtree manifest is a source, and so is a dump of composefs. Pseudo definitions of mksquashfs and device tables of makedevs
//! give [`TreeEdits`](kiln_tree::policy::TreeEdits), and lists and rules of Android give an
//! [`FsConfig`](kiln_tree::policy::FsConfig): parts of a [`Policy`](kiln_tree::policy::Policy).
//! Errors name the line, the field and its value.

mod added_files;
pub(crate) mod composefs;
mod device_table;
mod fields;
mod fs_config;
mod host;
mod lines;
pub(crate) mod mtree;
mod order;
pub(crate) mod pseudo;

pub use device_table::parse_device_table;
pub use fs_config::{parse_fs_config, read_fs_config};
pub use lines::ListError;
pub use order::{hot_order, parse_order};
pub use pseudo::read_pseudo;
