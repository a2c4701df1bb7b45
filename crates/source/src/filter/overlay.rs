//! Marks that union filesystems leave in their layers: what an upper layer takes away from a lower one.
//!
//! aufs, and container images after it, mark with names: a file `.wh.NAME` says that NAME is gone, `.wh..wh..opq` that the
//! directory replaces the lower one. overlayfs marks with a character device 0:0 called NAME, and an attribute.

use kiln_builder::tree::{Entries, Entry, Kind, Node, ThinSlice, Xattr};
use kiln_format::inode::Rdev;

use super::error::PolicyError;
use super::links::push;
use super::xattrs::set;

const PREFIX: &[u8] = b".wh.";
/// Names of aufs itself; one of them marks an opaque directory, the others mean nothing elsewhere.
const OWN_PREFIX: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const WHITEOUT: Rdev = Rdev { major: 0, minor: 0 };

/// Make the marks of aufs those of overlayfs.
///
/// A mark for a name that the same layer has: a directory becomes opaque, anything else hides the lower one anyway.
///
/// # Errors
/// More nodes than a tree can have.
pub(super) fn from_aufs(nodes: &mut Vec<Node>) -> Result<(), PolicyError> {
    for dir in 0..nodes.len() {
        let entries = match &mut nodes[dir].kind {
            Kind::Directory(entries) => std::mem::take(entries),
            _ => continue,
        };
        let is_mark = |entry: &Entry<'_>| {
            entry.name.starts_with(PREFIX) && !matches!(nodes[entry.node.idx()].kind, Kind::Directory(_))
        };
        let (marks, others): (Vec<_>, Vec<_>) = entries.iter().partition(is_mark);
        // aufs's own directories hold nothing of the layer.
        let mut kept: Entries = others.into_iter().filter(|entry| !entry.name.starts_with(OWN_PREFIX)).collect();
        let mut whiteouts = Vec::new();
        for mark in marks {
            match (mark.name, kept.find(&mark.name[PREFIX.len()..])) {
                (OPAQUE, _) => make_opaque(&mut nodes[dir]),
                (name, _) if name.starts_with(OWN_PREFIX) => {}
                (_, Some(node)) => {
                    if matches!(nodes[node.idx()].kind, Kind::Directory(_)) {
                        make_opaque(&mut nodes[node.idx()]);
                    }
                }
                (name, None) => {
                    // A mark may be one of many names of a node, so the node itself is left alone.
                    let meta = nodes[mark.node.idx()].meta;
                    let node = Node { meta, xattrs: ThinSlice::default(), kind: Kind::CharDevice(WHITEOUT) };
                    whiteouts.push((&name[PREFIX.len()..], push(nodes, node)?));
                }
            }
        }
        whiteouts.into_iter().for_each(|(name, node)| kept.push(name, node));
        nodes[dir].kind = Kind::Directory(Box::new(kept));
    }
    Ok(())
}

fn make_opaque(dir: &mut Node) {
    let mut xattrs = std::mem::take(&mut dir.xattrs).into_vec();
    set(&mut xattrs, Xattr { name: b"trusted.overlay.opaque".as_slice().into(), value: b"y".as_slice().into() });
    dir.xattrs = xattrs.into();
}

/// Remove the marks of overlayfs: whiteouts and attributes.
pub(super) fn strip(nodes: &mut [Node]) {
    let is_whiteout: Vec<bool> =
        nodes.iter().map(|node| matches!(node.kind, Kind::CharDevice(rdev) if rdev == WHITEOUT)).collect();
    for node in nodes {
        if let Kind::Directory(entries) = &mut node.kind {
            **entries = entries.iter().filter(|entry| !is_whiteout[entry.node.idx()]).collect();
        }
        let mut xattrs = std::mem::take(&mut node.xattrs).into_vec();
        xattrs.retain(|x| !x.name.starts_with(b"trusted.overlay.") && !x.name.starts_with(b"user.overlay."));
        node.xattrs = xattrs.into();
    }
}
