//! Stores of composefs: directories of files that are named by their fs-verity digests.
//!
//! An object with the digest `65840…` is the file `65/840…` of the store. It is never changed, so any
//! number of images and processes share it. The stores are those of `mkcomposefs`; of a repository of
//! composefs-rs, which has one below `objects`, this crate only reads.
//!
//! [`Store::read_tree`] puts all larger files of a tree into a store. [`Store::verify`] compares objects
//! with their names, and [`Store::remove_unused`] removes those that no image needs.
//!
//! ```
//! use kiln_digest::{Algorithm, fsverity};
//! use kiln_composefs_store::Store;
//! # let dir = std::env::temp_dir().join(format!("kiln-store-{}", std::process::id()));
//! let store = Store::create(&dir)?;
//! let put = store.put_bytes(b"contents of a file", Algorithm::Sha256)?;
//! assert_eq!(put, fsverity::digest(Algorithm::Sha256, b"contents of a file"));
//! store.sync()?;
//! assert!(store.has(&put)?);
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Inside
//!
//! * `put` adds objects. The name of an object depends on its contents. Small files are kept in memory
//!   until it is known; others are hashed as they are written to a file without a name, unless the last
//!   one was there already: then they are hashed first. What is stored is the bytes whose digest is the
//!   name, even if the file changes meanwhile.
//! * An object is complete before it has its name ([`kiln_output::AtomicFile`]), so that several
//!   processes may add the same one. A name that exists is believed, if it is a regular file of the
//!   same length.
//! * A new object gets fs-verity, if kernel and filesystem have it (`protect`).
//! * `list` finds all objects, for `verify` and `unused`. Objects are opened without following links.
//! * Processes that add hold a shared lock of the directory, and one that removes an exclusive one.
#![warn(unreachable_pub)]
#![deny(unsafe_code)]

mod error;
mod list;
mod protect;
mod put;
mod store;
mod unused;
mod verify;

pub use error::StoreError;
pub use store::Store;
pub use unused::{Removal, Unused};
pub use verify::{ObjectProblem, Verified};
