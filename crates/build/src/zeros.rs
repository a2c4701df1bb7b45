//! The pcluster of zeros, which holes name in maps that have none.

use kiln_codec::{Encoder, Spec};
use kiln_format::BlockBits;

use crate::{BuildError, hole};

/// Longest extent of zeros. A reader decodes an extent from its start, so this bounds what a read inside a hole costs.
const EXTENT_MAX_LEN: usize = 1 << 20;

/// A block that decodes to zeros, and how many they are.
///
/// # Errors
/// A codec that fails.
pub fn pcluster(spec: &Spec, block_bits: BlockBits) -> Result<(Vec<u8>, u32), BuildError> {
    let mut block = vec![0; block_bits.len() as usize];
    let zeros = vec![0; EXTENT_MAX_LEN];
    let mut encoder = Encoder::new(spec)?;
    let most = block_bits.floor(encoder.fill(&zeros, &mut block)?.consumed as u64) as usize;
    encoder.reset();
    let filled = encoder.fill(&zeros[..most], &mut block)?;
    if filled.consumed != most || most < hole::HOLE_MIN_LEN as usize {
        return Err(BuildError::Internal(format!("a block holds {} of {most} zeros", filled.consumed)));
    }
    // Right-aligned, as every pcluster.
    block[filled.produced..].fill(0);
    block.rotate_right(block_bits.len() as usize - filled.produced);
    Ok((block, most as u32))
}
