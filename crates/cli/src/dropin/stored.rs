//! The stored size of a file's contents.

use kiln_read::{Extent, ExtentKind, Image, Inode, ReadError};

/// Returns the bytes that the contents take: those of its pclusters for a compressed file, the size for any other. A
/// fragment counts with the packed inode.
pub fn len(image: &Image, inode: &Inode) -> Result<u64, ReadError> {
    if !inode.has_contents() {
        return Ok(0);
    }
    if !inode.meta.layout().is_compressed() {
        return Ok(inode.meta.size);
    }
    let mut sum = 0u64;
    for extent in extents(image, inode) {
        sum = sum.saturating_add(physical(&extent?).1);
    }
    Ok(sum)
}

/// Returns the same number according to the inode itself. A compressed inode counts only data stored for it alone:
/// shared pclusters count with the first file, and a tail beside the inode not at all.
pub fn claimed_len(image: &Image, inode: &Inode) -> u64 {
    match inode.meta.compressed_blocks() {
        Some(blocks) => u64::from(blocks) << image.superblock().block_bits.bits(),
        None if inode.has_contents() => inode.meta.size,
        None => 0,
    }
}

/// Returns all extents of an inode's contents, in order.
pub fn extents(image: &Image, inode: &Inode) -> impl Iterator<Item = Result<Extent, ReadError>> {
    let (image, inode) = (image.clone(), *inode);
    let mut off = if inode.has_contents() { 0 } else { u64::MAX };
    std::iter::from_fn(move || {
        if off >= inode.meta.size {
            return None;
        }
        let extent = image.extent_at(&inode, off);
        off = match &extent {
            Ok(extent) => extent.end().max(off + 1), // whatever happens, we go on
            Err(_) => u64::MAX,
        };
        Some(extent)
    })
}

/// Returns the source of an extent's bytes: byte address, length in bytes, device. Extents without a place of their
/// own have zeros.
pub fn physical(extent: &Extent) -> (u64, u64, u16) {
    match extent.kind {
        ExtentKind::Raw { device, pa } => (pa, extent.llen, device),
        ExtentKind::Meta { pa, .. } => (pa, extent.llen, 0),
        ExtentKind::Plain { inline: Some(_), pa, plen, .. } | ExtentKind::Encoded { inline: Some(_), pa, plen, .. } => {
            (pa, plen.into(), 0)
        }
        ExtentKind::Plain { device, pa, plen, .. } | ExtentKind::Encoded { device, pa, plen, .. } => {
            (pa, plen.into(), device)
        }
        // Holes and fragments.
        _ => (0, 0, 0),
    }
}
