//! The places of inodes and directories: the metadata zone, measured before it is written.
//!
//! The root inode comes first (its nid has 16 bits), then the shared xattrs, then, directory by directory in walk
//! order, the directory's blocks and the inodes that it names. So a walk reads one run. Files that a program reads
//! first come before the others.
//!
//! Behind a previous image, inodes of that image may be kept (`write::kept`). Nids then count from the start of the
//! image, and the root inode lies beside the superblock: in front of all others, and in the sector that the update
//! replaces, so that it keeps its nid.

pub(crate) mod allocator;
pub(crate) mod encoded_extents;
pub(crate) mod lcluster_index;
pub(crate) mod map_shape;
pub(crate) mod measure;
pub(crate) mod special;
pub(crate) mod view;

use kiln_format::addr::SLOT_LEN;
use kiln_format::{Blkaddr, BlockBits, Nid};
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

/// Inodes and directories of the previous image that stay in use.
pub(crate) struct Kept {
    /// Bytes of the image at which the inodes lie, in the order of nodes.
    pub inodes: Vec<(NodeId, u64)>,
    /// Bytes of the image at which the blocks of directories and symbolic links begin.
    pub blocks: HashMap<NodeId, u64>,
    /// Highest of the inodes' serial numbers.
    pub last_serial: u32,
}

/// Marks a node without a place.
pub(crate) const NOWHERE: u64 = u64::MAX;

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
    /// Position of its first byte.
    pub start: u64,
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
    /// Position of the shared xattr area, which is in the run of inodes.
    pub shared_pos: u64,
    /// Number of inodes of the previous image that stay in use.
    pub kept_inodes: u64,
    /// Highest serial number of these.
    pub last_serial: u32,
    /// The nid of an inode at the first byte of the run of inodes.
    first_nid: Nid,
    /// Positions are bytes of the image.
    is_absolute: bool,
    /// Position of each inode, by node; [`NOWHERE`] for those left out.
    pub inode_pos: Vec<u64>,
    /// Position of each node's whole blocks, if it has some.
    pub blocks_pos: HashMap<NodeId, u64>,
    /// Byte offset of each packed directory in the packed inode.
    packed_offs: HashMap<NodeId, u64>,
}

impl Layout {
    /// Finds a place for every region.
    ///
    /// # Errors
    /// Block sizes that the compact index cannot have.
    pub(crate) fn make(view: &View<'_>) -> Result<Self, BuildError> {
        let first_nid = if view.has_metabox { Nid::of_metabox(0) } else { zone_first_nid(view.block_bits) };
        let mut layout = Self { first_nid, is_absolute: false, ..Self::absolute(0, view) };
        layout.place_all(view)?;
        Ok(layout)
    }

    /// Finds a place for every region that is not `kept`, in a metadata zone from byte `zone` of the image on. The root
    /// inode lies at byte `root`.
    ///
    /// # Errors
    /// As [`Layout::make`].
    pub(crate) fn make_behind(view: &View<'_>, root: u64, kept: Kept, zone: u64) -> Result<Self, BuildError> {
        let Kept { inodes, blocks, last_serial } = kept;
        let mut layout = Self { blocks_pos: blocks, last_serial, ..Self::absolute(zone, view) };
        layout.kept_inodes = inodes.len() as u64;
        inodes.into_iter().for_each(|(node, place)| layout.inode_pos[node.idx()] = place);
        layout.inode_pos[NodeId::ROOT.idx()] = root;
        layout.place_all(view)?;
        Ok(layout)
    }

    /// Returns a layout without places whose positions are bytes of the image. Its run of inodes begins at `start`.
    pub(crate) fn absolute(start: u64, view: &View<'_>) -> Self {
        Self {
            inodes: Run { start, ..Run::default() },
            blocks: Run::default(),
            first_nid: Nid(0),
            is_absolute: true,
            kept_inodes: 0,
            last_serial: 0,
            inode_pos: vec![NOWHERE; view.tree.len()],
            blocks_pos: HashMap::new(),
            shared_pos: 0,
            packed_directories: Vec::new(),
            packed_offs: HashMap::new(),
        }
    }

    /// Finds a place for every region that has none.
    fn place_all(&mut self, view: &View<'_>) -> Result<(), BuildError> {
        let layout = self;
        let start = layout.inodes.start;
        let (mut zone, mut apart) = (MetadataAllocator::new(view.block_bits), MetadataAllocator::new(view.block_bits));
        if !layout.is_absolute {
            layout.place_inode(NodeId::ROOT, view, &mut zone)?;
        }
        let shared_len = view.inodes.xattrs.shared_area().len() as u64;
        if shared_len > 0 {
            layout.shared_pos = start + zone.inode(shared_len, 0);
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
                let pos = run.start + zone.blocks(blocks_len);
                layout.blocks_pos.insert(node, pos);
                run.regions.push(Region::Blocks(node));
            }
        };
        let is_there = |node: &NodeId| node.idx() < view.tree.len() && !view.is_left_out(*node);
        for node in view.format.layout.hot.metadata.iter().copied().filter(is_there) {
            if layout.inode_pos[node.idx()] == NOWHERE {
                layout.place_inode(node, view, &mut zone)?;
            }
            place_own_data(layout, node, &mut zone);
        }
        for node in view.tree.walk().filter(|node| !view.is_left_out(*node)) {
            place_own_data(layout, node, &mut zone);
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
        Ok(())
    }

    fn place_inode(&mut self, node: NodeId, view: &View<'_>, zone: &mut MetadataAllocator) -> Result<(), BuildError> {
        let (len, in_block) = view.measure(node)?;
        let pos = match in_block {
            true => zone.inode_in_block(len),
            false => zone.inode(len, view.inodes.forms[node.idx()].len() as u64),
        };
        self.inode_pos[node.idx()] = self.inodes.start + pos;
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

    /// Returns the block from which positions of blocks count in a run that begins in block `start`.
    pub(crate) fn blocks_start(&self, start: Blkaddr) -> Blkaddr {
        if self.is_absolute { Blkaddr(0) } else { start }
    }

    /// Returns the nid of an inode at the first byte of the metadata zone.
    pub(crate) fn zone_nid(&self, block_bits: BlockBits) -> Nid {
        if self.is_absolute { Nid(self.inodes.start / SLOT_LEN) } else { zone_first_nid(block_bits) }
    }

    /// Returns the position of a region.
    pub(crate) fn pos(&self, region: Region) -> u64 {
        match region {
            Region::Inode(node) => self.inode_pos[node.idx()],
            Region::Blocks(node) => self.blocks_pos.get(&node).copied().unwrap_or(NOWHERE),
            Region::SharedXattrs => self.shared_pos,
        }
    }

    /// Returns the position of the whole blocks of a directory or symbolic link, if it has some.
    pub(crate) fn blocks_pos(&self, node: NodeId) -> Option<u64> {
        self.blocks_pos.get(&node).copied()
    }

    /// Returns the byte offset in the packed inode of a directory, if it lies there.
    pub(crate) fn packed_off(&self, dir: NodeId) -> Option<u64> {
        self.packed_offs.get(&dir).copied()
    }
}
