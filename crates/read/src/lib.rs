//! An EROFS image as a tree: metadata, extents, contents, checks.
//!
//! [`Image`] opens any [`ReadAt`] and answers like a filesystem: inodes, directories, attributes, ranges of bytes. All
//! methods take `&self` and may be called from any number of threads.
//!
//! ```no_run
//! let image = kiln_read::Image::open_path("tree.erofs".as_ref(), &[], &Default::default())?;
//! let file = image.resolve(b"/etc/os-release", kiln_read::FollowLast::Follow)?;
//! let mut text = vec![0; file.meta.size as usize];
//! image.read_at(&file, &mut text, 0)?;
//! # Ok::<(), kiln_read::ReadError>(())
//! ```
//!
//! Inside, each folder is a layer: `source` (bytes of devices), `metadata`, `map` (from offsets in files to extents), `cache` (state
//! between reads), `data` (contents), `tree` (names); `check`, `explain` and `usage` stand on these.
//!
//! Bytes of an image are untrusted. Every sum is checked, every loop is bounded, and nothing is allocated from a
//! claimed size alone: a damaged or hostile image gives a [`ReadError`], never a panic, a hang or unbounded memory.
#![deny(unsafe_code)] // but for `source::mapped`, and one line in `cache::fork_local`
#![warn(unreachable_pub)]

mod cache;
mod check;
mod data;
mod error;
mod escape;
mod explain;
mod file;
mod image;
mod map;
mod metadata;
mod options;
mod read_policy;
mod source;
mod stats;
mod tree;
mod usage;

pub use bytes::Bytes;
pub use check::report::{CheckProblem, CheckReport, Finding, Note};
pub use data::batch_into::FileRangeMut;
pub use data::batch_plan::{BatchItem, FileRange};
pub use data::position::{ClusterAddress, FilePosition};
pub use data::seek::SeekWhat;
pub use data::view::View;
pub use error::{Defect, ReadError};
pub use escape::Escaped;
pub use explain::meter::{Cost, Decoding};
pub use explain::{Explanation, Piece};
pub use file::File;
pub use image::Image;
pub use kiln_codec::CodecError;
pub use kiln_format::compr_cfg::ComprCfgs;
pub use kiln_format::device::DeviceSlot;
pub use kiln_format::inode::{DataLayout, FileType, Rdev};
pub use kiln_format::superblock::Superblock;
pub use kiln_format::{Algorithm, Blkaddr, BlockBits, Compat, FormatError, Incompat, KernelVersion, Nid, Problem};
pub use kiln_parallel::Threads;
pub use map::extent::{Extent, ExtentKind};
pub use map::extents::Extents;
pub use metadata::composefs::ComposefsObject;
pub use metadata::inode::Inode;
pub use metadata::space::MetadataSpace;
pub use metadata::xattr::Xattr;
pub use options::OpenOptions;
pub use read_policy::{DecodeMemory, ReadPolicy, Readahead, Retention, SourcePrefetch};
pub use source::conformance;
pub use source::file::FileSource;
pub use source::image_sources::ImageSources;
pub use source::latency::Latency;
pub use source::mapped::MappedSource;
pub use source::memory::MemorySource;
pub use source::offset::OffsetSource;
pub use source::read_at::{RangeMut, ReadAt};
pub use source::timed::TimedSource;
pub use stats::{SIZE_BOUNDS, Sizes, Stats};
pub use tree::digest::DigestCheck;
pub use tree::dir::DirEntry;
pub use tree::entries::DirEntries;
pub use tree::file_table::{DirectoryTable, FileTable, Names};
pub use tree::resolve::FollowLast;
pub use tree::scan::ScanFilter;
pub use tree::walk::{Walk, WalkEntry};
pub use usage::counts::{Count, ExtentCount, Histogram, StoredAs};
pub use usage::disk::{DirUsage, DiskUsage, TreeUsage};
pub use usage::report::{MetadataUsage, Sharing, Usage};
