//! Presets, and what the options that name more, and `--kernel`, make of them.
//!
//! What was asked for by name must be had; a preset's own choice gives way to the best that the kernel has.

use crate::exit::Failure;
use kiln_builder::{BuildOptions, Dedupe, Fragments, Trial};
use kiln_codec::{Method, Spec};
use kiln_format::feature::{Feature, OLDEST_KERNEL};
use kiln_format::{Algorithm, BlockBits, KernelVersion};

/// Files of at most this many bytes are small: they fill so few pclusters that the room left in the last one counts.
pub const SMALL_FILE_LEN: u64 = 128 << 10;

/// Where a choice of options starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// No compression
    Plain,
    /// lz4, 64 KiB; small files packed
    Fast,
    /// zstd,3, 64 KiB; small files packed, equal parts stored once
    #[default]
    Balanced,
    /// lzma,6, 1 MiB; files packed whatever their size, equal parts stored once
    Small,
    /// zstd,3, 64 KiB; no file packed, compressed ends beside inodes: for random reads of small files
    Dataset,
}

/// What a preset stands for.
struct Base {
    method: Option<(Method, i32)>,
    /// The largest pcluster in bytes.
    pcluster_len: u32,
    /// What is compressed as one piece of encoded extents, in bytes.
    unit_len: u32,
    fragments: Fragments,
    tail_packing: bool,
    dedupe: Dedupe,
}

impl Preset {
    fn base(self) -> Base {
        let small_files = Fragments::UpTo(SMALL_FILE_LEN);
        let base = |method, fragments, dedupe| Base {
            method,
            pcluster_len: 64 << 10,
            unit_len: 256 << 10,
            fragments,
            tail_packing: false,
            dedupe,
        };
        let zstd = Some((Method::Zstd, 3));
        match self {
            Preset::Plain => base(None, Fragments::Off, Dedupe::Files),
            Preset::Fast => base(Some((Method::Lz4, 1)), small_files, Dedupe::Files),
            Preset::Balanced => base(zstd, small_files, Dedupe::Parts),
            Preset::Small => Base {
                pcluster_len: 1 << 20,
                unit_len: 1 << 20,
                ..base(Some((Method::Lzma, 6)), Fragments::UpTo(u64::MAX), Dedupe::Parts)
            },
            Preset::Dataset => {
                Base { unit_len: 64 << 10, tail_packing: true, ..base(zstd, Fragments::Off, Dedupe::Files) }
            }
        }
    }
}

/// How compressed files tell where their data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Extents {
    /// An index of whole blocks
    Index,
    /// Encoded extents: byte-granular, without padding (needs Linux 6.15)
    Encoded,
}

/// A preset and what was asked for by name, with the names of the options.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes<'a> {
    /// `--preset`
    pub preset: Preset,
    /// `--block-size`, in bytes
    pub block_len: Option<u64>,
    /// `-z`
    pub algorithm: Option<&'a str>,
    /// `-C`, in bytes
    pub pcluster_len: Option<u64>,
    /// `--kernel`
    pub kernel: Option<KernelVersion>,
    /// `--dedupe`
    pub dedupe: Option<Dedupe>,
    /// `--fragments`
    pub fragments: Option<Fragments>,
    /// `--packed-pcluster`, in bytes
    pub packed_pcluster_len: Option<u64>,
    /// `--extents`
    pub extents: Option<Extents>,
    /// `--tail-packing`
    pub tail_packing: bool,
    /// `--compress-dirs`
    pub compress_dirs: bool,
    /// `--compress-metadata`: bytes in a piece, and an algorithm
    pub metadata: Option<(u64, Option<&'a str>)>,
    /// `--try`
    pub tries: Option<&'a str>,
    /// `--try-budget`, in percent
    pub try_budget: u32,
}

/// The options that this makes together, the others at their defaults.
pub fn choose(wishes: &Wishes<'_>) -> Result<BuildOptions, Failure> {
    let kernel = wishes.kernel;
    if let Some(kernel) = kernel.filter(|&kernel| kernel < OLDEST_KERNEL) {
        return usage(format!("--kernel {kernel}: images are made for Linux {OLDEST_KERNEL} and later"));
    }
    let base = wishes.preset.base();
    let block_bits = wishes.block_bits()?;
    let encoded_extents = wishes.encodes_extents()?;
    // Where the image needs such a kernel anyway, inodes may be as small as it reads them.
    let own_mtimes = encoded_extents || kernel.is_some_and(|kernel| kernel >= Feature::Addr48Bit.since());
    let compression = wishes.compression(&base, block_bits, encoded_extents)?;
    let metabox = wishes.metabox(compression, block_bits, encoded_extents)?;
    let Some(compression) = compression else {
        wishes.check_uncompressed()?;
        let feature = if metabox.is_some() { Feature::SubPageCompressed } else { Feature::SubPageBlocks };
        wishes.check_block_len(block_bits, feature)?;
        let dedupe = wishes.dedupe.unwrap_or(Dedupe::Files);
        let encoded_extents = encoded_extents && metabox.is_some();
        return Ok(BuildOptions {
            block_bits,
            kernel,
            dedupe,
            own_mtimes,
            metabox,
            encoded_extents,
            ..BuildOptions::default()
        });
    };
    wishes.check_block_len(block_bits, Feature::SubPageCompressed)?;
    let limits = PclusterLimits::of(compression.method, block_bits, encoded_extents, kernel);
    let fragments = wishes.fragments(base.fragments)?;
    Ok(BuildOptions {
        block_bits,
        compression: Some(compression),
        kernel,
        dedupe: wishes.dedupe(base.dedupe, compression.method)?,
        fragments,
        packed_pcluster_len: wishes.packed_pcluster_len(fragments, limits)?,
        pack_directories: wishes.packs_directories()?,
        metabox,
        tail_packing: wishes.tail_packing(base.tail_packing, encoded_extents)?,
        trial: wishes.trial(compression.pcluster_len, block_bits, encoded_extents)?,
        encoded_extents,
        own_mtimes,
        ..BuildOptions::default()
    })
}

/// What lengths pclusters may have.
#[derive(Clone, Copy)]
pub struct PclusterLimits {
    /// They are multiples of it, in bytes.
    block_len: u32,
    /// In bytes.
    max_len: u32,
    /// The chosen kernel, if it has no pclusters of several blocks.
    old_kernel: Option<KernelVersion>,
}

impl PclusterLimits {
    pub fn of(method: Method, block_bits: BlockBits, encoded_extents: bool, kernel: Option<KernelVersion>) -> Self {
        let block_len = block_bits.len() as u32;
        let options = BuildOptions { block_bits, encoded_extents, kernel, ..BuildOptions::default() };
        let old_kernel = kernel.filter(|kernel| *kernel < Feature::BigPcluster.since());
        Self { block_len, max_len: options.pcluster_max_len(method), old_kernel }
    }

    /// `len`, if pclusters may be so long.
    pub fn fit(self, len: u64) -> Option<u32> {
        let fits = |len: &u32| *len > 0 && len.is_multiple_of(self.block_len) && *len <= self.max_len;
        u32::try_from(len).ok().filter(fits)
    }

    pub fn check(self, option: &str, len: u64) -> Result<u32, Failure> {
        let Self { block_len, max_len, old_kernel } = self;
        let since = Feature::BigPcluster.since();
        let refuse = || match old_kernel {
            Some(kernel) if len > max_len.into() => {
                format!("{option} {len}: more than a block needs Linux {since}, but the image is for Linux {kernel}")
            }
            _ => format!("{option} {len}: use a multiple of {block_len} bytes, up to {max_len}"),
        };
        self.fit(len).ok_or_else(|| Failure::Usage(refuse()))
    }

    /// The power of two next to `default`, itself one, that pclusters may have.
    pub fn nearest(self, default: u32) -> u32 {
        default.clamp(self.block_len, 1 << self.max_len.ilog2())
    }
}

impl Wishes<'_> {
    fn encodes_extents(&self) -> Result<bool, Failure> {
        let since = Feature::Addr48Bit.since();
        match self.extents {
            Some(Extents::Encoded) => self.check_kernel("--extents encoded", since).map(|()| true),
            Some(Extents::Index) => Ok(false),
            // Unlike the other features it is not taken where nothing says that it can be had.
            None => Ok(self.metadata.is_some() || self.kernel.is_some_and(|kernel| kernel >= since)),
        }
    }

    fn block_bits(&self) -> Result<BlockBits, Failure> {
        let Some(len) = self.block_len else { return Ok(BlockBits::DEFAULT) };
        let bits = len.is_power_of_two().then(|| BlockBits::new(len.trailing_zeros() as u8)).flatten();
        bits.ok_or_else(|| Failure::Usage(format!("--block-size {len}: use a power of two, 512 to 64k")))
    }

    /// Refuse small blocks that the kernel does not have.
    fn check_block_len(&self, block_bits: BlockBits, feature: Feature) -> Result<(), Failure> {
        match self.block_len {
            Some(len) if block_bits < BlockBits::DEFAULT => {
                self.check_kernel(&format!("--block-size {len}"), feature.since())
            }
            _ => Ok(()),
        }
    }

    fn compression(&self, base: &Base, block_bits: BlockBits, encoded_extents: bool) -> Result<Option<Spec>, Failure> {
        let default_len = if encoded_extents { base.unit_len } else { base.pcluster_len };
        let spec = match self.algorithm {
            Some("none") => None,
            Some(text) => Some(self.spec("-z ", text, default_len)?),
            None => base.method.map(|choice| self.best_for(choice)).map(|(method, level)| Spec {
                method,
                level,
                pcluster_len: default_len,
                window_len: None,
            }),
        };
        let Some(spec) = spec else { return Ok(None) };
        let limits = PclusterLimits::of(spec.method, block_bits, encoded_extents, self.kernel);
        let pcluster_len = match self.pcluster_len {
            Some(len) => limits.check("-C", len)?,
            None => limits.nearest(default_len),
        };
        Ok(Some(Spec { pcluster_len, ..spec }))
    }

    fn spec(&self, option: &str, text: &str, len: u32) -> Result<Spec, Failure> {
        let spec = Spec::parse(text, len).map_err(|error| Failure::Usage(format!("{option}{text}: {error}")))?;
        check_method(spec.method, self.kernel)?;
        Ok(spec)
    }

    /// How metadata is compressed, given how files are.
    fn metabox(
        &self,
        files: Option<Spec>,
        block_bits: BlockBits,
        encoded_extents: bool,
    ) -> Result<Option<Spec>, Failure> {
        let Some((len, algorithm)) = self.metadata else { return Ok(None) };
        const OPTION: &str = "--compress-metadata";
        self.check_kernel(OPTION, Feature::Metabox.since())?;
        let spec = match (algorithm, files) {
            (Some(text), _) => self.spec("--compress-metadata: ", text, block_bits.len() as u32)?,
            (None, Some(spec)) => spec,
            (None, None) => {
                return usage(format!("{OPTION}: files are not compressed: name an algorithm for metadata"));
            }
        };
        let pcluster_len =
            PclusterLimits::of(spec.method, block_bits, encoded_extents, self.kernel).check(OPTION, len)?;
        Ok(Some(Spec { pcluster_len, ..spec }))
    }

    fn packs_directories(&self) -> Result<bool, Failure> {
        match self.compress_dirs {
            true => self.check_kernel("--compress-dirs", Feature::Fragments.since()).map(|()| true),
            false => Ok(self.metadata.is_some()),
        }
    }

    /// Refuse what is about compression where there is none.
    fn check_uncompressed(&self) -> Result<(), Failure> {
        let about_compression = [
            (self.pcluster_len.is_some(), "-C"),
            (self.fragments.is_some_and(|fragments| fragments != Fragments::Off), "--fragments"),
            (self.packed_pcluster_len.is_some(), "--packed-pcluster"),
            (self.extents == Some(Extents::Encoded), "--extents encoded"),
            (self.dedupe == Some(Dedupe::Parts), "--dedupe parts"),
            (self.tail_packing, "--tail-packing"),
            (self.compress_dirs, "--compress-dirs"),
            (self.tries.is_some(), "--try"),
        ];
        match about_compression.into_iter().find(|(asked, _)| *asked) {
            Some((_, option)) => usage(format!("{option}: nothing is compressed: name an algorithm with -z")),
            None => Ok(()),
        }
    }

    fn fragments(&self, default: Fragments) -> Result<Fragments, Failure> {
        match self.fragments {
            Some(Fragments::Off) => Ok(Fragments::Off),
            Some(asked) => self.check_kernel("--fragments", Feature::Fragments.since()).map(|()| asked),
            None if self.has(Feature::Fragments.since()) => Ok(default),
            None => Ok(Fragments::Off),
        }
    }

    fn packed_pcluster_len(&self, fragments: Fragments, limits: PclusterLimits) -> Result<Option<u32>, Failure> {
        match (self.packed_pcluster_len, fragments) {
            (None, _) => Ok(None),
            (Some(_), Fragments::Off) => usage("--packed-pcluster: no files are packed: see --fragments".into()),
            (Some(len), _) => limits.check("--packed-pcluster", len).map(Some),
        }
    }

    fn tail_packing(&self, default: bool, encoded_extents: bool) -> Result<bool, Failure> {
        let since = Feature::TailPacking.since();
        match (self.tail_packing, encoded_extents) {
            (true, true) => usage("--tail-packing: not with encoded extents: see --extents".into()),
            (true, false) => self.check_kernel("--tail-packing", since).map(|()| true),
            (false, encoded_extents) => Ok(default && !encoded_extents && self.has(since)),
        }
    }

    /// What is tried; a number or an option belongs to the algorithm before it.
    fn trial(&self, pcluster_len: u32, block_bits: BlockBits, encoded_extents: bool) -> Result<Trial, Failure> {
        let mut texts: Vec<String> = Vec::new();
        for item in self.tries.iter().flat_map(|tries| tries.split(',')) {
            match texts.last_mut() {
                Some(before) if item.starts_with(|c: char| c.is_ascii_digit()) || item.contains('=') => {
                    *before = format!("{before},{item}");
                }
                _ => texts.push(item.to_owned()),
            }
        }
        let way = |text: &String| {
            let spec = Spec::parse(text, pcluster_len);
            let spec = spec.map_err(|error| Failure::Usage(format!("--try {text}: {error}")))?;
            let limits = PclusterLimits::of(spec.method, block_bits, encoded_extents, self.kernel);
            let pcluster_len = limits.nearest(pcluster_len);
            check_method(spec.method, self.kernel).map(|()| Spec { pcluster_len, ..spec })
        };
        let specs = texts.iter().map(way).collect::<Result<_, _>>()?;
        Ok(Trial { specs, budget_percent: self.try_budget })
    }

    fn dedupe(&self, default: Dedupe, method: Method) -> Result<Dedupe, Failure> {
        match self.dedupe {
            // References to parts came with fragments.
            Some(Dedupe::Parts) => {
                self.check_kernel("--dedupe parts", Feature::Fragments.since()).map(|()| Dedupe::Parts)
            }
            Some(asked) => Ok(asked),
            // To look for parts takes longer than lz4 does.
            None if method == Method::Lz4 || !self.has(Feature::Fragments.since()) => Ok(Dedupe::Files),
            None => Ok(default),
        }
    }

    /// LZ4, the only algorithm of every kernel, at its best where the wish cannot be had.
    fn best_for(&self, wish: (Method, i32)) -> (Method, i32) {
        match self.has(feature_of(wish.0.algorithm()).since()) {
            true => wish,
            false => (Method::Lz4hc, Method::Lz4hc.default_level()),
        }
    }

    fn check_kernel(&self, option: &str, since: KernelVersion) -> Result<(), Failure> {
        match self.kernel.filter(|_| !self.has(since)) {
            Some(kernel) => usage(format!("{option} needs Linux {since}, but the image is for Linux {kernel}")),
            None => Ok(()),
        }
    }

    fn has(&self, since: KernelVersion) -> bool {
        self.kernel.is_none_or(|kernel| kernel >= since)
    }
}

fn usage<T>(message: String) -> Result<T, Failure> {
    Err(Failure::Usage(message))
}

/// See that the kernel, if one is chosen, knows the algorithm.
pub fn check_method(method: Method, kernel: Option<KernelVersion>) -> Result<(), Failure> {
    let feature = feature_of(method.algorithm());
    match kernel.filter(|&kernel| kernel < feature.since()) {
        Some(kernel) => {
            let (name, since) = (feature.name(), feature.since());
            usage(format!("{name} came with Linux {since}, but the image is for Linux {kernel}"))
        }
        None => Ok(()),
    }
}

/// What an image with this algorithm uses.
pub fn feature_of(algorithm: Algorithm) -> Feature {
    match algorithm {
        Algorithm::Lz4 => Feature::Lz4,
        Algorithm::Lzma => Feature::Lzma,
        Algorithm::Deflate => Feature::Deflate,
        Algorithm::Zstd => Feature::Zstd,
    }
}

#[cfg(test)]
mod tests;
