//! A tree of files in memory: names, metadata and handles to contents.
//!
//! A source makes a [`Tree`] with a [`Builder`]. A [`Filter`](filter::Filter) selects entries of it,
//! a [`Policy`](policy::Policy) changes its metadata, and a [`MergeBuilder`](merge::MergeBuilder) puts
//! trees over each other: each returns another tree. A builder of images stores it. The tree does not
//! know formats: contents stay where they are until [`Tree::open`] opens them, and their [`Contents`]
//! say which bytes a previous image or another device stores already.
//!
//! # Inside
//!
//! * The root of the crate is the tree itself: nodes, entries, [`Contents`], and `builder/`, which
//!   builds trees from paths in any order or from nodes.
//! * `filter/` selects by path: globs and ignore files (both are regular expressions then), lists,
//!   expressions. Sources that can read selectively ask [`Filter::wants`](filter::Filter::wants) for
//!   each entry; [`filter::select`] filters a finished tree, with the same result.
//! * `policy/` changes metadata, in the order of the fields of [`Policy`](policy::Policy).
//!   `policy/marks` converts the marks of union filesystems, and `policy/edits` adds and changes
//!   single files. The parsers of definition files are in the crate `source`.
//! * `merge/` puts one tree over another. [`MergedContents`](merge::MergedContents) numbers the
//!   contents and devices of all trees consecutively. Contents are opened by the paths of their own
//!   tree, whatever their names in the result.
//! * `storage/` turns choices by path into choices by node: order of data, hot zone, hints. The values
//!   of hints are of any type, since this crate does not know compression.
//! * `syntax` has the errors of everything that is written by people: the field, its value and, for
//!   files, the line.
//! * [`Intake`] takes contents that a source can give only once, while it is scanned.
//! * [`conformance`] tests that contents that wrap others forward every question.
//!
//! Nothing here reads files: texts and contents come from the caller.

#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

use kiln_format::dirent::NAME_MAX_LEN;
use kiln_format::inode::{FileType, Rdev};
use std::collections::{BTreeSet, HashMap};
use std::io;

use path::join;

mod builder;
pub mod conformance;
mod content;
mod digest_name;
mod entries;
mod error;
pub mod filter;
mod intake;
pub mod merge;
pub mod path;
pub mod placed;
pub mod policy;
mod rare;
mod reuse;
pub mod storage;
mod syntax;

pub use builder::{Builder, Implied};
pub use content::{
    Content, ContentId, Contents, DigestOf, NoContents, PlainContents, Stored, StoredDigest, Stores, Version,
};
pub use digest_name::{DigestName, DigestStyle};
pub use entries::{Entries, Entry, Iter};
pub use error::{ContentError, DigestMismatch, TreeError, TreeProblem, UnreadableFile};
pub use intake::{Incoming, Intake, IntakeError};
pub use kiln_digest::contents::{ContentDigest, ContentHash};
pub use placed::{Device, PlacedRun};
pub use rare::ThinSlice;
pub use reuse::{Base, BaseFacts, BaseMetadata, PreviousVersion, Reuse, ReusedData, ReusedExtent, ReusedExtents};
pub use syntax::{FileError, SyntaxError};

/// Index of a node in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The root directory.
    pub const ROOT: NodeId = NodeId(0);

    /// Returns the id as an index.
    pub fn idx(self) -> usize {
        self.0 as usize
    }
}

/// Metadata of any file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Low 12 bits of `st_mode`.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds since 1970.
    pub mtime: i64,
    /// Nanoseconds of the modification time.
    pub mtime_nsec: u32,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Xattr {
    /// Full name, `user.comment` for example.
    pub name: Box<[u8]>,
    /// Value.
    pub value: Box<[u8]>,
}

/// A file of any type. Any but a directory may have several names.
#[derive(Clone, Debug)]
pub struct Node {
    /// Owner, times and so on.
    pub meta: Metadata,
    /// Extended attributes in any order, names unique.
    pub xattrs: ThinSlice<Xattr>,
    /// Type, with the data of the type.
    pub kind: Kind,
}

/// Type of a node. Rare data is boxed, so that trees of millions of files fit into memory.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Directory, without dot entries.
    Directory(Box<Entries>),
    /// Regular file.
    File {
        /// Size in bytes.
        len: u64,
        /// Contents.
        content: ContentId,
        /// The source may have holes.
        sparse: bool,
    },
    /// Symbolic link with its target.
    Symlink(ThinSlice<u8>),
    /// Character device.
    CharDevice(Rdev),
    /// Block device.
    BlockDevice(Rdev),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

impl Kind {
    /// Returns the type, as in directory entries and modes.
    pub fn file_type(&self) -> FileType {
        match self {
            Kind::Directory(_) => FileType::Directory,
            Kind::File { .. } => FileType::Regular,
            Kind::Symlink(_) => FileType::Symlink,
            Kind::CharDevice(_) => FileType::CharDevice,
            Kind::BlockDevice(_) => FileType::BlockDevice,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
        }
    }
}

// There are as many as files.
const _: () = assert!(size_of::<Node>() <= 48);

/// A checked tree.
pub struct Tree {
    nodes: Vec<Node>,
    /// Number of names of each node that has several.
    links: HashMap<NodeId, u32>,
    /// Parent and place in it of each node's first name in walk order.
    first_names: Vec<(NodeId, u32)>,
    implied_dirs: BTreeSet<NodeId>,
    contents: Box<dyn Contents>,
}

/// Returns an empty directory.
impl Default for Tree {
    fn default() -> Self {
        let (meta, xattrs) = (Metadata::default(), ThinSlice::default());
        Self {
            links: HashMap::new(),
            first_names: vec![(NodeId::ROOT, 0)],
            nodes: vec![Node { meta, xattrs, kind: Kind::Directory(Box::default()) }],
            implied_dirs: BTreeSet::new(),
            contents: Box::new(NoContents),
        }
    }
}

impl Tree {
    /// Creates a tree of `nodes`, of which the first is the root directory. Entries and attributes are
    /// sorted here: the order in which a source lists them does not matter.
    ///
    /// # Errors
    /// Names that no filesystem can hold, duplicate names, directories without exactly one name, other
    /// nodes without a name.
    pub fn new(mut nodes: Vec<Node>, contents: Box<dyn Contents>) -> Result<Self, TreeError> {
        for node in &mut nodes {
            node.xattrs.sort();
            if let Kind::Directory(entries) = &mut node.kind {
                if entries.names_len() > Entries::NAMES_MAX_LEN {
                    return Err(TreeProblem::NamesTooLong.at(b""));
                }
                entries.sort();
            }
        }
        let first_names = vec![(NodeId::ROOT, 0); nodes.len()];
        let mut tree = Self { links: HashMap::new(), first_names, nodes, implied_dirs: BTreeSet::new(), contents };
        tree.link()?;
        Ok(tree)
    }

    /// Counts links, records first names, and checks the structure.
    fn link(&mut self) -> Result<(), TreeError> {
        if !matches!(self.nodes.first(), Some(Node { kind: Kind::Directory(_), .. })) {
            return Err(TreeProblem::RootNotADirectory.at(b""));
        }
        let mut stack = vec![NodeId::ROOT];
        let mut is_named = vec![false; self.nodes.len()];
        is_named[0] = true;
        while let Some(dir) = stack.pop() {
            let mut subdirs = Vec::new();
            for idx in 0..self.entries(dir).len() {
                let entries = self.entries(dir);
                let Entry { name, node } = entries.at(idx);
                let bad_name = name.is_empty() || name.len() > NAME_MAX_LEN || matches!(name, b"." | b"..");
                if bad_name || name.iter().any(|&b| b == 0 || b == b'/') {
                    return Err(TreeProblem::BadName.at(join(&self.path(dir), name)));
                }
                if idx > 0 && entries.at(idx - 1).name == name {
                    return Err(TreeProblem::DoubleName.at(join(&self.path(dir), name)));
                }
                let Some(is_named) = is_named.get_mut(node.idx()) else {
                    return Err(TreeProblem::NoSuchNode.at(join(&self.path(dir), name)));
                };
                let is_dir = matches!(self.nodes[node.idx()].kind, Kind::Directory(_));
                if is_dir && *is_named {
                    return Err(TreeProblem::SecondNameOfDirectory.at(join(&self.path(dir), name)));
                }
                match std::mem::replace(is_named, true) {
                    true => *self.links.entry(node).or_insert(1) += 1,
                    false => self.first_names[node.idx()] = (dir, idx as u32),
                }
                if is_dir {
                    subdirs.push(node);
                }
            }
            stack.extend(subdirs.into_iter().rev());
        }
        if let Some(lost) = is_named.iter().position(|is_named| !is_named) {
            return Err(TreeProblem::NoName.at(format!("node {lost}")));
        }
        Ok(())
    }

    /// Sets the metadata and attributes of a node. Names of attributes must be unique.
    pub fn set(&mut self, id: NodeId, meta: Metadata, mut xattrs: ThinSlice<Xattr>) {
        xattrs.sort();
        let node = &mut self.nodes[id.idx()];
        (node.meta, node.xattrs) = (meta, xattrs);
    }

    /// Returns true if a node is a directory that only the paths of others imply: its owner and time
    /// are unknown.
    pub fn is_implied(&self, id: NodeId) -> bool {
        self.implied_dirs.contains(&id)
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns a node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.idx()]
    }

    /// Returns an iterator over all nodes and their ids.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(idx, node)| (NodeId(idx as u32), node))
    }

    /// Returns the entries of a directory, sorted by the bytes of their names; none of other nodes.
    pub fn entries(&self, id: NodeId) -> &Entries {
        static NONE: Entries = Entries::new();
        match &self.nodes[id.idx()].kind {
            Kind::Directory(entries) => entries,
            _ => &NONE,
        }
    }

    /// Returns the number of names of a node.
    pub fn names_of(&self, id: NodeId) -> u32 {
        self.links.get(&id).copied().unwrap_or(1)
    }

    /// Returns the directory of a node's first name; the root is its own parent.
    pub fn parent(&self, id: NodeId) -> NodeId {
        self.first_names[id.idx()].0
    }

    /// Returns the first path of a node in walk order, without a leading slash.
    pub fn path(&self, mut id: NodeId) -> Vec<u8> {
        let mut names = Vec::new();
        while id != NodeId::ROOT {
            let (parent, idx) = self.first_names[id.idx()];
            names.push(self.entries(parent).at(idx as usize).name);
            id = parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Returns the node at a path, given by its names.
    pub fn find<'p>(&self, path: impl IntoIterator<Item = &'p [u8]>) -> Option<NodeId> {
        path.into_iter().try_fold(NodeId::ROOT, |dir, name| self.entries(dir).find(name))
    }

    /// Returns the contents of all files, and drops names and metadata.
    pub fn into_contents(self) -> Box<dyn Contents> {
        self.contents
    }

    /// Returns the stores of contents beside the source: devices, a base.
    pub fn stores(&self) -> Stores {
        self.contents.stores()
    }

    /// Tells where the contents of a regular file are stored already, see [`Contents::stored`]; of
    /// other nodes, [`Stored::ToRead`].
    ///
    /// # Errors
    /// As [`Contents::stored`], with the path.
    pub fn stored(&self, id: NodeId) -> Result<Stored, UnreadableFile> {
        let Kind::File { len, content, .. } = self.node(id).kind else { return Ok(Stored::ToRead) };
        self.contents.stored(content, len).map_err(|source| UnreadableFile { path: self.path(id), source })
    }

    /// Returns the digest that an image stores for the contents of a regular file.
    ///
    /// # Errors
    /// As [`Contents::stored_digest`], with the path.
    pub fn stored_digest(&self, id: NodeId) -> Result<Option<StoredDigest>, UnreadableFile> {
        let Kind::File { content, .. } = self.node(id).kind else { return Ok(None) };
        self.contents.stored_digest(content).map_err(|source| UnreadableFile { path: self.path(id), source })
    }

    /// Replaces the contents by the result of `other`.
    pub fn with_contents(self, other: impl FnOnce(Box<dyn Contents>) -> Box<dyn Contents>) -> Self {
        Self { contents: other(self.contents), ..self }
    }

    /// Opens the contents of a regular file, as they were scanned.
    ///
    /// # Errors
    /// As [`Contents::open`], with the path; a node that is no regular file.
    pub fn open(&self, id: NodeId) -> Result<Box<dyn Content>, UnreadableFile> {
        self.open_version(id, Version::Scanned)
    }

    /// Opens a version of the contents of a regular file.
    ///
    /// # Errors
    /// As [`Tree::open`].
    pub fn open_version(&self, id: NodeId, version: Version) -> Result<Box<dyn Content>, UnreadableFile> {
        let path = self.path(id);
        let opened = match self.node(id).kind {
            Kind::File { content, .. } => self.contents.open(content, &path, version),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file").into()),
        };
        opened.map_err(|source| UnreadableFile { path, source })
    }

    /// Returns the nodes in walk order: a directory, then its entries by name, with everything below
    /// them. Each node occurs once, at its first name.
    pub fn walk(&self) -> impl Iterator<Item = NodeId> {
        let mut stack = vec![(NodeId::ROOT, NodeId::ROOT, 0)];
        std::iter::from_fn(move || {
            while let Some((node, dir, idx)) = stack.pop() {
                let first = node == NodeId::ROOT || self.first_names[node.idx()] == (dir, idx);
                if !first {
                    continue;
                }
                let entries = self.entries(node).iter().enumerate().rev();
                stack.extend(entries.map(|(idx, entry)| (entry.node, node, idx as u32)));
                return Some(node);
            }
            None
        })
    }
}

/// Returns the number of ids that the contents of a tree need: the largest plus 1.
pub fn content_count(tree: &Tree) -> u32 {
    let content = |(_, node): (NodeId, &Node)| match node.kind {
        Kind::File { content, .. } => content.0 + 1,
        _ => 0,
    };
    tree.nodes().map(content).max().unwrap_or(0)
}
