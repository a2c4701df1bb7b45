//! dm-verity hash trees and fs-verity digests.
//!
//! A hash tree has the digest of each block of an image, and digests of those, up to one: the root hash. Whoever trusts
//! the root hash can verify any block, and needs to trust neither the image nor the tree.
//!
//! * [`Tree`] makes the tree of data, on all cores; [`LeafHasher`] takes blocks in any order, while an image is
//!   written.
//! * [`VerifiedSource`] reads data and verifies them on the way: a [`ReadAt`](kiln_read::ReadAt) under an image.
//! * [`RootHashes`] opens images so, with their extra devices: it finds the trees, and makes the layer that an
//!   [`ImageSources`](kiln_read::ImageSources) takes.
//! * [`verify`](verify::verify) checks everything: superblock, tree, data.
//! * [`find_tree`] finds the tree behind or beside an image, [`sidecar`] has containerd's file beside it.
//! * [`beside`] sets files aside that tell of a tree which its image no longer has.
//! * [`fsverity`] computes the digest that the kernel measures of a file.
//!
//! Trees are those of the kernel's format 1, byte for byte as `veritysetup format` makes them.
//!
//! ```
//! use kiln_read::{MemorySource, ReadAt};
//! use kiln_verity::{Control, Location, Parameters, Tree, VerifiedSource};
//!
//! let data = vec![7; 300 * 4096];
//! let tree = Tree::of_data(&MemorySource::new(data.clone()), &Parameters::new(300), &Control::unwatched())?;
//! let mut stored = Vec::new();
//! tree.write(&tree.superblock(None), 0, &mut stored)?;
//!
//! let (data, stored) = (MemorySource::new(data), MemorySource::new(stored));
//! let verified = VerifiedSource::open(data, stored, Location::Beside { hash_off: 0 }, *tree.root_hash())?;
//! let mut bytes = [0; 3];
//! verified.read_exact_at(&mut bytes, 100_000)?;
//! assert_eq!(bytes, [7; 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Inside
//!
//! ```text
//! tree ──► shape ──► superblock                   making
//! verified ──► open ──► shape, superblock         reading; open is what can be checked without hashing
//! verify ──► open                                 checking
//! root_hashes ──► find, verified, verify          images and devices by path
//! ```
//!
//! Hash functions and digests of blocks are those of [`kiln_digest`], and so is [`fsverity`].
//!
//! A superblock is under no hash. Its values are checked against the format and against both sources, and then only
//! used to find the tree: with wrong ones the digests differ. The spare area of the last hash block of a level must be
//! zero, which binds the number of data blocks.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

pub mod beside;
mod control;
mod error;
mod find;
mod open;
mod root_hashes;
mod shape;
pub mod sidecar;
mod superblock;
mod tree;
mod verified;
pub mod verify;

pub use control::Control;
pub use error::{Mismatch, Part, VerityError};
pub use find::{FoundTree, find_behind, find_tree, is_tree};
pub use kiln_digest::{Algorithm, BlockHasher, Digest, fsverity};
pub use open::{Location, read_superblock};
pub use root_hashes::{RootHashes, TreeFile, UnverifiedTree};
pub use shape::{Shape, tree_off};
pub use superblock::{
    BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, MAGIC, Parameters, SALT_MAX_LEN, SUPERBLOCK_LEN, Superblock, stray_padding, uuid_of,
};
pub use tree::{LeafHasher, Tree};
pub use verified::VerifiedSource;
