//! The inodes that the superblock names and no directory holds: the packed inode and the metabox.

use super::reader::{Reader, SpecialInodes};
use super::volume::Volume;
use crate::error::ReadError;
use crate::metadata::inode::Inode;
use kiln_format::Nid;
use kiln_format::inode::FileType;
use kiln_format::superblock::SUPERBLOCK_OFF;

/// A metabox has at most this many times the length of the image.
const METABOX_RATIO_MAX: u64 = 256;

/// Reads the special inodes. Both lie in the primary metadata space.
pub(super) fn read(volume: &Volume) -> Result<SpecialInodes, ReadError> {
    let (no_inodes, no_prefixes) = Default::default();
    let reader = Reader::new(volume, &no_inodes, &no_prefixes);
    let packed = volume.sb.packed_nid.map(|nid| regular_inode(reader, nid, "packed_nid")).transpose()?;
    let metabox = volume.sb.metabox_nid.map(|nid| regular_inode(reader, nid, "metabox_nid")).transpose()?;
    if let Some(inode) = &metabox {
        check_metabox_len(inode, volume.devices.primary_len())?;
    }
    Ok(SpecialInodes { packed, metabox, root: None })
}

fn regular_inode(reader: Reader<'_>, nid: Nid, field: &'static str) -> Result<Inode, ReadError> {
    let inode = reader.inode(nid)?;
    match inode.meta.file_type {
        FileType::Regular => Ok(inode),
        _ => Err(ReadError::corrupt("erofs_super_block", SUPERBLOCK_OFF, field, nid.0, "no regular file")),
    }
}

/// Refuses a metabox that is far larger than metadata ever compresses to: loops over metadata are
/// bounded by its length.
fn check_metabox_len(metabox: &Inode, image_len: u64) -> Result<(), ReadError> {
    let size = metabox.meta.size;
    match size / METABOX_RATIO_MAX <= image_len {
        true => Ok(()),
        false => {
            let error = ReadError::unsupported("erofs_inode", 0, "i_size", size, "metabox far larger than the image");
            Err(error.at_nid(metabox.nid))
        }
    }
}
