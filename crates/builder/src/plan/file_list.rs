//! All regular files, in the order in which their data is stored.

use std::num::NonZeroU32;

use crate::context::Context;
use crate::inodes::Inodes;
use crate::plan::file::{FilePlan, Storage, storage};
use kiln_tree::{Kind, NodeId};

/// Index of each node in the plan's files.
pub(crate) struct FileIndex(Vec<Option<FileIdx>>);

/// Index of a file in the plan, plus one, so that `None` takes no room.
#[derive(Clone, Copy)]
struct FileIdx(NonZeroU32);

impl FileIndex {
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
        let mut index = vec![None; tree.len()];
        let mut add = |node: NodeId, files: &mut Vec<FilePlan>| match tree.node(node).kind {
            Kind::File { len, .. } if !inodes.is_left_out[node.idx()] && index[node.idx()].is_none() => {
                // There are fewer files than nodes, and fewer nodes than numbers.
                index[node.idx()] = NonZeroU32::new(files.len() as u32 + 1).map(FileIdx);
                let (inode_len, compression) = (inodes.inode_len(node) as u32, format.compression.of(node));
                let file = FilePlan { node, len, inode_len, storage: Storage::Empty, compression };
                let storage = if len == 0 { Storage::Empty } else { storage(&file, &[], format) };
                files.push(FilePlan { storage, ..file });
            }
            _ => {}
        };
        format.layout.order.iter().filter(|node| node.idx() < tree.len()).for_each(|&node| add(node, &mut files));
        let ordered_count = files.len() as u32;
        tree.walk().for_each(|node| add(node, &mut files));
        Self { files, index: FileIndex(index), ordered_count }
    }
}
