//! What is known of every inode before any data is read: its form, its xattrs, the room for an inline tail.

use kiln_format::inode::{Epoch, Form, Rdev};
use kiln_format::xattr::BODY_HEADER_LEN;
use std::collections::HashMap;

use crate::error::InputProblem;
use crate::tree::{Kind, Metadata, NodeId};
use crate::xattr::{Collector, Prefixes, SetId, Xattrs};
use crate::{BuildError, BuildOptions, Skipped, Tree};

/// Longest symbolic link that Linux follows.
const SYMLINK_MAX_LEN: usize = 4095;

/// Facts of all nodes, by node.
pub struct Facts {
    /// Time of all compact inodes.
    pub epoch: Epoch,
    /// Form of each inode.
    pub forms: Vec<Form>,
    /// Links of each inode: for directories 2 and one for each sub-directory, for others their names.
    pub nlinks: Vec<u32>,
    /// Set of each inode.
    pub xattr_sets: Vec<Option<SetId>>,
    /// The attributes.
    pub xattrs: Xattrs,
    /// Bytes of attributes beside the root inode at least.
    root_xattr_len: usize,
    /// Nodes that cannot be represented and are left out.
    pub left_out: Vec<Skipped>,
    /// Whether a node is left out.
    pub is_left_out: Vec<bool>,
}

impl Facts {
    /// Look at every node. `digests` are attributes of contents.
    ///
    /// # Errors
    /// The first node that the format cannot represent, unless such nodes are to be skipped.
    pub fn gather(
        tree: &Tree,
        digests: &HashMap<NodeId, Box<[u8]>>,
        options: &BuildOptions,
    ) -> Result<Self, BuildError> {
        let mut collector = Collector::new(Prefixes::new(options)?);
        let mut xattr_sets = vec![None; tree.len()];
        let mut left_out = Vec::new();
        let mut is_left_out = vec![false; tree.len()];
        for id in tree.walk() {
            let node = tree.node(id);
            match representable(&node.kind).and_then(|()| collector.add(node, digests.get(&id).map(|value| &**value))) {
                Ok(set) => xattr_sets[id.idx()] = set,
                Err(reason) => {
                    let error = BuildError::Input { path: tree.path(id), reason };
                    if !options.keep_going || matches!(node.kind, Kind::Directory(_)) {
                        return Err(error);
                    }
                    left_out.push(Skipped { path: tree.path(id), error });
                    is_left_out[id.idx()] = true;
                }
            }
        }
        let nlinks: Vec<u32> = tree.nodes().map(|(id, _)| nlink(tree, id)).collect();
        let eligible = |id: NodeId| {
            let node = tree.node(id);
            let len = match node.kind {
                Kind::File { len, .. } => len,
                _ => 0,
            };
            let ids_fit = node.meta.uid <= 0xFFFF && node.meta.gid <= 0xFFFF;
            ids_fit && nlinks[id.idx()] <= 0xFFFF && len <= u64::from(u32::MAX)
        };
        let time = |meta: &Metadata| mtime(meta, options);
        let most = most_frequent(tree.nodes().filter(|(id, _)| eligible(*id)).map(|(_, node)| time(&node.meta)));
        // The time of building counts from the epoch, forwards.
        let build_time = options.build_time.map(|secs| Epoch { secs, nsec: 0 });
        let epoch = build_time.map_or(most, |time| most.min(time));
        let form = |id: NodeId, meta: &Metadata| {
            if options.compact_inodes && eligible(id) && time(meta) == epoch { Form::Compact } else { Form::Extended }
        };
        let forms = tree.nodes().map(|(id, node)| form(id, &node.meta)).collect();
        let xattrs = collector.finish(options.xattr_share_min);
        // A header alone is no body.
        let root_xattr_len = match options.root_xattr_len {
            0 => 0,
            len => len.next_multiple_of(4).max(BODY_HEADER_LEN + 4),
        };
        Ok(Self { epoch, forms, nlinks, xattr_sets, xattrs, root_xattr_len, left_out, is_left_out })
    }

    /// Bytes of a node's inode with its xattrs.
    pub fn inode_len(&self, id: NodeId) -> usize {
        self.forms[id.idx()].len() + self.xattr_len(id)
    }

    /// Bytes of a node's xattrs.
    pub fn xattr_len(&self, id: NodeId) -> usize {
        let least = if id == NodeId::ROOT { self.root_xattr_len } else { 0 };
        self.xattrs.body_len(self.xattr_sets[id.idx()]).max(least)
    }

    /// Whether any inode has xattrs, or room for some.
    pub fn has_xattrs(&self) -> bool {
        !self.xattrs.is_empty() || self.root_xattr_len > 0
    }
}

/// The time that a node's inode shows.
pub fn mtime(meta: &Metadata, options: &BuildOptions) -> Epoch {
    let time = Epoch { secs: meta.mtime, nsec: meta.mtime_nsec };
    match options.source_date_epoch {
        Some(secs) => time.min(Epoch { secs, nsec: 0 }),
        None => time,
    }
}

fn nlink(tree: &Tree, id: NodeId) -> u32 {
    match &tree.node(id).kind {
        Kind::Directory(entries) => {
            let is_dir = |node: NodeId| matches!(tree.node(node).kind, Kind::Directory(_));
            2 + entries.iter().filter(|entry| is_dir(entry.node)).count() as u32
        }
        _ => tree.names_of(id),
    }
}

/// The time that most inodes have; the earliest of several. `Epoch::default()` of none.
fn most_frequent(times: impl Iterator<Item = Epoch>) -> Epoch {
    let mut counts = HashMap::<Epoch, u64>::new();
    for time in times {
        *counts.entry(time).or_default() += 1;
    }
    let best = counts.into_iter().max_by(|(a, n), (b, m)| n.cmp(m).then(b.cmp(a)));
    best.map_or(Epoch::default(), |(time, _)| time)
}

fn representable(kind: &Kind) -> Result<(), InputProblem> {
    match kind {
        Kind::Symlink(target) if target.is_empty() || target.len() > SYMLINK_MAX_LEN => {
            Err(InputProblem::SymlinkLen(target.len()))
        }
        Kind::CharDevice(rdev) | Kind::BlockDevice(rdev) => rdev.encode().map(drop).map_err(|_| {
            let Rdev { major, minor } = *rdev;
            InputProblem::Rdev { major, minor }
        }),
        Kind::File { len, .. } if *len >> 63 != 0 => Err(InputProblem::FileLen(*len)),
        _ => Ok(()),
    }
}
