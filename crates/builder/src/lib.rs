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
//!
//! # Inside
//!
//! Each value has a folder. Beside the values stands a ledger (`context/ledger`), where phases post what they leave out and what has changed.
//!
//! * **Tree** (crate `kiln-tree`): names, metadata and handles to contents, in the same order from every source. Any
//!   thread can open contents, more than once; a file that changes between scan and read is an error that names it.
//!   `plan/stored` asks the tree where contents are stored already.
//! * **Format** (`format`): decisions for the whole image, made once from [`BuildOptions`] and the tree. No phase sees
//!   the options or a kernel version. The table in `options/kernel` says which options each kernel grants.
//! * **Inodes** (`inodes/`): what each inode needs before data is read: compact or extended form, xattr set, room for a tail. Digests of contents
//!   that become attributes (`digest`) are made before, or carried over from the image that the contents come from.
//! * **Plan** (`plan/`): what is stored how, in plain-text coordinates. What is on a device already (`placed`) is told in chunks, and neither read
//!   nor stored; nor is what is taken over from an older image (`kept`, `pack::kept`), whose packed inode becomes the front of the new one: an
//!   increment takes over some files, `kiln relayout` all of them (`source::image::erofs::relayout`, with options that `survey` finds in the image).
//!   `hot` is what of it comes first. Of changed files, `former` compares the text of each extent. `analysis` reads each file once, on all cores;
//!   decisions are taken in walk order, so that the number of threads does not show. A digest only nominates; bytes decide. `fragments` orders small
//!   files for the packed inode: by their first 16 bytes within windows of 4 MiB of walk order. `method_selection` tries several methods on samples,
//!   within a budget of modelled CPU time. In the end `verify` compares what will be read of images with the digests that are stored there; what a base
//!   has otherwise than the source, though it was believed to be the same, is looked at anew.
//! * **Deduplication** (`plan/dedupe/`): content-defined chunks (`chunker`) nominate equal text, `matching` extends matches to the byte,
//!   `split_points` cuts stored text where references begin. `revalidation` hashes again what several files share, as it is stored: a file that
//!   changed between the two passes is an error even if no timestamp tells.
//! * **Pack** (`pack/`): a `PackJob` is what one worker compresses front to back, at most 4 MiB of text (8 MiB for pclusters above 64 KiB): a
//!   constant of the options. `ordered` (crate `parallel`) hands out jobs within a budget of bytes and returns results in order to the one thread
//!   that writes (`append`). Workers never write.
//! * **Layout** (`layout/`): places of inodes and directories, measured before they are written. Small inodes fill gaps that larger ones left.
//! * **Write** (`write/`): directories and inodes that are compressed (`special_inodes`), the metadata zone front to back, the superblock last. What
//!   an inode takes is compared with what was measured.
//! * **Changed files**: with `keep_going`, a file that is no longer what was scanned is stored as it is and shares nothing. If others were to share
//!   text that is gone, the build begins again with that file apart.
//! * `explain` answers from the values of a finished build why a file is stored as it is. `estimate` builds a small tree into memory. Of a larger one
//!   it makes plan and layout for real, of lengths that a sample has shown (`synthetic`); only packing is sampled, in strata (`frame`): the text that
//!   is drawn of each is a tree of its own (`sample_tree`), built by the phases above into memory (`sample`), with intervals from the sample itself
//!   (`interval`). No phase knows of estimates.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod build;
mod context;
mod error;
mod estimate;
mod explain;
mod format;
mod inodes;
mod layout;
mod options;
mod out;
mod pack;
mod plan;
mod summary;
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
pub use options::data::{ChunkEntries, CompressionOptions, Fragments, LayoutOptions, PackingOptions, Trial};
pub use options::hints::Hints;
pub use options::hot::HotZone;
pub use options::kernel::{KernelFallback, KernelRule, feature_of, kernel_rules};
pub use options::metadata::{ContentDigests, MetadataOptions};
pub use options::preset::choices::{Choices, Compression, MetadataChoice, MethodChoice};
pub use options::preset::error::{OptionError, OptionField, OptionProblem};
pub use options::preset::limits::{PclusterLimits, check_method};
pub use options::preset::{Preset, SMALL_FILE_LEN};
pub use options::{BuildOptions, Dedupe, Holes, IdentityOptions, WorkOptions};
pub use out::{Behind, Blob, Out};
pub use pack::refill::{RefillEnd, RefillForm, Refilled, RefilledExtent, Refiller, inline_room};
pub use summary::{CompressionUse, Summary};
pub use write::superblock::Head;
