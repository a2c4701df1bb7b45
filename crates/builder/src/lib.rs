//! Building of EROFS images from trees.
//!
//! A build makes a sequence of values. Each of them is complete before the next one begins:
//!
//! ```text
//! Tree ──► Inodes ──► Plan ──► StoredData ──► Layout ──► Metadata ──► bytes
//! names,   inode      order,   places         nids       special     all regions,
//! contents forms      dedupe   of data                   inodes      without gaps
//! ```
//!
//! [`build`] runs all phases. The same tree and options give the same bytes, whatever the number of threads.
//!
//! # Inside
//!
//! Each value has a folder. Beside the values there is a ledger (`context/ledger`), in which phases record the files
//! that they leave out and those that have changed.
//!
//! * **Tree** (crate `kiln-tree`): names, metadata and handles to contents, in the same order from every source.
//!   Any thread can open contents, more than once. A file that changes between scan and read is an error that names
//!   it. `plan/stored` asks the tree which contents are stored already, and where.
//! * **Format** (`format`): decisions for the whole image, made once from [`BuildOptions`] and the tree. No phase sees
//!   the options or a kernel version. The table in `options/kernel` says which options each kernel grants.
//! * **Inodes** (`inodes/`): the needs of each inode, known before data is read: compact or extended form, xattr
//!   set, room for a tail. Digests of contents that become attributes (`digest`) are computed earlier, or copied
//!   from the image that the contents come from.
//! * **Plan** (`plan/`): the way in which each file is stored, in plain-text coordinates. Data that is on a device
//!   already (`placed`) is described in chunks, and neither read nor stored. The same holds for data that is reused
//!   from a base (`reuse`, `pack::reuse`), whose packed inode becomes the front of the new one: an increment reuses
//!   some files, `kiln relayout` all of them (crate `revise`). `hot` selects the data that comes first. For changed
//!   files, `previous` compares the text of each extent. `analysis` reads each file once, on all cores. Decisions are taken in walk order, so that the number
//!   of threads has no influence. A digest only nominates; bytes decide. `fragments` orders small files for the
//!   packed inode, by their first 16 bytes within windows of 4 MiB of walk order. `method_selection` tries several
//!   methods on samples, within a budget of modelled CPU time. Last, `verify` compares data that will be read from
//!   images with the digests that are stored there. Files whose data in the base turns out to differ from the
//!   source are planned again, without the base.
//! * **Deduplication** (`plan/dedupe/`): content-defined chunks (`chunker`) nominate equal text, `matching` extends
//!   matches to the byte, `split_points` cuts stored text where references begin. `revalidation` hashes shared text
//!   again as it is stored: a file that changed between the two passes is an error even if no timestamp shows it.
//! * **Pack** (`pack/`): a `PackJob` is a unit of work that one worker compresses front to back, at most 4 MiB of
//!   text (8 MiB for pclusters above 64 KiB): a constant of the options. `ordered` (crate `parallel`) hands out
//!   jobs within a budget of bytes and returns results in order to the one thread that writes (`append`). Workers
//!   never write.
//! * **Layout** (`layout/`): places of inodes and directories, measured before they are written. Small inodes fill
//!   the gaps that larger ones leave.
//! * **Write** (`write/`): compressed directories and inodes (`special_inodes`), the metadata zone front to back,
//!   the superblock last. The length of each inode is compared with the measured one.
//! * **Changed files**: with `keep_going`, a file that changed after the scan is stored as it is read, and shares
//!   nothing. If other files were to share text that is gone, the build begins again with that file apart.
//! * `explain` answers from the values of a finished build why a file is stored the way it is. `estimate` builds a
//!   small tree into memory. For a larger tree it makes the real plan and a real layout, with lengths taken from a
//!   sample (`synthetic`). Only packing is sampled, in strata (`frame`): the text drawn from each stratum becomes a
//!   tree (`sample_tree`), which the phases above build into memory (`sample`). The sample itself gives the
//!   intervals (`interval`). No phase knows of estimates.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod build;
mod context;
mod error;
mod estimate;
mod explain;
mod format;
mod hot;
mod inodes;
mod layout;
mod options;
mod out;
mod pack;
mod plan;
mod read;
mod store;
mod summary;
mod write;

pub use build::{build, build_behind, build_explained};
pub use context::clock::{Phase, PhaseClock};
pub use context::progress::{Control, Progress};
pub use error::{BuildError, InputProblem, Skipped};
pub use estimate::{Estimate, Interval, estimate};
pub use explain::{Decision, Explanation, How, Reasons, Uncompressed, Unpacked};
pub use hot::{HotFiles, HotMethod, store_hot};
pub use inodes::ExtendedBecause;
pub use kiln_codec::Spec;
pub use kiln_parallel::Threads;
pub use options::data::{ChunkEntries, CompressionOptions, Fragments, LayoutOptions, PackingOptions, Trial};
pub use options::hint_spec::{HintSpecError, hint_spec};
pub use options::hints::Hints;
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
