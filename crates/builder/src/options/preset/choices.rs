//! A preset with explicit options, for a target kernel.
//!
//! Explicit options are errors if the kernel lacks them. Defaults of the preset stay wishes, which the build
//! downgrades; only its method of compression is replaced here.

use kiln_codec::{Method, Spec};
use kiln_format::feature::OLDEST_KERNEL;
use kiln_format::{BlockBits, KernelVersion};

use crate::options::data::{CompressionOptions, Fragments, PackingOptions, Trial};
use crate::options::kernel::{Asked, Wish, grant, is_granted_by_name};
use crate::options::preset::error::{OptionError, OptionField, OptionProblem};
use crate::options::preset::limits::{PclusterLimits, check_method};
use crate::options::preset::{Defaults, Preset};
use crate::options::{BuildOptions, Dedupe};

/// Method of compression, without a length of pclusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodChoice {
    /// Encoder.
    pub method: Method,
    /// Level of the encoder; `None` is the method's default.
    pub level: Option<i32>,
    /// Length of the window in bytes, see [`Spec::window_len`].
    pub window_len: Option<u32>,
}

impl From<Method> for MethodChoice {
    /// Returns the method at its default level.
    fn from(method: Method) -> Self {
        Self { method, level: None, window_len: None }
    }
}

impl MethodChoice {
    /// Returns the method with pclusters of up to `pcluster_len` bytes.
    ///
    /// # Errors
    /// A level or a window that the method does not have.
    fn spec(self, pcluster_len: u32) -> Result<Spec, OptionProblem> {
        let spec = Spec::new(self.method, self.level, pcluster_len);
        let spec = spec.and_then(|spec| self.window_len.map_or(Ok(spec), |len| spec.with_window(len)));
        spec.map_err(OptionProblem::Method)
    }
}

/// Compression of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// None: data is stored as it is.
    Off,
    /// Compression by this method.
    By(MethodChoice),
}

/// Compression of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataCompression {
    /// None: metadata is stored as it is.
    Off,
    /// In pieces, in the metabox. Needs Linux 6.17.
    By(MetadataChoice),
}

/// Method that compresses metadata, and the length of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataChoice {
    /// Length in bytes of the text that is compressed as one piece.
    pub pcluster_len: u64,
    /// Method; `None` is that of files.
    pub method: Option<MethodChoice>,
}

/// A preset, and explicit options that override it. Where a field is `None` or `false`, the preset decides.
///
/// Explicit options that the kernel lacks are errors; [`kernel_rules`](crate::kernel_rules()) lists which kernel has
/// what.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Preset to start from.
    pub preset: Preset,
    /// Oldest kernel that must be able to mount the image; `None` is the one that the other options need.
    pub kernel: Option<KernelVersion>,
    /// Block size in bytes, a power of two from 512 to 64 KiB; `None` is 4 KiB.
    pub block_len: Option<u64>,
    /// Compression of files.
    pub compression: Option<Compression>,
    /// Length in bytes of the largest pcluster: a multiple of the block size up to 1 MiB, less for LZ4 in small blocks.
    pub pcluster_len: Option<u64>,
    /// Data that is stored once though it occurs several times.
    pub dedupe: Option<Dedupe>,
    /// Files that are packed. A preset that packs small files takes those of half a pcluster as well.
    pub fragments: Option<Fragments>,
    /// Length in bytes of the largest pcluster of packed files.
    pub packed_pcluster_len: Option<u64>,
    /// Encoded extents for compressed files. By default they are used if metadata is compressed or a kernel is chosen
    /// that has them, and `tail_packing` is not asked for.
    pub encoded_extents: Option<bool>,
    /// True to put compressed ends of files beside inodes.
    pub tail_packing: bool,
    /// True to pack large directories.
    pub pack_directories: bool,
    /// Compression of metadata. By default it is compressed as files are, in pieces of
    /// [`METADATA_LEN`](crate::METADATA_LEN), if a kernel is chosen that has it, files are compressed, the preset is
    /// not [`Preset::Dataset`], and `tail_packing` is not asked for.
    pub metadata: Option<MetadataCompression>,
    /// Methods to try for each file.
    pub tries: Vec<MethodChoice>,
    /// Budget of the trials in percent, see [`Trial::budget_percent`].
    pub try_budget_percent: u32,
}

impl Choices {
    /// Returns the options that all choices make together. Options without a choice have the value of
    /// [`BuildOptions::default`].
    ///
    /// # Errors
    /// An explicit option that the kernel lacks, that contradicts another one, or means nothing.
    pub fn build_options(&self) -> Result<BuildOptions, OptionError> {
        let kernel = self.kernel;
        if let Some(kernel) = kernel.filter(|&kernel| kernel < OLDEST_KERNEL) {
            return Err(OptionProblem::OldKernel(kernel).of(OptionField::Kernel));
        }
        let defaults = self.preset.defaults();
        let mut options = BuildOptions { block_bits: self.block_bits()?, kernel, ..BuildOptions::default() };
        let encoded_extents = self.encodes_extents()?;
        options.compression.encoded_extents = encoded_extents;
        // Where the image needs such a kernel anyway, inodes may be as small as it reads them.
        options.metadata.own_mtimes = encoded_extents || is_granted_by_name(kernel, Wish::OwnMtimes);
        options.metadata.content_digests = self.preset.content_digests();
        options.compression.spec = self.compression(&defaults, &options)?;
        options.metadata.metabox = self.metabox(&defaults, &options)?;
        let Some(spec) = options.compression.spec else {
            self.check_uncompressed()?;
            let has_metabox = options.metadata.metabox.is_some();
            self.check_blocks(&options, if has_metabox { Wish::SmallCompressedBlocks } else { Wish::SmallBlocks })?;
            options.dedupe = self.dedupe.unwrap_or(Dedupe::Files);
            options.compression.encoded_extents &= has_metabox;
            return Ok(options);
        };
        self.check_blocks(&options, Wish::SmallCompressedBlocks)?;
        options.packing = self.packing(&defaults, &options)?;
        options.dedupe = self.dedupe(defaults.dedupe, spec.method)?;
        let trial = self.trial(spec.pcluster_len, &options)?;
        Ok(BuildOptions { compression: CompressionOptions { trial, ..options.compression }, ..options })
    }

    fn encodes_extents(&self) -> Result<bool, OptionError> {
        match self.encoded_extents {
            Some(true) => self.need(OptionField::EncodedExtents, Wish::EncodedExtents).map(|()| true),
            Some(false) => Ok(false),
            // Unlike the other features it is not taken where nothing says that it can be had, nor where what was asked
            // for excludes it.
            None if self.tail_packing => Ok(false),
            None => {
                let has_metabox = matches!(self.metadata, Some(MetadataCompression::By(_)));
                Ok(has_metabox || is_granted_by_name(self.kernel, Wish::EncodedExtents))
            }
        }
    }

    fn block_bits(&self) -> Result<BlockBits, OptionError> {
        let Some(len) = self.block_len else { return Ok(BlockBits::DEFAULT) };
        let bits = len.is_power_of_two().then(|| BlockBits::new(len.trailing_zeros() as u8)).flatten();
        bits.ok_or(OptionProblem::BlockLen(len).of(OptionField::BlockLen))
    }

    /// Refuses small blocks that the kernel does not have.
    fn check_blocks(&self, options: &BuildOptions, wish: Wish) -> Result<(), OptionError> {
        match self.block_len {
            Some(_) if options.block_bits < BlockBits::DEFAULT => self.need(OptionField::BlockLen, wish),
            _ => Ok(()),
        }
    }

    fn compression(&self, defaults: &Defaults, options: &BuildOptions) -> Result<Option<Spec>, OptionError> {
        let encoded_extents = options.compression.encoded_extents;
        let default_len = if encoded_extents { defaults.unit_len } else { defaults.pcluster_len };
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
        let limits = PclusterLimits::new(spec.method, options);
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

    /// Returns the compression of metadata, given that of files.
    fn metabox(&self, defaults: &Defaults, options: &BuildOptions) -> Result<Option<Spec>, OptionError> {
        const FIELD: OptionField = OptionField::Metadata;
        let MetadataChoice { pcluster_len, method } = match self.metadata {
            Some(MetadataCompression::By(choice)) => choice,
            Some(MetadataCompression::Off) => return Ok(None),
            None => return Ok(self.default_metabox(defaults, options)),
        };
        self.need(FIELD, Wish::Metabox)?;
        let spec = match (method, options.compression.spec) {
            (Some(choice), _) => self.spec(FIELD, choice, options.block_bits.len() as u32)?,
            (None, Some(spec)) => spec,
            (None, None) => return Err(OptionProblem::FilesNotCompressed.of(FIELD)),
        };
        let limits = PclusterLimits::new(spec.method, options);
        let pcluster_len = limits.check(pcluster_len).map_err(|problem| problem.of(FIELD))?;
        Ok(Some(Spec { pcluster_len, ..spec }))
    }

    /// Returns the compression of metadata that nobody asked for.
    fn default_metabox(&self, defaults: &Defaults, options: &BuildOptions) -> Option<Spec> {
        // Ends of files that are to lie beside inodes would be compressed twice, and listings would have to decode them.
        let is_had = !self.tail_packing && is_granted_by_name(self.kernel, Wish::Metabox);
        let spec = options.compression.spec.filter(|_| is_had)?;
        let pcluster_len = PclusterLimits::new(spec.method, options).nearest(defaults.metadata_len?);
        Some(Spec { pcluster_len, ..spec })
    }

    /// Refuses options about compression if nothing is compressed.
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

    fn packing(&self, defaults: &Defaults, options: &BuildOptions) -> Result<PackingOptions, OptionError> {
        if self.fragments.is_some_and(|asked| asked != Fragments::Off) {
            self.need(OptionField::Fragments, Wish::Fragments)?;
        }
        let pcluster_len = options.compression.spec.map_or(0, |spec| spec.pcluster_len);
        let fragments = self.fragments.unwrap_or(match defaults.fragments {
            // A file that fills half of a long pcluster compresses better with others in one.
            Fragments::UpTo(len) => Fragments::UpTo(len.max(u64::from(pcluster_len) / 2)),
            others => others,
        });
        let packs = fragments != Fragments::Off && options.is_granted(Wish::Fragments);
        let limits = options.compression.spec.filter(|_| packs).map(|spec| PclusterLimits::new(spec.method, options));
        let fit = |len| limits.ok_or(OptionProblem::NothingPacked)?.check(len);
        let refuse = |problem: OptionProblem| problem.of(OptionField::PackedPclusterLen);
        let pcluster_len = self.packed_pcluster_len.map(fit).transpose().map_err(refuse)?;
        if self.pack_directories {
            self.need(OptionField::PackDirectories, Wish::PackedDirectories)?;
        }
        let encoded_extents = options.compression.encoded_extents;
        if self.tail_packing {
            if encoded_extents {
                return Err(OptionProblem::EncodedExtents.of(OptionField::TailPacking));
            }
            self.need(OptionField::TailPacking, Wish::TailPacking)?;
        }
        Ok(PackingOptions {
            fragments,
            pcluster_len,
            directories: self.pack_directories || options.metadata.metabox.is_some(),
            tail_packing: self.tail_packing || defaults.tail_packing && !encoded_extents,
        })
    }

    /// Returns the methods to try, each in pclusters that suit it.
    fn trial(&self, pcluster_len: u32, options: &BuildOptions) -> Result<Trial, OptionError> {
        let way = |choice: &MethodChoice| {
            let spec = self.spec(OptionField::Tries, *choice, pcluster_len)?;
            Ok(Spec { pcluster_len: PclusterLimits::new(spec.method, options).nearest(pcluster_len), ..spec })
        };
        let specs = self.tries.iter().map(way).collect::<Result<_, _>>()?;
        Ok(Trial { specs, budget_percent: self.try_budget_percent })
    }

    fn dedupe(&self, default: Dedupe, method: Method) -> Result<Dedupe, OptionError> {
        match self.dedupe {
            Some(Dedupe::Parts) => self.need(OptionField::Dedupe, Wish::Parts).map(|()| Dedupe::Parts),
            Some(asked) => Ok(asked),
            // To look for parts takes longer than lz4 does.
            None if method == Method::Lz4 => Ok(Dedupe::Files),
            None => Ok(default),
        }
    }

    /// Returns a preset's method; if the kernel lacks it LZ4, the only algorithm of every kernel, at its best.
    fn downgraded(&self, wanted: (Method, i32)) -> (Method, i32) {
        match grant(self.kernel, Wish::Algorithm(wanted.0.algorithm()), Asked::ByDefault) {
            Ok(true) => wanted,
            _ => (Method::Lz4hc, Method::Lz4hc.default_level()),
        }
    }

    /// Refuses an explicit option that the kernel lacks.
    fn need(&self, field: OptionField, wish: Wish) -> Result<(), OptionError> {
        let granted = grant(self.kernel, wish, Asked::Explicitly);
        granted
            .map(drop)
            .map_err(|lack| OptionProblem::NeedsKernel { since: lack.feature.since(), kernel: lack.kernel }.of(field))
    }
}

impl BuildOptions {
    /// Returns the options of `preset` for images that `kernel` can mount; `None` is whatever kernel they need.
    /// Methods that the kernel lacks are replaced by its best one, and the build leaves out the rest that it lacks.
    /// [`Choices`] has options beside the preset's.
    ///
    /// ```
    /// use kiln_builder::{BuildOptions, Preset};
    ///
    /// let options = BuildOptions::preset(Preset::Balanced, Some("6.1".parse()?))?;
    /// // Zstandard came with Linux 6.10.
    /// assert_eq!(options.compression.spec.unwrap().method, kiln_codec::Method::Lz4hc);
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
