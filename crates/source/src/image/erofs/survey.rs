//! Survey of an image: derives the options to make an image like it.

use kiln_builder::{
    BuildOptions, CompressionOptions, ContentDigests, Dedupe, Fragments, Hints, IdentityOptions, LayoutOptions,
    MetadataOptions, PackingOptions, Spec,
};
use kiln_format::feature::{Feature, OLDEST_KERNEL};
use kiln_format::inode::{Form, InodeData};
use kiln_format::xattr::split_name;
use kiln_format::{Algorithm, BlockBits, Compat, Incompat, Nid};
use kiln_read::{ExtentKind, Image, Inode, ReadError};
use kiln_tree::{Kept, KeptExtents, NodeId};

use super::digests;

/// Properties of an image's inodes.
#[derive(Default)]
pub(super) struct Survey {
    /// Use of each algorithm by files.
    algorithms: [AlgorithmUse; Algorithm::ALL.len()],
    /// Length in bytes of the longest file stored completely in the packed inode.
    packed_max_len: u64,
    packs_ends: bool,
    packs_directories: bool,
    has_compact: bool,
    omits_dot: bool,
    has_inline: bool,
    /// True if uncompressed files end within a block without inline data.
    has_padded: bool,
    /// log2 of the chunk size of files without holes.
    chunk_bits: Option<u8>,
    has_digests: bool,
    has_encoded_extents: bool,
    /// Uncompressed files that cannot be reused as stored.
    plain: Vec<NodeId>,
}

/// Amount of data compressed by one algorithm.
#[derive(Clone, Copy, Default)]
struct AlgorithmUse {
    text_bytes: u64,
    pcluster_max_len: u64,
    text_max_len: u64,
}

impl AlgorithmUse {
    fn add(&mut self, llen: u64, plen: u32) {
        self.text_bytes = self.text_bytes.saturating_add(llen);
        self.pcluster_max_len = self.pcluster_max_len.max(plen.into());
        self.text_max_len = self.text_max_len.max(llen);
    }
}

impl Survey {
    /// Adds a regular file. `kept` is its stored form, if it can be reused.
    ///
    /// # Errors
    /// An unreadable map.
    pub(super) fn file(
        &mut self,
        (image, node): (&Image, NodeId),
        inode: &Inode,
        kept: Option<&Kept>,
    ) -> Result<(), ReadError> {
        self.inode(inode);
        let (size, block_bits) = (inode.size(), image.superblock().block_bits);
        if size == 0 {
            return Ok(());
        }
        self.has_digests = self.has_digests || image.content_digest(inode)?.is_some();
        match inode.meta.data {
            InodeData::FlatInline(_) => self.has_inline = true,
            InodeData::FlatPlain(Some(_)) => self.has_padded |= block_bits.within(size) != 0,
            InodeData::ChunkBased(Ok(format)) if self.chunk_bits.is_none() => {
                let has_holes =
                    image.extents(inode).any(|extent| !matches!(extent, Ok(one) if one.kind != ExtentKind::Hole));
                self.chunk_bits = (!has_holes).then_some(format.chunk_bits);
            }
            _ => {}
        }
        match kept {
            Some(Kept::Fragment { .. }) => self.packed_max_len = self.packed_max_len.max(size),
            Some(Kept::Extents(KeptExtents { algorithm, list, fragment, inline, .. })) => {
                self.packs_ends |= fragment.is_some();
                if !list.is_empty() && !self.has_encoded_extents {
                    self.has_encoded_extents = image.has_encoded_extents(inode)?;
                }
                if let Some(algorithm) = algorithm {
                    let used = &mut self.algorithms[*algorithm as usize];
                    let encoded = list.iter().chain(inline).filter(|one| !one.plain);
                    encoded.for_each(|one| used.add(one.llen.into(), one.plen));
                }
            }
            Some(Kept::Flat { .. }) => {}
            None if matches!(inode.meta.data, InodeData::Compressed { .. }) => {
                for extent in image.extents(inode) {
                    let extent = extent?;
                    if let ExtentKind::Encoded { algorithm, plen, .. } = extent.kind {
                        self.algorithms[algorithm as usize].add(extent.llen, plen);
                    }
                }
            }
            None => self.plain.push(node),
        }
        Ok(())
    }

    /// Adds a directory.
    pub(super) fn directory(&mut self, inode: &Inode) {
        self.inode(inode);
        self.omits_dot |= inode.meta.omits_dot;
        self.packs_directories |= matches!(inode.meta.data, InodeData::Compressed { .. });
    }

    fn inode(&mut self, inode: &Inode) {
        self.has_compact |= inode.meta.form == Form::Compact;
    }

    /// Returns the options of an image made like this one. Properties that do not show, such as the
    /// compression level, have their defaults; LZ4 gets its better encoder.
    ///
    /// # Errors
    /// Unreadable special inodes.
    pub(super) fn options(mut self, image: &Image) -> Result<BuildOptions, ReadError> {
        let superblock = image.superblock();
        let block_bits = superblock.block_bits;
        let metabox = superblock.metabox_nid.map(|nid| self.special(image, nid)).transpose()?.flatten();
        let packed = superblock.packed_nid.map(|nid| self.special(image, nid)).transpose()?.flatten();
        let packed_use = packed.map(|(_, used)| used).unwrap_or_default();
        let used = |one: &Algorithm| self.algorithms[*one as usize].text_bytes;
        let most_used = || Algorithm::ALL.into_iter().filter(|one| used(one) > 0).max_by_key(used);
        let only_packed =
            || superblock.packed_nid.and(Algorithm::ALL.into_iter().find(|one| image.compr_cfgs().has(*one)));
        // The packed inode is a single stream with one algorithm, which decides.
        let main = packed.map(|(algorithm, _)| algorithm).or_else(most_used).or_else(only_packed);
        let encoded_extents = self.has_encoded_extents;
        let form = PclusterForm { block_bits, encoded_extents };
        let compression = main.map(|algorithm| {
            let used = self.algorithms[algorithm as usize];
            form.spec(algorithm, if used.text_bytes > 0 { used } else { packed_use })
        });
        let fragments = match (self.packed_max_len, self.packs_ends) {
            (len, true) => Fragments::Tails(len.max(1)),
            (0, false) => Fragments::Off,
            (len, false) => Fragments::UpTo(len),
        };
        let mut hints = Hints::default();
        self.plain.into_iter().for_each(|node| hints.insert(node, None));
        let features = superblock.features();
        let kernel = features.iter().map(|feature| feature.since()).max().unwrap_or(OLDEST_KERNEL);
        let content_digests =
            if self.has_digests { ContentDigests::Named(digests::name(image)) } else { ContentDigests::Off };
        let built_at =
            (superblock.build_time > 0).then(|| superblock.epoch.saturating_add(superblock.build_time.into()));
        Ok(BuildOptions {
            block_bits,
            kernel: Some(kernel),
            dedupe: Dedupe::Files,
            layout: LayoutOptions {
                chunk_bits: self.chunk_bits,
                inline_tails: self.has_inline || !self.has_padded,
                ..LayoutOptions::default()
            },
            metadata: MetadataOptions {
                compact_inodes: self.has_compact,
                omit_dot: self.omits_dot,
                xattr_prefixes: prefixes(image),
                plain_xattr_prefixes: superblock.compat.contains(Compat::PLAIN_XATTR_PFX),
                content_digests,
                metabox: metabox.map(|(algorithm, used)| form.spec(algorithm, used)),
                own_mtimes: kernel >= Feature::Addr48Bit.since(),
                ..MetadataOptions::default()
            },
            compression: CompressionOptions {
                spec: compression,
                hints,
                encoded_extents,
                ..CompressionOptions::default()
            },
            packing: PackingOptions {
                fragments,
                pcluster_len: compression
                    .filter(|_| packed_use.text_bytes > 0)
                    .map(|spec| form.pcluster_len(spec, packed_use)),
                directories: self.packs_directories,
                tail_packing: superblock.incompat.contains(Incompat::ZTAILPACKING),
            },
            identity: IdentityOptions {
                label: superblock.volume_name,
                build_time: built_at,
                checksum: superblock.compat.contains(Compat::SB_CHKSUM),
                ..IdentityOptions::default()
            },
            ..BuildOptions::default()
        })
    }

    /// Adds an inode without a name. Returns its compression, if any.
    fn special(&mut self, image: &Image, nid: Nid) -> Result<Option<(Algorithm, AlgorithmUse)>, ReadError> {
        let inode = image.inode(nid)?;
        self.has_encoded_extents |= inode.size() > 0 && image.has_encoded_extents(&inode)?;
        let mut found: Option<(Algorithm, AlgorithmUse)> = None;
        for extent in image.extents(&inode) {
            let extent = extent?;
            if let ExtentKind::Encoded { algorithm, plen, .. } = extent.kind {
                found.get_or_insert((algorithm, AlgorithmUse::default())).1.add(extent.llen, plen);
            }
        }
        Ok(found)
    }
}

/// Returns the long prefixes of attribute names, except that of content digests.
fn prefixes(image: &Image) -> Vec<Vec<u8>> {
    let is_front = |name: &Vec<u8>| split_name(name).is_some_and(|(_, infix)| !infix.is_empty());
    let mut prefixes = image.xattr_prefixes().to_vec();
    prefixes.retain(|name| digests::has_prefixes(image) && is_front(name));
    prefixes
}

/// Parameters that determine the length of pclusters.
#[derive(Clone, Copy)]
struct PclusterForm {
    block_bits: BlockBits,
    encoded_extents: bool,
}

impl PclusterForm {
    fn spec(self, algorithm: Algorithm, used: AlgorithmUse) -> Spec {
        let method = match algorithm {
            Algorithm::Lz4 => "lz4hc",
            Algorithm::Lzma => "lzma",
            Algorithm::Deflate => "deflate",
            Algorithm::Zstd => "zstd",
        };
        let spec = Spec::parse(method, self.block_bits.len() as u32).expect("every method has pclusters of a block");
        Spec { pcluster_len: self.pcluster_len(spec, used), ..spec }
    }

    /// Returns the length of the longest pclusters, limited to the lengths that a build supports.
    fn pcluster_len(self, spec: Spec, used: AlgorithmUse) -> u32 {
        let Self { block_bits, encoded_extents } = self;
        let len = if encoded_extents { used.text_max_len } else { used.pcluster_max_len };
        let options = BuildOptions::default().with(|options| {
            options.block_bits = block_bits;
            options.compression.encoded_extents = encoded_extents;
        });
        let longest = u64::from(options.pcluster_max_len(spec.method));
        let block_len = block_bits.len();
        len.min(longest).next_multiple_of(block_len).clamp(block_len, longest.max(block_len)) as u32
    }
}
