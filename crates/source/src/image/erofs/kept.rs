//! How an image stores a file, for an image that takes it over.

use kiln_format::inode::InodeData;
use kiln_format::{Algorithm, Incompat};
use kiln_read::{ExtentKind, Image, Inode, MetadataSpace, ReadError};
use kiln_tree::{Kept, KeptExtent, KeptExtents};

/// How the contents of a file are stored, if another image can have them so. Pclusters that lie beside inodes, and what lies in chunks, on extra
/// devices, or in forms that only old images have, are decoded instead.
///
/// # Errors
/// A map that cannot be read.
pub(super) fn kept(image: &Image, inode: &Inode) -> Result<Option<Kept>, ReadError> {
    match inode.meta.data {
        InodeData::FlatPlain(Some(_)) | InodeData::FlatInline(_) => flat(image, inode),
        InodeData::Compressed { blocks, .. } => {
            let Some(extents) = extents(image, inode)? else { return Ok(None) };
            Ok(Some(match extents.fragment {
                Some((0, off)) => Kept::Fragment { off },
                _ => Kept::Extents(KeptExtents { blocks, ..extents }),
            }))
        }
        _ => Ok(None),
    }
}

fn flat(image: &Image, inode: &Inode) -> Result<Option<Kept>, ReadError> {
    let mut found = None;
    for extent in image.extents(inode) {
        let extent = extent?;
        found = match (extent.kind, found) {
            (ExtentKind::Raw { device: 0, pa }, None) => Some(Kept::Flat { pa, tail_len: 0 }),
            (ExtentKind::Meta { .. }, None) => Some(Kept::Flat { pa: 0, tail_len: extent.llen }),
            (ExtentKind::Meta { .. }, Some(Kept::Flat { pa, tail_len: 0 })) => {
                Some(Kept::Flat { pa, tail_len: extent.llen })
            }
            _ => return Ok(None),
        };
    }
    Ok(found)
}

/// The extents of a compressed inode, if they can be taken over.
///
/// # Errors
/// As [`kept`].
pub(super) fn extents(image: &Image, inode: &Inode) -> Result<Option<KeptExtents>, ReadError> {
    // Before, LZ4 did not say where its padding is.
    let has_padding = image.superblock().incompat.contains(Incompat::LZ4_0PADDING);
    let is_kept = |algorithm, all: &KeptExtents| {
        (has_padding || algorithm != Algorithm::Lz4) && all.algorithm.is_none_or(|one| one == algorithm)
    };
    let mut all = KeptExtents::default();
    for extent in image.extents(inode) {
        let extent = extent?;
        let Ok(llen) = u32::try_from(extent.llen) else { return Ok(None) };
        let (pa, plen, plain, partial) = match extent.kind {
            _ if all.fragment.is_some() || all.inline.is_some() => return Ok(None),
            ExtentKind::Hole => continue,
            ExtentKind::Plain { device: 0, pa, plen, interlaced: false, inline: None } => (pa, plen, true, false),
            ExtentKind::Encoded { algorithm, device: 0, pa, plen, partial, inline: None }
                if is_kept(algorithm, &all) =>
            {
                all.algorithm = Some(algorithm);
                (pa, plen, false, partial)
            }
            ExtentKind::Fragment { off } => {
                all.fragment = Some((extent.la, off));
                continue;
            }
            ExtentKind::Plain { pa, plen, interlaced: false, inline: Some(MetadataSpace::Primary), .. } => {
                all.inline = Some(KeptExtent { la: extent.la, llen, pa, plen, plain: true, partial: false });
                continue;
            }
            ExtentKind::Encoded {
                algorithm, pa, plen, partial: false, inline: Some(MetadataSpace::Primary), ..
            } if is_kept(algorithm, &all) => {
                all.algorithm = Some(algorithm);
                all.inline = Some(KeptExtent { la: extent.la, llen, pa, plen, plain: false, partial: false });
                continue;
            }
            _ => return Ok(None),
        };
        all.list.push(KeptExtent { la: extent.la, llen, pa, plen, plain, partial });
    }
    Ok(Some(all))
}
