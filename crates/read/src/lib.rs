//! An EROFS image as a tree: metadata, extents, contents, checks. No mount, no privilege, no other
//! process.
//!
//! ```
//! use kiln_read::Image;
//! use std::io::Read;
//!
//! # let path = "tests/golden/zstd.erofs";
//! let image = Image::open_path(path.as_ref(), &[], &Default::default())?;
//! for entry in image.open_dir("/big")? {
//!     println!("{}", entry?.name.escape_ascii());
//! }
//! let mut text = Vec::new();
//! image.open_file("/big/text")?.read_to_end(&mut text)?;
//! # assert!(text.len() > 100_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Overview
//!
//! * [`ReadAt`] is the source of bytes: a [`FileSource`], a [`MappedSource`], a [`MemorySource`], a
//!   part of one ([`OffsetSource`]), a [`File`] of another image, or a source of yours, which
//!   [`conformance`] tests.
//! * [`Image`] opens a source, and answers all questions about it. It is cheap to clone; all
//!   methods take `&self` and may be called from any number of threads, and by processes that are
//!   forked off. No thread outlives a call.
//! * [`Inode`] is the metadata of one file. [`Image::inode`] reads it by number, [`Image::resolve`]
//!   by path.
//! * [`DirEntries`], [`Walk`] and [`FileTable`] are lists of names: of a directory, of a tree one
//!   by one, of a tree in flat columns for programs that work on millions of files
//!   ([`Image::scan`]).
//! * [`File`] is an open file with [`Read`](std::io::Read) and [`Seek`](std::io::Seek). The ways to
//!   read below it differ in where bytes go:
//!
//!   | call | bytes go |
//!   |---|---|
//!   | [`Image::read_at`] | into a buffer of the caller |
//!   | [`Image::view`] | nowhere, if they are in memory: a [`View`] borrows them from the image; else into a buffer that is used again |
//!   | [`Image::read_bytes`] | into memory that outlives the image, or nowhere, if they are in memory |
//!   | [`Image::read_many`] | many ranges at once, in stored order, on several threads: each to a closure |
//!   | [`Image::read_many_into`] | the same, into buffers of the caller |
//!
//! * [`Extent`] is a range of a file and the place of its stored bytes; [`FilePosition`] is the
//!   place of a file in the order of storage.
//! * [`HotList`](hotlist::HotList) lists the ranges of files that a program reads: for the order of
//!   data, for reading in advance, and for [`Image::pin`], which keeps them decoded.
//! * [`Objects`] are directories with the larger files of a composefs image, which is then read as
//!   overlayfs shows it.
//! * [`CheckReport`] lists damage ([`Image::check`]), [`Usage`] and [`DiskUsage`] use of space,
//!   [`Explanation`] the cost of a read, and [`Stats`] the cost of all reads.
//!
//! Types of `kiln-format` that are part of this interface are re-exported here.
//!
//! # Images that are not trusted
//!
//! Every sum is checked, every loop is bounded, and no memory is allocated from a claimed size
//! alone: a damaged or hostile image gives a [`ReadError`], never a panic, a hang or unbounded
//! memory. [`Inode::size`] is a claim, too: do not allocate by it more than you can spare;
//! [`File`]'s `read_to_end` and [`Image::read_bytes`] do not.
//!
//! # Inside
//!
//! Each folder is a layer: `image` (the public methods of `Image`, and the `Reader` that all other
//! layers work with), `source` (bytes of devices), `metadata`, `map` (from offsets in files to
//! extents), `cache` (state between reads), `data` (contents), `tree` (names); `file`, `check`,
//! `explain` and `usage` build on these.
//!
//! * **Fetches**: a read over several extents looks all of them up first, then one call for each
//!   device fetches the bytes that are not in memory (`gather`, `ReadAt::read_ranges`), at most 1
//!   MiB of encoded pclusters at once (64 KiB of a local file where the system reads ahead); then
//!   it is decoded. So does each batch, whose extents its plan has found, of `read_many` and
//!   `read_many_into` (`batch_worker`). A thread that has claimed an extent for the cache looks
//!   nothing up, and waits for no other claim: no circle of waiting can occur.
//! * **map** answers "which extent holds this byte" from the index entries that it needs, and
//!   remembers nothing. Its `FileMap` tells where the bytes of a range lie, with fragments and
//!   interlaced pclusters resolved: reads, batches, hints, positions and explanations all use it.
//! * **data** decodes whole extents straight into the caller's buffer. Of extents of which a part
//!   is wanted, it caches those that admission (`cache::admission`) accepts: their front is wanted,
//!   they are wanted for the second time, or their file is read at random
//!   (`cache::access_pattern`). One decode is in flight for each pcluster. `view` gives cached and
//!   mapped bytes without a copy, `owned` the same in memory that outlives the image; `batch` reads
//!   many ranges in the order of their `position`, `batch_into` into buffers of the caller.
//! * **tree** lists names one by one (`entries`, `walk`), or a whole tree in flat columns (`scan`),
//!   bounded by the image's length.
//! * **metadata** is read where a source lends it (`metadata::reader`); else it is cached by
//!   windows of one block. A missing window is read alone where files are read at random, and
//!   together with its neighbours, up to 1 MiB, where many of these are cached already: so a walk
//!   over all inodes takes few reads. Metadata and decoded data share one budget of bytes. Tails
//!   are not cached for themselves.
//! * **Objects** of composefs (`source::objects`) are opened by `data::object` at the first read of
//!   their file, verified, and kept open in `cache::open_objects`. `metadata::composefs` says which
//!   entries and attributes the merged view has. Lookups, listings and scans ask it; `check` does
//!   not, as it is about the image.
//! * **cache** belongs to a process (`fork_local`): a forked child begins with empty caches, as it
//!   cannot wait for threads that it does not have.
//! * Decodes under way share a budget of memory (`cache::workspaces`): an LZMA dictionary and its
//!   extent take up to 20 MiB. A thread that waits for its turn holds no workspace, and a thread
//!   that holds one waits for nothing.
//! * **hotlist** reads and writes hot lists, the ranges that a program reads. It is here because
//!   sources, mounts and the command all need it. `data::loading` decodes the extents that a list
//!   names into a map beside the cache (`cache::pinned`), which every read asks first, and which
//!   nothing evicts. While a list is loaded, its stored bytes are chunks (`cache::staged`): a
//!   reader of a byte of one fetches all of it, or waits for the thread that does, and a thread
//!   that fetches a chunk waits for its source alone. `data::hot_extents` chooses.
//! * Every size in an image is checked against a real limit before anything is allocated. `check`
//!   calls corrupt only images that the kernel reads wrongly. `explain` and
//!   `usage` report the cost of reading a file and the use of space.
//!
//! `ReadPolicy` has a part for each property of the sources and of the consumer, and each part is
//! asked in one place: the layer that reads ahead, the time that decoded extents stay,
//! announcements to the sources, memory for decodes, and latency (`TimedSource` measures it).
//! `ReadPolicy::for_page_cache` is for a kernel above us, which has a page cache and reads ahead
//! within files: the image then turns off the readahead of the system below it, reads ahead across
//! files where they are read in stored order (`cache::readahead`), and drops an extent from the
//! cache once all of it was consumed. `ImageSources` opens paths as the policy wants them, for
//! `Image::open_path` and for a mount; a `SourceLayer` wraps what it opens.
#![deny(unsafe_code)] // but for `source::mapped`, and one line in `cache::fork_local`
#![warn(unreachable_pub)]

mod cache;
mod check;
mod data;
mod error;
mod explain;
pub mod hotlist;
mod image;
mod map;
mod metadata;
mod options;
mod source;
mod stats;
mod tree;
mod usage;

pub use bytes::Bytes;
pub use check::report::{CheckProblem, CheckReport, Finding, Note};
pub use data::batch_into::FileRangeMut;
pub use data::batch_plan::{BatchItem, FileRange};
pub use data::file::File;
pub use data::loading::{LoadReport, LoadedHotList};
pub use data::position::{ClusterAddress, FilePosition};
pub use data::seek::SeekWhat;
pub use data::view::View;
pub use error::object::{ComposefsObject, ObjectProblem};
pub use error::{Defect, ReadError};
pub use explain::meter::{Cost, Decoding};
pub use explain::{Explanation, ReadPiece};
pub use image::Image;
pub use image::server::ServerView;
pub use kiln_codec::CodecError;
pub use kiln_digest::contents::{ContentDigest, ContentHash};
pub use kiln_format::compr_cfg::ComprCfgs;
pub use kiln_format::device::DeviceSlot;
pub use kiln_format::inode::{DataLayout, FileType, Rdev};
pub use kiln_format::superblock::Superblock;
pub use kiln_format::{Algorithm, Blkaddr, BlockBits, Compat, FormatError, Hex, Incompat, KernelVersion, Nid, Problem};
pub use kiln_parallel::Threads;
pub use map::extent::{Extent, ExtentKind};
pub use map::extents::Extents;
pub use metadata::generations::{Generation, generations};
pub use metadata::inode::Inode;
pub use metadata::recovery::{FoundGenerations, GenerationDamage, find_generations};
pub use metadata::space::MetadataSpace;
pub use metadata::xattr::Xattr;
pub use options::read_policy::{DecodeMemory, ReadPolicy, Readahead, Retention, SourcePrefetch};
pub use options::{ImageOptions, Opening};
pub use source::conformance;
pub use source::file::FileSource;
pub use source::image_sources::ImageSources;
pub use source::latency::Latency;
pub use source::layer::SourceLayer;
pub use source::mapped::MappedSource;
pub use source::memory::MemorySource;
pub use source::objects::{ObjectVerification, Objects, OpenObject};
pub use source::offset::OffsetSource;
pub use source::read_at::{RangeMut, ReadAt};
pub use source::timed::TimedSource;
pub use stats::{SIZE_BOUNDS, Sizes, Stats};
pub use tree::digest::{DigestCheck, DigestVerifier};
pub use tree::dir::DirEntry;
pub use tree::entries::DirEntries;
pub use tree::file_table::{DirectoryTable, FileTable, Names};
pub use tree::resolve::FollowLast;
pub use tree::scan::{ScanFilter, TreeScan};
pub use tree::walk::{Walk, WalkEntry};
pub use usage::blocks::InPlace;
pub use usage::counts::{Count, ExtentCount, Histogram, StoredAs};
pub use usage::disk::{DirUsage, DiskUsage, TreeUsage};
pub use usage::report::{MetadataUsage, Sharing, Usage};
