//! The one table of options that depend on the kernel, and the function that grants, downgrades or refuses them.
//!
//! [`Feature::since`] has the kernel of each feature. Nothing else compares kernel versions.

use kiln_format::feature::Feature;
use kiln_format::{Algorithm, KernelVersion};

/// Option of a build that some kernels cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Algorithm(Algorithm),
    BigPclusters,
    EncodedExtents,
    TailPacking,
    Fragments,
    PackedDirectories,
    Parts,
    Chunks,
    PlainHoles,
    CompressedHoles,
    ExtraDevice,
    SmallBlocks,
    SmallCompressedBlocks,
    OwnMtimes,
    OmitDot,
    XattrPrefixes,
    /// A prefix that names digests, in an image without inodes in which older kernels look for prefixes.
    DigestPrefix,
    /// A prefix that names digests, in any other image.
    HiddenDigestPrefix,
    Metabox,
}

/// Outcome of an option if the kernel lacks its feature. [`Choices`](crate::Choices) that name such an option are
/// always refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelFallback {
    /// The build fails before anything is read.
    Refused,
    /// The build fails if the image turns out to use the feature. Presets avoid it.
    RefusedInUse,
    /// The build goes on with this instead.
    Instead(&'static str),
}

/// Row of the table of options that depend on the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRule {
    /// Field of [`BuildOptions`](crate::BuildOptions), for example `packing.fragments`.
    pub option: &'static str,
    /// Value of the field that the row is about.
    pub value: &'static str,
    /// Feature of the image that results; [`Feature::since`] is the first kernel that reads it.
    pub feature: Feature,
    /// Outcome for older kernels.
    pub fallback: KernelFallback,
}

impl Wish {
    const ALL: [Wish; 22] = [
        Wish::SmallBlocks,
        Wish::SmallCompressedBlocks,
        Wish::Algorithm(Algorithm::Lz4),
        Wish::Algorithm(Algorithm::Lzma),
        Wish::Algorithm(Algorithm::Deflate),
        Wish::Algorithm(Algorithm::Zstd),
        Wish::BigPclusters,
        Wish::EncodedExtents,
        Wish::Parts,
        Wish::PlainHoles,
        Wish::CompressedHoles,
        Wish::Fragments,
        Wish::PackedDirectories,
        Wish::TailPacking,
        Wish::Chunks,
        Wish::ExtraDevice,
        Wish::OwnMtimes,
        Wish::OmitDot,
        Wish::XattrPrefixes,
        Wish::DigestPrefix,
        Wish::HiddenDigestPrefix,
        Wish::Metabox,
    ];

    /// Returns the row of the table.
    pub(crate) fn rule(self) -> KernelRule {
        use KernelFallback::{Instead, Refused, RefusedInUse};
        let zeros = Instead("zeros are stored");
        let full_name = Instead("the full name is stored with each digest");
        let (option, value, feature, fallback) = match self {
            Wish::SmallBlocks => ("block_bits", "below 4 KiB", Feature::SubPageBlocks, RefusedInUse),
            Wish::SmallCompressedBlocks => {
                ("block_bits", "below 4 KiB, compressed data", Feature::SubPageCompressed, RefusedInUse)
            }
            Wish::Algorithm(algorithm) => {
                let feature = feature_of(algorithm);
                ("compression.spec", feature.name(), feature, RefusedInUse)
            }
            Wish::BigPclusters => ("compression.spec", "pclusters of several blocks", Feature::BigPcluster, Refused),
            Wish::EncodedExtents => ("compression.encoded_extents", "true", Feature::Addr48Bit, RefusedInUse),
            Wish::Parts => ("dedupe", "Parts", Feature::Fragments, Instead("only equal files are stored once")),
            Wish::PlainHoles => ("holes", "Kept, in uncompressed files", Feature::ChunkedFile, zeros),
            Wish::CompressedHoles => ("holes", "Kept, in compressed files", Feature::Fragments, zeros),
            Wish::Fragments => ("packing.fragments", "UpTo, Tails", Feature::Fragments, Instead("no file is packed")),
            Wish::PackedDirectories => {
                ("packing.directories", "true", Feature::Fragments, Instead("directories lie among the inodes"))
            }
            Wish::TailPacking => {
                ("packing.tail_packing", "true", Feature::TailPacking, Instead("ends of files take a block"))
            }
            Wish::Chunks => ("layout.chunk_bits", "Some", Feature::ChunkedFile, Refused),
            Wish::ExtraDevice => ("Out::blob", "Some", Feature::DeviceTable, RefusedInUse),
            Wish::OwnMtimes => {
                ("metadata.own_mtimes", "true", Feature::Addr48Bit, Instead("compact inodes have one mtime"))
            }
            Wish::OmitDot => ("metadata.omit_dot", "true", Feature::Addr48Bit, Refused),
            Wish::XattrPrefixes => ("metadata.xattr_prefixes", "any", Feature::XattrPrefixes, Refused),
            Wish::DigestPrefix => ("metadata.content_digests", "a prefix as name", Feature::XattrPrefixes, full_name),
            Wish::HiddenDigestPrefix => {
                let value = "a prefix as name, beside a packed inode or metabox";
                ("metadata.content_digests", value, Feature::PlainXattrPrefixes, full_name)
            }
            Wish::Metabox => ("metadata.metabox", "Some", Feature::Metabox, Refused),
        };
        KernelRule { option, value, feature, fallback }
    }
}

/// Returns the table of options that depend on the kernel, in the order of the fields of
/// [`BuildOptions`](crate::BuildOptions).
///
/// ```
/// let needs = |option| {
///     let rule = kiln_builder::kernel_rules().find(|rule| rule.option == option).unwrap();
///     rule.feature.since().to_string()
/// };
/// assert_eq!(needs("packing.fragments"), "6.1");
/// ```
pub fn kernel_rules() -> impl Iterator<Item = KernelRule> {
    Wish::ALL.into_iter().map(Wish::rule)
}

/// Manner in which an option was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is a default, or one of [`BuildOptions`](crate::BuildOptions), which may be downgraded.
    ByDefault,
    /// It was named, and must be had.
    Explicitly,
}

/// Feature that the chosen kernel lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    pub feature: Feature,
    pub kernel: KernelVersion,
}

/// Returns true if a wish is granted, and false if it is downgraded.
///
/// # Errors
/// A wish that is refused: the kernel lacks the feature, and nothing can stand in for it.
pub(crate) fn grant(kernel: Option<KernelVersion>, wish: Wish, asked: Asked) -> Result<bool, Lack> {
    let KernelRule { feature, fallback, .. } = wish.rule();
    match lack(kernel, feature) {
        None => Ok(true),
        Some(lack) if asked == Asked::Explicitly || fallback == KernelFallback::Refused => Err(lack),
        Some(_) => Ok(false),
    }
}

/// Returns true if a kernel is chosen and grants the wish. For options that are worth a later kernel only if the image
/// has one anyway.
pub(crate) fn is_granted_by_name(kernel: Option<KernelVersion>, wish: Wish) -> bool {
    kernel.is_some() && lack(kernel, wish.rule().feature).is_none()
}

/// Returns the lack of a feature, if a kernel is chosen and does not have it.
pub(crate) fn lack(kernel: Option<KernelVersion>, feature: Feature) -> Option<Lack> {
    kernel.filter(|kernel| *kernel < feature.since()).map(|kernel| Lack { feature, kernel })
}

/// Returns the feature of an image with data of this algorithm.
pub fn feature_of(algorithm: Algorithm) -> Feature {
    match algorithm {
        Algorithm::Lz4 => Feature::Lz4,
        Algorithm::Lzma => Feature::Lzma,
        Algorithm::Deflate => Feature::Deflate,
        Algorithm::Zstd => Feature::Zstd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_that_kernels_may_lack_has_a_row() {
        for feature in Feature::ALL {
            assert!(kernel_rules().any(|rule| rule.feature == feature), "{}", feature.name());
        }
    }

    #[test]
    fn wishes_are_granted_downgraded_or_refused() {
        let grant = |kernel: &str, wish, asked| {
            let kernel = kernel.parse().ok();
            grant(kernel, wish, asked).map_err(|lack| (lack.feature, Some(lack.kernel) == kernel))
        };
        let by_default = |kernel, wish| grant(kernel, wish, Asked::ByDefault);
        assert_eq!(by_default("", Wish::Metabox), Ok(true));
        assert_eq!(by_default("6.17", Wish::Metabox), Ok(true));
        assert_eq!(by_default("6.16", Wish::Metabox), Err((Feature::Metabox, true)));
        assert_eq!(by_default("6.0", Wish::Parts), Ok(false));
        assert_eq!(by_default("6.9", Wish::Algorithm(Algorithm::Zstd)), Ok(false));
        assert_eq!(grant("6.0", Wish::Parts, Asked::Explicitly), Err((Feature::Fragments, true)));
        assert_eq!(grant("6.1", Wish::Parts, Asked::Explicitly), Ok(true));
        assert!(!is_granted_by_name(None, Wish::OwnMtimes));
    }
}
