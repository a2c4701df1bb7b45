//! What a caller chooses.

pub(crate) mod digests;
pub(crate) mod hint_spec;
pub(crate) mod hints;
pub(crate) mod preset;

use kiln_codec::{Method, Spec};
use kiln_format::chunk::CHUNK_MAX_SHIFT;
use kiln_format::feature::Feature;
use kiln_format::inode::CompactTimes;
use kiln_format::xattr::{BODY_MAX_LEN, FINGERPRINT_NAME};
use kiln_format::{Algorithm, BlockBits, KernelVersion};
use kiln_parallel::Threads;
use std::borrow::Cow;
use std::path::PathBuf;

use crate::error::BuildError;
use crate::layout::allocator::inline_tail_len;
use crate::options::digests::ContentDigests;
use crate::options::hints::Hints;
use kiln_tree::storage::HotZone;
use kiln_tree::{DigestName, NodeId, Tree};

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
    /// These, and the ends of longer files that do not fill a block. Encoded extents have no such ends.
    Tails(u64),
}

/// Longest pcluster of kernels, in bytes.
const PCLUSTER_MAX_LEN: u32 = 1 << 20;
/// Blocks of the longest pcluster that an lcluster index can tell.
const CBLKCNT_MAX: u32 = 2047;
/// Blocks of the longest pcluster of LZ4 that kernels have buffers for, whatever the block size.
const LZ4_PCLUSTER_MAX_BLOCKS: u32 = 256;

/// What is tried.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Compression beside that of all files.
    pub specs: Vec<Spec>,
    /// What compression may cost in all, trying included, in percent of what it costs without.
    pub budget_percent: u32,
}

/// What tables of chunks consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkEntries {
    /// Addresses of 4 bytes, where data is in the image.
    Short,
    /// Indexes of 8 bytes, which can name a device.
    Indexes,
}

/// What becomes of the holes of sparse files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// Nothing is stored of them, if the kernel knows a way: of uncompressed files since Linux 5.15, of compressed ones since 6.1.
    Kept,
    /// Zeros are stored, as if they were data, but in chunks that were asked for: no image needs a later kernel for its holes.
    Filled,
}

/// Largest alignment, in bytes.
const ALIGN_MAX: u64 = 1 << 30;

/// Blocks of the longest pcluster that holds the rest of a part.
pub(crate) const REST_MAX_BLOCKS: u32 = 5;

/// How to build an image. The defaults store everything uncompressed.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Block size. Kernels mount blocks up to their page size, before Linux 6.4 (6.8 where anything is compressed) of exactly
    /// that.
    pub block_bits: BlockBits,
    /// The data of each file starts at a multiple of so many bytes, whole blocks; 1: where it comes to lie. For stores that keep
    /// equal blocks of several images once.
    pub data_align: u64,
    /// The size of the image is a multiple of so many bytes, whole blocks; 1: of the block size.
    pub image_align: u64,
    /// Files that are not compressed are stored in chunks of 2^n bytes, at least a block, of which equal ones are stored once;
    /// `None`: contiguously, but for holes. Chunks of more than 4 MiB are not compared. Needs Linux 5.15.
    pub chunk_bits: Option<u8>,
    /// What tables of chunks consist of.
    pub chunk_entries: ChunkEntries,
    /// What becomes of holes.
    pub holes: Holes,
    /// The last bytes of uncompressed files lie beside their inodes where there is room.
    pub inline_tails: bool,
    /// Inodes have the compact form where that can hold them; else all have the extended one.
    pub compact_inodes: bool,
    /// Directories have no entry for themselves. Needs Linux 6.15.
    pub omit_dot: bool,
    /// Owners from which on an extended attribute is stored once for all of them, at least 1.
    pub xattr_share_min: u64,
    /// Fronts of names of extended attributes, `user.long.` for example, that are stored once for all names. Needs Linux 6.4.
    pub xattr_prefixes: Vec<Vec<u8>>,
    /// Say that the prefixes are not in the packed inode, though readers would not look for them there.
    pub plain_xattr_prefixes: bool,
    /// Choice of digests of contents, by which readers can verify these.
    pub content_digests: ContentDigests,
    /// Bytes of attributes beside the root inode at least, so that some can be added to an image later.
    pub root_xattr_len: usize,
    /// Compression of file data; `None` stores it.
    pub compression: Option<Spec>,
    /// Files for which something else was asked. They are not packed, unless it is what `compression` says, and share data
    /// only with files that are read alike: of the same algorithm and pcluster length.
    pub hints: Hints,
    /// Ways that are tried for files without a hint.
    pub trial: Trial,
    /// Files whose data comes first, in this order, also among packed files; the others follow by path.
    pub order: Vec<NodeId>,
    /// What of files and of metadata comes first.
    pub hot: HotZone,
    /// Worker threads. The image does not depend on it.
    pub threads: Threads,
    /// Use only what this kernel can mount; `None`: whatever the other options need.
    pub kernel: Option<KernelVersion>,
    /// Deduplication.
    pub dedupe: Dedupe,
    /// Bytes of memory for what can do with less: half for the index of parts, which forgets what does not fit (that makes the
    /// image larger, not wrong), the rest for data on its way and inline tails. On top come the tree, what each thread works
    /// on with its encoders, and what is seen of text whose parts are matched, some 2 MB for each GB.
    pub memory: usize,
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
    /// Plain text of one extent in bytes at most, at least a block; where parts are deduplicated, four. `None`: as the format
    /// has it.
    pub extent_max_len: Option<u32>,
    /// Compact inodes have mtimes of their own, so that more inodes are compact. Needs Linux 6.15; before, not done.
    pub own_mtimes: bool,
    /// The image's UUID; `None` derives it from the contents.
    pub uuid: Option<[u8; 16]>,
    /// Label, padded with zeros; at most 15 bytes, so that kernels find a zero.
    pub label: [u8; 16],
    /// Seconds since 1970: later mtimes become this, and it is recorded as the time of building, if no other is.
    pub source_date_epoch: Option<i64>,
    /// Seconds since 1970 to record as the time of building. Times count from the earliest, so inodes are longer if it is
    /// earlier than theirs.
    pub build_time: Option<i64>,
    /// The superblock has a checksum.
    pub checksum: bool,
    /// Skip inputs that cannot be read, and list them in the summary.
    pub keep_going: bool,
    /// Where a nameless scratch file may be made if the tails of many small files outgrow memory.
    pub scratch_dir: PathBuf,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            block_bits: BlockBits::DEFAULT,
            data_align: 1,
            image_align: 1,
            chunk_bits: None,
            chunk_entries: ChunkEntries::Short,
            holes: Holes::Kept,
            inline_tails: true,
            compact_inodes: true,
            omit_dot: false,
            xattr_share_min: 2,
            xattr_prefixes: Vec::new(),
            plain_xattr_prefixes: false,
            content_digests: ContentDigests::AsSource,
            root_xattr_len: 0,
            compression: None,
            hints: Hints::default(),
            trial: Trial::default(),
            order: Vec::new(),
            hot: HotZone::default(),
            threads: Threads::ONE,
            kernel: None,
            dedupe: Dedupe::Files,
            memory: 512 << 20,
            fragments: Fragments::Off,
            packed_pcluster_len: None,
            pack_directories: false,
            metabox: None,
            tail_packing: false,
            encoded_extents: false,
            extent_max_len: None,
            own_mtimes: false,
            uuid: None,
            label: [0; 16],
            source_date_epoch: None,
            build_time: None,
            checksum: true,
            keep_going: false,
            scratch_dir: PathBuf::from("."),
        }
    }
}

impl BuildOptions {
    /// # Errors
    /// Options that contradict each other or mean nothing, before anything is read.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let block_len = self.block_bits.len();
        let big = self.specs().any(|spec| u64::from(spec.pcluster_len) > block_len);
        let asked = [
            (big, Feature::BigPcluster),
            (self.chunk_bits.is_some(), Feature::ChunkedFile),
            (!self.xattr_prefixes.is_empty(), Feature::XattrPrefixes),
            (self.omit_dot, Feature::Addr48Bit),
            (self.metabox.is_some(), Feature::Metabox),
        ];
        for (_, feature) in asked.into_iter().filter(|(is_asked, _)| *is_asked) {
            let needs = feature.since();
            if let Some(kernel) = self.kernel.filter(|kernel| *kernel < needs) {
                return Err(BuildError::Kernel { feature: feature.name(), needs, kernel });
            }
        }
        for spec in self.specs() {
            let (len, max_len) = (spec.pcluster_len, self.pcluster_max_len(spec.method));
            if !u64::from(len).is_multiple_of(block_len) || len > max_len {
                return Err(BuildError::PclusterLen { len, block_len, max_len });
            }
            Spec::new(spec.method, Some(spec.level), len)?;
        }
        let bad = |align: &u64| *align != 1 && (!align.is_multiple_of(block_len) || !(1..=ALIGN_MAX).contains(align));
        let extent_min = if self.dedupes_parts() { REST_MAX_BLOCKS - 1 } else { 1 } << self.block_bits.bits();
        if let Some(len) = self.extent_max_len.filter(|&len| len < extent_min) {
            return Err(BuildError::ExtentMaxLen { len, min: extent_min });
        }
        if self.root_xattr_len > BODY_MAX_LEN {
            return Err(BuildError::RootXattrLen { len: self.root_xattr_len });
        }
        if let Some(align) = [self.data_align, self.image_align].into_iter().find(bad) {
            return Err(BuildError::Alignment { align, block_len });
        }
        let chunks = self.block_bits.bits()..=self.block_bits.bits() + CHUNK_MAX_SHIFT;
        match self.chunk_bits.filter(|bits| !chunks.contains(bits)) {
            Some(bits) => Err(BuildError::ChunkBits { bits, block_len }),
            None => Ok(()),
        }
    }

    /// Bytes of the longest pcluster that the block size, the chosen kernel and a method of compression allow.
    pub fn pcluster_max_len(&self, method: Method) -> u32 {
        let blocks = match method.algorithm() {
            _ if !self.kernel_has(Feature::BigPcluster.since()) => 1,
            Algorithm::Lz4 => LZ4_PCLUSTER_MAX_BLOCKS,
            _ if self.encoded_extents => return PCLUSTER_MAX_LEN,
            _ => CBLKCNT_MAX,
        };
        PCLUSTER_MAX_LEN.min(blocks << self.block_bits.bits())
    }

    /// Bytes of an uncompressed file of `len` bytes that go beside its inode of `inode_len`.
    pub(crate) fn inline_tail_len(&self, len: u64, inode_len: usize) -> usize {
        let tail = inline_tail_len(len, inode_len, self.block_bits).filter(|_| self.inline_tails);
        tail.unwrap_or(0)
    }

    /// How the packed inode is compressed, if anything is.
    pub(crate) fn packed_spec(&self) -> Option<Spec> {
        let spec = self.compression?;
        Some(Spec { pcluster_len: self.packed_pcluster_len.unwrap_or(spec.pcluster_len), ..spec })
    }

    /// All compression that the image may use.
    pub(crate) fn specs(&self) -> impl Iterator<Item = Spec> {
        let packs = self.fragment_max_len() > 0 || self.packs_directories();
        let packed = self.packed_spec().filter(|_| packs);
        let tried = self.trial.specs.iter().copied().filter(|_| self.compression.is_some());
        let hinted = self.hints.specs();
        self.compression.into_iter().chain(packed).chain(self.metabox).chain(tried).chain(hinted)
    }

    /// Whether directories go into the packed inode.
    pub(crate) fn packs_directories(&self) -> bool {
        self.pack_directories && self.compression.is_some() && self.kernel_has(Feature::Fragments.since())
    }

    /// How a file is compressed, if it is.
    pub(crate) fn compression_of(&self, file: NodeId) -> Option<Spec> {
        self.hints.get(file).unwrap_or(self.compression)
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

    /// Whether nothing is stored of the holes of uncompressed files.
    pub(crate) fn chunks_keep_holes(&self) -> bool {
        self.chunk_bits.is_some() || self.holes == Holes::Kept && self.kernel_has(Feature::ChunkedFile.since())
    }

    /// Whether the holes of compressed files are references to zeros, or encoded extents.
    pub(crate) fn extents_keep_holes(&self) -> bool {
        self.holes == Holes::Kept && self.kernel_has(Feature::Fragments.since())
    }

    /// The same for an image of `tree`, which may have digests of contents.
    pub(crate) fn of_tree(&self, tree: &Tree) -> Cow<'_, Self> {
        if self.content_digests != ContentDigests::AsSource {
            return Cow::Borrowed(self);
        }
        // No image needs a later kernel for digests that nobody asked for.
        let is_free = |name: &DigestName| {
            *name == DigestName::Usual || !self.hides_prefixes() && self.kernel_has(Feature::XattrPrefixes.since())
        };
        let name = tree.stores().digest_name.map(|name| if is_free(&name) { name } else { DigestName::Usual });
        let content_digests = name.map_or(ContentDigests::Off, ContentDigests::Named);
        Cow::Owned(Self { content_digests, ..self.clone() })
    }

    /// Tells if the image has digests of contents.
    pub(crate) fn has_digests(&self) -> bool {
        matches!(self.content_digests, ContentDigests::Named(_))
    }

    /// Tells if kernels before 6.18 look for long prefixes elsewhere: in an inode that is there for other things.
    fn hides_prefixes(&self) -> bool {
        self.fragment_max_len() > 0 || self.packs_directories() || self.metabox.is_some()
    }

    /// The long prefix that names digests of contents, if there are any and they have one.
    pub(crate) fn digest_prefix(&self) -> Option<&[u8]> {
        let ContentDigests::Named(name) = &self.content_digests else { return None };
        let feature = if self.hides_prefixes() { Feature::PlainXattrPrefixes } else { Feature::XattrPrefixes };
        let has_prefixes =
            !self.xattr_prefixes.is_empty() || self.kernel.is_some_and(|kernel| kernel >= feature.since());
        match name {
            DigestName::Usual => has_prefixes.then_some(FINGERPRINT_NAME),
            DigestName::Prefix(name) => Some(name),
        }
    }

    /// Whether parts of files are looked for.
    pub(crate) fn dedupes_parts(&self) -> bool {
        self.dedupe == Dedupe::Parts && self.specs().next().is_some() && self.kernel_has(Feature::Fragments.since())
    }

    /// Bytes of memory for the index of parts.
    pub(crate) fn index_budget(&self) -> usize {
        self.memory / 2
    }

    /// Bytes of memory for data between reading and writing. More gains nothing.
    pub(crate) fn backlog(&self) -> u64 {
        (self.memory as u64 / 8).min(64 << 20)
    }

    /// Bytes of memory for inline tails; a scratch file takes what is beyond.
    pub(crate) fn tails_memory(&self) -> usize {
        (self.memory / 32).min(16 << 20)
    }

    /// Least bytes of a part that is stored once.
    pub(crate) fn min_match(&self) -> u64 {
        let blocks = if self.encoded_extents { 0 } else { 4 };
        (4 << 10).max(blocks << self.block_bits.bits())
    }

    /// Least bytes, by the measure of [`kiln_codec::probe::estimated_len`], that a part must save. Around it a pcluster ends
    /// early and two start anew: of whole blocks that costs half a block each, and what they could have referred to.
    /// Between 2 and 30 KiB these values (of blocks of 4 KiB) lose least on one source tree and gain most on two releases of
    /// it.
    pub(crate) fn min_saving(&self) -> u64 {
        let blocks = if self.encoded_extents { 0 } else { 3 };
        (2 << 10).max(blocks << self.block_bits.bits())
    }

    /// Blocks in the longest pcluster, for maps that must know whether it is more than one.
    pub(crate) fn max_pcluster_blocks(&self) -> u32 {
        self.specs().map(|spec| self.pcluster_blocks(spec)).max().unwrap_or(0)
    }

    /// Blocks in the longest pcluster that is compressed so.
    pub(crate) fn pcluster_blocks(&self, spec: Spec) -> u32 {
        let longest = spec.pcluster_len >> self.block_bits.bits();
        if self.dedupes_parts() { longest.max(REST_MAX_BLOCKS) } else { longest }
    }

    /// Longest file in bytes that may go into the packed inode.
    pub(crate) fn fragment_max_len(&self) -> u64 {
        match self.fragments {
            Fragments::UpTo(len) | Fragments::Tails(len)
                if self.compression.is_some() && self.kernel_has(Feature::Fragments.since()) =>
            {
                len
            }
            _ => 0,
        }
    }

    /// Whether the ends of longer files go there, too.
    pub(crate) fn packs_ends(&self) -> bool {
        matches!(self.fragments, Fragments::Tails(_)) && !self.encoded_extents && self.fragment_max_len() > 0
    }

    /// Whether the chosen kernel, if one is chosen, is `version` or newer.
    pub(crate) fn kernel_has(&self, version: KernelVersion) -> bool {
        self.kernel.is_none_or(|kernel| kernel >= version)
    }
}
