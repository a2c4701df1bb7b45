//! A tree as an EROFS image.
//!
//! Building is a sequence of values, each complete when it is made:
//!
//! ```text
//! Tree ──► Inodes ──► Plan ──► StoredData ──► Layout ──► Metadata ──► bytes
//! names,   inode     order,   where      nids       what of it   every region filled
//! contents forms     dedupe   data lies             is packed    to its last byte
//! ```
//!
//! [`build`] runs them all. The same tree and options give the same bytes, whatever the number of threads.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod build;
mod context;
mod error;
mod estimate;
mod explain;
mod inodes;
mod layout;
mod options;
mod output;
mod pack;
mod plan;
mod summary;
pub mod tree;
mod write;

pub use build::{build, build_behind, build_explained};
pub use context::clock::{Phase, PhaseClock};
pub use context::progress::{Control, Progress};
pub use error::{BuildError, InputProblem, Skipped};
pub use estimate::{Estimate, Interval, estimate};
pub use explain::{Decision, Explanation, How, Reasons, Uncompressed, Unpacked};
pub use inodes::ExtendedBecause;
pub use kiln_codec::Spec;
pub use kiln_parallel::Threads;
pub use options::hints::Hints;
pub use options::hot::HotZone;
pub use options::preset::choices::{Choices, Compression, MetadataChoice, MethodChoice};
pub use options::preset::error::{OptionError, OptionField, OptionProblem};
pub use options::preset::limits::{PclusterLimits, check_method, feature_of};
pub use options::preset::{Preset, SMALL_FILE_LEN};
pub use options::{BuildOptions, ChunkEntries, Dedupe, DigestName, Fragments, Holes, Trial};
pub use output::atomic_file::{AtomicFile, Existing};
pub use output::commit::{CommitError, Durability, Unpublished, commit};
pub use output::error::OutputError;
pub use output::memory::MemoryOutput;
pub use output::place::Place;
pub use output::spool::{CopyError, Spool};
pub use output::unfinished::remove_unfinished;
pub use output::{Behind, Blob, Out, Output, read_exact_at, write_all_at};
pub use pack::refill::{RefillEnd, RefillForm, Refilled, RefilledExtent, Refiller, inline_room};
pub use summary::{CompressionUse, Summary};
pub use tree::Tree;
pub use write::superblock::Head;
