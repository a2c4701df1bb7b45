//! Refusal of options, before anything is read.

use kiln_codec::Spec;
use kiln_format::chunk::CHUNK_MAX_SHIFT;
use kiln_format::feature::Feature;
use kiln_format::xattr::BODY_MAX_LEN;

use super::{Format, REST_MAX_BLOCKS};
use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::options::kernel::{Asked, Wish, grant, lack};

/// Largest alignment, in bytes.
const ALIGN_MAX: u64 = 1 << 30;

/// Refuses what the kernel of `options` cannot read, and values out of range.
///
/// # Errors
/// The first of them.
pub(super) fn check(format: &Format, options: &BuildOptions) -> Result<(), BuildError> {
    let Format { compression, layout, metadata, .. } = format;
    let (block_bits, block_len) = (format.block_bits.bits(), format.block_bits.len());
    let wishes = [
        (format.specs().any(|spec| u64::from(spec.pcluster_len) > block_len), Wish::BigPclusters),
        (layout.chunk_bits.is_some(), Wish::Chunks),
        (!metadata.xattr_prefixes.is_empty(), Wish::XattrPrefixes),
        (metadata.omit_dot, Wish::OmitDot),
        (metadata.metabox.is_some(), Wish::Metabox),
    ];
    for (_, wish) in wishes.into_iter().filter(|(is_asked, _)| *is_asked) {
        grant(options.kernel, wish, Asked::ByDefault)?;
    }
    for spec in format.specs() {
        let (len, max_len) = (spec.pcluster_len, options.pcluster_max_len(spec.method));
        if !u64::from(len).is_multiple_of(block_len) || len > max_len {
            return Err(BuildError::PclusterLen { len, block_len, max_len });
        }
        Spec::new(spec.method, Some(spec.level), len)?;
    }
    let min = if format.dedupes_parts() { REST_MAX_BLOCKS - 1 } else { 1 } << block_bits;
    if let Some(len) = compression.extent_max_len.filter(|len| *len < min) {
        return Err(BuildError::ExtentMaxLen { len, min });
    }
    if metadata.root_xattr_len > BODY_MAX_LEN {
        return Err(BuildError::RootXattrLen { len: metadata.root_xattr_len });
    }
    let bad = |align: &u64| *align != 1 && (!align.is_multiple_of(block_len) || !(1..=ALIGN_MAX).contains(align));
    if let Some(align) = [layout.data_align, layout.image_align].into_iter().find(bad) {
        return Err(BuildError::Alignment { align, block_len });
    }
    match layout.chunk_bits.filter(|bits| !(block_bits..=block_bits + CHUNK_MAX_SHIFT).contains(bits)) {
        Some(bits) => Err(BuildError::ChunkBits { bits, block_len }),
        None => Ok(()),
    }
}

/// Refuses an image whose features the kernel of `options` does not have.
///
/// # Errors
/// The oldest feature that is missing.
pub(crate) fn features(features: &[Feature], options: &BuildOptions) -> Result<(), BuildError> {
    let lack = features.iter().find_map(|feature| lack(options.kernel, *feature));
    lack.map_or(Ok(()), |lack| Err(lack.into()))
}
