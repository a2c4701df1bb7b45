//! Edits of a tree, independent of the format of their definitions.

mod contents;
mod host;

use kiln_format::inode::FileType;
use kiln_tree::{Builder, Kind, Metadata, Node, NodeId, ThinSlice, Tree, Xattr};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::filter::acl::set_permissions;
use crate::filter::error::{FileError, PolicyError, SyntaxError};
use crate::filter::xattrs;
use crate::merge::contents::content_count;
use contents::EditedContents;
pub(super) use contents::{AddedFiles, AddedFilesBuilder};
pub(super) use host::{Links, host_file};

/// Edits of a tree from a file of definitions, in the order of its lines.
///
/// Created by [`TreeEdits::pseudo`] and [`TreeEdits::device_table`].
#[derive(Clone)]
pub struct TreeEdits {
    /// Name of the file in messages.
    name: String,
    edits: Arc<[Edit]>,
    files: Arc<AddedFiles>,
}

/// Edit defined by a line.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    /// Index of the line.
    pub line_idx: usize,
    /// Path of the file to edit.
    pub path: Box<[u8]>,
    pub op: Op,
}

/// Operation on a file.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Creates the file. The content of a regular file is the one with this number in
    /// [`AddedFiles`]. A directory may exist, and then gets the new owner and permissions.
    Create { node: Node, time: Time, parents: Parents },
    /// Changes an existing file.
    Change(Change),
    /// Changes a file if it exists.
    ChangeIfThere(Change),
    /// Changes an existing file, and all files below it.
    ChangeBelow(Change),
    /// Creates another name of the file at this path.
    Link(Box<[u8]>),
    /// Sets an attribute of an existing file.
    SetXattr(Xattr),
}

/// Origin of a new file's modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// The definition.
    Defined,
    /// The root directory. The current time would give different images for the same input.
    OfRoot,
}

/// Treatment of missing directories on the path of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parents {
    /// A missing directory is an error.
    MustExist,
    /// Missing directories are created with the metadata of the new file.
    Made,
}

/// Change of a file's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub permissions: Option<u16>,
    pub uid: u32,
    pub gid: u32,
    /// Modification time in seconds and nanoseconds since 1970.
    pub time: Option<(i64, u32)>,
}

impl TreeEdits {
    /// Creates the edits of the file at `path`, with contents in `files`.
    pub(super) fn new(path: &Path, edits: Vec<Edit>, files: AddedFiles) -> Self {
        Self { name: path.to_string_lossy().into_owned(), edits: edits.into(), files: Arc::new(files) }
    }

    /// Applies the edits to `tree`.
    ///
    /// # Errors
    /// The first definition that cannot be applied.
    pub(crate) fn apply(&self, tree: Tree) -> Result<Tree, PolicyError> {
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
    /// Id in the tree of the first content of [`AddedFiles`].
    first_added: u32,
    /// Original paths of contents whose files got new names; the source only knows the original
    /// ones.
    moved: HashMap<u32, Box<[u8]>>,
}

impl Editor {
    fn edit(&mut self, edit: &Edit) -> Result<(), SyntaxError> {
        let path = &edit.path;
        match &edit.op {
            Op::Create { node, time, parents } => self.create(path, node, (*time, *parents)),
            Op::Change(change) => self.existing(path).map(|id| self.change(id, change)),
            Op::ChangeIfThere(change) => {
                if let Some(id) = self.find(path)? {
                    self.change(id, change);
                }
                Ok(())
            }
            Op::ChangeBelow(change) => self.existing(path).map(|id| self.change_below(id, change)),
            Op::Link(target) => self.link(path, target),
            Op::SetXattr(xattr) => {
                let id = self.existing(path)?;
                let (_, attributes) = self.builder.meta_mut(id);
                let mut list = std::mem::take(attributes).into_vec();
                xattrs::set(&mut list, xattr.clone());
                *attributes = list.into();
                Ok(())
            }
        }
    }

    fn create(&mut self, path: &[u8], node: &Node, (time, parents): (Time, Parents)) -> Result<(), SyntaxError> {
        let mut node = node.clone();
        if time == Time::OfRoot {
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
            let time = (time == Time::Defined).then_some((mtime, mtime_nsec));
            self.change(id, &Change { permissions: Some(permissions), uid, gid, time });
            return Ok(());
        }
        match parents {
            Parents::MustExist => self.require_parent(path)?,
            Parents::Made => self.make_parents(path, node.meta)?,
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

    fn change(&mut self, id: NodeId, change: &Change) {
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

    fn change_below(&mut self, id: NodeId, change: &Change) {
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

/// Converts a path of a definition to that of a tree: without leading, trailing and repeated
/// slashes.
pub(super) fn tree_path(path: &[u8]) -> Box<[u8]> {
    let names: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|name| !name.is_empty()).collect();
    names.join(&b'/').into()
}

/// Creates a node without attributes.
pub(super) fn node(change: Change, kind: Kind) -> Node {
    let permissions = match kind.file_type() {
        FileType::Symlink => 0o777,
        _ => change.permissions.unwrap_or(0o644),
    };
    let (mtime, mtime_nsec) = change.time.unwrap_or_default();
    let meta = Metadata { permissions, uid: change.uid, gid: change.gid, mtime, mtime_nsec };
    Node { meta, xattrs: ThinSlice::default(), kind }
}
