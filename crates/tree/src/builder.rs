//! Builder of a tree, from paths in any order or from nodes.

mod hard_links;
mod implied;
mod name_index;
mod numbering;
mod path;
#[cfg(test)]
mod tests;

use hard_links::HardLinks;
pub use implied::Implied;
use name_index::{NameHash, NameIndex, entries};
use path::components;
use std::collections::BTreeSet;

use super::content::Contents;
use super::entries::Entries;
use super::error::{TreeError, TreeProblem};
use super::{Kind, Metadata, Node, NodeId, ThinSlice, Tree, Xattr};

/// Node of an entry that was removed.
const GONE: NodeId = NodeId(u32::MAX);

/// A tree under construction.
///
/// An archive inserts by path: missing parents are implied, and later entries override earlier ones,
/// as if the archive were extracted. Layers are inserted one after the other, with
/// [`Builder::remove`] and [`Builder::clear`] for their whiteouts. In paths, leading, trailing and
/// repeated slashes and `.` are ignored; `..` is refused. No symbolic link is followed.
///
/// A source that knows its directories adds nodes and names them, which needs no lookup. Both ways can
/// be mixed.
///
/// ```
/// use kiln_tree::{Builder, Kind, Metadata, NoContents, Node, ThinSlice};
/// let mut builder = Builder::default();
/// let kind = Kind::Symlink(b"dash"[..].into());
/// let link = Node { meta: Metadata::default(), xattrs: ThinSlice::default(), kind };
/// builder.insert(b"./usr/bin/sh", link)?;
/// builder.hard_link(b"bin/sh", b"usr/bin/sh")?;
/// let tree = builder.finish(Box::new(NoContents))?;
/// assert_eq!(tree.find([&b"bin"[..], b"sh"]), tree.find([&b"usr"[..], b"bin", b"sh"]));
/// # Ok::<(), kiln_tree::TreeError>(())
/// ```
pub struct Builder {
    /// Nodes, the root first. Nodes without a name are dropped at the end.
    nodes: Vec<Node>,
    implied: Implied,
    /// Index of names, created by the first lookup of a path.
    names: Option<NameIndex>,
    hard_links: HardLinks,
    has_gone: bool,
    /// Directories that only the paths of others imply.
    implied_dirs: BTreeSet<NodeId>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new(Implied::default())
    }
}

impl Builder {
    /// Creates an empty directory. It and directories that paths imply have the metadata `implied` until
    /// they are inserted themselves.
    pub fn new(implied: impl Into<Implied>) -> Self {
        let (implied, implied_dirs) = (implied.into(), BTreeSet::from([NodeId::ROOT]));
        Self { implied_dirs, ..Self::of(vec![directory(implied.root())], implied) }
    }

    /// Returns a builder with the nodes of `tree`, and its contents, for [`Builder::finish`]. Nodes
    /// keep their ids until then.
    pub fn from_tree(tree: Tree) -> (Self, Box<dyn Contents>) {
        let Tree { nodes, implied_dirs, contents, .. } = tree;
        let implied = nodes[0].meta;
        (Self { implied_dirs, ..Self::of(nodes, implied.into()) }, contents)
    }

    fn of(nodes: Vec<Node>, implied: Implied) -> Self {
        Self {
            nodes,
            implied,
            names: None,
            hard_links: HardLinks::default(),
            has_gone: false,
            implied_dirs: BTreeSet::new(),
        }
    }

    /// Inserts `node` at `path`. A directory over a directory keeps the entries of the old one, and gets
    /// the new metadata and attributes; anything else replaces the old file and everything below it.
    /// Other names of a replaced file keep it. Entries of `node` are ignored.
    ///
    /// # Errors
    /// A path with `..`, or with names that no directory can hold; a parent that is no directory;
    /// another file as the root; more files than a tree can have.
    pub fn insert(&mut self, path: &[u8], node: Node) -> Result<NodeId, TreeError> {
        let is_dir = matches!(node.kind, Kind::Directory(_));
        let Some((dir, name)) = self.parent(path)? else {
            return if is_dir {
                Ok(self.update(NodeId::ROOT, node))
            } else {
                Err(TreeProblem::RootNotADirectory.at(path))
            };
        };
        self.insert_at((path, dir, name), node)
    }

    /// Inserts a node like [`Builder::insert`], as the entry `name` of the directory `dir`.
    ///
    /// # Errors
    /// More files, or longer names in one directory, than a tree can have. An invalid name is an error
    /// of [`Builder::finish`].
    pub fn insert_in(&mut self, dir: NodeId, name: &[u8], node: Node) -> Result<NodeId, TreeError> {
        self.insert_at((name, dir, name), node)
    }

    fn insert_at(&mut self, place: (&[u8], NodeId, &[u8]), mut node: Node) -> Result<NodeId, TreeError> {
        let (path, dir, name) = place;
        if matches!(node.kind, Kind::Directory(_)) {
            if let Some(existing) = self.lookup(dir, name).filter(|id| self.is_dir(*id)) {
                return Ok(self.update(existing, node));
            }
            node.kind = Kind::Directory(Box::default());
        }
        let id = self.add_at(path, node)?;
        self.put(path, dir, name, id)?;
        Ok(id)
    }

    /// Sets the node of the entry `name` of the directory `dir`, which need not exist.
    ///
    /// # Errors
    /// As [`Builder::insert_in`].
    pub fn link_in(&mut self, dir: NodeId, name: &[u8], node: NodeId) -> Result<(), TreeError> {
        self.put(name, dir, name, node)
    }

    /// Removes the entry `name` of the directory `dir`, and everything below it. It need not exist.
    ///
    /// # Errors
    /// None: an entry that is removed exists.
    pub fn remove_in(&mut self, dir: NodeId, name: &[u8]) -> Result<(), TreeError> {
        if self.lookup(dir, name).is_none() {
            return Ok(());
        }
        self.has_gone = true;
        self.put(name, dir, name, GONE)
    }

    /// Returns the directory `name` in `dir`, and implies it if there is none.
    ///
    /// # Errors
    /// As [`Builder::insert_in`].
    pub fn dir_in(&mut self, dir: NodeId, name: &[u8]) -> Result<NodeId, TreeError> {
        match self.lookup(dir, name).filter(|id| self.is_dir(*id)) {
            Some(id) => Ok(id),
            None => self.imply(name, dir, name),
        }
    }

    /// Adds `path` as another name of the file at `target`. If there is none yet, it is looked up when
    /// the tree is finished.
    ///
    /// # Errors
    /// As [`Builder::insert`]; a target that is a directory.
    pub fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), TreeError> {
        let found = self.find(target)?;
        if found.is_some_and(|id| self.is_dir(id)) {
            return Err(TreeProblem::LinkToDirectory(target.to_vec()).at(path));
        }
        let Some((dir, name)) = self.parent(path)? else { return Err(TreeProblem::RootNotADirectory.at(path)) };
        let id = match found {
            Some(id) => id,
            None => {
                let stand_in = Node { kind: Kind::Fifo, ..directory(Metadata::default()) };
                let id = self.add_at(path, stand_in)?;
                self.hard_links.add(id, target);
                id
            }
        };
        self.put(path, dir, name, id)
    }

    /// Removes the file at `path` and everything below it, as the whiteout of a layer does. It need not
    /// exist.
    ///
    /// # Errors
    /// As [`Builder::insert`]; the root.
    pub fn remove(&mut self, path: &[u8]) -> Result<(), TreeError> {
        if self.find(path)?.is_none() {
            return Ok(());
        }
        let Some((dir, name)) = self.parent(path)? else { return Err(TreeProblem::RootRemoved.at(path)) };
        self.has_gone = true;
        self.put(path, dir, name, GONE)
    }

    /// Removes all entries of the directory at `path`, as the mark of an opaque directory does. The
    /// directory is implied if it does not exist.
    ///
    /// # Errors
    /// As [`Builder::insert`]; a file that is no directory.
    pub fn clear(&mut self, path: &[u8]) -> Result<(), TreeError> {
        let id = match self.parent(path)? {
            None => NodeId::ROOT,
            Some((dir, name)) => self.enter(path, path.len(), dir, name)?,
        };
        self.clear_dir(id);
        Ok(())
    }

    /// Removes all entries of a directory.
    pub fn clear_dir(&mut self, id: NodeId) {
        if let Some(names) = &mut self.names {
            names.remove_all(&self.nodes, id);
        }
        self.nodes[id.idx()].kind = Kind::Directory(Box::default());
    }

    /// Returns the node at `path`.
    ///
    /// # Errors
    /// A path with `..`, or with names that no directory can hold.
    pub fn find(&mut self, path: &[u8]) -> Result<Option<NodeId>, TreeError> {
        let mut found = NodeId::ROOT;
        for component in components(path)? {
            match self.lookup(found, component.name) {
                Some(id) => found = id,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// Adds a node that has no name yet. Entries of a directory name nodes of this builder.
    ///
    /// # Errors
    /// More files than a tree can have.
    pub fn add(&mut self, node: Node) -> Result<NodeId, TreeError> {
        self.add_at(b"", node)
    }

    /// Adds an entry to a directory that has no such name. An invalid name is an error of
    /// [`Builder::finish`].
    ///
    /// # Panics
    /// If `dir` is no directory.
    pub fn name(&mut self, dir: NodeId, name: &[u8], node: NodeId) {
        let hash = self.names.as_ref().map(|names| names.hash(dir, name));
        self.push(dir, name, node, hash);
    }

    /// Adds an entry to a directory that has no such name, given its hash if names are indexed.
    fn push(&mut self, dir: NodeId, name: &[u8], node: NodeId, hash: Option<NameHash>) {
        let Kind::Directory(entries) = &mut self.nodes[dir.idx()].kind else { panic!("not a directory") };
        entries.push(name, node);
        if let (Some(names), Some(hash)) = (&mut self.names, hash) {
            names.insert(dir, entries.len() - 1, hash);
        }
    }

    /// Sets the entries of a directory. The next lookup of a path indexes all names again.
    pub fn set_entries(&mut self, dir: NodeId, entries: Entries) {
        self.nodes[dir.idx()].kind = Kind::Directory(Box::new(entries));
        self.names = None;
    }

    /// Returns all nodes so far, by their ids.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns metadata and attributes of a node for changes.
    pub fn meta_mut(&mut self, id: NodeId) -> (&mut Metadata, &mut ThinSlice<Xattr>) {
        self.implied_dirs.remove(&id);
        let node = &mut self.nodes[id.idx()];
        (&mut node.meta, &mut node.xattrs)
    }

    /// Returns the attributes of a node for changes. Unlike with [`Builder::meta_mut`], an implied
    /// directory stays one: this is for marks that say nothing about the directory itself.
    pub fn xattrs_mut(&mut self, id: NodeId) -> &mut ThinSlice<Xattr> {
        &mut self.nodes[id.idx()].xattrs
    }

    /// Returns the tree. Its nodes are numbered in walk order, consecutively in each directory; nodes
    /// without a name are dropped.
    ///
    /// # Errors
    /// Hard links that lead to nothing, to a directory or to themselves; those of [`Tree::new`].
    pub fn finish(self, contents: Box<dyn Contents>) -> Result<Tree, TreeError> {
        self.finish_with(contents, &mut Err)
    }

    /// Returns the tree like [`Builder::finish`]. `on_lost` is called for hard links that lead to
    /// nothing, to a directory or to themselves; if it returns `Ok`, the link is left out.
    ///
    /// # Errors
    /// As [`Builder::finish`]; those of `on_lost`.
    pub fn finish_with(
        mut self,
        contents: Box<dyn Contents>,
        on_lost: &mut dyn FnMut(TreeError) -> Result<(), TreeError>,
    ) -> Result<Tree, TreeError> {
        if !self.hard_links.is_empty() {
            let names = self.names.take().unwrap_or_else(|| NameIndex::of(&self.nodes));
            let find = |nodes: &[Node], path: &[u8]| {
                let step = |dir: NodeId, name| find_in(nodes, &names, dir, name);
                components(path).ok()?.try_fold(NodeId::ROOT, |dir, component| step(dir, component.name))
            };
            self.has_gone = true;
            self.hard_links.resolve(&mut self.nodes, find, GONE, on_lost)?;
        }
        self.names = None;
        for node in &mut self.nodes {
            if let Kind::Directory(entries) = &mut node.kind {
                if self.has_gone && entries.iter().any(|entry| entry.node == GONE) {
                    **entries = entries.iter().filter(|entry| entry.node != GONE).collect();
                }
                entries.sort();
                entries.shrink_to_fit();
            }
        }
        numbering::number_in_walk_order(&mut self.nodes, &mut self.implied_dirs)?;
        Ok(Tree { implied_dirs: self.implied_dirs, ..Tree::new(self.nodes, contents)? })
    }

    fn is_dir(&self, id: NodeId) -> bool {
        matches!(self.nodes[id.idx()].kind, Kind::Directory(_))
    }

    /// Sets the metadata and attributes of a directory to those of another one.
    fn update(&mut self, id: NodeId, other: Node) -> NodeId {
        self.implied_dirs.remove(&id);
        let node = &mut self.nodes[id.idx()];
        (node.meta, node.xattrs) = (other.meta, other.xattrs);
        id
    }

    /// Returns the node that the entry `name` of the directory `dir` names, if there is one.
    pub fn lookup(&mut self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let names = self.names.get_or_insert_with(|| NameIndex::of(&self.nodes));
        find_in(&self.nodes, names, dir, name)
    }

    /// Returns the directory of `path`, created if it is missing, and the last name; `None` for the root.
    fn parent<'p>(&mut self, path: &'p [u8]) -> Result<Option<(NodeId, &'p [u8])>, TreeError> {
        let mut components = components(path)?.peekable();
        let mut dir = NodeId::ROOT;
        while let Some(component) = components.next() {
            if components.peek().is_none() {
                return Ok(Some((dir, component.name)));
            }
            dir = self.enter(path, component.end, dir, component.name)?;
        }
        Ok(None)
    }

    /// Returns the directory `name` in `dir`, created if it is missing. Its path is the first `end` bytes
    /// of `path`.
    fn enter(&mut self, path: &[u8], end: usize, dir: NodeId, name: &[u8]) -> Result<NodeId, TreeError> {
        match self.lookup(dir, name) {
            Some(id) if self.is_dir(id) => Ok(id),
            Some(_) => Err(TreeProblem::ParentNotADirectory(path[..end].to_vec()).at(path)),
            None => self.imply(path, dir, name),
        }
    }

    /// Creates the implied directory `name` in `dir`, for `path`.
    fn imply(&mut self, path: &[u8], dir: NodeId, name: &[u8]) -> Result<NodeId, TreeError> {
        let id = self.add_at(path, directory(self.implied.below(self.nodes[dir.idx()].meta)))?;
        self.implied_dirs.insert(id);
        self.put(path, dir, name, id)?;
        Ok(id)
    }

    /// Adds a node for `path`.
    fn add_at(&mut self, path: &[u8], node: Node) -> Result<NodeId, TreeError> {
        let id = u32::try_from(self.nodes.len()).map(NodeId).unwrap_or(GONE);
        if id == GONE {
            return Err(TreeProblem::TooManyNodes.at(path));
        }
        self.nodes.push(node);
        Ok(id)
    }

    /// Sets the node of the entry `name` in `dir`, which is the end of `path`.
    fn put(&mut self, path: &[u8], dir: NodeId, name: &[u8], node: NodeId) -> Result<(), TreeError> {
        let nodes = &self.nodes;
        let names = self.names.get_or_insert_with(|| NameIndex::of(nodes));
        let hash = names.hash(dir, name);
        let idx = names.find(nodes, dir, name, hash);
        let Kind::Directory(entries) = &mut self.nodes[dir.idx()].kind else {
            return Err(TreeProblem::ParentNotADirectory(path.to_vec()).at(path));
        };
        match idx {
            Some(idx) => entries.set(idx, node),
            None if entries.names_len() + name.len() > Entries::NAMES_MAX_LEN => {
                return Err(TreeProblem::NamesTooLong.at(path));
            }
            None => self.push(dir, name, node, Some(hash)),
        }
        Ok(())
    }
}

/// Returns an empty directory.
fn directory(meta: Metadata) -> Node {
    Node { meta, xattrs: ThinSlice::default(), kind: Kind::Directory(Box::default()) }
}

fn find_in(nodes: &[Node], names: &NameIndex, dir: NodeId, name: &[u8]) -> Option<NodeId> {
    let idx = names.find(nodes, dir, name, names.hash(dir, name))?;
    Some(entries(nodes, dir).at(idx).node).filter(|node| *node != GONE)
}
