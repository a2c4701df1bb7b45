//! Metadata of the previous image, some of which an image that is appended to it keeps.
//!
//! The new superblock must give the same meaning to what is kept. So the new image counts times and shared attributes
//! from where the previous one does.

use kiln_format::generation::HEAD_LEN;
use kiln_format::inode::{EXTENDED_LEN, Epoch, Inode};
use kiln_format::superblock::SUPERBLOCK_OFF;
use kiln_format::xattr::{BODY_HEADER_LEN, ENTRY_HEADER_LEN, RawXattrBodyHeader, RawXattrEntry, entry_len};
use kiln_format::{Blkaddr, BlockBits};
use kiln_tree::{Base, NodeId, Tree};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use zerocopy::FromBytes;

use crate::format::Format;

/// Bytes of the previous image that are read at once. They are read in the order of their places.
const PIECE_LEN: u64 = 256 << 10;
/// First byte of the image that no update overwrites.
const FIRST_BYTE: u64 = SUPERBLOCK_OFF + HEAD_LEN as u64;

/// Metadata of a previous image.
pub(crate) struct PreviousMetadata {
    base: Arc<dyn Base>,
    /// Time that compact inodes have or count from.
    pub epoch: Epoch,
    /// Block from which the ids of shared attributes count.
    pub xattr_blkaddr: Blkaddr,
    /// Bytes of the previous image with inodes of the same paths, in order.
    pub places: Vec<(u64, NodeId)>,
    /// Ids of its shared attributes, by their entries.
    pub shared_ids: HashMap<Box<[u8]>, u32>,
    /// Byte of the image with the new root inode.
    pub root: u64,
}

impl PreviousMetadata {
    /// Looks for the metadata of the base of the tree. Returns `None` if nothing can be kept.
    pub(crate) fn find(tree: &Tree, format: &Format) -> Option<Self> {
        let base = tree.stores().base?;
        let facts = base.facts();
        let metadata = facts.metadata?;
        // Nids in the metabox count from another start. Directories in the packed inode are compressed before the place
        // of the inodes is known.
        if format.metadata.metabox.is_some() || format.packing.directories || facts.block_bits != format.block_bits {
            return None;
        }
        // The build time counts from the epoch, forwards.
        let build_time = format.identity.build_time.or(format.identity.source_date_epoch);
        if build_time.is_some_and(|secs| secs < metadata.epoch.secs) {
            return None;
        }
        let places = base.inode_places(tree).into_iter().map(|(node, place)| (place, node));
        let mut places: Vec<(u64, NodeId)> = places.collect();
        places.sort_unstable_by_key(|(place, node)| (*place, node.0));
        let mut found = Self {
            epoch: metadata.epoch,
            xattr_blkaddr: metadata.xattr_blkaddr,
            places,
            shared_ids: HashMap::new(),
            root: 0,
            base: base.clone(),
        };
        if format.metadata.digest_hash.is_some() || tree.nodes().any(|(_, node)| !node.xattrs.is_empty()) {
            found.shared_ids = found.shared_ids(format.block_bits);
        }
        Some(found)
    }

    /// Returns a reader of bytes of the previous image.
    pub(crate) fn reader(&self) -> PreviousReader<'_> {
        PreviousReader { base: &*self.base, len: self.base.facts().len, start: 0, buf: Vec::new() }
    }

    /// Returns the ids of shared attributes to which inodes of the previous image refer.
    fn shared_ids(&self, block_bits: BlockBits) -> HashMap<Box<[u8]>, u32> {
        let mut reader = self.reader();
        let ids: BTreeSet<u32> = self
            .places
            .iter()
            .filter_map(|(place, _)| self.ids_of(*place, block_bits, &mut reader))
            .flatten()
            .collect();
        let start = self.xattr_blkaddr.0 << block_bits.bits();
        let mut entry = |id: u32| {
            let at = start.checked_add(4 * u64::from(id))?;
            let (raw, _) = RawXattrEntry::read_from_prefix(reader.get(at, ENTRY_HEADER_LEN as u64)?).ok()?;
            let len = entry_len(raw.e_name_len.into(), raw.e_value_size.get().into());
            Some(Box::from(reader.get(at, len as u64)?))
        };
        // Of equal entries, the first one counts.
        ids.into_iter().rev().filter_map(|id| Some((entry(id)?, id))).collect()
    }

    /// Returns the ids of the shared attributes of the inode at a byte.
    fn ids_of(&self, place: u64, block_bits: BlockBits, reader: &mut PreviousReader<'_>) -> Option<Vec<u32>> {
        let record = reader.get(place, EXTENDED_LEN as u64)?;
        let inode = Inode::decode(record, place, self.epoch, block_bits).ok()?;
        let body = place.checked_add(inode.form.len() as u64)?;
        let header = reader.get(body, inode.xattr_len())?;
        let (header, ids) = RawXattrBodyHeader::read_from_prefix(header).ok()?;
        let ids = ids.get(..4 * usize::from(header.h_shared_count))?;
        debug_assert!(BODY_HEADER_LEN + ids.len() <= inode.xattr_len() as usize);
        Some(ids.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]])).collect())
    }
}

/// Reads bytes of the previous image that no update overwrites.
pub(crate) struct PreviousReader<'a> {
    base: &'a dyn Base,
    /// Length of the previous image in bytes.
    len: u64,
    /// Byte at which `buf` begins.
    start: u64,
    buf: Vec<u8>,
}

impl PreviousReader<'_> {
    /// Returns bytes from `at` on; `None` if they cannot be read.
    pub(crate) fn get(&mut self, at: u64, len: u64) -> Option<&[u8]> {
        let end = at.checked_add(len).filter(|end| *end <= self.len && at >= FIRST_BYTE)?;
        if at < self.start || end > self.start + self.buf.len() as u64 {
            let piece_len = len.max(PIECE_LEN).min(self.len - at) as usize;
            self.buf.resize(piece_len, 0);
            self.start = at;
            if self.base.read_exact_at(&mut self.buf, at).is_err() {
                self.buf.clear();
                return None;
            }
        }
        self.buf.get((at - self.start) as usize..)?.get(..len as usize)
    }
}
