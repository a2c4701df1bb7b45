//! A preset with explicit options, for a target kernel.
//!
//! Explicit options are errors if the kernel lacks them. Defaults of the preset are downgraded to the best that the kernel has.

use kiln_codec::{Method, Spec};
use kiln_format::feature::{Feature, OLDEST_KERNEL};
use kiln_format::{BlockBits, KernelVersion};

use crate::options::preset::error::{OptionError, OptionField, OptionProblem};
use crate::options::preset::limits::{ImageForm, PclusterLimits, check_method, feature_of};
use crate::options::preset::{Defaults, Preset};
use crate::options::{BuildOptions, Dedupe, Fragments, Trial};

/// A method of compression, without a length of pclusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodChoice {
    /// Which encoder.
    pub method: Method,
    /// Its level; `None`: the method's default.
    pub level: Option<i32>,
    /// See [`Spec::window_len`].
    pub window_len: Option<u32>,
}

impl From<Method> for MethodChoice {
    /// At its default level.
    fn from(method: Method) -> Self {
        Self { method, level: None, window_len: None }
    }
}

impl MethodChoice {
    /// With pclusters of up to `pcluster_len` bytes.
    ///
    /// # Errors
    /// A level or a window that the method does not have.
    fn spec(self, pcluster_len: u32) -> Result<Spec, OptionProblem> {
        let spec = Spec::new(self.method, self.level, pcluster_len);
        let spec = spec.and_then(|spec| self.window_len.map_or(Ok(spec), |len| spec.with_window(len)));
        spec.map_err(OptionProblem::Method)
    }
}

/// Whether, and how, data is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// It is stored as it is.
    Off,
    /// By this method.
    By(MethodChoice),
}

/// How metadata is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataChoice {
    /// Bytes that are compressed as one piece.
    pub pcluster_len: u64,
    /// `None`: as files are.
    pub method: Option<MethodChoice>,
}

/// A preset, and explicit options that override it. Where a field is `None` or `false`, the preset decides.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Where to start.
    pub preset: Preset,
    /// Use only what this kernel can mount; `None`: whatever the other options need.
    pub kernel: Option<KernelVersion>,
    /// The block size in bytes.
    pub block_len: Option<u64>,
    /// Compression of files.
    pub compression: Option<Compression>,
    /// The largest pcluster in bytes.
    pub pcluster_len: Option<u64>,
    /// What is stored once.
    pub dedupe: Option<Dedupe>,
    /// Which files are packed.
    pub fragments: Option<Fragments>,
    /// The largest pcluster of packed files, in bytes.
    pub packed_pcluster_len: Option<u64>,
    /// Encoded extents for compressed files; by default where a kernel is chosen that has them, and ends do not lie
    /// beside inodes.
    pub encoded_extents: Option<bool>,
    /// Compressed ends of files lie beside inodes.
    pub tail_packing: bool,
    /// Large directories are packed.
    pub pack_directories: bool,
    /// How metadata is compressed; by default it is not.
    pub metadata: Option<MetadataChoice>,
    /// Methods that are tried for each file.
    pub tries: Vec<MethodChoice>,
    /// See [`Trial::budget_percent`].
    pub try_budget_percent: u32,
}

impl Choices {
    /// The options that all this makes together; what a preset says nothing about has the value of [`BuildOptions::default`].
    ///
    /// # Errors
    /// An explicit option that the kernel lacks, that contradicts another one, or means nothing.
    pub fn build_options(&self) -> Result<BuildOptions, OptionError> {
        let kernel = self.kernel;
        if let Some(kernel) = kernel.filter(|&kernel| kernel < OLDEST_KERNEL) {
            return Err(OptionProblem::OldKernel(kernel).of(OptionField::Kernel));
        }
        let defaults = self.preset.defaults();
        let block_bits = self.block_bits()?;
        let encoded_extents = self.encodes_extents()?;
        let form = ImageForm { block_bits, encoded_extents, kernel };
        // Where the image needs such a kernel anyway, inodes may be as small as it reads them.
        let own_mtimes = encoded_extents || kernel.is_some_and(|kernel| kernel >= Feature::Addr48Bit.since());
        let compression = self.compression(&defaults, form)?;
        let metabox = self.metabox(compression, form)?;
        let Some(compression) = compression else {
            self.check_uncompressed()?;
            let feature = if metabox.is_some() { Feature::SubPageCompressed } else { Feature::SubPageBlocks };
            self.check_block_len(block_bits, feature)?;
            let dedupe = self.dedupe.unwrap_or(Dedupe::Files);
            let encoded_extents = encoded_extents && metabox.is_some();
            return Ok(BuildOptions {
                block_bits,
                kernel,
                dedupe,
                own_mtimes,
                metabox,
                encoded_extents,
                content_digests: self.preset.content_digests(),
                ..BuildOptions::default()
            });
        };
        self.check_block_len(block_bits, Feature::SubPageCompressed)?;
        let limits = PclusterLimits::of(compression.method, form);
        let fragments = self.fragments(defaults.fragments)?;
        Ok(BuildOptions {
            block_bits,
            compression: Some(compression),
            kernel,
            dedupe: self.dedupe(defaults.dedupe, compression.method)?,
            fragments,
            packed_pcluster_len: self.packed_pcluster_len(fragments, limits)?,
            pack_directories: self.packs_directories()?,
            metabox,
            tail_packing: self.tail_packing(defaults.tail_packing, encoded_extents)?,
            trial: self.trial(compression.pcluster_len, form)?,
            encoded_extents,
            own_mtimes,
            content_digests: self.preset.content_digests(),
            ..BuildOptions::default()
        })
    }

    fn encodes_extents(&self) -> Result<bool, OptionError> {
        let since = Feature::Addr48Bit.since();
        match self.encoded_extents {
            Some(true) => self.check_kernel(OptionField::EncodedExtents, since).map(|()| true),
            Some(false) => Ok(false),
            // Unlike the other features it is not taken where nothing says that it can be had, nor where what was asked
            // for excludes it.
            None if self.tail_packing => Ok(false),
            None => Ok(self.metadata.is_some() || self.kernel.is_some_and(|kernel| kernel >= since)),
        }
    }

    fn block_bits(&self) -> Result<BlockBits, OptionError> {
        let Some(len) = self.block_len else { return Ok(BlockBits::DEFAULT) };
        let bits = len.is_power_of_two().then(|| BlockBits::new(len.trailing_zeros() as u8)).flatten();
        bits.ok_or(OptionProblem::BlockLen(len).of(OptionField::BlockLen))
    }

    /// Refuse small blocks that the kernel does not have.
    fn check_block_len(&self, block_bits: BlockBits, feature: Feature) -> Result<(), OptionError> {
        match self.block_len {
            Some(_) if block_bits < BlockBits::DEFAULT => self.check_kernel(OptionField::BlockLen, feature.since()),
            _ => Ok(()),
        }
    }

    fn compression(&self, defaults: &Defaults, form: ImageForm) -> Result<Option<Spec>, OptionError> {
        let default_len = if form.encoded_extents { defaults.unit_len } else { defaults.pcluster_len };
        let spec = match self.compression {
            Some(Compression::Off) => None,
            Some(Compression::By(choice)) => Some(self.spec(OptionField::Compression, choice, default_len)?),
            None => defaults.method.map(|choice| self.downgraded(choice)).map(|(method, level)| Spec {
                method,
                level,
                pcluster_len: default_len,
                window_len: None,
            }),
        };
        let Some(spec) = spec else { return Ok(None) };
        let limits = PclusterLimits::of(spec.method, form);
        let pcluster_len = match self.pcluster_len {
            Some(len) => limits.check(len).map_err(|problem| problem.of(OptionField::PclusterLen))?,
            None => limits.nearest(default_len),
        };
        Ok(Some(Spec { pcluster_len, ..spec }))
    }

    fn spec(&self, field: OptionField, choice: MethodChoice, len: u32) -> Result<Spec, OptionError> {
        let spec = choice.spec(len).map_err(|problem| problem.of(field))?;
        check_method(spec.method, self.kernel).map_err(|problem| problem.of(field))?;
        Ok(spec)
    }

    /// How metadata is compressed, given how files are.
    fn metabox(&self, files: Option<Spec>, form: ImageForm) -> Result<Option<Spec>, OptionError> {
        const FIELD: OptionField = OptionField::Metadata;
        let Some(MetadataChoice { pcluster_len, method }) = self.metadata else { return Ok(None) };
        self.check_kernel(FIELD, Feature::Metabox.since())?;
        let spec = match (method, files) {
            (Some(choice), _) => self.spec(FIELD, choice, form.block_bits.len() as u32)?,
            (None, Some(spec)) => spec,
            (None, None) => return Err(OptionProblem::FilesNotCompressed.of(FIELD)),
        };
        let limits = PclusterLimits::of(spec.method, form);
        let pcluster_len = limits.check(pcluster_len).map_err(|problem| problem.of(FIELD))?;
        Ok(Some(Spec { pcluster_len, ..spec }))
    }

    fn packs_directories(&self) -> Result<bool, OptionError> {
        match self.pack_directories {
            true => self.check_kernel(OptionField::PackDirectories, Feature::Fragments.since()).map(|()| true),
            false => Ok(self.metadata.is_some()),
        }
    }

    /// Refuse what is about compression where there is none.
    fn check_uncompressed(&self) -> Result<(), OptionError> {
        let about_compression = [
            (self.pcluster_len.is_some(), OptionField::PclusterLen),
            (self.fragments.is_some_and(|fragments| fragments != Fragments::Off), OptionField::Fragments),
            (self.packed_pcluster_len.is_some(), OptionField::PackedPclusterLen),
            (self.encoded_extents == Some(true), OptionField::EncodedExtents),
            (self.dedupe == Some(Dedupe::Parts), OptionField::Dedupe),
            (self.tail_packing, OptionField::TailPacking),
            (self.pack_directories, OptionField::PackDirectories),
            (!self.tries.is_empty(), OptionField::Tries),
        ];
        match about_compression.into_iter().find(|(asked, _)| *asked) {
            Some((_, field)) => Err(OptionProblem::NothingCompressed.of(field)),
            None => Ok(()),
        }
    }

    fn fragments(&self, default: Fragments) -> Result<Fragments, OptionError> {
        match self.fragments {
            Some(Fragments::Off) => Ok(Fragments::Off),
            Some(asked) => self.check_kernel(OptionField::Fragments, Feature::Fragments.since()).map(|()| asked),
            None if self.has(Feature::Fragments.since()) => Ok(default),
            None => Ok(Fragments::Off),
        }
    }

    fn packed_pcluster_len(&self, packs: Fragments, limits: PclusterLimits) -> Result<Option<u32>, OptionError> {
        let Some(len) = self.packed_pcluster_len else { return Ok(None) };
        let checked = match packs {
            Fragments::Off => Err(OptionProblem::NothingPacked),
            _ => limits.check(len),
        };
        checked.map(Some).map_err(|problem| problem.of(OptionField::PackedPclusterLen))
    }

    fn tail_packing(&self, default: bool, encoded_extents: bool) -> Result<bool, OptionError> {
        let since = Feature::TailPacking.since();
        match (self.tail_packing, encoded_extents) {
            (true, true) => Err(OptionProblem::EncodedExtents.of(OptionField::TailPacking)),
            (true, false) => self.check_kernel(OptionField::TailPacking, since).map(|()| true),
            (false, encoded_extents) => Ok(default && !encoded_extents && self.has(since)),
        }
    }

    /// The methods that are tried, in pclusters that suit each.
    fn trial(&self, pcluster_len: u32, form: ImageForm) -> Result<Trial, OptionError> {
        let way = |choice: &MethodChoice| {
            let spec = self.spec(OptionField::Tries, *choice, pcluster_len)?;
            Ok(Spec { pcluster_len: PclusterLimits::of(spec.method, form).nearest(pcluster_len), ..spec })
        };
        let ways = self.tries.iter().map(way).collect::<Result<_, _>>()?;
        Ok(Trial { specs: ways, budget_percent: self.try_budget_percent })
    }

    fn dedupe(&self, default: Dedupe, method: Method) -> Result<Dedupe, OptionError> {
        match self.dedupe {
            // References to parts came with fragments.
            Some(Dedupe::Parts) => {
                self.check_kernel(OptionField::Dedupe, Feature::Fragments.since()).map(|()| Dedupe::Parts)
            }
            Some(asked) => Ok(asked),
            // To look for parts takes longer than lz4 does.
            None if method == Method::Lz4 || !self.has(Feature::Fragments.since()) => Ok(Dedupe::Files),
            None => Ok(default),
        }
    }

    /// A preset's method, or LZ4, the only algorithm of every kernel, at its best where the kernel lacks the method.
    fn downgraded(&self, wanted: (Method, i32)) -> (Method, i32) {
        match self.has(feature_of(wanted.0.algorithm()).since()) {
            true => wanted,
            false => (Method::Lz4hc, Method::Lz4hc.default_level()),
        }
    }

    fn check_kernel(&self, field: OptionField, since: KernelVersion) -> Result<(), OptionError> {
        match self.kernel.filter(|_| !self.has(since)) {
            Some(kernel) => Err(OptionProblem::NeedsKernel { since, kernel }.of(field)),
            None => Ok(()),
        }
    }

    fn has(&self, since: KernelVersion) -> bool {
        self.kernel.is_none_or(|kernel| kernel >= since)
    }
}

impl BuildOptions {
    /// The options of `preset` for images that `kernel` can mount (`None`: whatever kernel they need). What the kernel lacks is
    /// replaced by the best that it has. [`Choices`] has options beside the preset's.
    ///
    /// ```
    /// use kiln_builder::{BuildOptions, Preset};
    ///
    /// let options = BuildOptions::preset(Preset::Balanced, Some("6.1".parse()?))?;
    /// // Zstandard came with Linux 6.10.
    /// assert_eq!(options.compression.unwrap().method, kiln_codec::Method::Lz4hc);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A kernel that mounts no image.
    pub fn preset(preset: Preset, kernel: Option<KernelVersion>) -> Result<Self, OptionError> {
        Choices { preset, kernel, ..Choices::default() }.build_options()
    }
}

#[cfg(test)]
mod tests;
