//! The superblock and the records that are read with it when an image is opened, before there is an
//! [`Image`](crate::image::Image).

use crate::error::ReadError;
use crate::metadata::inode::Inode;
use crate::source::devices::Devices;
use kiln_format::Compat;
use kiln_format::composefs::RawComposefsHeader;
use kiln_format::compr_cfg::ComprCfgs;
use kiln_format::inode::Epoch;
use kiln_format::superblock::{self, SUPERBLOCK_OFF, Superblock};
use zerocopy::FromBytes;

/// Bytes of an image that hold its superblock and the configuration records behind it probably.
const FRONT_LEN: u64 = 4096;
/// Most bytes that they can take: 128 + 16 * 255, and four records.
const HEAD_MAX_LEN: u64 = 128 + 16 * 255 + 4 * 65540;

/// Returns the front of an image, with a byte of the superblock at least: the bytes that opening
/// needs first, in one fetch.
pub(crate) fn read_front(devices: &Devices) -> Result<Vec<u8>, ReadError> {
    let have = devices.primary_len();
    if have <= SUPERBLOCK_OFF {
        let (record, reason) = ("erofs_super_block", "not an EROFS image: shorter than a superblock");
        return Err(ReadError::corrupt(record, SUPERBLOCK_OFF, "length of the image", have, reason));
    }
    let mut front = vec![0; have.min(FRONT_LEN) as usize];
    devices.read(0, &mut front, 0)?;
    Ok(front)
}

/// Reads at most `len` bytes from the superblock on.
fn read_head(devices: &Devices, len: u64) -> Result<Vec<u8>, ReadError> {
    let mut head = vec![0; devices.primary_len().saturating_sub(SUPERBLOCK_OFF).min(len) as usize];
    devices.read(0, &mut head, SUPERBLOCK_OFF)?;
    Ok(head)
}

/// Returns the configuration records, which start in `head` and may, in theory, end far behind it.
pub(crate) fn read_compr_cfgs(devices: &Devices, sb: &Superblock, head: &[u8]) -> Result<ComprCfgs, ReadError> {
    let behind = |head: &[u8]| sb.compr_cfgs(head.get(sb.record_len as usize..).unwrap_or_default());
    match behind(head) {
        Ok(cfgs) => Ok(cfgs),
        Err(_) => Ok(behind(&read_head(devices, HEAD_MAX_LEN)?)?),
    }
}

/// Compares the checksum, which covers a block. Uses the bytes of `head`, and reads the block if
/// these are too few.
pub(crate) fn verify_checksum(devices: &Devices, sb: &Superblock, head: &[u8]) -> Result<(), ReadError> {
    if !sb.compat.contains(Compat::SB_CHKSUM) {
        return Ok(());
    }
    let len = superblock::checksum_len(sb.block_bits);
    devices.check_range("erofs_super_block", 0, SUPERBLOCK_OFF, len as u64)?;
    let mut read = Vec::new();
    let covered = match head.get(..len) {
        Some(covered) => covered,
        None => {
            read.resize(len, 0);
            devices.read(0, &mut read, SUPERBLOCK_OFF)?;
            &read
        }
    };
    match superblock::checksum(covered) == sb.checksum {
        true => Ok(()),
        false => {
            let (record, stored) = ("erofs_super_block", sb.checksum.into());
            Err(ReadError::corrupt(record, SUPERBLOCK_OFF, "checksum", stored, "does not match the superblock's block"))
        }
    }
}

/// Returns the root inode if it lies in the front of an image: there, an update may replace it together with the
/// superblock, and each goes with what was read with it.
pub(crate) fn root_in_front(sb: &Superblock, front: &[u8]) -> Option<Inode> {
    let place = sb.inode_place(sb.root_nid)?;
    let bytes = front.get(usize::try_from(place).ok()?..)?;
    let epoch = Epoch { secs: sb.epoch, nsec: sb.fixed_nsec };
    let meta = kiln_format::inode::Inode::decode(bytes, place, epoch, sb.block_bits).ok()?;
    Some(Inode { nid: sb.root_nid, meta })
}

/// Returns true if the front of an image has the header of composefs.
pub(crate) fn has_composefs_header(front: &[u8]) -> bool {
    RawComposefsHeader::read_from_prefix(front).is_ok_and(|(header, _)| header.is_valid())
}
