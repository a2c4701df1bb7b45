//! All regular files, in the order in which their data is stored.

use std::num::NonZeroU32;

use crate::context::Context;
use crate::inodes::Inodes;
use crate::plan::file::{FilePlan, Storage, storage};
use kiln_tree::{Kind, NodeId};

/// Index of each node in the plan's files.
#[derive(Default)]
pub(crate) struct FileIndex(Vec<Option<FileIdx>>);

/// Index of a file in the plan, plus one, so that `None` takes no room.
#[derive(Clone, Copy)]
struct FileIdx(NonZeroU32);

impl FileIndex {
    /// Creates an index of `len` nodes that are not among the files.
    pub(crate) fn new(len: usize) -> Self {
        Self(vec![None; len])
    }

    /// Sets the index of a node.
    pub(crate) fn set(&mut self, node: NodeId, file: u32) {
        // There are fewer files than nodes, and fewer nodes than numbers.
        self.0[node.idx()] = NonZeroU32::new(file + 1).map(FileIdx);
    }

    /// Returns the index of a node, if it is among the files.
    pub(crate) fn get(&self, node: NodeId) -> Option<u32> {
        self.0[node.idx()].map(|idx| idx.0.get() - 1)
    }
}

/// All regular files that have an inode: those with an order of their own, then the others in walk order.
pub(crate) struct FileList {
    /// The files, each stored as it would be without holes.
    pub files: Vec<FilePlan>,
    /// Index of each node in the files.
    pub index: FileIndex,
    /// Number of files that have an order of their own.
    pub ordered_count: u32,
}

impl FileList {
    /// Lists the files of a tree.
    pub(crate) fn of(inodes: &Inodes, context: Context<'_>) -> Self {
        let Context { tree, format, .. } = context;
        let mut files = Vec::new();
        let mut index = FileIndex::new(tree.len());
        let mut add = |node: NodeId, files: &mut Vec<FilePlan>| match tree.node(node).kind {
            Kind::File { len, .. } if !inodes.is_left_out[node.idx()] && index.get(node).is_none() => {
                index.set(node, files.len() as u32);
                let (inode_len, compression) = (inodes.inode_len(node) as u32, format.compression.of(node));
                let mut file = FilePlan { node, len, inode_len, storage: Storage::Empty, compression };
                if len > 0 {
                    file.storage = storage(&file, &[], format);
                }
                files.push(file);
            }
            _ => {}
        };
        format.layout.order.iter().filter(|node| node.idx() < tree.len()).for_each(|&node| add(node, &mut files));
        let ordered_count = files.len() as u32;
        tree.walk().for_each(|node| add(node, &mut files));
        Self { files, index, ordered_count }
    }
}
