//! Style of an image: how it stores what it has, so that new data can be stored alike.
//!
//! `kiln update` stores new files by [`ImageStyle::choices`], and `kiln relayout` stores again what
//! it cannot move by [`ImageStyle::build_options`]. Both take the method, its level, the length of
//! pclusters and the oldest kernel from here. Levels do not show in an image, so they are those of
//! the preset that the image resembles. Only LZ4 differs: updates encode as [`Preset::Fast`] does, and
//! relayouts, which encode few files, by lz4hc, so that none becomes longer than it was.

mod survey;

use kiln_builder::{
    BuildOptions, Choices, Compression, CompressionOptions, ContentDigests, Dedupe, Fragments, LayoutOptions,
    METADATA_LEN, MetadataChoice, MetadataCompression, MetadataOptions, PackingOptions, Preset, SMALL_FILE_LEN, Spec,
};
use kiln_codec::Method;
use kiln_format::feature::Feature;
use kiln_format::xattr::split_name;
use kiln_format::{Algorithm, BlockBits, Compat, Incompat, KernelVersion};
use kiln_read::{Image, ReadError};
use kiln_source::image::erofs::{digest_name, has_visible_prefixes};
use kiln_tree::DigestName;

use survey::{Found, Lens, Survey};

/// Number of inodes that are examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The first thousands of names, up to a few dozen compressed files.
    Sample,
    /// All inodes.
    All,
}

/// Options with which an image was probably made.
#[derive(Clone, Debug)]
pub struct ImageStyle {
    block_bits: BlockBits,
    kernel: KernelVersion,
    /// Algorithm of the packed inode, or else of most data; `None` for an image without compression.
    algorithm: Option<Algorithm>,
    /// Pclusters of files with this algorithm, and of the packed inode.
    files: Lens,
    packed: Lens,
    metabox: Option<(Algorithm, Lens)>,
    /// Length in bytes of the longest LZ4 pcluster, as the image states it to its readers.
    lz4_max_len: u64,
    has_packed: bool,
    has_cfgs: bool,
    has_tail_packing: bool,
    digests: DigestName,
    xattr_prefixes: Vec<Vec<u8>>,
    plain_xattr_prefixes: bool,
    found: Found,
}

impl ImageStyle {
    /// Examines an image.
    ///
    /// # Errors
    /// An unreadable directory, inode or map.
    pub fn of(image: &Image, depth: Depth) -> Result<Self, ReadError> {
        let superblock = image.superblock();
        let mut survey = Survey::default();
        survey.walk(image, depth)?;
        let packed = superblock.packed_nid.map(|nid| survey.special(image, nid)).transpose()?.flatten();
        let metabox = superblock.metabox_nid.map(|nid| survey.special(image, nid)).transpose()?.flatten();
        let stated = || Algorithm::ALL.into_iter().rev().find(|one| image.compr_cfgs().has(*one));
        // Only files that are packed by the same algorithm can be reused.
        let algorithm = packed.map(|(algorithm, _)| algorithm).or_else(|| survey.most_used()).or_else(stated);
        let lz4_max_len = image
            .compr_cfgs()
            .lz4
            .map_or(u64::MAX, |lz4| u64::from(lz4.max_pclusterblks.max(1)).saturating_mul(superblock.block_bits.len()));
        Ok(Self {
            block_bits: superblock.block_bits,
            kernel: superblock.oldest_kernel(),
            algorithm,
            files: algorithm.map_or(Lens::default(), |one| survey.lens(one)),
            packed: packed.map_or(Lens::default(), |(_, lens)| lens),
            metabox,
            lz4_max_len,
            has_packed: superblock.packed_nid.is_some(),
            has_cfgs: superblock.incompat.contains(Incompat::COMPR_CFGS),
            has_tail_packing: superblock.incompat.contains(Incompat::ZTAILPACKING),
            digests: digest_name(image),
            xattr_prefixes: xattr_prefixes(image),
            plain_xattr_prefixes: superblock.compat.contains(Compat::PLAIN_XATTR_PFX),
            found: survey.into_found(),
        })
    }

    /// Returns the preset that the image resembles.
    pub fn preset(&self) -> Preset {
        match self.algorithm {
            None => Preset::Plain,
            Some(Algorithm::Lz4) => Preset::Fast,
            Some(Algorithm::Lzma) => Preset::Archive,
            Some(Algorithm::Zstd) if self.has_tail_packing && !self.has_packed => Preset::Dataset,
            Some(Algorithm::Zstd | Algorithm::Deflate) => Preset::Balanced,
        }
    }

    /// Returns the oldest kernel that mounts the image.
    pub fn kernel(&self) -> KernelVersion {
        self.kernel
    }

    /// Returns choices that store new files like those of the image. Properties that were not seen
    /// are those of [`preset`](Self::preset).
    pub fn choices(&self) -> Choices {
        let block_len = self.block_bits.len();
        let (preset, kernel) = (self.preset(), Some(self.kernel));
        let metadata = Some(self.metadata());
        let choices = Choices { preset, kernel, block_len: Some(block_len), metadata, ..Choices::default() };
        let Some(algorithm) = self.algorithm else { return choices };
        let method = self.method(algorithm);
        let len = |lens: &Lens| self.len(method, self.raw_len(lens, Seen::Full));
        let encoded_extents = self.found.has_encoded_extents;
        Choices {
            compression: self.preset_spec(algorithm).is_none().then(|| Compression::By(method.into())),
            pcluster_len: match self.has_cfgs {
                true => len(&self.files).or(len(&self.packed)),
                false => Some(block_len),
            },
            packed_pcluster_len: len(&self.packed).filter(|_| self.has_packed && self.has_cfgs),
            fragments: match self.has_packed {
                false => Some(Fragments::Off),
                true if self.found.packs_ends => Some(Fragments::Tails(SMALL_FILE_LEN)),
                // Files of any length are packed only if none was found that is not.
                true if self.found.compressed_files > 0 => Some(Fragments::UpTo(SMALL_FILE_LEN)),
                true => None,
            },
            // Parts need pclusters of several blocks, and so records of which the image has none.
            dedupe: if self.has_cfgs { None } else { Some(Dedupe::Files) },
            encoded_extents: Some(encoded_extents),
            tail_packing: self.has_tail_packing && !encoded_extents,
            ..choices
        }
    }

    /// Returns the choice of a metabox like that of the image, or of none.
    pub fn metadata(&self) -> MetadataCompression {
        let Some((algorithm, lens)) = self.metabox else { return MetadataCompression::Off };
        let method = self.method(algorithm);
        // A metabox that is a single piece does not show the length of pieces.
        let len = self.raw_len(&lens, Seen::Full).unwrap_or(METADATA_LEN.into());
        let pcluster_len = self.len(method, Some(len)).unwrap_or(METADATA_LEN.into());
        MetadataCompression::By(MetadataChoice { pcluster_len, method: Some(method.into()) })
    }

    /// Returns options that store single files again as the image stores them, and all metadata in
    /// the same form. They need [`Depth::All`].
    pub fn build_options(&self) -> BuildOptions {
        let found = &self.found;
        let len = |method, lens: &Lens| {
            let len = self.len(method, self.raw_len(lens, Seen::Full).or(self.raw_len(lens, Seen::Any)));
            len.map(|len| len as u32)
        };
        let spec = |algorithm, pcluster_len: Option<u32>| {
            let spec = if algorithm == Algorithm::Lz4 { default_spec(Method::Lz4hc) } else { self.spec(algorithm) };
            Spec { pcluster_len: pcluster_len.unwrap_or(self.block_bits.len() as u32), ..spec }
        };
        let compression = self.algorithm.map(|algorithm| {
            let method = self.method(algorithm);
            spec(algorithm, len(method, &self.files).or(len(method, &self.packed)))
        });
        let content_digests = match found.digest_hash {
            Some(_) => ContentDigests::Named(self.digests.clone()),
            None => ContentDigests::Off,
        };
        BuildOptions {
            block_bits: self.block_bits,
            kernel: Some(self.kernel),
            compression: CompressionOptions {
                spec: compression,
                encoded_extents: found.has_encoded_extents,
                ..CompressionOptions::default()
            },
            dedupe: Dedupe::Files,
            packing: PackingOptions {
                fragments: match (found.packed_max_len, found.packs_ends) {
                    (len, true) => Fragments::Tails(len.max(1)),
                    (0, false) => Fragments::Off,
                    (len, false) => Fragments::UpTo(len),
                },
                pcluster_len: compression.and_then(|spec| len(spec.method, &self.packed)),
                directories: found.packs_directories,
                tail_packing: self.has_tail_packing && !found.has_encoded_extents,
            },
            layout: LayoutOptions {
                chunk_bits: found.chunk_bits,
                inline_tails: found.has_inline || !found.has_padded,
                ..LayoutOptions::default()
            },
            metadata: MetadataOptions {
                compact_inodes: found.has_compact,
                own_mtimes: self.kernel >= Feature::Addr48Bit.since(),
                omit_dot: found.omits_dot,
                xattr_prefixes: self.xattr_prefixes.clone(),
                plain_xattr_prefixes: self.plain_xattr_prefixes,
                content_digests,
                digest_hash: found.digest_hash,
                metabox: self.metabox.map(|(algorithm, lens)| spec(algorithm, len(self.method(algorithm), &lens))),
                ..MetadataOptions::default()
            },
            ..BuildOptions::default()
        }
    }

    /// Returns method and level of an algorithm: those of the preset, or else the defaults.
    fn spec(&self, algorithm: Algorithm) -> Spec {
        self.preset_spec(algorithm).unwrap_or_else(|| default_spec(default_method(algorithm)))
    }

    /// Returns method and level of the preset, if it has this algorithm.
    fn preset_spec(&self, algorithm: Algorithm) -> Option<Spec> {
        let of_preset = BuildOptions::preset(self.preset(), None).ok().and_then(|options| options.compression.spec);
        of_preset.filter(|spec| spec.method.algorithm() == algorithm)
    }

    fn method(&self, algorithm: Algorithm) -> Method {
        self.spec(algorithm).method
    }

    /// Returns the length by which the image limits pclusters.
    fn raw_len(&self, lens: &Lens, seen: Seen) -> Option<u64> {
        let longest = match seen {
            Seen::Full => lens.full,
            Seen::Any => lens.any,
        };
        let len = if self.found.has_encoded_extents { longest.text_len } else { longest.pcluster_len };
        (len > 0).then_some(len)
    }

    /// Returns the length of pclusters for new data, as a build supports it.
    fn len(&self, method: Method, len: Option<u64>) -> Option<u64> {
        let (block_bits, encoded_extents) = (self.block_bits, self.found.has_encoded_extents);
        let form = BuildOptions { block_bits, kernel: Some(self.kernel), ..BuildOptions::default() };
        let form = form.with(|options| options.compression.encoded_extents = encoded_extents);
        let stated = if method.algorithm() == Algorithm::Lz4 { self.lz4_max_len } else { u64::MAX };
        let longest = u64::from(form.pcluster_max_len(method)).min(stated);
        len.map(|len| len.next_multiple_of(block_bits.len()).min(longest))
    }
}

/// Pclusters by which a length is determined.
#[derive(Clone, Copy)]
enum Seen {
    /// Those that others follow: the last one of a file is as short as its text.
    Full,
    /// All.
    Any,
}

/// Returns a method at its default level, without a length of pclusters.
fn default_spec(method: Method) -> Spec {
    Spec { method, level: method.default_level(), pcluster_len: 0, window_len: None }
}

/// Returns the method of an algorithm that the preset does not have.
fn default_method(algorithm: Algorithm) -> Method {
    match algorithm {
        Algorithm::Lz4 => Method::Lz4,
        Algorithm::Lzma => Method::Lzma,
        Algorithm::Deflate => Method::Deflate,
        Algorithm::Zstd => Method::Zstd,
    }
}

/// Returns the long prefixes of attribute names, except that of content digests.
fn xattr_prefixes(image: &Image) -> Vec<Vec<u8>> {
    let is_front = |name: &Vec<u8>| split_name(name).is_some_and(|(_, infix)| !infix.is_empty());
    let mut prefixes = image.xattr_prefixes().to_vec();
    prefixes.retain(|name| has_visible_prefixes(image) && is_front(name));
    prefixes
}
