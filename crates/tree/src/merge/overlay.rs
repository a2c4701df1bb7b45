//! Merge of a tree over another one.

use crate::{Builder, ContentId, Kind, Node, NodeId, ThinSlice, Tree, TreeError, Xattr};
use std::collections::HashMap;

use super::lost_links::LostLinks;
use crate::policy::marks::{OPAQUE_XATTR, ORIGIN_XATTR, WHITEOUT, is_opaque};
use crate::policy::set_xattr;

/// Treatment of the whiteouts of a tree (character devices 0:0) and of its opaque directories
/// (`trusted.overlay.opaque=y`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whiteouts {
    /// Apply and remove them: the result is what overlayfs would show.
    #[default]
    Apply,
    /// Apply and keep them, for layers that will be below.
    Keep,
}

/// A tree under construction, over which others are merged.
pub struct Overlay<'a> {
    /// The lower tree.
    pub builder: &'a mut Builder,
    /// Treatment of the upper trees' whiteouts.
    pub whiteouts: Whiteouts,
    /// Id of the tree's content 0 in the merged tree.
    pub first_content: u32,
}

impl Overlay<'_> {
    /// Merges `tree` over the tree at `at`. Returns the symbolic links that it replaces by
    /// directories.
    ///
    /// # Errors
    /// An invalid path, or one that leads through a file; more files than a tree can have.
    pub fn put(&mut self, tree: &Tree, at: &[u8]) -> Result<LostLinks, TreeError> {
        let mut lost = LostLinks::default();
        let root = if at.is_empty() { NodeId::ROOT } else { self.root(tree, at)? };
        // Nodes with several names, by their ids in `tree`.
        let mut linked: HashMap<NodeId, NodeId> = HashMap::new();
        let mut stack = vec![(NodeId::ROOT, root)];
        while let Some((dir, to)) = stack.pop() {
            self.update(tree, dir, to);
            for entry in tree.entries(dir) {
                let (name, id) = (entry.name, entry.node);
                match &tree.node(id).kind {
                    Kind::CharDevice(WHITEOUT) if self.whiteouts == Whiteouts::Apply => {
                        self.builder.remove_in(to, name)?;
                    }
                    Kind::Directory(_) => {
                        let there = self.builder.lookup(to, name);
                        if there.is_some_and(|there| matches!(self.builder.nodes()[there.idx()].kind, Kind::Symlink(_)))
                        {
                            let path = tree.path(id);
                            lost.look(self.builder, &if at.is_empty() { path } else { [at, b"/", &path].concat() });
                        }
                        stack.push((id, self.builder.dir_in(to, name)?));
                    }
                    _ => match linked.get(&id) {
                        Some(&known) => self.builder.link_in(to, name, known)?,
                        None => {
                            let put = self.builder.insert_in(to, name, self.node(tree, id))?;
                            if tree.names_of(id) > 1 {
                                linked.insert(id, put);
                            }
                        }
                    },
                }
            }
        }
        Ok(lost)
    }

    /// Returns the directory at `at`, creating it if necessary.
    fn root(&mut self, tree: &Tree, at: &[u8]) -> Result<NodeId, TreeError> {
        match self.builder.find(at)? {
            Some(id) if matches!(self.builder.nodes()[id.idx()].kind, Kind::Directory(_)) => Ok(id),
            _ => self.builder.insert(at, self.node(tree, NodeId::ROOT)),
        }
    }

    /// Updates an existing directory from the directory `dir` of `tree`.
    fn update(&mut self, tree: &Tree, dir: NodeId, to: NodeId) {
        let node = tree.node(dir);
        if is_opaque(node) {
            self.builder.clear_dir(to);
        }
        let own = self.whiteouts.xattrs(node);
        if !tree.is_implied(dir) {
            let (meta, xattrs) = self.builder.meta_mut(to);
            (*meta, *xattrs) = (node.meta, own);
        } else if !own.is_empty() {
            // Attributes of an implied directory are only marks; they say nothing about the
            // directory itself.
            let xattrs = self.builder.xattrs_mut(to);
            *xattrs = with_marks(std::mem::take(xattrs), &own);
        }
    }

    /// Returns a node for the merged tree.
    fn node(&self, tree: &Tree, id: NodeId) -> Node {
        let node = tree.node(id);
        let kind = match &node.kind {
            Kind::File { len, content, sparse } => {
                Kind::File { len: *len, content: ContentId(self.first_content + content.0), sparse: *sparse }
            }
            Kind::Directory(_) => Kind::Directory(Box::default()),
            other => other.clone(),
        };
        Node { meta: node.meta, xattrs: self.whiteouts.xattrs(node), kind }
    }
}

/// Returns the attributes of a lower directory, with the marks of an implied directory over it.
pub fn with_marks(lower: ThinSlice<Xattr>, marks: &[Xattr]) -> ThinSlice<Xattr> {
    let mut list = lower.into_vec();
    marks.iter().for_each(|mark| set_xattr(&mut list, mark.clone()));
    list.into()
}

impl Whiteouts {
    /// Returns the attributes of a node in the merged tree, without marks that have been applied.
    fn xattrs(self, node: &Node) -> ThinSlice<Xattr> {
        let is_mark = |x: &Xattr| &*x.name == OPAQUE_XATTR || &*x.name == ORIGIN_XATTR && x.value.is_empty();
        match self == Whiteouts::Apply && node.xattrs.iter().any(is_mark) {
            true => node.xattrs.iter().filter(|x| !is_mark(x)).cloned().collect(),
            false => node.xattrs.clone(),
        }
    }
}
