//! A tar archive as a tree.
//!
//! An archive is read front to back in records of 512 bytes: each member has a header, behind extended headers with what has no room in
//! it, and its data. `source` opens archives, `scan` goes from member to member, `member` makes a node of each; `header` and `number` have the
//! fields of headers, `pax` the records of extended ones, `sparse` the maps of sparse files, `acl` and `encoding` the forms of attributes, `accounts`
//! the ids of names in ACLs.
//!
//! What counts is what POSIX says (`pax`, "ustar Interchange Format" and "pax Interchange Format"), and what the manuals of GNU tar, star
//! and libarchive (`tar(5)`) say of theirs. Where programs differ in how they read an archive, it is refused rather than guessed at.

mod accounts;
mod acl;
mod encoding;
mod header;
mod member;
mod number;
mod options;
mod path;
mod pax;
mod scan;
pub(crate) mod source;
mod sparse;

pub use options::{DotDot, TarData, TarOptions};
pub use source::{TarIndex, TarSource};
