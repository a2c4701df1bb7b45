//! Pieces of reads: what reads of one extent and of several have in common.

use crate::cache::access_pattern::AccessPattern;
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::inode_map::Map;
use std::ops::Range;

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

/// A callback for each extent of a range, with the wanted part of it.
pub(super) type EachPiece<'a> = dyn FnMut(&Extent, Range<u64>) -> Result<(), ReadError> + 'a;

impl Image {
    /// Give the extents of a range to `each`, with the wanted part of each. For a fragment, they are extents of the packed inode.
    pub(super) fn each_piece(
        &self,
        map: &mut Map<'_>,
        packed: &mut PackedMap<'_>,
        range: Range<u64>,
        each: &mut EachPiece<'_>,
    ) -> Result<(), ReadError> {
        let nid = map.nid();
        each_extent(map, range, &mut |extent, part| match extent.kind {
            ExtentKind::Fragment { off: start } => {
                let (from, len) = (start.saturating_add(part.start - extent.la), part.end - part.start);
                if self.packed_range(from, len)?.nid == nid {
                    return Err(fragment_error(from, "a fragment inside the packed inode"));
                }
                packed.each_piece(from..from + len, each)
            }
            _ => each(extent, part),
        })
    }
}

/// Give the extents of a range to `each`, with the wanted part of each.
fn each_extent(map: &mut Map<'_>, range: Range<u64>, each: &mut EachPiece<'_>) -> Result<(), ReadError> {
    let mut off = range.start;
    while off < range.end {
        let extent = map.extent_at(off)?;
        let end = extent.end().min(range.end);
        if end <= off {
            return Err(ReadError::Internal { what: "an extent without progress".into() });
        }
        each(&extent, off..end)?;
        off = end;
    }
    Ok(())
}

/// The map of the packed inode, opened for the first fragment and kept for those that follow: they may be many, and each small.
pub(super) struct PackedMap<'a> {
    image: &'a Image,
    map: Option<Map<'a>>,
}

impl<'a> PackedMap<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Self { image, map: None }
    }

    /// Give the extents of a range, which the packed inode has, to `each`.
    fn each_piece(&mut self, range: Range<u64>, each: &mut EachPiece<'_>) -> Result<(), ReadError> {
        let map = match self.map.take() {
            Some(map) => map,
            None => Map::open(self.image, self.image.packed_range(range.start, range.end - range.start)?)?,
        };
        each_extent(self.map.insert(map), range, &mut |extent, part| match extent.kind {
            ExtentKind::Fragment { .. } => Err(fragment_error(part.start, "a fragment inside the packed inode")),
            _ => each(extent, part),
        })
    }
}
