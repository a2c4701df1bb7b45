//! Digests of blocks and of files: SHA-256, SHA-512, fs-verity.
//!
//! * [`Algorithm`] is a hash function, [`Digest`] one of its results.
//! * [`BlockHasher`] hashes blocks with a salt in front, as hash trees of dm-verity need it.
//! * [`fsverity`] has the digest that the kernel measures of a file, which names objects of composefs; [`metacopy`]
//!   has such a digest as overlayfs stores it.
//! * [`contents`] has digests of contents as images of kiln store them.
//!
//! ```
//! use kiln_digest::{Algorithm, fsverity};
//!
//! let digest = fsverity::digest(Algorithm::Sha256, b"contents of a file");
//! assert_eq!(digest.to_string().len(), 64);
//! ```
//!
//! # Inside
//!
//! `hash` knows functions and digests, the others build on it. Nothing here opens a file.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

pub mod contents;
pub mod fsverity;
mod hash;
pub mod metacopy;

pub use hash::{Algorithm, BlockHasher, Digest};
