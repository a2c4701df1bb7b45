//! The pcluster of zeros, which holes refer to in maps that do not support holes.

use kiln_codec::{Encoder, Spec};

use crate::error::BuildError;
use crate::format::Format;
use crate::plan::hole;

/// Longest extent of zeros. A reader decodes an extent from its start, so this bounds what a read inside a hole costs.
const EXTENT_MAX_LEN: usize = 1 << 20;

/// Returns a block that decodes to zeros, and their number.
///
/// # Errors
/// A codec that fails.
pub(crate) fn pcluster(spec: &Spec, format: &Format) -> Result<(Vec<u8>, u32), BuildError> {
    let block_bits = format.block_bits;
    let mut block = vec![0; block_bits.len() as usize];
    let longest = format.compression.extent_max_len.map_or(EXTENT_MAX_LEN, |len| EXTENT_MAX_LEN.min(len as usize));
    let zeros = vec![0; longest];
    let mut encoder = Encoder::new(spec)?;
    let mut most = block_bits.floor(encoder.fill(&zeros, &mut block)?.consumed as u64) as usize;
    // Filling may take a little more text than one attempt for the same room.
    let produced = loop {
        if most < longest.min(hole::HOLE_MIN_LEN as usize) / 2 {
            return Err(BuildError::Internal(format!("a block does not hold {most} zeros")));
        }
        encoder.reset();
        match encoder.encode(&zeros[..most], &mut block)? {
            Some(produced) => break produced,
            None => most = block_bits.floor((most - most / 16) as u64) as usize,
        }
    };
    // Right-aligned, as every pcluster.
    block[produced..].fill(0);
    block.rotate_right(block_bits.len() as usize - produced);
    Ok((block, most as u32))
}
