//! Options of a build, as a caller chooses them.
//!
//! [`BuildOptions`] holds wishes, in groups by purpose. [`Format`](crate::format::Format) is made of them once per
//! build and has no kernel version; the table in `kernel` says which wishes a kernel grants. `preset` makes options
//! from few choices.

pub(crate) mod data;
pub(crate) mod hint_spec;
pub(crate) mod hints;
pub(crate) mod kernel;
pub(crate) mod metadata;
pub(crate) mod preset;

use kiln_codec::Method;
use kiln_format::{Algorithm, BlockBits, KernelVersion};
use kiln_parallel::Threads;
use std::path::PathBuf;

use crate::options::data::{CompressionOptions, Fragments, LayoutOptions, PackingOptions};
use crate::options::kernel::{Asked, Wish, grant};
use crate::options::metadata::MetadataOptions;

/// Length in bytes of the longest pcluster that kernels read.
const PCLUSTER_MAX_LEN: u32 = 1 << 20;
/// Blocks of the longest pcluster that an lcluster index can describe.
const CBLKCNT_MAX: u32 = 2047;
/// Number of readers by default: a cold tree of small files is read 4 times as fast by 8 threads as by one, on a disk
/// that answers in parallel.
const READERS: usize = 8;
/// Blocks of the longest LZ4 pcluster for which kernels have buffers, for any block size.
const LZ4_PCLUSTER_MAX_BLOCKS: u32 = 256;

/// Options of a build. The defaults store everything uncompressed and need no particular kernel.
///
/// ```
/// use kiln_builder::{BuildOptions, Dedupe, Fragments, Spec};
///
/// let options = BuildOptions::default().with(|options| {
///     options.compression = Spec::parse("zstd,9", 64 << 10).unwrap().into();
///     options.packing.fragments = Fragments::UpTo(128 << 10);
///     options.dedupe = Dedupe::Parts;
/// });
/// assert!(options.packs_files());
/// ```
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Block size, 512 bytes to 64 KiB; 4 KiB by default. A kernel mounts blocks up to its page size. Smaller blocks
    /// than a page need Linux 6.4, or 6.8 if anything is compressed.
    pub block_bits: BlockBits,
    /// Oldest kernel that must be able to mount the image. Wishes that it cannot read are left out or refused, as
    /// [`kernel_rules`](crate::kernel_rules()) lists. `None` accepts the kernel that the other options need.
    pub kernel: Option<KernelVersion>,
    /// Compression of file data.
    pub compression: CompressionOptions,
    /// Data that is stored once though it occurs several times.
    pub dedupe: Dedupe,
    /// Storage of the holes of sparse files.
    pub holes: Holes,
    /// Small files and ends of files that are stored together with others.
    pub packing: PackingOptions,
    /// Placement and order of data.
    pub layout: LayoutOptions,
    /// Inodes, directories and extended attributes.
    pub metadata: MetadataOptions,
    /// UUID, label, times and checksum of the image.
    pub identity: IdentityOptions,
    /// Resources of the build. The image depends on `memory` and `keep_going` only.
    pub work: WorkOptions,
}

/// Data that is stored once though it occurs several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedupe {
    /// None.
    Off,
    /// Files with equal contents.
    Files,
    /// Files with equal contents, and equal parts of compressed files. Parts need Linux 6.1; for older kernels, and if
    /// nothing is compressed, this is the same as `Files`.
    Parts,
}

/// Storage of the holes of sparse files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// Holes take no space if the kernel supports it: Linux 5.15 for uncompressed files, Linux 6.1 for compressed
    /// files. For older kernels their zeros are stored.
    Kept,
    /// Holes are stored as zeros, so that no image needs a later kernel for its holes. Holes in chunks of
    /// [`LayoutOptions::chunk_bits`] still take no space.
    Filled,
}

/// UUID, label, times and checksum of an image.
#[derive(Clone, Debug)]
pub struct IdentityOptions {
    /// UUID of the image; `None` derives it from the contents.
    pub uuid: Option<[u8; 16]>,
    /// Label, at most 15 bytes, padded with zeros: kernels need a zero at the end.
    pub label: [u8; 16],
    /// Latest mtime in the image, in seconds since 1970: later mtimes become this one. It is also recorded as the time
    /// of building unless `build_time` has another.
    pub source_date_epoch: Option<i64>,
    /// Time of building to record, in seconds since 1970. Times count from the earliest in the image, so inodes may be
    /// longer if this is earlier than all mtimes.
    pub build_time: Option<i64>,
    /// True to store a checksum of the superblock.
    pub checksum: bool,
}

impl Default for IdentityOptions {
    fn default() -> Self {
        Self { uuid: None, label: [0; 16], source_date_epoch: None, build_time: None, checksum: true }
    }
}

/// Resources of a build, and its reaction to unreadable files.
#[derive(Clone, Debug)]
pub struct WorkOptions {
    /// Worker threads. The image does not depend on them.
    pub threads: Threads,
    /// Threads that read the source. They wait for disks and networks, so there are more of them than processors: 8 by
    /// default. The image does not depend on them.
    pub readers: Threads,
    /// Memory in bytes for data that can do with less; 512 MiB by default. It is for the index of equal parts and for
    /// data between threads, inline tails and decoded text. The index takes half, and with less than 96 MiB what the
    /// 48 MiB of the others leave, but at least an eighth. It forgets entries when it is full: the image gets larger,
    /// not wrong. The others take about 100 MiB at most, whatever is given, and do not shrink below some 40 MiB: 8 MiB
    /// of text are decided about at once, and pieces have up to 8 MiB. The tree, each thread's encoder and, per GB of
    /// text whose parts are compared, some 2 MB come on top.
    pub memory: usize,
    /// Directory for a nameless scratch file, which is made if the inline tails of many small files outgrow memory; the
    /// working directory by default.
    pub scratch_dir: PathBuf,
    /// True to leave out files that cannot be read and list them in the summary, instead of failing.
    pub keep_going: bool,
}

impl Default for WorkOptions {
    fn default() -> Self {
        Self {
            threads: Threads::ONE,
            readers: Threads::at_least_one(READERS),
            memory: 512 << 20,
            scratch_dir: PathBuf::from("."),
            keep_going: false,
        }
    }
}

/// Bytes of memory for data between threads, unless there is plenty.
const IN_FLIGHT: usize = 48 << 20;

impl WorkOptions {
    /// Returns the bytes of memory for the index of parts: half, or less where the other half does not hold the data
    /// between threads.
    pub(crate) fn index_budget(&self) -> usize {
        (self.memory / 2).min(self.memory.saturating_sub(IN_FLIGHT).max(self.memory / 8))
    }

    /// Returns the bytes of text that are read ahead of decisions. More gains nothing.
    pub(crate) fn read_ahead(&self) -> u64 {
        (self.memory as u64 / 16).min(16 << 20)
    }

    /// Returns the bytes of text between decisions and writing. More gains nothing.
    pub(crate) fn backlog(&self) -> u64 {
        (self.memory as u64 / 8).min(16 << 20)
    }

    /// Returns the bytes of stored text that stay decoded: equal text is compared front to back, often at several
    /// places by turns. On kernel sources, 16 MiB need half as much decoding as 4 MiB.
    pub(crate) fn decoded_memory(&self) -> usize {
        (self.memory / 16).min(16 << 20)
    }

    /// Returns the bytes of memory for inline tails; a scratch file takes the rest of them.
    pub(crate) fn tails_memory(&self) -> usize {
        (self.memory / 32).min(16 << 20)
    }
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            block_bits: BlockBits::DEFAULT,
            kernel: None,
            compression: CompressionOptions::default(),
            dedupe: Dedupe::Files,
            holes: Holes::Kept,
            packing: PackingOptions::default(),
            layout: LayoutOptions::default(),
            metadata: MetadataOptions::default(),
            identity: IdentityOptions::default(),
            work: WorkOptions::default(),
        }
    }
}

impl BuildOptions {
    /// Returns the options after `change`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Returns true if small files are packed: if a length is chosen, files are compressed, and the kernel reads
    /// fragments.
    pub fn packs_files(&self) -> bool {
        self.fragment_max_len() > 0
    }

    /// Returns the length in bytes of the longest file that goes into the packed inode; 0 if none does.
    pub(crate) fn fragment_max_len(&self) -> u64 {
        match self.packing.fragments {
            Fragments::UpTo(len) | Fragments::Tails(len)
                if self.compression.spec.is_some() && self.is_granted(Wish::Fragments) =>
            {
                len
            }
            _ => 0,
        }
    }

    /// Returns the length in bytes of the longest pcluster that block size, kernel and method allow.
    pub fn pcluster_max_len(&self, method: Method) -> u32 {
        let blocks = match method.algorithm() {
            _ if !self.is_granted(Wish::BigPclusters) => 1,
            Algorithm::Lz4 => LZ4_PCLUSTER_MAX_BLOCKS,
            _ if self.compression.encoded_extents => return PCLUSTER_MAX_LEN,
            _ => CBLKCNT_MAX,
        };
        PCLUSTER_MAX_LEN.min(blocks << self.block_bits.bits())
    }

    /// Returns true if the kernel grants a wish.
    pub(crate) fn is_granted(&self, wish: Wish) -> bool {
        grant(self.kernel, wish, Asked::ByDefault).unwrap_or(false)
    }
}
