//! Stored form of a file, for an image that reuses it.

use kiln_format::inode::InodeData;
use kiln_format::{Algorithm, Incompat};
use kiln_read::{ExtentKind, Image, Inode, MetadataSpace, ReadError};
use kiln_tree::{ReusedData, ReusedExtent, ReusedExtents};

/// Returns the stored form of a file's contents if another image can reuse it. Pclusters stored
/// inline with inodes, and data in chunks, on extra devices or in obsolete formats, are decoded
/// instead.
///
/// # Errors
/// An unreadable map.
pub fn reusable_data(image: &Image, inode: &Inode) -> Result<Option<ReusedData>, ReadError> {
    match inode.meta.data {
        InodeData::FlatPlain(Some(_)) | InodeData::FlatInline(_) => flat(image, inode),
        InodeData::Compressed { blocks, .. } => {
            let Some(extents) = reusable_extents(image, inode)? else { return Ok(None) };
            Ok(Some(match extents.fragment {
                Some((0, off)) => ReusedData::Fragment { off },
                _ => ReusedData::Extents(ReusedExtents { blocks, ..extents }),
            }))
        }
        _ => Ok(None),
    }
}

fn flat(image: &Image, inode: &Inode) -> Result<Option<ReusedData>, ReadError> {
    let mut found = None;
    for extent in image.extents(inode) {
        let extent = extent?;
        found = match (extent.kind, found) {
            (ExtentKind::Raw { device: 0, pa }, None) => Some(ReusedData::Flat { pa, tail_len: 0 }),
            (ExtentKind::Meta { .. }, None) => Some(ReusedData::Flat { pa: 0, tail_len: extent.llen }),
            (ExtentKind::Meta { .. }, Some(ReusedData::Flat { pa, tail_len: 0 })) => {
                Some(ReusedData::Flat { pa, tail_len: extent.llen })
            }
            _ => return Ok(None),
        };
    }
    Ok(found)
}

/// Returns the extents of a compressed inode if they can be reused.
///
/// # Errors
/// Those of [`reusable_data`].
pub fn reusable_extents(image: &Image, inode: &Inode) -> Result<Option<ReusedExtents>, ReadError> {
    // Without this feature, LZ4 pclusters do not say where their padding is.
    let has_padding = image.superblock().incompat.contains(Incompat::LZ4_0PADDING);
    let is_reusable = |algorithm, all: &ReusedExtents| {
        (has_padding || algorithm != Algorithm::Lz4) && all.algorithm.is_none_or(|one| one == algorithm)
    };
    let mut all = ReusedExtents::default();
    for extent in image.extents(inode) {
        let extent = extent?;
        let Ok(llen) = u32::try_from(extent.llen) else { return Ok(None) };
        let (pa, plen, plain, partial) = match extent.kind {
            _ if all.fragment.is_some() || all.inline.is_some() => return Ok(None),
            ExtentKind::Hole => continue,
            ExtentKind::Plain { device: 0, pa, plen, interlaced: false, inline: None } => (pa, plen, true, false),
            ExtentKind::Encoded { algorithm, device: 0, pa, plen, partial, inline: None }
                if is_reusable(algorithm, &all) =>
            {
                all.algorithm = Some(algorithm);
                (pa, plen, false, partial)
            }
            ExtentKind::Fragment { off } => {
                all.fragment = Some((extent.la, off));
                continue;
            }
            ExtentKind::Plain { pa, plen, interlaced: false, inline: Some(MetadataSpace::Primary), .. } => {
                all.inline = Some(ReusedExtent { la: extent.la, llen, pa, plen, plain: true, partial: false });
                continue;
            }
            ExtentKind::Encoded {
                algorithm, pa, plen, partial: false, inline: Some(MetadataSpace::Primary), ..
            } if is_reusable(algorithm, &all) => {
                all.algorithm = Some(algorithm);
                all.inline = Some(ReusedExtent { la: extent.la, llen, pa, plen, plain: false, partial: false });
                continue;
            }
            _ => return Ok(None),
        };
        all.list.push(ReusedExtent { la: extent.la, llen, pa, plen, plain, partial });
    }
    Ok(Some(all))
}
