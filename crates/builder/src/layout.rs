//! The places of inodes and directories: the metadata zone, measured before it is written.
//!
//! The root inode comes first (its nid has 16 bits), then the shared xattrs, then, directory by directory in walk
//! order, the directory's blocks and the inodes that it names. So a walk reads one run. Files that a program reads
//! first come before the others.

pub(crate) mod allocator;
pub(crate) mod encoded_extents;
pub(crate) mod lcluster_index;
pub(crate) mod map_shape;
pub(crate) mod measure;
pub(crate) mod special;
pub(crate) mod view;

use kiln_format::addr::SLOT_LEN;
use kiln_format::{BlockBits, Nid};
use std::collections::HashMap;

use crate::error::BuildError;
use crate::layout::allocator::MetadataAllocator;
use crate::layout::view::View;
use kiln_tree::NodeId;

/// Returns the nid of an inode at the first byte of the metadata zone. Nids count from the block before the zone
/// (`meta_blkaddr`), so that none is 0: readdir of C libraries skips entries of that number, and in the superblock
/// it stands for no inode.
pub(crate) fn zone_first_nid(block_bits: BlockBits) -> Nid {
    Nid(block_bits.len() / SLOT_LEN)
}

/// Marks a node without a place.
const NOWHERE: u64 = u64::MAX;

/// A region of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    /// An inode with all that follows it: xattrs, map, inline tail.
    Inode(NodeId),
    /// Whole blocks of a directory, or of a symbolic link whose inode has no room.
    Blocks(NodeId),
    /// The shared xattr area.
    SharedXattrs,
}

/// Regions in sequence.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Length in bytes.
    pub len: u64,
    /// All regions by place, with zeros between them.
    pub regions: Vec<Region>,
}

/// Places of all regions, whose lengths are known before their contents.
pub(crate) struct Layout {
    /// Inodes and shared xattrs: the metadata zone with the blocks of directories among them, or the metabox.
    pub inodes: Run,
    /// Blocks of directories, if the inodes are in the metabox.
    pub blocks: Run,
    /// Directories that lie in the packed inode, behind the files there.
    pub packed_directories: Vec<NodeId>,
    /// Byte offset of the shared xattr area in the run of inodes.
    pub shared_pos: u64,
    /// The nid of an inode at the first byte of the run of inodes.
    first_nid: Nid,
    /// Byte offset of each inode in its run, by node; [`NOWHERE`] for those left out.
    inode_pos: Vec<u64>,
    /// Byte offset in its run of each node's whole blocks, if it has some.
    blocks_pos: HashMap<NodeId, u64>,
    /// Byte offset of each packed directory in the packed inode.
    packed_offs: HashMap<NodeId, u64>,
}

impl Layout {
    /// Finds a place for every region.
    ///
    /// # Errors
    /// Block sizes that the compact index cannot have.
    pub(crate) fn make(view: &View<'_>) -> Result<Self, BuildError> {
        let mut layout = Self {
            inodes: Run::default(),
            blocks: Run::default(),
            first_nid: if view.has_metabox { Nid::of_metabox(0) } else { zone_first_nid(view.block_bits) },
            inode_pos: vec![NOWHERE; view.tree.len()],
            blocks_pos: HashMap::new(),
            shared_pos: 0,
            packed_directories: Vec::new(),
            packed_offs: HashMap::new(),
        };
        let (mut zone, mut apart) = (MetadataAllocator::new(view.block_bits), MetadataAllocator::new(view.block_bits));
        layout.place_inode(NodeId::ROOT, view, &mut zone)?;
        let shared_len = view.inodes.xattrs.shared_area().len() as u64;
        layout.shared_pos = zone.inode(shared_len, 0);
        if shared_len > 0 {
            layout.inodes.regions.push(Region::SharedXattrs);
        }
        let mut packed_end = view.data.fragments_len;
        let mut place_own_data = |layout: &mut Self, node: NodeId, zone: &mut MetadataAllocator| {
            if let Some(len) = view.packed_directory_len(node).filter(|_| !layout.packed_offs.contains_key(&node)) {
                layout.packed_directories.push(node);
                layout.packed_offs.insert(node, packed_end);
                packed_end += len;
            }
            let (blocks_len, _) = view.own_data(node);
            if blocks_len > 0 && !layout.blocks_pos.contains_key(&node) {
                let (zone, run) = match view.has_metabox {
                    true => (&mut apart, &mut layout.blocks),
                    false => (zone, &mut layout.inodes),
                };
                let pos = zone.blocks(blocks_len);
                layout.blocks_pos.insert(node, pos);
                run.regions.push(Region::Blocks(node));
            }
        };
        let is_there = |node: &NodeId| node.idx() < view.tree.len() && !view.is_left_out(*node);
        for node in view.format.layout.hot.metadata.iter().copied().filter(is_there) {
            if layout.inode_pos[node.idx()] == NOWHERE {
                layout.place_inode(node, view, &mut zone)?;
            }
            place_own_data(&mut layout, node, &mut zone);
        }
        for node in view.tree.walk().filter(|node| !view.is_left_out(*node)) {
            place_own_data(&mut layout, node, &mut zone);
            for entry in view.entries(node) {
                if view.tree.parent(entry.node) == node && layout.inode_pos[entry.node.idx()] == NOWHERE {
                    layout.place_inode(entry.node, view, &mut zone)?;
                }
            }
        }
        let mut regions = std::mem::take(&mut layout.inodes.regions);
        regions.sort_unstable_by_key(|region| layout.pos(*region));
        layout.inodes.regions = regions;
        (layout.inodes.len, layout.blocks.len) = (zone.end(), apart.end());
        Ok(layout)
    }

    fn place_inode(&mut self, node: NodeId, view: &View<'_>, zone: &mut MetadataAllocator) -> Result<(), BuildError> {
        let (len, in_block) = view.measure(node)?;
        let pos = match in_block {
            true => zone.inode_in_block(len),
            false => zone.inode(len, view.inodes.forms[node.idx()].len() as u64),
        };
        self.inode_pos[node.idx()] = pos;
        self.inodes.regions.push(Region::Inode(node));
        Ok(())
    }

    /// Returns the nid of a node.
    ///
    /// # Errors
    /// A node that has no place, which is a bug.
    pub(crate) fn nid(&self, node: NodeId) -> Result<Nid, BuildError> {
        let pos = Some(self.inode_pos[node.idx()]).filter(|pos| *pos != NOWHERE);
        let slot = pos.ok_or_else(|| BuildError::Internal(format!("node {} has no place", node.0)))? / SLOT_LEN;
        Ok(Nid(self.first_nid.0 + slot))
    }

    /// Returns the byte offset of a region in its run.
    pub(crate) fn pos(&self, region: Region) -> u64 {
        match region {
            Region::Inode(node) => self.inode_pos[node.idx()],
            Region::Blocks(node) => self.blocks_pos.get(&node).copied().unwrap_or(NOWHERE),
            Region::SharedXattrs => self.shared_pos,
        }
    }

    /// Returns the byte offset in the zone of the whole blocks of a directory or symbolic link, if it has some.
    pub(crate) fn blocks_pos(&self, node: NodeId) -> Option<u64> {
        self.blocks_pos.get(&node).copied()
    }

    /// Returns the byte offset in the packed inode of a directory, if it lies there.
    pub(crate) fn packed_off(&self, dir: NodeId) -> Option<u64> {
        self.packed_offs.get(&dir).copied()
    }
}
