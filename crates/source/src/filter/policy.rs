//! What becomes of a tree.

use kiln_tree::{Builder, Kind, Metadata, Node, NodeId, ThinSlice, Tree, Xattr};

use super::acl::{self, Lost};
use super::chmod::Chmod;
use super::error::PolicyError;
use super::file_contexts::Labels;
use super::ids::{IdPolicy, IdProblem};
use super::links;
use super::overlay;
use super::times::Times;
use super::xattrs::XattrPolicy;
use crate::manifest::edits::TreeEdits;
use crate::manifest::fs_config::FsConfig;
use kiln_format::acl::IdKind;

/// What becomes of a tree; the default is nothing. Applied in the order of the fields.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Marks of aufs become those of overlayfs: a file `.wh.NAME` a whiteout NAME, `.wh..wh..opq` an attribute of its
    /// directory.
    pub aufs: bool,
    /// Whiteouts and attributes of overlayfs are removed.
    pub strip_overlay: bool,
    /// Every further name of a file becomes a file of its own.
    pub hard_dereference: bool,
    /// Permissions.
    pub chmod: Chmod,
    /// Owners, and the users that ACLs and capabilities name.
    pub uid: IdPolicy,
    /// Groups, and those that ACLs name.
    pub gid: IdPolicy,
    /// Times of last modification.
    pub times: Times,
    /// Extended attributes.
    pub xattrs: XattrPolicy,
    /// Owners, permissions and capabilities by path, as Android's builds describe them. They are what that says, whatever came before.
    pub fs_config: Option<FsConfig>,
    /// Files that are added and changed by definitions, one file of them after the other. What they say holds, whatever came before.
    pub edits: Vec<TreeEdits>,
    /// SELinux labels, instead of those of the source. A file with several names has that of the first in walk order.
    pub labels: Option<Labels>,
}

/// The tree that `policy` makes of `tree`.
///
/// # Errors
/// Owners that have no place in the image, and marks that make two files of one name.
pub fn apply(mut tree: Tree, policy: &Policy) -> Result<Tree, PolicyError> {
    if policy.aufs || policy.strip_overlay || policy.hard_dereference {
        tree = restructure(tree, policy)?;
    }
    for idx in 0..tree.len() {
        let id = NodeId(idx as u32);
        let (meta, xattrs) = policy.node(&tree, id)?;
        tree.set(id, meta, xattrs);
    }
    for edits in &policy.edits {
        tree = edits.apply(tree)?;
    }
    if let Some(labels) = &policy.labels {
        label(&mut tree, labels);
    }
    Ok(tree)
}

fn label(tree: &mut Tree, labels: &Labels) {
    for idx in 0..tree.len() {
        let id = NodeId(idx as u32);
        let Node { meta, xattrs, kind } = tree.node(id);
        let (meta, mut xattrs) = (*meta, xattrs.to_vec());
        labels.apply(&tree.path(id), kind, &mut xattrs);
        tree.set(id, meta, xattrs.into());
    }
}

fn restructure(mut tree: Tree, policy: &Policy) -> Result<Tree, PolicyError> {
    if policy.aufs || policy.strip_overlay {
        let (mut builder, contents) = Builder::from_tree(tree);
        if policy.aufs {
            overlay::from_aufs(&mut builder)?;
        }
        if policy.strip_overlay {
            overlay::strip(&mut builder);
        }
        tree = builder.finish(contents)?;
    }
    if policy.hard_dereference {
        let (mut builder, contents) = Builder::from_tree(tree);
        links::separate(&mut builder)?;
        tree = builder.finish(contents)?;
    }
    Ok(tree)
}

impl Policy {
    /// What a node shall have.
    fn node(&self, tree: &Tree, id: NodeId) -> Result<(Metadata, ThinSlice<Xattr>), PolicyError> {
        let Node { meta, xattrs, kind } = tree.node(id);
        let mut meta = *meta;
        let mut xattrs = xattrs.to_vec();
        if !matches!(kind, Kind::Symlink(_)) && !self.chmod.is_empty() {
            meta.permissions = self.chmod.apply(meta.permissions, matches!(kind, Kind::Directory(_)));
            xattrs.iter_mut().for_each(|xattr| acl::set_permissions(xattr, meta.permissions));
        }
        self.times.apply(&mut meta);
        self.translate(&mut meta, &mut xattrs).map_err(|lost| self.error(tree.path(id), lost))?;
        self.xattrs.apply(&mut xattrs, kind);
        if let Some(fs_config) = &self.fs_config {
            fs_config.apply(&tree.path(id), kind, &mut meta, &mut xattrs)?;
        }
        Ok((meta, xattrs.into()))
    }

    fn error(&self, path: Vec<u8>, (kind, id, problem): Lost) -> PolicyError {
        match (problem, kind) {
            (IdProblem::Unmapped, _) => PolicyError::Unmapped { path, kind, id },
            (IdProblem::OutOfRange, IdKind::Uid) => PolicyError::OutOfRange { path, kind, id, offset: self.uid.offset },
            (IdProblem::OutOfRange, IdKind::Gid) => PolicyError::OutOfRange { path, kind, id, offset: self.gid.offset },
        }
    }

    fn translate(&self, meta: &mut Metadata, xattrs: &mut [Xattr]) -> Result<(), Lost> {
        meta.uid = self.uid.apply(meta.uid).map_err(|problem| (IdKind::Uid, meta.uid, problem))?;
        meta.gid = self.gid.apply(meta.gid).map_err(|problem| (IdKind::Gid, meta.gid, problem))?;
        xattrs.iter_mut().try_for_each(|xattr| acl::translate_ids(xattr, &self.uid, &self.gid))
    }
}
