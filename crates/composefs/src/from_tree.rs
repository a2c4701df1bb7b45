//! Conversion of the trees of other sources: directories, archives, containers.

pub mod container;
pub mod contents;

use crate::error::{TreeError, TreeProblem};
use crate::tree::{Attributes, Builder, CfsTree, FileData, NodeIdx, object_path};
use contents::FileContents;
use kiln_format::inode::Rdev;
use kiln_tree::{Kind, Node, NodeId, Tree};
use std::collections::HashMap;

/// Attribute of a program with capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// Choice of extended attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrChoice {
    /// All.
    #[default]
    All,
    /// Those of `user.`.
    User,
    /// `security.capability`: the attribute that composefs-rs keeps of the files of containers.
    Capability,
    /// `security.capability`, and those of `user.`.
    CapabilityAndUser,
    /// None.
    None,
}

/// Treatment of files with several names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HardLinks {
    /// Kept: the first path, depth first and by the bytes of names, has the inode.
    #[default]
    Kept,
    /// Broken: each name gets a file of its own, with a link count of 1, as `mkcomposefs` does.
    Broken,
}

/// Options of the conversion.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeOptions {
    /// Sets all mtimes to 0.
    pub use_epoch: bool,
    /// Leaves out block and character devices, so whiteouts, too.
    pub skip_devices: bool,
    /// Attributes to take.
    pub xattrs: XattrChoice,
    /// Treatment of files with several names.
    pub hard_links: HardLinks,
}

/// Converts a tree. `contents` tells the contents of each regular file that is not empty, see
/// [`contents::read`]. A whiteout with several names becomes several whiteouts: composefs has no
/// others.
///
/// # Errors
/// A file that no image can have: a file over 2^53 bytes, too many attributes, a long target.
pub fn from_tree<'c>(
    tree: &Tree,
    options: &TreeOptions,
    mut contents: impl FnMut(NodeId) -> FileContents<'c>,
) -> Result<CfsTree, TreeError> {
    let root = tree.node(NodeId::ROOT);
    let at = |id: NodeId, node, problem| {
        let path = [&b"/"[..], &tree.path(id)].concat();
        TreeError { path, node, problem }
    };
    let mut builder = Builder::new(&attributes(root, 1, options));
    add_xattrs(root, options, &mut builder).map_err(|problem| at(NodeId::ROOT, NodeIdx::ROOT, problem))?;
    let mut first_names = HashMap::new();
    // Entries to convert, with the directories of the new tree, the next one last.
    let mut stack: Vec<(NodeIdx, NodeId, NodeId, usize)> = Vec::new();
    let push = |stack: &mut Vec<_>, dir: NodeId, parent: NodeIdx| {
        stack.extend(tree.entries(dir).iter().enumerate().rev().map(|(idx, entry)| (parent, dir, entry.node, idx)));
    };
    push(&mut stack, NodeId::ROOT, NodeIdx::ROOT);
    while let Some((parent, dir, id, idx)) = stack.pop() {
        let (name, node) = (tree.entries(dir).at(idx).name, tree.node(id));
        let is_device = matches!(node.kind, Kind::CharDevice(_) | Kind::BlockDevice(_));
        if is_device && options.skip_devices {
            continue;
        }
        let is_whiteout = matches!(node.kind, Kind::CharDevice(Rdev { major: 0, minor: 0 }));
        let names = tree.names_of(id);
        let is_linked = names > 1 && options.hard_links == HardLinks::Kept && !is_whiteout;
        if let Some(&first) = first_names.get(&id).filter(|_| is_linked) {
            builder.link(parent, name, first).map_err(|problem| at(id, NodeIdx::ROOT, problem))?;
            continue;
        }
        let attributes = attributes(node, if is_linked { names } else { 1 }, options);
        let added = add(&mut builder, (parent, name), &attributes, node, || contents(id));
        let added = added.and_then(|new| add_xattrs(node, options, &mut builder).map(|()| new));
        let new = added.map_err(|problem| at(id, NodeIdx::ROOT, problem))?;
        if is_linked {
            first_names.insert(id, new);
        }
        push(&mut stack, id, new);
    }
    builder.finish()
}

fn attributes(node: &Node, nlink: u32, options: &TreeOptions) -> Attributes {
    let meta = &node.meta;
    let (mtime, mtime_nsec) = if options.use_epoch { (0, 0) } else { (meta.mtime, meta.mtime_nsec) };
    Attributes { permissions: meta.permissions, nlink, uid: meta.uid, gid: meta.gid, mtime, mtime_nsec }
}

fn add<'c>(
    builder: &mut Builder,
    place: (NodeIdx, &[u8]),
    attributes: &Attributes,
    node: &Node,
    contents: impl FnOnce() -> FileContents<'c>,
) -> Result<NodeIdx, TreeProblem> {
    let object;
    let number = |rdev: &Rdev| rdev.encode().map_err(|_| TreeProblem::Device(rdev.major, rdev.minor));
    let data = match &node.kind {
        Kind::Directory(_) => FileData::Directory,
        Kind::File { len: 0, .. } => FileData::Inline(&[]),
        Kind::File { len, .. } => match contents() {
            FileContents::Inline(bytes) if bytes.len() as u64 != *len => {
                return Err(TreeProblem::Contents(bytes.len(), *len));
            }
            FileContents::Inline(bytes) => FileData::Inline(bytes),
            FileContents::Object(digest) => {
                object = object_path(&digest);
                FileData::External { size: *len, digest: Some(digest), object: Some(object.as_bytes()) }
            }
        },
        Kind::Symlink(target) => FileData::Symlink(target),
        Kind::CharDevice(rdev) => FileData::CharDevice(number(rdev)?),
        Kind::BlockDevice(rdev) => FileData::BlockDevice(number(rdev)?),
        Kind::Fifo => FileData::Fifo,
        Kind::Socket => FileData::Socket,
    };
    builder.add(place.0, place.1, attributes, data)
}

fn add_xattrs(node: &Node, options: &TreeOptions, builder: &mut Builder) -> Result<(), TreeProblem> {
    let is_user = |name: &[u8]| name.starts_with(b"user.");
    let is_taken = |name: &[u8]| match options.xattrs {
        XattrChoice::All => true,
        XattrChoice::User => is_user(name),
        XattrChoice::Capability => name == CAPABILITY,
        XattrChoice::CapabilityAndUser => name == CAPABILITY || is_user(name),
        XattrChoice::None => false,
    };
    let taken = node.xattrs.iter().filter(|xattr| is_taken(&xattr.name));
    taken.into_iter().try_for_each(|xattr| builder.xattr(&xattr.name, &xattr.value))
}
