//! The sector that an update replaces: the superblock and its configuration records.

use kiln_builder::{BuildError, RootInode};
use kiln_format::generation::HEAD_LEN;
use kiln_format::superblock::{self, BASE_LEN, SUPERBLOCK_OFF};
use kiln_format::{Blkaddr, Compat, Nid};
use kiln_read::{Generation, Image, ImageOptions, ReadAt, ReadError, Superblock};
use std::io;
use std::sync::Arc;

use super::root::{self, records_end};

/// New superblock sector.
pub(super) struct Head {
    /// The superblock.
    pub superblock: Superblock,
    /// Superblock and configuration records, and the bytes behind them that are replaced, too.
    pub bytes: Vec<u8>,
    /// The root inode, if it lies in the sector.
    pub root: Option<RootInode>,
}

impl Head {
    /// Returns the head of a generation.
    pub(super) fn of(generation: &Generation) -> Self {
        let bytes = generation.head[..records_end(generation) as usize].to_vec();
        let root = root::in_head(generation).map(|found| {
            let bytes = generation.head[found.start..found.end].to_vec();
            RootInode { place: SUPERBLOCK_OFF + found.start as u64, bytes }
        });
        Self { superblock: generation.superblock.clone(), bytes, root }
    }

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
        if let Some(RootInode { place, bytes }) = &self.root {
            let start = place.checked_sub(SUPERBLOCK_OFF).map_or(HEAD_LEN, |start| start as usize);
            let place = sector.get_mut(start..).and_then(|rest| rest.get_mut(..bytes.len()));
            place.ok_or_else(|| internal("a root inode behind the sector"))?.copy_from_slice(bytes);
        }
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
/// last generation, and those behind that no generation uses. `metadata` is as from [`metadata_start`].
pub(super) fn records_room(generations: &[Generation], metadata: u64) -> u64 {
    let Some(last) = generations.last() else { return 0 };
    // What earlier updates have replaced was free.
    let used = generations.iter().map(records_end).max().unwrap_or(0);
    let rest = &last.head[used as usize..];
    let free = used + rest.iter().take_while(|&&byte| byte == 0).count() as u64;
    // Zeros may be part of something, too: of the metadata of the image as it was built.
    free.min(metadata.saturating_sub(SUPERBLOCK_OFF)).max(used).saturating_sub(BASE_LEN as u64)
}

/// Returns a byte in front of which the image as it was built has no inodes and shared attributes. What it returns is
/// not in the head if none of them are.
///
/// # Errors
/// An image that cannot be read.
pub(super) fn metadata_start(generations: &[Generation], source: &Arc<dyn ReadAt>) -> Result<u64, ReadError> {
    let head_end = SUPERBLOCK_OFF + HEAD_LEN as u64;
    let Some(first) = generations.first() else { return Ok(head_end) };
    let superblock = &first.superblock;
    let starts =
        [superblock.meta_blkaddr, superblock.xattr_blkaddr].map(|start| start.0 << superblock.block_bits.bits());
    match starts.iter().any(|start| *start < head_end) {
        true => first_metadata_byte(first, SUPERBLOCK_OFF + records_end(first), source),
        false => Ok(head_end),
    }
}

/// Returns the first byte of inodes and shared attributes of the image as it was built; or one at or before `floor`.
fn first_metadata_byte(generation: &Generation, floor: u64, source: &Arc<dyn ReadAt>) -> Result<u64, ReadError> {
    let options = ImageOptions::default().with_generation(Some(generation.number));
    let image = Image::open(source.clone(), Vec::new(), &options)?;
    let superblock = image.superblock();
    let byte = |block: Blkaddr| block.0 << superblock.block_bits.bits();
    let place = |nid: Nid| superblock.inode_place(nid).unwrap_or(u64::MAX);
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
