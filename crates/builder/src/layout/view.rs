//! The input of measuring and writing: a tree, all decisions about it, and the selection of nodes that are in the
//! image.

use kiln_codec::Spec;
use kiln_format::chunk::ChunkEntry;
use kiln_format::{Algorithm, BlockBits};
use std::collections::HashMap;

use crate::context::Context;
use crate::error::BuildError;
use crate::format::Format;
use crate::inodes::Inodes;
use crate::inodes::previous::PreviousMetadata;
use crate::layout::allocator::inline_tail_len;
use crate::layout::encoded_extents::RecordShape;
use crate::layout::lcluster_index::{self, IndexShape, MapEnd};
use crate::layout::map_shape::MapShape;
use crate::layout::measure;
use crate::options::data::ChunkEntries;
use crate::pack::{Extents, Stored, StoredData};
use crate::plan::Plan;
use crate::plan::file::Storage;
use kiln_tree::{Entry, Kind, NodeId, Tree};

/// Smaller directories lie beside their inodes, which saves readers a second place.
const PACKED_DIRECTORY_MIN_LEN: u64 = 512;

/// All values that are needed to measure and to write an inode.
pub(crate) struct View<'a> {
    /// The tree.
    pub tree: &'a Tree,
    /// Properties of its inodes.
    pub inodes: &'a Inodes,
    /// The plan.
    pub plan: &'a Plan,
    /// The data.
    pub data: &'a StoredData,
    /// The options.
    pub format: &'a Format,
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
    /// Metadata of the previous image that may be kept. The root inode then lies beside the superblock.
    pub previous: Option<&'a PreviousMetadata>,
    /// Bytes of each directory in the image, by node.
    directory_lens: HashMap<NodeId, u64>,
}

impl<'a> View<'a> {
    /// Combines the decisions about the tree of `context`.
    pub(crate) fn new(inodes: &'a Inodes, plan: &'a Plan, data: &'a StoredData, context: Context<'a>) -> Self {
        let Context { tree, format, previous, .. } = context;
        let block_bits = format.block_bits;
        let big = format.max_pcluster_blocks() > 1 || data.reused.big;
        let encoded = format.compression.encoded_extents;
        let chunk_entry = match format.layout.chunk_entries {
            ChunkEntries::Short if data.blob_blocks.is_none() && tree.stores().devices.is_empty() => {
                ChunkEntry::BlockMap
            }
            _ => ChunkEntry::Index,
        };
        let view = Self {
            tree,
            inodes,
            plan,
            data,
            format,
            block_bits,
            big,
            encoded,
            packs_directories: format.packing.directories,
            has_metabox: format.metadata.metabox.is_some(),
            chunk_entry,
            omits_dot: format.metadata.omit_dot,
            previous,
            directory_lens: HashMap::new(),
        };
        let dirs = tree.nodes().filter(|(_, node)| matches!(node.kind, Kind::Directory(_)));
        let len = |dir| measure::directory_len(&view.names(dir), block_bits);
        let directory_lens = dirs.map(|(dir, _)| (dir, len(dir))).collect();
        Self { directory_lens, ..view }
    }

    /// Returns the bytes of a directory; 0 for other nodes.
    pub(crate) fn directory_len(&self, node: NodeId) -> u64 {
        self.directory_lens.get(&node).copied().unwrap_or(0)
    }

    /// Returns the names of a directory with its dot entries, in bytewise order.
    pub(crate) fn names(&self, dir: NodeId) -> Vec<&'a [u8]> {
        let mut names: Vec<&[u8]> = self.entries(dir).map(|entry| entry.name).collect();
        let dots = [&b"."[..], b".."];
        for dot in &dots[usize::from(self.omits_dot)..] {
            let at = names.partition_point(|name| name < dot);
            names.insert(at, dot);
        }
        names
    }

    /// Returns whether the node is not in the image.
    pub(crate) fn is_left_out(&self, node: NodeId) -> bool {
        let file_left_out = || {
            let idx = self.plan.file_of(node)?;
            Some(self.plan.files[idx as usize].storage == Storage::LeftOut)
        };
        self.inodes.is_left_out[node.idx()] || file_left_out().unwrap_or(false)
    }

    /// Returns the entries of a directory that are in the image.
    pub(crate) fn entries(&self, dir: NodeId) -> impl Iterator<Item = Entry<'a>> {
        self.tree.entries(dir).iter().filter(|entry| !self.is_left_out(entry.node))
    }

    /// Returns the place of a regular file's data; a duplicate has that of its original.
    pub(crate) fn stored(&self, file: NodeId) -> Option<&'a Stored> {
        Some(&self.data.stored[self.original(file)?])
    }

    /// Returns the file of the plan that a regular file has its data from.
    fn original(&self, file: NodeId) -> Option<usize> {
        let idx = self.plan.file_of(file)? as usize;
        match self.plan.files[idx].storage {
            Storage::Duplicate(original) => Some(original as usize),
            _ => Some(idx),
        }
    }

    /// Returns the algorithm that compresses a regular file, if one does.
    pub(crate) fn algorithm_of(&self, file: NodeId) -> Option<Algorithm> {
        let reused = || self.plan.files[self.original(file)?].reused_algorithm();
        self.compression_of(file).map(|spec| spec.method.algorithm()).or_else(reused)
    }

    /// Returns the compression of a regular file, if it has one.
    pub(crate) fn compression_of(&self, file: NodeId) -> Option<Spec> {
        self.plan.files[self.original(file)?].compression
    }

    /// Returns the shape of the map of a compressed file of `len` bytes.
    pub(crate) fn map_shape(&self, len: u64, extents: &Extents) -> MapShape {
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

    /// Returns the size of a directory that lies in the packed inode.
    pub(crate) fn packed_directory_len(&self, node: NodeId) -> Option<u64> {
        let is_dir = matches!(self.tree.node(node).kind, Kind::Directory(_));
        (self.packs_directories && is_dir)
            .then(|| self.directory_len(node))
            .filter(|len| *len > PACKED_DIRECTORY_MIN_LEN)
    }

    /// Returns the lengths of a directory or symbolic link: that of its whole blocks, and that of the tail beside
    /// the inode.
    pub(crate) fn own_data(&self, node: NodeId) -> (u64, u64) {
        let len = match &self.tree.node(node).kind {
            Kind::Symlink(target) => target.len() as u64,
            Kind::Directory(_) if self.packed_directory_len(node).is_none() => self.directory_len(node),
            _ => return (0, 0),
        };
        let is_apart = node == NodeId::ROOT && self.previous.is_some();
        let tail = inline_tail_len(len, self.inodes.inode_len(node), self.block_bits).filter(|_| !is_apart);
        let tail = tail.unwrap_or(0) as u64;
        ((len - tail).next_multiple_of(self.block_bits.len()), tail)
    }

    /// Returns the bytes of a node's inode with all that follows it, and whether it must stay within a block.
    ///
    /// # Errors
    /// Block sizes that the compact index cannot have.
    pub(crate) fn measure(&self, node: NodeId) -> Result<(u64, bool), BuildError> {
        let body_off = self.inodes.inode_len(node) as u64;
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
