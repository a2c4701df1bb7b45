//! Policies: changes to the metadata of a tree, and edits of its files.
//!
//! A [`Policy`] changes owners, permissions, times, extended attributes, links and the marks of
//! union filesystems. [`TreeEdits`] add and change single files. All of them are plain values, and
//! [`apply`] does no I/O.

mod acl;
mod apply;
mod capability;
mod chmod;
mod edits;
mod error;
mod file_contexts;
mod fs_config;
mod ids;
mod links;
pub mod marks;
mod times;
mod xattrs;

pub use apply::{Policy, apply};
pub use capability::Capabilities;
pub use chmod::Chmod;
pub use edits::{EditOp, EditTime, MetadataChange, MissingParents, TreeEdit, TreeEdits};
pub use error::PolicyError;
pub use file_contexts::{FileContexts, Labels};
pub use fs_config::{Access, AccessRule, FsConfig};
pub use ids::{IdBase, IdMap, IdPolicy, IdRange};
pub use kiln_format::acl::IdKind;
pub use times::Times;
pub use xattrs::{NameGlobs, XattrPolicy, checked_xattr, parse_hex, parse_xattr, set_xattr};
