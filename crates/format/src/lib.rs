//! The EROFS on-disk vocabulary: raw records, checked types, addresses.
//!
//! Raw records such as [`RawSuperblock`](superblock::RawSuperblock) keep the field names of the
//! kernel's format header, letter for letter. Beside each stands a checked type with `decode` and
//! `encode`: `decode` returns an error for what the format forbids; `encode` returns an error for
//! what does not fit and never masks bits. This crate does no I/O and has no `unsafe` code.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

pub mod acl;
pub mod addr;
pub mod chunk;
pub mod composefs;
pub mod compr_cfg;
pub mod device;
pub mod dirent;
pub mod error;
pub mod feature;
pub mod generation;
pub mod inode;
pub mod superblock;
mod text;
pub mod xattr;
pub mod zmap;

pub use addr::{Blkaddr, BlockBits, Nid};
pub use compr_cfg::Algorithm;
pub use error::{FormatError, Problem};
pub use feature::{Compat, Incompat, KernelVersion};
pub use text::{Escaped, Hex};
