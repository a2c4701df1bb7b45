//! Pieces of reads: what reads of one extent and of several have in common.

use crate::cache::access_pattern::AccessPattern;
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::inode_map::Map;

/// The record's name for the bytes of a pcluster, in messages.
pub(super) const PCLUSTER: &str = "pcluster";

/// Whether fragments may occur: not in the packed inode, which holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FragmentPolicy {
    Allowed,
    Refused,
}

/// How a file is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileAccess {
    pub(crate) fragments: FragmentPolicy,
    pub(crate) pattern: AccessPattern,
}

/// A read of a file whose first extent is found.
pub(super) struct FileRead<'m, 'i> {
    pub(super) map: &'m mut Map<'i>,
    pub(super) first: Extent,
    pub(super) access: FileAccess,
}

/// How many bytes of an extent at byte `la` of a file stand at the end of its interlaced pcluster.
pub(super) fn rotated_len(image: &Image, la: u64) -> u64 {
    let block_bits = image.superblock().block_bits;
    block_bits.len() - block_bits.within(la)
}

/// Where byte `skip` of a fragment at byte `off` of the packed inode is in the packed inode.
pub(super) fn fragment_off(off: u64, skip: u64, fragments: FragmentPolicy) -> Result<u64, ReadError> {
    match fragments {
        FragmentPolicy::Allowed => Ok(off.saturating_add(skip)),
        FragmentPolicy::Refused => Err(fragment_error(off, "a fragment inside the packed inode")),
    }
}

pub(crate) fn fragment_error(off: u64, reason: &'static str) -> ReadError {
    ReadError::corrupt("z_erofs_map_header", 0, "h_fragmentoff", off, reason)
}

/// Extend a raw extent by those that follow it in the file and on its device, up to byte `end` of the file: chunks are
/// often contiguous, and one large read is cheaper than many small ones.
pub(super) fn join_raw(map: &mut Map<'_>, extent: &mut Extent, end: u64) -> Result<(), ReadError> {
    let ExtentKind::Raw { device, pa } = extent.kind else { return Ok(()) };
    while extent.end() < end {
        let next = map.extent_at(extent.end())?;
        let follows = ExtentKind::Raw { device, pa: pa.saturating_add(extent.llen) };
        if next.llen == 0 || next.kind != follows {
            break;
        }
        extent.llen += next.llen;
    }
    Ok(())
}
