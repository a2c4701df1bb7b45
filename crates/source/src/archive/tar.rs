//! Reader of tar archives.
//!
//! An archive is read front to back in records of 512 bytes. Each member has a header, which may be
//! preceded by extended headers with fields that do not fit into it, and then its data. `source`
//! opens archives, `scan` reads member after member, and `member` makes a node of each. `header`
//! and `number` parse the fields of headers, `pax` the records of extended headers, `sparse` the
//! maps of sparse files, `acl` and `encoding` the formats of extended attributes, and `accounts`
//! resolves names in ACLs.
//!
//! The rules are those of POSIX (`pax`, "ustar Interchange Format" and "pax Interchange Format"),
//! and for extensions those of the manuals of GNU tar, star and libarchive (`tar(5)`). An archive
//! that programs read differently is refused.

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
