//! What a caller chooses.

use kiln_codec::Spec;
use kiln_format::feature::Feature;
use kiln_format::inode::CompactTimes;
use kiln_format::{BlockBits, KernelVersion};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::BuildError;

/// Which data is stored once though it occurs several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedupe {
    /// None.
    Off,
    /// Whole files of equal contents.
    Files,
    /// Whole files, and parts of compressed files. Needs Linux 6.1; before, and without compression, as `Files`.
    Parts,
}

/// Which files lie in the packed inode, compressed together instead of one by one. Needs Linux 6.1, and compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragments {
    /// None.
    Off,
    /// Whole files of at most this many bytes that look compressible.
    UpTo(u64),
}

/// Blocks of the longest pcluster that holds the rest of a part.
pub(crate) const REST_MAX_BLOCKS: u32 = 5;

/// How to build an image. The defaults store everything uncompressed.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Compression of file data; `None` stores it.
    pub compression: Option<Spec>,
    /// Worker threads, at least 1. The image does not depend on it.
    pub threads: usize,
    /// Use only what this kernel can mount; `None`: whatever the other options need.
    pub kernel: Option<KernelVersion>,
    /// Deduplication.
    pub dedupe: Dedupe,
    /// Bytes of memory for the index of parts. What does not fit is forgotten, which makes the image larger, not wrong.
    pub index_budget: usize,
    /// Packing.
    pub fragments: Fragments,
    /// Largest pcluster of the packed inode in bytes; `None`: as for files. The smaller, the less a read of one small file
    /// costs; the larger, the smaller the image.
    pub packed_pcluster_len: Option<u32>,
    /// Large directories lie in the packed inode, too. Needs Linux 6.1, and compression.
    pub pack_directories: bool,
    /// How inodes, and what lies beside them, are compressed in the metabox; `None`: not. Needs Linux 6.17.
    pub metabox: Option<Spec>,
    /// The end of a compressed file lies beside its inode where there is room for it: small files need one read. Needs Linux
    /// 5.17; not for encoded extents.
    pub tail_packing: bool,
    /// Compressed files have encoded extents, byte-granular and without padding, instead of an index of whole blocks:
    /// smaller, and faster to make. Needs Linux 6.15. [`Spec::pcluster_len`] is then the length of what is compressed.
    pub encoded_extents: bool,
    /// Compact inodes have mtimes of their own, so that more inodes are compact. Needs Linux 6.15; before, not done.
    pub own_mtimes: bool,
    /// The image's UUID; `None` derives it from the contents.
    pub uuid: Option<[u8; 16]>,
    /// Label, padded with zeros; at most 15 bytes, so that kernels find a zero.
    pub label: [u8; 16],
    /// Seconds since 1970: later mtimes become this, and it is recorded as the time of building.
    pub source_date_epoch: Option<i64>,
    /// Skip inputs that cannot be read, and list them in the summary.
    pub keep_going: bool,
    /// Where a nameless scratch file may be made if the tails of many small files outgrow memory.
    pub scratch_dir: PathBuf,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            compression: None,
            threads: 1,
            kernel: None,
            dedupe: Dedupe::Files,
            index_budget: 256 << 20,
            fragments: Fragments::Off,
            packed_pcluster_len: None,
            pack_directories: false,
            metabox: None,
            tail_packing: false,
            encoded_extents: false,
            own_mtimes: false,
            uuid: None,
            label: [0; 16],
            source_date_epoch: None,
            keep_going: false,
            scratch_dir: PathBuf::from("."),
        }
    }
}

impl BuildOptions {
    /// The block size: 4 KiB, the page size of nearly all machines, as kernels before 6.4 require.
    pub(crate) fn block_bits(&self) -> BlockBits {
        BlockBits::DEFAULT
    }

    /// # Errors
    /// Options that contradict each other or mean nothing, before anything is read.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let block_len = self.block_bits().len();
        for Spec { method, level, pcluster_len: len } in self.specs() {
            if !u64::from(len).is_multiple_of(block_len) {
                return Err(BuildError::PclusterLen { len, block_len });
            }
            Spec::new(method, Some(level), len)?;
        }
        let (feature, since) = (Feature::Metabox.name(), Feature::Metabox.since());
        match self.kernel.filter(|kernel| self.metabox.is_some() && *kernel < since) {
            Some(kernel) => Err(BuildError::Kernel { feature, needs: since, kernel }),
            None => Ok(()),
        }
    }

    /// How the packed inode is compressed, if anything is.
    pub(crate) fn packed_spec(&self) -> Option<Spec> {
        let spec = self.compression?;
        Some(Spec { pcluster_len: self.packed_pcluster_len.unwrap_or(spec.pcluster_len), ..spec })
    }

    /// All compression that the image may use.
    pub(crate) fn specs(&self) -> impl Iterator<Item = Spec> {
        let packs = self.fragment_max_len() > 0 || self.packs_directories();
        self.compression.into_iter().chain(self.packed_spec().filter(|_| packs)).chain(self.metabox)
    }

    /// Whether directories go into the packed inode.
    pub(crate) fn packs_directories(&self) -> bool {
        self.pack_directories && self.compression.is_some() && self.kernel_has(Feature::Fragments.since())
    }

    /// Whether compressed tails go beside inodes.
    pub(crate) fn packs_tails(&self) -> bool {
        self.tail_packing && !self.encoded_extents && self.kernel_has(Feature::TailPacking.since())
    }

    /// What the mtimes of compact inodes can be.
    pub(crate) fn compact_times(&self) -> CompactTimes {
        match self.own_mtimes && self.kernel_has(Feature::Addr48Bit.since()) {
            true => CompactTimes::Own,
            false => CompactTimes::Shared,
        }
    }

    /// Whether parts of files are looked for.
    pub(crate) fn dedupes_parts(&self) -> bool {
        self.dedupe == Dedupe::Parts && self.compression.is_some() && self.kernel_has(Feature::Fragments.since())
    }

    /// Least bytes of a part that is stored once.
    pub(crate) fn min_match(&self) -> u64 {
        if self.encoded_extents { 4 << 10 } else { 16 << 10 }
    }

    /// Least bytes, by the measure of [`kiln_codec::probe::estimated_len`], that a part must save. Around it a pcluster ends
    /// early and two start anew: of whole blocks that costs half a block each, and what they could have referred to.
    /// Between 2 and 30 KiB these values lose least on one source tree and gain most on two releases of it.
    pub(crate) fn min_saving(&self) -> u64 {
        if self.encoded_extents { 2 << 10 } else { 12 << 10 }
    }

    /// Blocks in the longest pcluster, for maps that must know whether it is more than one.
    pub(crate) fn max_pcluster_blocks(&self) -> u32 {
        let longest = self.specs().map(|spec| spec.pcluster_len).max().unwrap_or(0) >> self.block_bits().bits();
        if self.dedupes_parts() { longest.max(REST_MAX_BLOCKS) } else { longest }
    }

    /// Longest file in bytes that may go into the packed inode.
    pub(crate) fn fragment_max_len(&self) -> u64 {
        match self.fragments {
            Fragments::UpTo(len) if self.compression.is_some() && self.kernel_has(Feature::Fragments.since()) => len,
            _ => 0,
        }
    }

    /// Whether the chosen kernel, if one is chosen, is `version` or newer.
    pub(crate) fn kernel_has(&self, version: KernelVersion) -> bool {
        self.kernel.is_none_or(|kernel| kernel >= version)
    }
}

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of input that are done.
    pub done_bytes: u64,
    /// Bytes of input in total.
    pub total_bytes: u64,
}

/// The caller's hold on a running build.
pub struct Control<'a> {
    /// Ends the build early with [`BuildError::Interrupted`] once set.
    pub stop: &'a AtomicBool,
    /// Called from one thread as data is written.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

impl Control<'_> {
    /// # Errors
    /// [`BuildError::Interrupted`] once the caller has asked to stop.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if self.stop.load(Ordering::Relaxed) { Err(BuildError::Interrupted) } else { Ok(()) }
    }
}
