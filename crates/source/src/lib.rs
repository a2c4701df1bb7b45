//! Foreign things as a tree: directories, archives, images.
//!
//! [`open`] finds out what is at a path, and gives a [`Source`], whatever it is. [`Source::scan`] makes a [`Tree`] of it, of which
//! [`ScanOptions::filter`] leaves out what is not wanted. A [`filter::Policy`] then changes owners, times, attributes and more.
//!
//! A further kind of source implements [`Source`] with [`Builder`], as [`image::erofs`] does, and is a [`SourceKind`] of [`KINDS`].
//!
//! [`Tree`]: kiln_tree::Tree
//! [`Builder`]: kiln_tree::Builder
//!
//! # Inside
//!
//! * `input/` finds out what is at a path: its first bytes, plain and decompressed (`candidate`), by which a `SourceKind` recognises it. Formats that
//!   are read at any position (`image/`, zip) get a `ReadAt`; formats that are read front to back (tar, cpio) get a `Tape`, which keeps what cannot
//!   be read twice in a nameless file. `input/disk` finds the partition of a disk in which a source is.
//! * `archive/members` is what all archives share: the tree in the making, errors with their offsets, the limit of memory. `archive/left_out` decides
//!   for every kind of source whether damage ends a scan.
//! * A tar archive is opened by `oci`, which knows by its members whether it is one of images (`oci/archive`) or of
//!   files: it is read once.
//! * `merge` lays trees over each other, and `oci` does so with the layers of an image; `merge::Draft` is a tree that a program makes of bytes, files
//!   and sources, `merge::EditedImage` an image with edits.
//! * `left_out_xattrs` counts attributes that an image cannot hold: `filter::leave_out_unfit` decides about them for sources of every kind, and tar
//!   archives add entries of ACLs whose names have no ids.
//! * Contents stay where they are: in the archive (`stored`), in the image, or decoded once (`archive/decoded`). Of an archive or image to which the
//!   new image shall only refer, they say where on that device they lie (`Contents::placed`); `merge` numbers the devices of all its trees.
//! * `merge::increment` is a tree over an older image of it, `image::erofs::Relayout` an image as the base of itself, with options that `survey`
//!   finds in it.
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
pub use source::{FileStamps, Note, Scan, ScanOptions, Scanned, Source};
pub use stored::{Run, StoredFiles};
