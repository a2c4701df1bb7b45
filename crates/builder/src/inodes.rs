//! Properties of every inode that are known before any data is read: form, xattrs, room for an inline tail.

pub(crate) mod digest;
pub(crate) mod epoch;
mod paths;
pub(crate) mod previous;
pub(crate) mod xattr;

use kiln_format::inode::{CompactTimes, Epoch, Form, Rdev};
use kiln_format::xattr::BODY_HEADER_LEN;
use std::collections::HashMap;

use crate::context::Context;
use crate::error::BuildError;
use crate::error::InputProblem;
use crate::error::Skipped;
use crate::format::Format;
use crate::inodes::xattr::{Collector, Prefixes, SetId, Sharing, Xattrs};
use kiln_tree::{Kind, Metadata, NodeId, Tree};

/// Longest symbolic link that Linux follows.
const SYMLINK_MAX_LEN: usize = 4095;

/// A property that a compact inode cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedBecause {
    /// A size from 4 GiB on.
    Size,
    /// An owner or group above 65535.
    Owner,
    /// More than 65535 links.
    Links,
    /// A time of its own: all compact inodes of an image have the same.
    Mtime,
    /// Any property: no inode was to be compact.
    Anything,
}

/// Facts of all nodes, by node.
pub(crate) struct Inodes {
    /// Time of the superblock, which compact inodes have or count from.
    pub epoch: Epoch,
    /// Compact inodes that have times of their own.
    pub compact_times: CompactTimes,
    /// Form of each inode, by node.
    pub forms: Vec<Form>,
    /// Xattr set of each inode, by node.
    pub xattr_sets: Vec<Option<SetId>>,
    /// The attributes.
    pub xattrs: Xattrs,
    /// Least bytes of attributes beside the root inode.
    root_xattr_len: usize,
    /// Flag of each node: it cannot be represented and is left out.
    pub is_left_out: Vec<bool>,
    /// Flag of each node: one of its attributes is a digest of its contents.
    has_digest: Vec<bool>,
}

impl Inodes {
    /// Gathers the properties of every node. `digests` are attributes computed from contents.
    ///
    /// # Errors
    /// A path that readers would not follow; the first node that the format cannot represent, unless such nodes are
    /// to be skipped; attributes that the format cannot hold.
    pub(crate) fn gather(digests: &HashMap<NodeId, Box<[u8]>>, context: Context<'_>) -> Result<Self, BuildError> {
        let Context { tree, format, ledger, previous, .. } = context;
        paths::check(tree)?;
        let mut collector = Collector::new(Prefixes::new(&format.metadata)?);
        let mut xattr_sets = vec![None; tree.len()];
        let (mut is_left_out, mut has_digest) = (vec![false; tree.len()], vec![false; tree.len()]);
        for id in tree.walk() {
            let node = tree.node(id);
            let refuse = |reason| BuildError::Input { path: tree.path(id), reason };
            match representable(&node.kind) {
                // No file is left out because of its attributes: the maker of the tree decides about those.
                Ok(()) => {
                    let digest = digests.get(&id).map(|value| &**value);
                    xattr_sets[id.idx()] = collector.add(node, digest).map_err(refuse)?;
                    has_digest[id.idx()] = digest.is_some();
                }
                Err(reason) if format.work.keep_going => {
                    ledger.leave_out(Skipped { path: tree.path(id), error: refuse(reason) });
                    is_left_out[id.idx()] = true;
                }
                Err(reason) => return Err(refuse(reason)),
            }
        }
        let eligible = |id: NodeId| extended_because(tree, id).next().is_none();
        let time = |meta: &Metadata| mtime(meta, format);
        let times = tree.nodes().filter(|(id, _)| eligible(*id)).map(|(_, node)| time(&node.meta));
        let allowed = format.metadata.compact_times;
        // The build time counts from the epoch, forwards.
        let build_time = format.identity.build_time.map(|secs| Epoch { secs, nsec: 0 });
        let epoch = match previous {
            Some(previous) => previous.epoch,
            None => {
                let best = epoch::choose(times, allowed);
                build_time.map_or(best, |time| best.min(time))
            }
        };
        // Attributes of a root beside the superblock stay in place if its record keeps its length.
        let is_apart = |id: NodeId| id == NodeId::ROOT && previous.is_some();
        let fits = |id: NodeId| format.metadata.compact_inodes && eligible(id) && !is_apart(id);
        let mut compact_times = CompactTimes::Shared;
        let mut form = |id: NodeId, meta: &Metadata| match allowed.i_mtime(time(meta), epoch).filter(|_| fits(id)) {
            None => Form::Extended,
            Some(0) => Form::Compact,
            Some(_) => {
                compact_times = CompactTimes::Own;
                Form::Compact
            }
        };
        let forms = tree.nodes().map(|(id, node)| form(id, &node.meta)).collect();
        let xattrs = collector.finish(match previous {
            Some(previous) => Sharing::Known(&previous.shared_ids),
            None => Sharing::From(format.metadata.xattr_share_min),
        });
        // A header alone is not a body.
        let root_xattr_len = match format.metadata.root_xattr_len {
            0 => 0,
            len => len.next_multiple_of(4).max(BODY_HEADER_LEN + 4),
        };
        Ok(Self { epoch, compact_times, forms, xattr_sets, xattrs, root_xattr_len, is_left_out, has_digest })
    }

    /// Returns the properties that keep a node's inode from being compact.
    pub(crate) fn extended_because(&self, tree: &Tree, id: NodeId, format: &Format) -> Vec<ExtendedBecause> {
        if !format.metadata.compact_inodes {
            return vec![ExtendedBecause::Anything];
        }
        let other_time = (mtime(&tree.node(id).meta, format) != self.epoch).then_some(ExtendedBecause::Mtime);
        extended_because(tree, id).chain(other_time).collect()
    }

    /// Returns the bytes of a node's inode with its xattrs.
    pub(crate) fn inode_len(&self, id: NodeId) -> usize {
        self.forms[id.idx()].len() + self.xattr_len(id)
    }

    /// Returns the bytes of a node's xattrs.
    pub(crate) fn xattr_len(&self, id: NodeId) -> usize {
        let least = if id == NodeId::ROOT { self.root_xattr_len } else { 0 };
        self.xattrs.body_len(self.xattr_sets[id.idx()]).max(least)
    }

    /// Appends a node's xattrs to `out`. `shared_base` is as in [`Xattrs::encode_body`].
    pub(crate) fn encode_xattrs(&self, id: NodeId, shared_base: u32, out: &mut Vec<u8>) {
        let (body, len) = (out.len(), self.xattr_len(id));
        if len > 0 {
            self.xattrs.encode_body(self.xattr_sets[id.idx()], shared_base, out);
            // Zeros are entries that no reader shows.
            out.resize(body + len, 0);
        }
    }

    /// Returns whether an attribute of a node is a digest of its contents.
    pub(crate) fn has_digest(&self, id: NodeId) -> bool {
        self.has_digest[id.idx()]
    }

    /// Returns whether any inode has xattrs or room for some.
    pub(crate) fn has_xattrs(&self) -> bool {
        !self.xattrs.is_empty() || self.root_xattr_len > 0
    }
}

/// Returns the properties that no compact inode can hold, whatever the epoch.
fn extended_because(tree: &Tree, id: NodeId) -> impl Iterator<Item = ExtendedBecause> + use<> {
    let node = tree.node(id);
    let len = match node.kind {
        Kind::File { len, .. } => len,
        _ => 0,
    };
    let all = [
        (len > u64::from(u32::MAX), ExtendedBecause::Size),
        (node.meta.uid > 0xFFFF || node.meta.gid > 0xFFFF, ExtendedBecause::Owner),
        (nlink(tree, id) > 0xFFFF, ExtendedBecause::Links),
    ];
    all.into_iter().filter_map(|(is, what)| is.then_some(what))
}

/// Returns the time that a node's inode shows.
pub(crate) fn mtime(meta: &Metadata, format: &Format) -> Epoch {
    let time = Epoch { secs: meta.mtime, nsec: meta.mtime_nsec };
    match format.identity.source_date_epoch {
        Some(secs) => time.min(Epoch { secs, nsec: 0 }),
        None => time,
    }
}

/// Returns the links of a node's inode: the number of its names, but for directories 2 and one for each
/// sub-directory.
pub(crate) fn nlink(tree: &Tree, id: NodeId) -> u32 {
    match &tree.node(id).kind {
        Kind::Directory(entries) => {
            let is_dir = |node: NodeId| matches!(tree.node(node).kind, Kind::Directory(_));
            2 + entries.iter().filter(|entry| is_dir(entry.node)).count() as u32
        }
        _ => tree.names_of(id),
    }
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
