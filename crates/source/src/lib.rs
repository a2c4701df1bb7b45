//! Sources of trees: directories, archives, images, containers and manifests.
//!
//! [`open`] detects the kind of a file or directory and returns a [`Source`]. [`Source::scan`]
//! makes a [`Tree`] of the entries that [`ScanOptions::filter`] selects. A [`Policy`] then changes
//! owners, times, attributes and other metadata, and [`leave_out_unfit`] comes last: it removes and
//! counts attributes that EROFS cannot hold.
//!
//! A new kind of source implements [`Source`] with [`Builder`], as [`image::erofs`] does, and is
//! listed in [`KINDS`] as a [`SourceKind`].
//!
//! [`Tree`]: kiln_tree::Tree
//! [`Builder`]: kiln_tree::Builder
//! [`Policy`]: kiln_tree::policy::Policy
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
//! * `merge::Merged` is several sources as one, and `oci` merges the layers of an image: both with
//!   `kiln_tree::merge`. `merge::Draft` is a tree that a program builds from bytes, files and
//!   sources.
//! * Filters are values of `kiln_tree::filter`. A directory asks them while it is read (`dir/walk`,
//!   `dir/ignore`); other sources are filtered when they have been read (`Source::scan`).
//! * `manifest` has the parsers of definition files. The edits that they give are values of
//!   `kiln_tree::policy`; `manifest/added_files` has the contents of files that they add.
//! * `xattrs` counts attributes that an image cannot hold, and removes them for all sources; tar
//!   archives add ACL entries whose names have no ids.
//! * Contents stay where they are until they are read: in the archive (`stored`), in the image, or
//!   decoded once (`archive/decoded`). For an archive or image to which the new image only refers,
//!   they return their positions on that device (`Contents::placed`); `merge` numbers the devices
//!   of all its trees.
#![warn(unreachable_pub)]
#![deny(unsafe_code)]

pub mod archive;
pub mod dir;
mod error;
mod fields;
pub mod image;
mod in_memory;
mod input;
mod kind;
mod limit;
pub mod manifest;
pub mod merge;
pub mod oci;
mod open;
mod places;
mod source;
mod stored;
mod unknown;
mod xattrs;

pub use error::{SourceError, Unreadable};
pub use input::candidate::{Candidate, SourceOptions};
pub use input::disk;
pub use input::spool::SpoolLimit;
pub use input::stream_format::StreamFormat;
pub use input::tape::Tape;
pub use kind::SourceKind;
pub use limit::MemoryLimit;
pub use open::{KINDS, kind_of, open, open_as, open_bytes};
pub use places::ArchivePlaces;
pub use source::{CLOCK_SECS, FileStamps, Note, Scan, ScanOptions, Source, SourceEntries};
pub use stored::{StoredFiles, StoredRun};
pub use xattrs::{LeftOutXattr, LeftOutXattrs, UnfitXattr, leave_out_unfit};
