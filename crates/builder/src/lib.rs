//! Building of EROFS images from trees.
//!
//! A build makes a sequence of values. Each of them is complete before the next one begins:
//!
//! ```text
//! Tree ──► Inodes ──► Survey ──► Plan, StoredData ──► Layout ──► Metadata ──► bytes
//! names,   inode      order,     decisions,           nids       special     all regions,
//! contents forms      holes      places of data                  inodes      without gaps
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
//!   Any thread can open contents. `plan/stored` asks the tree which contents are stored already, and where.
//! * **Format** (`format`): decisions for the whole image, made once from [`BuildOptions`] and the tree. No phase sees
//!   the options or a kernel version. The table in `options/kernel` says which options each kernel grants.
//! * **Inodes** (`inodes/`): the needs of each inode, known before data is read: compact or extended form, xattr
//!   set, room for a tail. Digests of contents that become attributes have their length then, and their value after the
//!   contents have been read (`digest`).
//! * **Survey** (`plan/survey`): what is known of files before any of them is read: order, equal lengths, holes, data
//!   that is on a device already (`placed`) or is reused from a base (`reuse`), whose packed inode becomes the front
//!   of the new one. `hot` selects the data that comes first. For changed files, `previous` selects extents of
//!   their previous versions. `pieces` divides files.
//! * **Store** (`store`): text passes from left to right, segment by segment, and is dropped.
//!   * `read/` reads pieces ahead, on more threads than there are processors, within a budget of bytes. Each piece is
//!     read once; hashes, chunks and first bytes are found while it is in the cache.
//!   * `plan/planner` decides about a segment, a constant number of bytes: on one thread, in order. Equal files are
//!     found by length and BLAKE3 (`duplicates`). `method_selection` tries several methods on samples, within a budget
//!     of modelled CPU time for each segment. `packed_window` gathers small files for the packed inode, and sorts them
//!     by their first 16 bytes within windows of 4 MiB. Contents that come from an image are compared with the digests
//!     that are stored there.
//!   * `plan/dedupe/`: content-defined chunks (`chunker`) nominate equal text, `matching` extends matches to the byte,
//!     `split_points` cuts text in memory where references begin (`parts`).
//!   * `pack/`: a `PackJob` is text that one worker compresses front to back. A crew (crate `parallel`) returns
//!     results in order to the one thread that decides and writes (`append`). Older text that matches need is decoded
//!     from the output (`stored_text`), before it is asked for, on all cores. Workers never write.
//!   * `pack/settle`, at the end: pclusters are cut where references to their text begin (`recut`), references become
//!     extents (`refs`), ends of files go to the packed inode (`ends`).
//! * **Streams** (`stream`): contents that come once are divided into pieces as they come (`stream/divider`), and
//!   stored before their tree is complete. A tree then names them: files without a name leave their data to those that
//!   share it.
//! * **Layout** (`layout/`): places of inodes and directories, measured before they are written. Small inodes fill
//!   the gaps that larger ones leave.
//! * **Write** (`write/`): compressed directories and inodes (`special_inodes`), the metadata zone front to back,
//!   the superblock last. The length of each inode is compared with the measured one.
//! * **Changed files** are stored as they were read. One that has another length than when it was scanned is an error;
//!   with `keep_going` it is stored with its scanned length.
//! * **Text that is read twice**: samples of long files if several methods are tried (`method_selection`), the front of
//!   a long file that equals another one for some pieces and then differs (`planner/note`; of a stream, it is decoded
//!   from the output), and files of which parts are reused, for their digests (`inodes/digest`).
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
mod stream;
mod summary;
mod write;

pub use build::{build, build_behind, build_explained, build_stored};
pub use context::clock::{Phase, PhaseClock};
pub use context::progress::{Control, Progress};
pub use error::{BuildError, InputProblem, Skipped};
pub use estimate::{Estimate, Interval, estimate};
pub use explain::{Decision, Explanation, How, Reasons, Uncompressed, Unpacked};
pub use hot::{HotFiles, HotMethod, store_hot};
pub use inodes::ExtendedBecause;
pub use kiln_codec::Spec;
pub use kiln_digest::contents::ContentHash;
pub use kiln_parallel::Threads;
pub use options::data::{ChunkEntries, CompressionOptions, Fragments, LayoutOptions, PackingOptions, Trial};
pub use options::hint_spec::{HintSpecError, hint_spec};
pub use options::hints::Hints;
pub use options::kernel::{KernelFallback, KernelRule, feature_of, kernel_rules};
pub use options::metadata::{ContentDigests, MetadataOptions};
pub use options::preset::choices::{Choices, Compression, MetadataChoice, MetadataCompression, MethodChoice};
pub use options::preset::error::{OptionError, OptionField, OptionProblem};
pub use options::preset::limits::{PclusterLimits, check_method};
pub use options::preset::{METADATA_LEN, Preset, SMALL_FILE_LEN, UnknownPreset};
pub use options::{BuildOptions, Dedupe, Holes, IdentityOptions, WorkOptions};
pub use out::{Behind, Blob, Out};
pub use pack::refill::{RefillEnd, RefillForm, Refilled, RefilledExtent, Refiller, inline_room};
pub use stream::{StoredStream, store_stream};
pub use summary::{CompressionUse, Summary};
pub use write::superblock::{Head, RootInode};
