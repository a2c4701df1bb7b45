//! Whiteouts and other marks that union filesystems leave in their layers: they hide entries of
//! lower layers.
//!
//! aufs, and container images after it, mark with names: a file `.wh.NAME` hides NAME, and
//! `.wh..wh..opq` makes the directory replace the lower one. overlayfs marks with a character
//! device 0:0 called NAME, and with an attribute.

use crate::{Builder, Entries, Entry, Kind, Metadata, Node, NodeId, ThinSlice, TreeError, Xattr};
use kiln_format::inode::Rdev;

use super::xattrs::set_xattr;

const PREFIX: &[u8] = b".wh.";
/// Prefix of aufs's own names; one of them marks an opaque directory, the others mean nothing
/// elsewhere.
const OWN_PREFIX: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Attribute of an opaque directory; its value is `y`.
pub(crate) const OPAQUE_XATTR: &[u8] = b"trusted.overlay.opaque";
/// Attribute of a directory that was copied up. With an empty value it makes overlayfs read the
/// directory entry by entry, and so hide the whiteouts in it, even if no other layer has the
/// directory.
pub(crate) const ORIGIN_XATTR: &[u8] = b"trusted.overlay.origin";
/// Device number of a whiteout.
pub(crate) const WHITEOUT: Rdev = Rdev { major: 0, minor: 0 };

/// Returns true if a directory hides the lower ones at its path.
pub fn is_opaque(dir: &Node) -> bool {
    dir.xattrs.iter().any(|x| &*x.name == OPAQUE_XATTR && &*x.value == b"y")
}

/// Converts the marks of aufs to those of overlayfs.
///
/// If the same layer has the marked name, a directory of that name becomes opaque; any other file
/// hides the lower one without a mark. A directory with whiteouts gets an empty [`ORIGIN_XATTR`].
/// Whiteouts have no permissions, like those that the kernel creates.
///
/// # Errors
/// More nodes than a tree can have.
pub fn from_aufs(builder: &mut Builder) -> Result<(), TreeError> {
    for dir in (0..builder.nodes().len() as u32).map(NodeId) {
        let entries = match &builder.nodes()[dir.idx()].kind {
            Kind::Directory(entries) => entries.clone(),
            _ => continue,
        };
        let is_dir = |builder: &Builder, node: NodeId| matches!(builder.nodes()[node.idx()].kind, Kind::Directory(_));
        let is_mark = |entry: &Entry<'_>| entry.name.starts_with(PREFIX) && !is_dir(builder, entry.node);
        let (marks, others): (Vec<_>, Vec<_>) = entries.iter().partition(is_mark);
        // aufs's own directories have no contents of the layer.
        let mut kept: Entries = others.into_iter().filter(|entry| !entry.name.starts_with(OWN_PREFIX)).collect();
        let mut whiteouts = Vec::new();
        for mark in marks {
            match (mark.name, kept.find(&mark.name[PREFIX.len()..])) {
                (OPAQUE, _) => put_mark(builder.xattrs_mut(dir), OPAQUE_XATTR, b"y"),
                (name, _) if name.starts_with(OWN_PREFIX) => {}
                // The lower directory is hidden. A directory that is only implied by paths has the
                // same metadata as others.
                (_, Some(node)) if is_dir(builder, node) => put_mark(builder.xattrs_mut(node), OPAQUE_XATTR, b"y"),
                (_, Some(_)) => {}
                (name, None) => {
                    // The mark may be one of many hard links, so its node is not changed.
                    let meta = Metadata { permissions: 0, ..builder.nodes()[mark.node.idx()].meta };
                    let node = Node { meta, xattrs: ThinSlice::default(), kind: Kind::CharDevice(WHITEOUT) };
                    whiteouts.push((&name[PREFIX.len()..], builder.add(node)?));
                }
            }
        }
        if !whiteouts.is_empty() {
            put_mark(builder.xattrs_mut(dir), ORIGIN_XATTR, b"");
        }
        whiteouts.into_iter().for_each(|(name, node)| kept.push(name, node));
        builder.set_entries(dir, kept);
    }
    Ok(())
}

fn put_mark(xattrs: &mut ThinSlice<Xattr>, name: &[u8], value: &[u8]) {
    let mut list = std::mem::take(xattrs).into_vec();
    set_xattr(&mut list, Xattr { name: name.into(), value: value.into() });
    *xattrs = list.into();
}

/// Removes the marks of overlayfs: whiteouts and attributes.
pub fn strip(builder: &mut Builder) {
    let is_whiteout =
        |builder: &Builder, id: NodeId| matches!(builder.nodes()[id.idx()].kind, Kind::CharDevice(WHITEOUT));
    for id in (0..builder.nodes().len() as u32).map(NodeId) {
        if let Kind::Directory(entries) = &builder.nodes()[id.idx()].kind
            && entries.iter().any(|entry| is_whiteout(builder, entry.node))
        {
            let kept = entries.iter().filter(|entry| !is_whiteout(builder, entry.node)).collect();
            builder.set_entries(id, kept);
        }
        let xattrs = builder.xattrs_mut(id);
        let is_mark = |x: &Xattr| x.name.starts_with(b"trusted.overlay.") || x.name.starts_with(b"user.overlay.");
        if xattrs.iter().any(is_mark) {
            *xattrs = std::mem::take(xattrs).into_vec().into_iter().filter(|x| !is_mark(x)).collect();
        }
    }
}
