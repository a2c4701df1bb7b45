//! The sector that an update replaces: the superblock and its configuration records.

use kiln_builder::BuildError;
use kiln_format::addr::SLOT_LEN;
use kiln_format::generation::HEAD_LEN;
use kiln_format::superblock::{self, BASE_LEN, SUPERBLOCK_OFF};
use kiln_format::{Blkaddr, Compat, Nid};
use kiln_read::{Generation, Image, ImageOptions, ReadAt, ReadError, Superblock};
use std::io;
use std::sync::Arc;

/// New superblock sector.
pub(super) struct Head {
    /// The superblock.
    pub superblock: Superblock,
    /// Superblock and configuration records, and the bytes behind them that are replaced, too.
    pub bytes: Vec<u8>,
}

impl Head {
    /// Returns the whole sector, behind the head as in `before`, with the checksum of the superblock's block if it has
    /// one.
    ///
    /// # Errors
    /// An image that cannot be read.
    pub(super) fn sector(&self, before: &[u8; HEAD_LEN], source: &Arc<dyn ReadAt>) -> io::Result<[u8; HEAD_LEN]> {
        let internal = |what: &str| io::Error::other(BuildError::Internal(what.to_owned()));
        let mut sector = *before;
        let place =
            sector.get_mut(..self.bytes.len()).ok_or_else(|| internal("a superblock longer than its sector"))?;
        place.copy_from_slice(&self.bytes);
        if self.superblock.compat.contains(Compat::SB_CHKSUM) {
            let mut block = vec![0; superblock::checksum_len(self.superblock.block_bits)];
            source.read_exact_at(&mut block, SUPERBLOCK_OFF)?;
            let len = block.len().min(HEAD_LEN);
            block[..len].copy_from_slice(&sector[..len]);
            let checksum = superblock::checksum(&block);
            sector[4..8].copy_from_slice(&checksum.to_le_bytes());
        }
        Ok(sector)
    }
}

/// Returns the number of bytes for configuration records behind a superblock's record of 128 bytes: as many as in the
/// last generation, and those behind that no generation uses.
///
/// # Errors
/// An image that cannot be read.
pub(super) fn records_room(generations: &[Generation], source: &Arc<dyn ReadAt>) -> Result<u64, ReadError> {
    let (Some(first), Some(last)) = (generations.first(), generations.last()) else { return Ok(0) };
    let ends = |generation: &Generation| {
        let record_len = generation.superblock.record_len;
        let behind = generation.head.get(record_len as usize..).unwrap_or_default();
        let records = generation.superblock.compr_cfgs(behind).and_then(|cfgs| cfgs.encode());
        let has_records = matches!(generation.superblock.compr_info, superblock::ComprInfo::AvailableAlgs(_));
        record_len + records.map_or(0, |records| if has_records { records.len() as u64 } else { 0 })
    };
    // What earlier updates have replaced was free.
    let used = generations.iter().map(ends).max().unwrap_or(0).min(HEAD_LEN as u64);
    let rest = &last.head[used as usize..];
    let mut free = used + rest.iter().take_while(|&&byte| byte == 0).count() as u64;
    // Zeros may be part of something, too: of the metadata of the image as it was built.
    let superblock = &first.superblock;
    let head_end = SUPERBLOCK_OFF + HEAD_LEN as u64;
    let starts =
        [superblock.meta_blkaddr, superblock.xattr_blkaddr].map(|start| start.0 << superblock.block_bits.bits());
    if starts.iter().any(|start| *start < head_end) {
        let first_byte = first_metadata_byte(first, SUPERBLOCK_OFF + used, source)?;
        free = free.min(first_byte.saturating_sub(SUPERBLOCK_OFF)).max(used);
    }
    Ok(free.saturating_sub(BASE_LEN as u64))
}

/// Returns the first byte of inodes and shared attributes of the image as it was built; or one at or before `floor`.
fn first_metadata_byte(generation: &Generation, floor: u64, source: &Arc<dyn ReadAt>) -> Result<u64, ReadError> {
    let options = ImageOptions::default().with_generation(Some(generation.number));
    let image = Image::open(source.clone(), Vec::new(), &options)?;
    let superblock = image.superblock();
    let byte = |block: Blkaddr| block.0 << superblock.block_bits.bits();
    let place = |nid: Nid| byte(superblock.meta_blkaddr).saturating_add(nid.0.saturating_mul(SLOT_LEN));
    let special = [superblock.packed_nid, superblock.metabox_nid].into_iter().flatten().map(place).min();
    if superblock.metabox_nid.is_some() {
        // All else is in the metabox, except shared attributes that the superblock says to be elsewhere.
        let is_apart = !superblock.compat.contains(Compat::SHARED_EA_IN_METABOX) && superblock.xattr_blkaddr.0 > 0;
        let shared = is_apart.then(|| byte(superblock.xattr_blkaddr));
        return Ok(special.into_iter().chain(shared).min().unwrap_or(floor));
    }
    let root = image.inode(image.root_nid())?;
    let mut first = special.unwrap_or(u64::MAX).min(place(root.nid));
    let mut walk = image.walk(&root, b"");
    while first > floor {
        let Some(entry) = walk.next() else { break };
        let inode = entry?.inode;
        first = first.min(place(inode.nid));
        // Shared attributes lie behind a byte that the superblock names.
        let shared = byte(superblock.xattr_blkaddr);
        if shared < first && !image.list_xattrs(&inode)?.is_empty() {
            first = shared;
        }
    }
    Ok(first)
}
