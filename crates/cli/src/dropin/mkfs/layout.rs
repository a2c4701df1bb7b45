//! The layout of data, from the options of `mkfs.erofs`.

use super::compression::Compression;
use super::extended::Extended;
use super::value::invalid;
use crate::dropin::Stop;
use kiln_builder::{
    BuildOptions, CompressionOptions, Dedupe, Fragments, Holes, MetadataOptions, PackingOptions, PclusterLimits,
    feature_of,
};
use kiln_codec::Method;
use kiln_format::BlockBits;
use kiln_format::feature::Feature;

/// Default length of text that encoded extents compress as one piece, in bytes: pieces of one block would gain
/// hardly anything.
const UNIT_LEN: u32 = 64 << 10;

/// Returns the options for the layout of data.
pub fn layout(
    block_bits: Option<BlockBits>,
    compression: Option<Compression>,
    pcluster_len: Option<u64>,
    extended: &Extended,
) -> Result<BuildOptions, Stop> {
    let block_bits = block_bits.unwrap_or(BlockBits::DEFAULT);
    // Without compression the lengths are checked all the same.
    let method = compression.map_or(Method::Zstd, |compression| compression.method);
    let limits = PclusterLimits::new(
        method,
        &BuildOptions::default().with(|options| {
            options.block_bits = block_bits;
            options.compression.encoded_extents = extended.bits48;
        }),
    );
    let fit = |what, len: Option<u64>| {
        let fit = |len| limits.fit(len).ok_or_else(|| invalid(what, &len.to_string().into()));
        len.map(fit).transpose()
    };
    let packed_pcluster_len = fit("fragment size", extended.packed_pcluster_len)?;
    // The default is one block, as in the original.
    let default_len = if extended.bits48 { UNIT_LEN } else { 0 };
    let pcluster_len = fit("physical clustersize", pcluster_len)?.unwrap_or(limits.nearest(default_len));
    let compression = compression.map(|compression| compression.spec(pcluster_len));
    Ok(BuildOptions {
        block_bits,
        dedupe: if extended.dedupe { Dedupe::Parts } else { Dedupe::Files },
        compression: CompressionOptions {
            spec: compression,
            encoded_extents: extended.bits48 && compression.is_some(),
            ..CompressionOptions::default()
        },
        packing: PackingOptions {
            fragments: extended.fragments,
            pcluster_len: packed_pcluster_len,
            tail_packing: extended.tail_packing,
            ..PackingOptions::default()
        },
        metadata: MetadataOptions { own_mtimes: extended.bits48, ..MetadataOptions::default() },
        ..BuildOptions::default()
    })
}

/// Returns the treatment of holes: zeros, as in the original, unless other options require kernels that support
/// holes anyway.
pub fn holes(files: &BuildOptions) -> Holes {
    let since = files.compression.spec.map(|spec| feature_of(spec.method.algorithm()).since());
    let newer =
        files.compression.encoded_extents || files.packing.fragments != Fragments::Off || files.dedupe == Dedupe::Parts;
    match newer || since >= Some(Feature::Fragments.since()) {
        true => Holes::Kept,
        false => Holes::Filled,
    }
}
