//! Where inodes and directories lie: the metadata zone, measured before it is written.
//!
//! The root inode comes first (its nid has 16 bits), then the shared xattrs, then, directory by directory in walk order,
//! the directory's blocks and the inodes that it names. So a walk reads one run.

pub(crate) mod allocator;
pub(crate) mod encoded_extents;
pub(crate) mod lcluster_index;

use kiln_codec::Spec;
use kiln_format::addr::SLOT_LEN;
use kiln_format::chunk::ChunkEntry;
use kiln_format::inode::DataLayout;
use kiln_format::{Algorithm, BlockBits, Nid};
use std::collections::HashMap;

use crate::error::BuildError;
use crate::inodes::Facts;
use crate::layout::allocator::{Zone, inline_tail_len};
use crate::layout::encoded_extents::RecordShape;
use crate::layout::lcluster_index::{IndexShape, MapEnd, ZExtent};
use crate::options::{BuildOptions, ChunkEntries};
use crate::pack::{Extents, Packed, Stored};
use crate::plan::{Plan, Storage};
use crate::tree::Tree;
use crate::tree::{Entry, Kind, NodeId};
use crate::write::directory;

/// Smaller directories lie beside their inodes, which saves a look elsewhere.
const PACKED_DIRECTORY_MIN_LEN: u64 = 512;

/// The nid of an inode at the first byte of the metadata zone. Nids count from the block before (`meta_blkaddr`), so that none is
/// 0: readdir of C libraries passes over entries of that number, and in the superblock it stands for no inode.
pub fn zone_first_nid(block_bits: BlockBits) -> Nid {
    Nid(block_bits.len() / SLOT_LEN)
}

/// The place of what has none.
const NOWHERE: u64 = u64::MAX;

/// A piece of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// An inode with all that lies behind it.
    Inode(NodeId),
    /// Whole blocks of a directory, or of a symbolic link whose inode has no room.
    Blocks(NodeId),
    /// The shared xattr area.
    SharedXattrs,
}

/// Pieces one behind the other.
#[derive(Debug, Default)]
pub struct Run {
    /// Length in bytes.
    pub len: u64,
    /// All pieces by place, with zeros between them.
    pub regions: Vec<Region>,
}

/// Places of everything whose length is known before any of it is made.
pub struct Layout {
    /// Inodes and shared xattrs: the metadata zone with the blocks of directories among them, or the metabox.
    pub inodes: Run,
    /// Blocks of directories, if the inodes are in the metabox.
    pub blocks: Run,
    /// Directories that lie in the packed inode, behind the files there.
    pub packed_directories: Vec<NodeId>,
    /// Byte offset among the inodes of the shared xattr area.
    pub shared_pos: u64,
    /// The nid of an inode at the first byte of the inodes.
    first_nid: Nid,
    /// Byte offset among the inodes of each, by node; [`NOWHERE`] of those left out.
    inode_pos: Vec<u64>,
    /// Byte offset in its run of the whole blocks of the nodes that have some.
    blocks_pos: HashMap<NodeId, u64>,
    /// Byte offset in the packed inode.
    packed_offs: HashMap<NodeId, u64>,
}

/// What is needed to measure and to write an inode.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The tree.
    pub tree: &'a Tree,
    /// Facts of its inodes.
    pub facts: &'a Facts,
    /// The plan.
    pub plan: &'a Plan,
    /// The data.
    pub packed: &'a Packed,
    /// Block size.
    pub block_bits: BlockBits,
    /// Pclusters may have several blocks.
    pub big: bool,
    /// Compressed files have encoded extents instead of an index.
    pub encoded: bool,
    /// Large directories lie in the packed inode.
    pub packs_directories: bool,
    /// Inodes lie in the metabox.
    pub has_metabox: bool,
    /// Entries of the tables of chunks.
    pub chunk_entry: ChunkEntry,
    /// Directories have no entry for themselves.
    pub omits_dot: bool,
}

impl<'a> View<'a> {
    /// A view for `options`.
    pub fn new(tree: &'a Tree, facts: &'a Facts, plan: &'a Plan, packed: &'a Packed, options: &BuildOptions) -> Self {
        let block_bits = options.block_bits;
        let big = options.max_pcluster_blocks() > 1;
        let encoded = options.encoded_extents;
        let chunk_entry = match options.chunk_entries {
            ChunkEntries::Short if packed.blob_blocks.is_none() => ChunkEntry::BlockMap,
            _ => ChunkEntry::Index,
        };
        Self {
            tree,
            facts,
            plan,
            packed,
            block_bits,
            big,
            encoded,
            packs_directories: options.packs_directories(),
            has_metabox: options.metabox.is_some(),
            chunk_entry,
            omits_dot: options.omit_dot,
        }
    }

    /// Whether the node is not in the image.
    pub fn is_left_out(&self, node: NodeId) -> bool {
        let file_left_out = || {
            let idx = self.plan.file_of(node)?;
            let unreadable = self.plan.files[idx as usize].storage == Storage::LeftOut;
            Some(unreadable || self.packed.is_left_out(idx))
        };
        self.facts.is_left_out[node.idx()] || file_left_out().unwrap_or(false)
    }

    /// Entries of a directory that are in the image.
    pub fn entries(&self, dir: NodeId) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let view = *self;
        self.tree.entries(dir).iter().filter(move |entry| !view.is_left_out(entry.node))
    }

    /// Where the data of a regular file lies; a duplicate has that of its original.
    pub fn stored(&self, file: NodeId) -> Option<&'a Stored> {
        Some(&self.packed.stored[self.original(file)?])
    }

    /// The file of the plan that a regular file has its data from.
    fn original(&self, file: NodeId) -> Option<usize> {
        let idx = self.plan.file_of(file)? as usize;
        match self.plan.files[idx].storage {
            Storage::Duplicate(original) => Some(original as usize),
            _ => Some(idx),
        }
    }

    /// How a regular file is compressed, where it is.
    pub fn way_of(&self, file: NodeId) -> Option<Spec> {
        self.plan.files[self.original(file)?].way
    }

    /// What the map of a compressed file of `len` bytes looks like.
    pub fn map_shape(&self, len: u64, extents: &Extents) -> MapShape {
        let list = &extents.list[..];
        if self.encoded {
            return MapShape::Records(RecordShape::of(len, list, self.block_bits));
        }
        let end = match (extents.inline, extents.fragment) {
            (Some(tail), _) => MapEnd::Inline(tail.len),
            (None, Some(off)) => MapEnd::Fragment(off),
            (None, None) => MapEnd::Stored,
        };
        let is_far = matches!(end, MapEnd::Fragment(off) if off >> 32 != 0);
        let scattered = is_far || !lcluster_index::lie_in_a_row(list) || list.iter().any(|extent| extent.partial);
        MapShape::Index(IndexShape { len, block_bits: self.block_bits, big: self.big, scattered, end })
    }

    /// Size of a directory that lies in the packed inode.
    pub fn packed_directory_len(&self, node: NodeId) -> Option<u64> {
        let is_dir = matches!(self.tree.node(node).kind, Kind::Directory(_));
        let len = || directory::len(self, node);
        (self.packs_directories && is_dir).then(len).filter(|len| *len > PACKED_DIRECTORY_MIN_LEN)
    }

    /// The contents of a directory or symbolic link, as lengths: whole blocks, and the tail beside the inode.
    pub fn own_data(&self, node: NodeId) -> (u64, u64) {
        let len = match &self.tree.node(node).kind {
            Kind::Symlink(target) => target.len() as u64,
            Kind::Directory(_) if self.packed_directory_len(node).is_none() => directory::len(self, node),
            _ => return (0, 0),
        };
        let tail = inline_tail_len(len, self.facts.inode_len(node), self.block_bits).unwrap_or(0) as u64;
        ((len - tail).next_multiple_of(self.block_bits.len()), tail)
    }

    /// Bytes of a node's inode with all that lies behind it, and whether it must stay within a block.
    ///
    /// # Errors
    /// Block sizes that the compact index cannot have.
    pub fn measure(&self, node: NodeId) -> Result<(u64, bool), BuildError> {
        let body_off = self.facts.inode_len(node) as u64;
        let (behind, in_block) = match (&self.tree.node(node).kind, self.stored(node)) {
            (Kind::File { .. }, Some(Stored::Tail(len, _))) => (u64::from(*len), true),
            (Kind::File { .. }, Some(Stored::FlatTail(flat))) => (flat.1.len.into(), true),
            (Kind::File { len, .. }, Some(Stored::Compressed(extents))) => {
                let behind = self.map_shape(*len, extents).len_behind(body_off)?;
                (behind + extents.inline.map_or(0, |tail| tail.len.into()), extents.inline.is_some())
            }
            (Kind::File { .. }, Some(Stored::Fragment(_))) => (lcluster_index::fragment_len_behind(body_off), false),
            (Kind::File { len, .. }, Some(Stored::Chunks { chunk_bits, .. })) => {
                let entry_len = self.chunk_entry.len();
                let table_off = body_off.next_multiple_of(entry_len);
                (table_off - body_off + entry_len * len.div_ceil(1 << chunk_bits), false)
            }
            (Kind::Directory(_), _) if self.packed_directory_len(node).is_some() => {
                (lcluster_index::fragment_len_behind(body_off), false)
            }
            (Kind::Directory(_) | Kind::Symlink(_), _) => {
                let (_, tail) = self.own_data(node);
                (tail, tail > 0)
            }
            _ => (0, false),
        };
        Ok((body_off + behind, in_block))
    }
}

/// What the map of a compressed stream looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapShape {
    /// An index of lclusters.
    Index(IndexShape),
    /// Encoded extents.
    Records(RecordShape),
}

impl MapShape {
    /// Bytes from the end of the body at `body_off` of its inode to the end of the map, alignment included.
    ///
    /// # Errors
    /// Block sizes that the compact index cannot have.
    pub fn len_behind(&self, body_off: u64) -> Result<u64, BuildError> {
        match self {
            MapShape::Index(shape) => lcluster_index::len_behind(body_off, *shape),
            MapShape::Records(shape) => Ok(shape.len_behind(body_off)),
        }
    }

    /// Append the map to `out`, which holds the inode and its body so far.
    ///
    /// # Errors
    /// Extents that contradict the format: our own mistake.
    pub fn encode(&self, algorithm: Algorithm, extents: &[ZExtent], out: &mut Vec<u8>) -> Result<(), BuildError> {
        match self {
            MapShape::Index(shape) => lcluster_index::encode(*shape, algorithm, extents, out),
            MapShape::Records(shape) => shape.encode(algorithm, extents, out),
        }
    }

    /// The inode's layout.
    pub fn layout(&self) -> DataLayout {
        match self {
            MapShape::Index(shape) if !shape.is_full() => DataLayout::CompressedCompact,
            _ => DataLayout::CompressedFull,
        }
    }
}

impl Layout {
    /// Find a place for everything.
    ///
    /// # Errors
    /// Block sizes that the compact index cannot have.
    pub fn make(view: &View<'_>) -> Result<Self, BuildError> {
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
        let (mut zone, mut apart) = (Zone::new(view.block_bits), Zone::new(view.block_bits));
        layout.place_inode(NodeId::ROOT, view, &mut zone)?;
        let shared_len = view.facts.xattrs.shared_area().len() as u64;
        layout.shared_pos = zone.inode(shared_len, 0);
        if shared_len > 0 {
            layout.inodes.regions.push(Region::SharedXattrs);
        }
        let mut packed_end = view.packed.packed_len;
        for node in view.tree.walk().filter(|node| !view.is_left_out(*node)) {
            if let Some(len) = view.packed_directory_len(node) {
                layout.packed_directories.push(node);
                layout.packed_offs.insert(node, packed_end);
                packed_end += len;
            }
            let (blocks_len, _) = view.own_data(node);
            if blocks_len > 0 {
                let (zone, run) = match view.has_metabox {
                    true => (&mut apart, &mut layout.blocks),
                    false => (&mut zone, &mut layout.inodes),
                };
                let pos = zone.blocks(blocks_len);
                layout.blocks_pos.insert(node, pos);
                run.regions.push(Region::Blocks(node));
            }
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

    fn place_inode(&mut self, node: NodeId, view: &View<'_>, zone: &mut Zone) -> Result<(), BuildError> {
        let (len, in_block) = view.measure(node)?;
        let pos = match in_block {
            true => zone.inode_in_block(len),
            false => zone.inode(len, view.facts.forms[node.idx()].len() as u64),
        };
        self.inode_pos[node.idx()] = pos;
        self.inodes.regions.push(Region::Inode(node));
        Ok(())
    }

    /// The nid of a node.
    ///
    /// # Errors
    /// A node that has no place: our own mistake.
    pub fn nid(&self, node: NodeId) -> Result<Nid, BuildError> {
        let pos = Some(self.inode_pos[node.idx()]).filter(|pos| *pos != NOWHERE);
        let slot = pos.ok_or_else(|| BuildError::Internal(format!("node {} has no place", node.0)))? / SLOT_LEN;
        Ok(Nid(self.first_nid.0 + slot))
    }

    /// Byte offset of a piece in its run.
    pub fn pos(&self, region: Region) -> u64 {
        match region {
            Region::Inode(node) => self.inode_pos[node.idx()],
            Region::Blocks(node) => self.blocks_pos.get(&node).copied().unwrap_or(NOWHERE),
            Region::SharedXattrs => self.shared_pos,
        }
    }

    /// Byte offset in the zone of the whole blocks of a directory or symbolic link, if it has some.
    pub fn blocks_pos(&self, node: NodeId) -> Option<u64> {
        self.blocks_pos.get(&node).copied()
    }

    /// Byte offset in the packed inode of a directory, if it lies there.
    pub fn packed_off(&self, dir: NodeId) -> Option<u64> {
        self.packed_offs.get(&dir).copied()
    }
}
