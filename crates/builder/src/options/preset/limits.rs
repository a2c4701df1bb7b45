//! Limits of the chosen kernel: lengths of pclusters, algorithms.

use kiln_codec::Method;
use kiln_format::KernelVersion;

use crate::options::BuildOptions;
use crate::options::kernel::{Asked, Lack, Wish, grant};
use crate::options::preset::error::OptionProblem;

/// Lengths that pclusters may have.
#[derive(Clone, Copy, Debug)]
pub struct PclusterLimits {
    /// Unit of the lengths, in bytes.
    block_len: u32,
    /// Longest pcluster, in bytes.
    max_len: u32,
    /// Chosen kernel, if it has no pclusters of several blocks.
    old_kernel: Option<KernelVersion>,
}

impl PclusterLimits {
    /// Returns the limits of `method` in an image with the blocks, the form of extents and the kernel of `options`.
    pub fn new(method: Method, options: &BuildOptions) -> Self {
        let old_kernel = grant(options.kernel, Wish::BigPclusters, Asked::Explicitly).err().map(|lack| lack.kernel);
        Self { block_len: options.block_bits.len() as u32, max_len: options.pcluster_max_len(method), old_kernel }
    }

    /// Returns `len` if pclusters may have this length.
    pub fn fit(self, len: u64) -> Option<u32> {
        let fits = |len: &u32| *len > 0 && len.is_multiple_of(self.block_len) && *len <= self.max_len;
        u32::try_from(len).ok().filter(fits)
    }

    /// Returns `len`, which was asked for.
    ///
    /// # Errors
    /// The reason if pclusters may not have this length.
    pub fn check(self, len: u64) -> Result<u32, OptionProblem> {
        let Self { block_len, max_len, old_kernel } = self;
        self.fit(len).ok_or(match old_kernel {
            Some(kernel) if len > max_len.into() => OptionProblem::BigPcluster { len, kernel },
            _ => OptionProblem::PclusterLen { len, block_len, max_len },
        })
    }

    /// Returns the length of pclusters next to `default`; both are powers of two.
    pub fn nearest(self, default: u32) -> u32 {
        default.clamp(self.block_len, 1 << self.max_len.ilog2())
    }
}

/// Checks that the kernel, if one is chosen, has the algorithm of a method.
///
/// # Errors
/// [`OptionProblem::Algorithm`].
pub fn check_method(method: Method, kernel: Option<KernelVersion>) -> Result<(), OptionProblem> {
    let granted = grant(kernel, Wish::Algorithm(method.algorithm()), Asked::Explicitly);
    granted.map(drop).map_err(|Lack { feature, kernel }| OptionProblem::Algorithm { feature, kernel })
}
