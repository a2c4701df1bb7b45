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
//! Bytes of an image are untrusted. Every sum is checked, every loop is bounded, and nothing is allocated from a
//! claimed size alone: a damaged or hostile image gives a [`ReadError`], never a panic, a hang or unbounded memory.
#![deny(unsafe_code)] // but for `mapped`

mod cache;
pub mod check;
mod composefs;
pub mod conformance;
mod course;
mod data;
mod decode;
mod device;
mod digest;
mod dir;
mod error;
mod escape;
mod explain;
mod image;
mod inode;
mod many;
mod map;
mod mapped;
mod memory;
mod meta;
mod per_process;
mod read_at;
mod resolve;
mod seek;
mod stats;
mod stride;
mod touched;
mod trail;
mod usage;
mod view;
mod walk;
mod window;
mod workspace;
mod xattr;
mod zmap;

pub use check::{CheckProblem, CheckReport, Finding, Note, check, check_with};
pub use composefs::ComposefsObject;
pub use digest::DigestCheck;
pub use dir::DirEntry;
pub use error::{Defect, ReadError};
pub use escape::Escaped;
pub use explain::{Cost, Decoding, Explanation, Extents, Piece};
pub use image::{Image, OpenOptions, Reader};
pub use inode::Inode;
pub use kiln_format::Nid;
pub use many::{FileRange, Part};
pub use map::{Extent, ExtentKind};
pub use mapped::MappedSource;
pub use meta::Space;
pub use read_at::{FileSource, MemorySource, OffsetSource, RangeMut, ReadAt};
pub use resolve::FollowLast;
pub use seek::SeekWhat;
pub use stats::{SIZE_BOUNDS, Sizes, Stats};
pub use usage::{
    Count, DirUsage, DiskUsage, ExtentCount, Histogram, MetadataUsage, Sharing, StoredAs, TreeUsage, Usage, usage,
};
pub use view::View;
pub use walk::{Walk, WalkEntry};
pub use xattr::Xattr;
