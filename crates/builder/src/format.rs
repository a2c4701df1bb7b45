//! Decisions about an image that hold for all of it: made once, from options and tree, before anything is read.
//!
//! Phases see only this value. It has no kernel version: each wish of the options is granted, downgraded or refused
//! here, by the table in `options/kernel`.

pub(crate) mod check;

use kiln_codec::Spec;
use kiln_digest::contents::ContentHash;
use kiln_format::inode::CompactTimes;
use kiln_format::xattr::FINGERPRINT_NAME;
use kiln_format::{Algorithm, BlockBits};
use kiln_tree::{DigestName, DigestStyle};

use crate::error::BuildError;
use crate::layout::allocator::inline_tail_len;
use crate::options::data::{CompressionOptions, Fragments, LayoutOptions};
use crate::options::kernel::{Wish, is_granted_by_name};
use crate::options::metadata::{ContentDigests, MetadataOptions};
use crate::options::{BuildOptions, Dedupe, Holes, IdentityOptions, WorkOptions};

/// Blocks of the longest pcluster that holds the rest of a part.
pub(crate) const REST_MAX_BLOCKS: u32 = 5;

/// Decisions about an image. Groups of options in which nothing depends on the kernel are here as they were chosen.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    /// Block size.
    pub block_bits: BlockBits,
    /// Compression of file data.
    pub compression: CompressionOptions,
    /// Deduplication: `Parts` only if parts can be found and referred to.
    pub dedupe: Dedupe,
    /// Holes that take no space.
    pub holes: KeptHoles,
    /// Packed files and directories.
    pub packing: Packing,
    /// Placement and order of data.
    pub layout: LayoutOptions,
    /// Inodes, directories and extended attributes.
    pub metadata: MetadataFormat,
    /// UUID, label, times and checksum.
    pub identity: IdentityOptions,
    /// Resources of the build.
    pub work: WorkOptions,
    /// Encodings that a base's data may have to be reused.
    pub reusable: Reusable,
}

/// Holes that take no space, by the storage of their file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptHoles {
    /// True for uncompressed files: these are stored in chunks.
    pub plain: bool,
    /// True for compressed files: holes are references to zeros, or encoded extents.
    pub compressed: bool,
}

/// Data and directories that are stored together with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    /// Compression of the packed inode, if there is one; `None` if nothing is packed as nothing is compressed.
    pub spec: Option<Spec>,
    /// Length in bytes of the longest file that goes into the packed inode; 0 if none does.
    pub max_len: u64,
    /// True if the ends of longer files go there, too.
    pub ends: bool,
    /// True if large directories go there, too.
    pub directories: bool,
    /// True if compressed ends of files go beside their inodes.
    pub tails: bool,
}

/// Inodes, directories and extended attributes.
#[derive(Clone, Debug)]
pub(crate) struct MetadataFormat {
    /// True if inodes have the compact form where they fit it.
    pub compact_inodes: bool,
    /// Mtimes that compact inodes can have.
    pub compact_times: CompactTimes,
    /// True if directories have no entry `.`.
    pub omit_dot: bool,
    /// Number of owners from which an attribute is shared.
    pub xattr_share_min: u64,
    /// Prefixes of names that are stored once.
    pub xattr_prefixes: Vec<Vec<u8>>,
    /// True to flag prefixes as lying in the image itself wherever readers look.
    pub plain_xattr_prefixes: bool,
    /// Function of the digests of contents, if files get some.
    pub digest_hash: Option<ContentHash>,
    /// Prefix that names digests; `None` if there are none, or each has its full name.
    pub digest_prefix: Option<Vec<u8>>,
    /// Least room in bytes for attributes of the root.
    pub root_xattr_len: usize,
    /// Compression of inodes in the metabox, if there is one.
    pub metabox: Option<Spec>,
}

/// Encodings that the image may take from a base.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reusable {
    /// Algorithms, as bits of `available_compr_algs`.
    algorithms: u16,
    /// True for fragments and for pclusters that several extents share.
    pub shared: bool,
    /// True for pclusters beside inodes.
    pub tails: bool,
    /// True for pclusters of several blocks.
    pub big_pclusters: bool,
}

impl Reusable {
    /// Returns true if data of an algorithm may be reused.
    pub(crate) fn has(self, algorithm: Algorithm) -> bool {
        self.algorithms & algorithm.bit() != 0
    }
}

impl Format {
    /// Decides what an image is like. `stored` are the digests that contents have already.
    ///
    /// # Errors
    /// Options that the kernel cannot read, that contradict each other or mean nothing.
    pub(crate) fn of(options: &BuildOptions, stored: Option<DigestStyle>) -> Result<Self, BuildError> {
        let format = Self::decide(options, stored);
        check::check(&format, options)?;
        Ok(format)
    }

    /// Decides as [`Format::of`] does, without refusing anything.
    pub(crate) fn decide(options: &BuildOptions, stored: Option<DigestStyle>) -> Self {
        let BuildOptions {
            block_bits,
            kernel: _,
            compression,
            dedupe,
            holes,
            packing,
            layout,
            metadata,
            identity,
            work,
        } = options;
        let has = |wish| options.is_granted(wish);
        let has_specs = compression.specs().next().is_some() || metadata.metabox.is_some();
        let parts = *dedupe == Dedupe::Parts && has_specs && has(Wish::Parts);
        let keeps_holes = *holes == Holes::Kept;
        let (max_len, encoded) = (options.fragment_max_len(), compression.encoded_extents);
        let packing = Packing {
            spec: compression
                .spec
                .map(|spec| Spec { pcluster_len: packing.pcluster_len.unwrap_or(spec.pcluster_len), ..spec }),
            max_len,
            ends: matches!(packing.fragments, Fragments::Tails(_)) && !encoded && max_len > 0,
            directories: packing.directories && compression.spec.is_some() && has(Wish::PackedDirectories),
            tails: packing.tail_packing && !encoded && has(Wish::TailPacking),
        };
        let algorithms = Algorithm::ALL.into_iter().filter(|one| has(Wish::Algorithm(*one)));
        Self {
            block_bits: *block_bits,
            compression: compression.clone(),
            dedupe: if *dedupe == Dedupe::Parts && !parts { Dedupe::Files } else { *dedupe },
            holes: KeptHoles {
                plain: layout.chunk_bits.is_some() || keeps_holes && has(Wish::PlainHoles),
                compressed: keeps_holes && has(Wish::CompressedHoles),
            },
            packing,
            layout: layout.clone(),
            metadata: MetadataFormat::decide(options, stored, packing),
            identity: identity.clone(),
            work: work.clone(),
            reusable: Reusable {
                algorithms: algorithms.fold(0, |bits, one| bits | one.bit()),
                shared: has(Wish::Fragments),
                tails: has(Wish::TailPacking),
                big_pclusters: has(Wish::BigPclusters),
            },
        }
    }

    /// Returns the bytes of an uncompressed file of `len` bytes that go beside its inode of `inode_len`.
    pub(crate) fn inline_tail_len(&self, len: u64, inode_len: usize) -> usize {
        let tail = inline_tail_len(len, inode_len, self.block_bits).filter(|_| self.layout.inline_tails);
        tail.unwrap_or(0)
    }

    /// Returns all compression that the image may use.
    pub(crate) fn specs(&self) -> impl Iterator<Item = Spec> {
        let packed = self.packing.spec.filter(|_| self.packing.max_len > 0 || self.packing.directories);
        self.compression.specs().chain(packed).chain(self.metadata.metabox)
    }

    /// Returns true if equal parts of files are stored once.
    pub(crate) fn dedupes_parts(&self) -> bool {
        self.dedupe == Dedupe::Parts
    }

    /// Returns the least length in bytes of a part that is stored once.
    pub(crate) fn min_match(&self) -> u64 {
        let blocks = if self.compression.encoded_extents { 0 } else { 4 };
        (4 << 10).max(blocks << self.block_bits.bits())
    }

    /// Returns the bytes that a part must save at least, measured by [`kiln_codec::probe::estimated_len`].
    ///
    /// Around a part, one pcluster ends early and two begin: of whole blocks, that costs half a block each, and the
    /// references that they could have had. Between 2 and 30 KiB, these values (for blocks of 4 KiB) lose least on one
    /// source tree and gain most on two releases of it. The further references of a long pcluster reach, the more are
    /// lost: with zstd and encoded extents of 1 MiB, a 64th of that distance saves 2.7 % of a source tree, and a 16th
    /// 2.5 %.
    pub(crate) fn min_saving(&self) -> u64 {
        let blocks = if self.compression.encoded_extents { 0 } else { 3 };
        let reach = self.compression.spec.map_or(0, |spec| u64::from(spec.pcluster_len.min(spec.max_distance())));
        (2 << 10).max(blocks << self.block_bits.bits()).max(reach / 64)
    }

    /// Returns the blocks of the longest pcluster; maps must know if it is more than one.
    pub(crate) fn max_pcluster_blocks(&self) -> u32 {
        self.specs().map(|spec| self.pcluster_blocks(spec)).max().unwrap_or(0)
    }

    /// Returns the blocks of the longest pcluster that `spec` makes.
    pub(crate) fn pcluster_blocks(&self, spec: Spec) -> u32 {
        let longest = spec.pcluster_len >> self.block_bits.bits();
        if self.dedupes_parts() { longest.max(REST_MAX_BLOCKS) } else { longest }
    }
}

impl MetadataFormat {
    fn decide(options: &BuildOptions, stored: Option<DigestStyle>, packing: Packing) -> Self {
        let MetadataOptions { compact_inodes, own_mtimes, omit_dot, xattr_share_min, .. } = options.metadata;
        let MetadataOptions { plain_xattr_prefixes, root_xattr_len, metabox, .. } = options.metadata;
        // Kernels before 6.18 look for prefixes in an inode that is there for other things.
        let hides_prefixes = packing.max_len > 0 || packing.directories || metabox.is_some();
        let (stored_name, stored_hash) = stored.map(|DigestStyle { name, hash }| (name, hash)).unzip();
        let name = digest_name(options, stored_name, hides_prefixes);
        // The usual name is a prefix if the image has prefixes anyway, or a kernel that reads them.
        let wish = if hides_prefixes { Wish::HiddenDigestPrefix } else { Wish::DigestPrefix };
        let has_prefixes = !options.metadata.xattr_prefixes.is_empty() || is_granted_by_name(options.kernel, wish);
        Self {
            compact_inodes,
            compact_times: match own_mtimes && options.is_granted(Wish::OwnMtimes) {
                true => CompactTimes::Own,
                false => CompactTimes::Shared,
            },
            omit_dot,
            xattr_share_min,
            xattr_prefixes: options.metadata.xattr_prefixes.clone(),
            plain_xattr_prefixes,
            digest_hash: name.is_some().then(|| options.metadata.digest_hash.or(stored_hash).unwrap_or_default()),
            digest_prefix: name.and_then(|name| match name {
                DigestName::Usual => has_prefixes.then(|| FINGERPRINT_NAME.to_vec()),
                DigestName::Prefix(name) => Some(name),
            }),
            root_xattr_len,
            metabox,
        }
    }
}

/// Returns the name of digests, if the image has some.
fn digest_name(options: &BuildOptions, stored: Option<DigestName>, hides_prefixes: bool) -> Option<DigestName> {
    match &options.metadata.content_digests {
        ContentDigests::Off => None,
        ContentDigests::Named(name) => Some(name.clone()),
        // No image needs a later kernel for digests that nobody asked for.
        ContentDigests::AsSource => stored.map(|name| match name {
            DigestName::Prefix(name) if !hides_prefixes && options.is_granted(Wish::DigestPrefix) => {
                DigestName::Prefix(name)
            }
            _ => DigestName::Usual,
        }),
    }
}
