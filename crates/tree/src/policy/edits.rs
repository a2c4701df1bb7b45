//! Edits of a tree, independent of the format of their definitions.

mod contents;

use kiln_format::inode::FileType;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::acl::set_permissions;
use super::error::PolicyError;
use super::xattrs::set_xattr;
use crate::syntax::{FileError, SyntaxError};
use crate::{Builder, Contents, Kind, Metadata, Node, NodeId, ThinSlice, Tree, Xattr, content_count};
use contents::EditedContents;

/// Edits of a tree from a file of definitions, in the order of its lines.
#[derive(Clone)]
pub struct TreeEdits {
    /// Name of the file in messages.
    name: String,
    edits: Arc<[TreeEdit]>,
    files: Arc<dyn Contents>,
}

/// Edit defined by a line.
#[derive(Clone, Debug)]
pub struct TreeEdit {
    /// Index of the line.
    pub line_idx: usize,
    /// Path of the file to edit: names separated by slashes.
    pub path: Box<[u8]>,
    /// Operation on the file.
    pub op: EditOp,
}

/// Operation on a file.
#[derive(Clone, Debug)]
pub enum EditOp {
    /// Creates the file. The content of a regular file is the one with this id in the contents of
    /// [`TreeEdits::new`]. A directory may exist, and then gets the new owner and permissions.
    Create {
        /// The new file.
        node: Node,
        /// Origin of its modification time.
        time: EditTime,
        /// Treatment of missing directories on its path.
        parents: MissingParents,
    },
    /// Changes an existing file.
    Change(MetadataChange),
    /// Changes a file if it exists.
    ChangeIfThere(MetadataChange),
    /// Changes an existing file, and all files below it.
    ChangeBelow(MetadataChange),
    /// Creates another name of the file at this path.
    Link(Box<[u8]>),
    /// Sets an attribute of an existing file.
    SetXattr(Xattr),
}

/// Origin of a new file's modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditTime {
    /// The definition.
    Defined,
    /// The root directory. The current time would give different images for the same input.
    OfRoot,
}

/// Treatment of missing directories on the path of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingParents {
    /// A missing directory is an error.
    Refused,
    /// Missing directories are created with the metadata of the new file.
    Created,
}

/// Change of a file's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataChange {
    /// New permissions, the low 12 bits of `st_mode`.
    pub permissions: Option<u16>,
    /// New owner.
    pub uid: u32,
    /// New group.
    pub gid: u32,
    /// Modification time in seconds and nanoseconds since 1970.
    pub time: Option<(i64, u32)>,
}

impl MetadataChange {
    /// Creates a node with this metadata and without attributes. Permissions that are not given are
    /// 0644; those of symbolic links are always 0777. A time that is not given is 0.
    pub fn new_node(self, kind: Kind) -> Node {
        let permissions = match kind.file_type() {
            FileType::Symlink => 0o777,
            _ => self.permissions.unwrap_or(0o644),
        };
        let (mtime, mtime_nsec) = self.time.unwrap_or_default();
        let meta = Metadata { permissions, uid: self.uid, gid: self.gid, mtime, mtime_nsec };
        Node { meta, xattrs: ThinSlice::default(), kind }
    }
}

impl TreeEdits {
    /// Creates the edits of the file of definitions called `name`. `files` are the contents of the
    /// regular files that they create.
    pub fn new(name: String, edits: Vec<TreeEdit>, files: Arc<dyn Contents>) -> Self {
        Self { name, edits: edits.into(), files }
    }

    /// Applies the edits to `tree`.
    ///
    /// # Errors
    /// The first definition that cannot be applied.
    pub fn apply(&self, tree: Tree) -> Result<Tree, PolicyError> {
        let first_added = content_count(&tree);
        let (builder, base) = Builder::from_tree(tree);
        let mut editor = Editor { builder, first_added, moved: HashMap::new() };
        for edit in &*self.edits {
            editor.edit(edit).map_err(|error| self.error(error, edit.line_idx))?;
        }
        let Editor { builder, moved, .. } = editor;
        let contents = EditedContents { base, first_added, added: Arc::clone(&self.files), moved };
        Ok(builder.finish(Box::new(contents))?)
    }

    fn error(&self, error: SyntaxError, line_idx: usize) -> FileError {
        error.at(&self.name, line_idx)
    }
}

impl fmt::Debug for TreeEdits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeEdits").field("name", &self.name).field("edits", &self.edits).finish_non_exhaustive()
    }
}

/// A tree that is being edited.
struct Editor {
    builder: Builder,
    /// Id in the tree of the first content of the edits.
    first_added: u32,
    /// Original paths of contents whose files got new names; the source only knows the original
    /// ones.
    moved: HashMap<u32, Box<[u8]>>,
}

impl Editor {
    fn edit(&mut self, edit: &TreeEdit) -> Result<(), SyntaxError> {
        let path = &edit.path;
        match &edit.op {
            EditOp::Create { node, time, parents } => self.create(path, node, (*time, *parents)),
            EditOp::Change(change) => self.existing(path).map(|id| self.change(id, change)),
            EditOp::ChangeIfThere(change) => {
                if let Some(id) = self.find(path)? {
                    self.change(id, change);
                }
                Ok(())
            }
            EditOp::ChangeBelow(change) => self.existing(path).map(|id| self.change_below(id, change)),
            EditOp::Link(target) => self.link(path, target),
            EditOp::SetXattr(xattr) => {
                let id = self.existing(path)?;
                let (_, attributes) = self.builder.meta_mut(id);
                let mut list = std::mem::take(attributes).into_vec();
                set_xattr(&mut list, xattr.clone());
                *attributes = list.into();
                Ok(())
            }
        }
    }

    fn create(
        &mut self,
        path: &[u8],
        node: &Node,
        (time, parents): (EditTime, MissingParents),
    ) -> Result<(), SyntaxError> {
        let mut node = node.clone();
        if time == EditTime::OfRoot {
            let Metadata { mtime, mtime_nsec, .. } = self.builder.nodes()[0].meta;
            (node.meta.mtime, node.meta.mtime_nsec) = (mtime, mtime_nsec);
        }
        if let Some(id) = self.find(path)? {
            let existing = &self.builder.nodes()[id.idx()];
            if !matches!((&existing.kind, &node.kind), (Kind::Directory(_), Kind::Directory(_))) {
                let reason = "the file exists already; exclude it, for example with --exclude, or change it";
                return Err(at_path(path, reason));
            }
            let Metadata { permissions, uid, gid, mtime, mtime_nsec } = node.meta;
            let time = (time == EditTime::Defined).then_some((mtime, mtime_nsec));
            self.change(id, &MetadataChange { permissions: Some(permissions), uid, gid, time });
            return Ok(());
        }
        match parents {
            MissingParents::Refused => self.require_parent(path)?,
            MissingParents::Created => self.make_parents(path, node.meta)?,
        }
        if let Kind::File { content, .. } = &mut node.kind {
            content.0 = content.0.checked_add(self.first_added).ok_or_else(|| at_path(path, "too many files"))?;
        }
        self.builder.insert(path, node).map(drop).map_err(|error| at_path(path, error.problem))
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), SyntaxError> {
        if self.find(path)?.is_some() {
            return Err(at_path(path, "the file exists already; exclude it, for example with --exclude"));
        }
        self.require_parent(path)?;
        let id = self.existing(target)?;
        if let Kind::File { content, .. } = self.builder.nodes()[id.idx()].kind
            && content.0 < self.first_added
        {
            self.moved.entry(content.0).or_insert_with(|| target.into());
        }
        self.builder.hard_link(path, target).map_err(|error| at_path(path, error.problem))
    }

    fn change(&mut self, id: NodeId, change: &MetadataChange) {
        // Permissions of symbolic links have no effect, and Linux shows them as 0777.
        let is_link = matches!(self.builder.nodes()[id.idx()].kind, Kind::Symlink(_));
        let (meta, attributes) = self.builder.meta_mut(id);
        (meta.uid, meta.gid) = (change.uid, change.gid);
        if let Some(permissions) = change.permissions.filter(|_| !is_link) {
            meta.permissions = permissions;
            if !attributes.is_empty() {
                let mut list = std::mem::take(attributes).into_vec();
                list.iter_mut().for_each(|xattr| set_permissions(xattr, permissions));
                *attributes = list.into();
            }
        }
        if let Some(time) = change.time {
            (meta.mtime, meta.mtime_nsec) = time;
        }
    }

    fn change_below(&mut self, id: NodeId, change: &MetadataChange) {
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            if let Kind::Directory(entries) = &self.builder.nodes()[id.idx()].kind {
                stack.extend(entries.iter().map(|entry| entry.node));
            }
            self.change(id, change);
        }
    }

    fn find(&mut self, path: &[u8]) -> Result<Option<NodeId>, SyntaxError> {
        self.builder.find(path).map_err(|error| at_path(path, error.problem))
    }

    fn existing(&mut self, path: &[u8]) -> Result<NodeId, SyntaxError> {
        self.find(path)?.ok_or_else(|| at_path(path, "there is no such file"))
    }

    fn require_parent(&mut self, path: &[u8]) -> Result<(), SyntaxError> {
        let dir = path.iter().rposition(|&b| b == b'/').map_or(&b""[..], |at| &path[..at]);
        match self.find(dir)? {
            Some(id) if matches!(self.builder.nodes()[id.idx()].kind, Kind::Directory(_)) => Ok(()),
            Some(_) => Err(at_path(path, format!("{} is not a directory", dir.escape_ascii()))),
            None => Err(at_path(path, format!("there is no directory {}; define it first", dir.escape_ascii()))),
        }
    }

    fn make_parents(&mut self, path: &[u8], meta: Metadata) -> Result<(), SyntaxError> {
        for (end, _) in path.iter().enumerate().filter(|(_, b)| **b == b'/') {
            let dir = &path[..end];
            if self.find(dir)?.is_none() {
                let node = Node { meta, xattrs: ThinSlice::default(), kind: Kind::Directory(Box::default()) };
                self.builder.insert(dir, node).map_err(|error| at_path(path, error.problem))?;
            }
        }
        Ok(())
    }
}

fn at_path(path: &[u8], reason: impl fmt::Display) -> SyntaxError {
    SyntaxError::new("path", if path.is_empty() { b"/" } else { path }, reason)
}
