//! composefs: dumps of trees, and the images that composefs makes of them, byte for byte.
//!
//! A composefs image is an EROFS image of names, metadata and small files. Other files are objects
//! beside it, named by their fs-verity digests: an attribute leads overlayfs from each file to its
//! object. The same tree gives the same bytes everywhere, so the fs-verity digest of the image is an
//! id of the whole tree.
//!
//! [`dump::read`] reads a [`CfsTree`] from a dump, [`from_tree()`] makes one of a [`kiln_tree::Tree`],
//! and [`tree::Builder`] of anything else. [`image::write`] writes its image, the same bytes that
//! composefs 1.0.8 writes, and [`dump::write`] a dump. Nothing here opens
//! a file: inputs and outputs come from the caller.
//!
//! ```
//! use kiln_composefs::{dump, image};
//! let text = "/ 0 40755 2 0 0 0 0.0 - - -\n/greeting 6 100644 1 0 0 0 0.0 - hello\\n -\n";
//! let tree = dump::read(text.as_bytes(), &mut |warning| eprintln!("{warning}"))?;
//! let mut bytes = Vec::new();
//! let summary = image::write(&tree, &image::ImageOptions::default(), &mut bytes)?;
//! assert_eq!(summary.len, bytes.len() as u64);
//! let mut again = Vec::new();
//! dump::write(&tree, &mut again)?;
//! assert_eq!(again, text.as_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Inside
//!
//! * `tree` has the tree in flat lists: one text with all names, contents and values, one node for each
//!   entry, and each pair of an attribute's key and value once. [`tree::Builder`] checks everything
//!   that an image cannot have, for all makers of trees.
//! * `dump/` reads and writes dumps. `fields` splits a line, `dirs` finds the directory of a path,
//!   `read` makes nodes. A dump is untrusted: every refusal has its line and column. Where composefs
//!   takes what can only be a mistake, such as a digest of 63 digits, this crate refuses it.
//! * `image/` makes images in three passes. `prepare` adds stubs, converts whiteouts and numbers the
//!   inodes; `xattrs` adds the attributes of overlayfs and finds those that inodes share; `place`
//!   measures; `emit` writes from front to back, without seeking. Nothing there is a choice: each rule
//!   is one of composefs's, and an image that differs in a byte is another image.
//! * `from_tree/` converts trees, and reads contents on several threads. Only this module knows
//!   [`kiln_tree`].
//! * `restore` undoes what `image/prepare` and `image/xattrs` do to a file, for readers of images.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

pub mod dump;
mod error;
pub mod from_tree;
pub mod image;
pub mod restore;
pub mod tree;
mod xattr_names;

pub use error::{ImageError, TreeError, TreeProblem};
pub use from_tree::from_tree;
pub use tree::CfsTree;
