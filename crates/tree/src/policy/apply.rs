//! Changes to the metadata of a tree.

use crate::{Builder, Kind, Metadata, Node, NodeId, ThinSlice, Tree, Xattr};

use super::acl::{self, Lost};
use super::chmod::Chmod;
use super::edits::TreeEdits;
use super::error::PolicyError;
use super::file_contexts::Labels;
use super::fs_config::FsConfig;
use super::ids::{IdPolicy, IdProblem};
use super::links;
use super::marks;
use super::times::Times;
use super::xattrs::XattrPolicy;
use kiln_format::acl::IdKind;

/// Changes to a tree, applied in the order of the fields. The default changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// True to convert the marks of aufs to those of overlayfs: a file `.wh.NAME` becomes a
    /// whiteout NAME, `.wh..wh..opq` an attribute of its directory.
    pub aufs: bool,
    /// True to remove the whiteouts and attributes of overlayfs.
    pub strip_overlay: bool,
    /// True to replace every further name of a file by a separate file.
    pub hard_dereference: bool,
    /// Changes of permissions.
    pub chmod: Chmod,
    /// Changes of owners, and of the users in ACLs and capabilities.
    pub uid: IdPolicy,
    /// Changes of groups, and of the groups in ACLs.
    pub gid: IdPolicy,
    /// Changes of modification times.
    pub times: Times,
    /// Changes of extended attributes.
    pub xattrs: XattrPolicy,
    /// Owners, permissions and capabilities by path, as Android's builds describe them. They
    /// override the changes above.
    pub fs_config: Option<FsConfig>,
    /// Definition files that add and change files, applied in order. They override the changes
    /// above.
    pub edits: Vec<TreeEdits>,
    /// SELinux labels that replace those of the source. A file with several names gets the label of
    /// the first in walk order.
    pub labels: Option<Labels>,
}

/// Applies `policy` to `tree`.
///
/// # Errors
/// Owners without an id in the image; marks that result in two files of one name; invalid
/// definitions.
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
            marks::from_aufs(&mut builder)?;
        }
        if policy.strip_overlay {
            marks::strip(&mut builder);
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
    /// Returns the metadata and attributes of a node under the policy.
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
