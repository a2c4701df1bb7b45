//! Errors of explicit options, by field, so that a caller can use its own name of the field.

use kiln_codec::CodecError;
use kiln_format::KernelVersion;
use kiln_format::feature::{Feature, OLDEST_KERNEL};
use std::fmt;

/// Field of [`Choices`](crate::Choices).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OptionField {
    /// `kernel`
    Kernel,
    /// `block_len`
    BlockLen,
    /// `compression`
    Compression,
    /// `pcluster_len`
    PclusterLen,
    /// `dedupe`
    Dedupe,
    /// `fragments`
    Fragments,
    /// `packed_pcluster_len`
    PackedPclusterLen,
    /// `encoded_extents`
    EncodedExtents,
    /// `tail_packing`
    TailPacking,
    /// `pack_directories`
    PackDirectories,
    /// `metadata`
    Metadata,
    /// `tries`
    Tries,
}

impl OptionField {
    /// Returns the name of the field.
    pub fn name(self) -> &'static str {
        match self {
            OptionField::Kernel => "kernel",
            OptionField::BlockLen => "block_len",
            OptionField::Compression => "compression",
            OptionField::PclusterLen => "pcluster_len",
            OptionField::Dedupe => "dedupe",
            OptionField::Fragments => "fragments",
            OptionField::PackedPclusterLen => "packed_pcluster_len",
            OptionField::EncodedExtents => "encoded_extents",
            OptionField::TailPacking => "tail_packing",
            OptionField::PackDirectories => "pack_directories",
            OptionField::Metadata => "metadata",
            OptionField::Tries => "tries",
        }
    }
}

/// Error for an explicit option that cannot be had; nothing else is chosen then, either.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problem.message(field.name()))]
pub struct OptionError {
    /// The option.
    pub field: OptionField,
    /// The problem with it.
    pub problem: OptionProblem,
}

/// Problem with an option.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionProblem {
    /// The option needs a later kernel than the one that was chosen.
    NeedsKernel {
        /// The first kernel that has it.
        since: KernelVersion,
        /// The one that was chosen.
        kernel: KernelVersion,
    },
    /// The algorithm came with a later kernel than the one that was chosen.
    Algorithm {
        /// The algorithm.
        feature: Feature,
        /// The kernel that was chosen.
        kernel: KernelVersion,
    },
    /// No image can be built for this kernel.
    OldKernel(KernelVersion),
    /// No block has this length in bytes.
    BlockLen(u64),
    /// No pcluster has this length in bytes.
    PclusterLen {
        /// Length that was asked for.
        len: u64,
        /// Unit of the lengths of pclusters, in bytes.
        block_len: u32,
        /// Longest pcluster, in bytes.
        max_len: u32,
    },
    /// The chosen kernel has no pclusters of several blocks.
    BigPcluster {
        /// Length that was asked for, in bytes.
        len: u64,
        /// The kernel that was chosen.
        kernel: KernelVersion,
    },
    /// The option is about compression, but nothing is compressed.
    NothingCompressed,
    /// Metadata is to be compressed as files are, which are not compressed.
    FilesNotCompressed,
    /// The option is about packed files, but no file is packed.
    NothingPacked,
    /// The option does not go with encoded extents.
    EncodedExtents,
    /// The method does not have such a level or window.
    Method(CodecError),
}

impl OptionProblem {
    /// Returns the message about an option that its user knows as `name`.
    pub fn message(&self, name: impl fmt::Display) -> String {
        match self {
            Self::NeedsKernel { since, kernel } => {
                format!("{name} needs Linux {since}, but the image is for Linux {kernel}")
            }
            Self::Algorithm { feature, kernel } => {
                let (algorithm, since) = (feature.name(), feature.since());
                format!("{algorithm} came with Linux {since}, but the image is for Linux {kernel}")
            }
            Self::OldKernel(kernel) => {
                format!("{name} {kernel}: images are made for Linux {OLDEST_KERNEL} and later")
            }
            Self::BlockLen(len) => format!("{name} {len}: use a power of two, 512 to 64k"),
            Self::PclusterLen { len, block_len, max_len } => {
                format!("{name} {len}: use a multiple of {block_len} bytes, up to {max_len}")
            }
            Self::BigPcluster { len, kernel } => {
                let since = Feature::BigPcluster.since();
                format!("{name} {len}: more than a block needs Linux {since}, but the image is for Linux {kernel}")
            }
            Self::NothingCompressed => format!("{name}: nothing is compressed"),
            Self::FilesNotCompressed => format!("{name}: files are not compressed: name an algorithm for metadata"),
            Self::NothingPacked => format!("{name}: no files are packed"),
            Self::EncodedExtents => format!("{name}: not with encoded extents"),
            Self::Method(error) => format!("{name}: {error}"),
        }
    }

    pub(crate) fn of(self, field: OptionField) -> OptionError {
        OptionError { field, problem: self }
    }
}
