//! What kernels have: lengths of pclusters, algorithms.

use kiln_codec::Method;
use kiln_format::feature::Feature;
use kiln_format::{Algorithm, BlockBits, KernelVersion};

use crate::options::BuildOptions;
use crate::options::preset::error::OptionProblem;

/// The lengths that pclusters may have.
#[derive(Clone, Copy, Debug)]
pub struct PclusterLimits {
    /// Pclusters are multiples of it, in bytes.
    block_len: u32,
    /// In bytes.
    max_len: u32,
    /// The chosen kernel, if it has no pclusters of several blocks.
    old_kernel: Option<KernelVersion>,
}

impl PclusterLimits {
    /// The limits of `method` in an image with the blocks, the form of extents and the kernel of `options`.
    pub fn new(method: Method, options: &BuildOptions) -> Self {
        let old_kernel = options.kernel.filter(|kernel| *kernel < Feature::BigPcluster.since());
        Self { block_len: options.block_bits.len() as u32, max_len: options.pcluster_max_len(method), old_kernel }
    }

    pub(crate) fn of(method: Method, image: ImageForm) -> Self {
        let ImageForm { block_bits, encoded_extents, kernel } = image;
        Self::new(method, &BuildOptions { block_bits, encoded_extents, kernel, ..BuildOptions::default() })
    }

    /// `len`, if pclusters may have this length.
    pub fn fit(self, len: u64) -> Option<u32> {
        let fits = |len: &u32| *len > 0 && len.is_multiple_of(self.block_len) && *len <= self.max_len;
        u32::try_from(len).ok().filter(fits)
    }

    /// `len`, which is what was asked for.
    ///
    /// # Errors
    /// Why pclusters may not have this length.
    pub fn check(self, len: u64) -> Result<u32, OptionProblem> {
        let Self { block_len, max_len, old_kernel } = self;
        self.fit(len).ok_or(match old_kernel {
            Some(kernel) if len > max_len.into() => OptionProblem::BigPcluster { len, kernel },
            _ => OptionProblem::PclusterLen { len, block_len, max_len },
        })
    }

    /// The power of two next to `default`, itself one, that pclusters may have as their length.
    pub fn nearest(self, default: u32) -> u32 {
        default.clamp(self.block_len, 1 << self.max_len.ilog2())
    }
}

/// What lengths of pclusters depend on.
#[derive(Clone, Copy)]
pub(crate) struct ImageForm {
    pub block_bits: BlockBits,
    pub encoded_extents: bool,
    pub kernel: Option<KernelVersion>,
}

/// See that the kernel, if one is chosen, knows the algorithm of a method.
///
/// # Errors
/// [`OptionProblem::Algorithm`].
pub fn check_method(method: Method, kernel: Option<KernelVersion>) -> Result<(), OptionProblem> {
    let feature = feature_of(method.algorithm());
    match kernel.filter(|&kernel| kernel < feature.since()) {
        Some(kernel) => Err(OptionProblem::Algorithm { feature, kernel }),
        None => Ok(()),
    }
}

/// The feature that an image with data of this algorithm uses.
pub fn feature_of(algorithm: Algorithm) -> Feature {
    match algorithm {
        Algorithm::Lz4 => Feature::Lz4,
        Algorithm::Lzma => Feature::Lzma,
        Algorithm::Deflate => Feature::Deflate,
        Algorithm::Zstd => Feature::Zstd,
    }
}
