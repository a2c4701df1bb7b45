//! Sources of trees: directories, archives, images, containers and manifests.
//!
//! [`open`] detects the kind of a file or directory and returns a [`Source`]. [`Source::scan`]
//! makes a [`Tree`] of the entries that [`ScanOptions::filter`] selects. A [`filter::Policy`] then
//! changes owners, times, attributes and other metadata.
//!
//! A new kind of source implements [`Source`] with [`Builder`], as [`image::erofs`] does, and is
//! listed in [`KINDS`] as a [`SourceKind`].
//!
//! [`Tree`]: kiln_tree::Tree
//! [`Builder`]: kiln_tree::Builder
//!
//! # Inside
//!
//! * `input/` detects the kind of a file from its first bytes, raw and decompressed (`candidate`).
//!   Formats that are read at any position (`image/`, zip) get a `ReadAt`. Formats that are read
//!   front to back (tar, cpio) get a `Tape`, which copies input that cannot be read twice to an
//!   unnamed file, the spool. `input/disk` finds a partition on a disk.
//! * `archive/members` is shared by all archives: the tree under construction, errors with their
//!   offsets, the memory limit. `archive/left_out` decides for all sources if damage ends a scan.
//! * Tar archives are opened by `oci`, which decides by the members if an archive holds container
//!   images (`oci/archive`) or files, so that it is read only once.
//! * `merge` lays trees over each other, and `oci` does the same with the layers of an image.
//!   `merge::Draft` is a tree that a program builds from bytes, files and sources.
//! * `left_out_xattrs` counts attributes that an image cannot hold. `filter::leave_out_unfit`
//!   removes them for all sources; tar archives add ACL entries whose names have no ids.
//! * Contents stay where they are until they are read: in the archive (`stored`), in the image, or
//!   decoded once (`archive/decoded`). For an archive or image to which the new image only refers,
//!   they return their positions on that device (`Contents::placed`); `merge` numbers the devices
//!   of all its trees.
#![warn(unreachable_pub)]
#![deny(unsafe_code)]

pub mod archive;
pub mod dir;
mod error;
pub mod filter;
pub mod image;
mod input;
mod kind;
mod limit;
pub mod manifest;
pub mod merge;
pub mod oci;
mod open;
mod source;
mod stored;
mod unknown;

pub use error::{SourceError, Unreadable};
pub use filter::left_out_xattrs::{LeftOutXattr, LeftOutXattrs};
pub use input::candidate::{Candidate, SourceOptions};
pub use input::disk;
pub use input::spool::SpoolLimit;
pub use input::stream_format::StreamFormat;
pub use input::tape::Tape;
pub use kind::SourceKind;
pub use limit::MemoryLimit;
pub use open::{KINDS, open, open_as, open_bytes};
pub use source::{CLOCK_SECS, FileStamps, Note, Scan, ScanOptions, Scanned, Source};
pub use stored::{StoredFiles, StoredRun};
