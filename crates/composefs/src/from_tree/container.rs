//! Trees of container images as composefs-rs makes them, so that the same image has the same id.

use kiln_format::Escaped;
use kiln_tree::{Builder, Kind, NodeId, Tree, TreeError};

/// Error of a container image that composefs-rs refuses, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    /// An image without the directory whose attributes the root takes.
    #[error("the container image has no directory /usr, whose attributes its root takes")]
    NoUsr,
    /// A directory that is in no layer, so that its attributes are unknown.
    #[error("/{}: no layer of the container image has this directory, but one has a file in it", Escaped(.0))]
    ImpliedDirectory(Vec<u8>),
    /// A tree that cannot be changed.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Changes the merged layers of a container image as `cfsctl oci compute-id` of composefs-rs 0.9 does. It also leaves
/// out attributes that depend on the machine that built the layers:
/// [`XattrChoice::Capability`](super::XattrChoice::Capability) does that in the conversion.
///
/// * The root takes permissions, owner, mtime and attributes of `/usr`: layers rarely have an entry for it.
/// * `/run` is emptied, and takes the mtime of `/usr`: programs that run containers write there.
///
/// # Errors
/// An image without `/usr`; a directory that no layer has.
pub fn container_tree(tree: Tree) -> Result<Tree, ContainerError> {
    let implied = |(id, _): &(NodeId, _)| *id != NodeId::ROOT && tree.is_implied(*id);
    if let Some((id, _)) = tree.nodes().find(implied) {
        return Err(ContainerError::ImpliedDirectory(tree.path(id)));
    }
    let (mut builder, contents) = Builder::from_tree(tree);
    let usr = builder.lookup(NodeId::ROOT, b"usr").filter(|&id| is_dir(&builder, id)).ok_or(ContainerError::NoUsr)?;
    let (meta, xattrs) = builder.meta_mut(usr);
    let (usr_meta, usr_xattrs) = (*meta, xattrs.clone());
    let root = builder.meta_mut(NodeId::ROOT);
    (*root.0, *root.1) = (usr_meta, usr_xattrs);
    if let Some(run) = builder.lookup(NodeId::ROOT, b"run").filter(|&id| is_dir(&builder, id)) {
        builder.clear_dir(run);
        let (meta, _) = builder.meta_mut(run);
        (meta.mtime, meta.mtime_nsec) = (usr_meta.mtime, usr_meta.mtime_nsec);
    }
    Ok(builder.finish(contents)?)
}

fn is_dir(builder: &Builder, id: NodeId) -> bool {
    matches!(builder.nodes()[id.idx()].kind, Kind::Directory(_))
}
