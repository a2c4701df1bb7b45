//! Trees as composefs has them, in flat lists.

mod builder;
mod links;
mod pairs;

pub use builder::{Builder, FileData};

use kiln_digest::{Algorithm, Digest};
use kiln_format::inode::FileType;
use pairs::Pairs;

/// Longest target of a symbolic link, and longest path of an object, in bytes.
pub const TARGET_MAX_LEN: usize = 4095;
/// Largest inline contents in bytes.
pub const INLINE_MAX_LEN: usize = 5000;
/// Largest file in bytes: 1024 chunks of 2^43.
pub const FILE_MAX_LEN: u64 = 1 << 53;
/// Largest sum for the attributes of a file, see [`xattr_cost`].
pub const XATTRS_MAX_COST: usize = 32767 - 12;

/// Returns the share of an attribute in [`XATTRS_MAX_COST`].
pub fn xattr_cost(key: &[u8], value: &[u8]) -> usize {
    7 + key.len() + value.len()
}

/// Index of a node in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIdx(pub(crate) u32);

impl NodeIdx {
    /// The root directory.
    pub const ROOT: NodeIdx = NodeIdx(0);

    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

/// Metadata of any file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Low 12 bits of `st_mode`.
    pub permissions: u16,
    /// Link count. That of a directory is not used: images have 2 plus the number of its
    /// directories. That of others is stored as it is.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds since 1970.
    pub mtime: i64,
    /// Nanoseconds of the modification time, below 10^9.
    pub mtime_nsec: u32,
}

/// Place of some bytes in the text of a tree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    off: u64,
    len: u32,
}

impl Span {
    /// Appends bytes to the text.
    fn append(text: &mut Vec<u8>, bytes: &[u8]) -> Self {
        let off = text.len() as u64;
        text.extend_from_slice(bytes);
        Self { off, len: bytes.len() as u32 }
    }

    fn of(self, text: &[u8]) -> &[u8] {
        &text[self.off as usize..][..self.len as usize]
    }
}

/// A node: a directory entry, with its inode if it is no further name of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    name: Span,
    pub(crate) parent: u32,
    pub(crate) attributes: Attributes,
    /// Place of the attributes in the list of all.
    xattrs: (u32, u32),
    pub(crate) data: Data,
}

/// Type of a node, with the data of the type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data {
    /// Directory, with the place of its entries in the list of all, sorted by name.
    Directory { first: u32, count: u32 },
    /// Empty regular file.
    Empty,
    /// Regular file with its contents, not empty.
    Inline(Span),
    /// Regular file whose contents are an object; not empty.
    External { size: u64, digest: Span, object: Option<Span> },
    /// Symbolic link with its target.
    Symlink(Span),
    /// Character device with its number.
    CharDevice(u32),
    /// Block device with its number.
    BlockDevice(u32),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// A further name of the node with this index, which is no directory and no further name.
    Link(u32),
}

/// A checked tree of files, as composefs has them.
///
/// Made by [`dump::read`](crate::dump::read), [`from_tree`](crate::from_tree()) or a [`Builder`].
#[derive(Debug)]
pub struct CfsTree {
    /// Names, contents, targets, digests, keys and values.
    text: Vec<u8>,
    nodes: Vec<Node>,
    pairs: Pairs,
    /// Attributes of all nodes, each node's sorted by key.
    pair_refs: Vec<u32>,
    /// Entries of all directories.
    entries: Vec<u32>,
}

impl CfsTree {
    /// Returns the number of directory entries, the root included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the entries of a directory, sorted by the bytes of their names; none of other files.
    pub fn entries(&self, dir: NodeIdx) -> impl Iterator<Item = NodeIdx> {
        self.children(dir.0).iter().map(|&node| NodeIdx(node))
    }

    /// Returns the name of a node, empty for the root.
    pub fn name(&self, node: NodeIdx) -> &[u8] {
        self.nodes[node.at()].name.of(&self.text)
    }

    /// Returns the node that this one is a further name of, or the node itself.
    pub fn inode(&self, node: NodeIdx) -> NodeIdx {
        match self.nodes[node.at()].data {
            Data::Link(target) => NodeIdx(target),
            _ => node,
        }
    }

    /// Returns the metadata of a node.
    pub fn attributes(&self, node: NodeIdx) -> &Attributes {
        &self.nodes[self.inode(node).at()].attributes
    }

    /// Returns the data of a node: type, contents, target.
    pub fn data(&self, node: NodeIdx) -> FileData<'_> {
        let of = |span: Span| span.of(&self.text);
        match self.nodes[self.inode(node).at()].data {
            Data::Directory { .. } => FileData::Directory,
            Data::Empty => FileData::Inline(&[]),
            Data::Inline(contents) => FileData::Inline(of(contents)),
            Data::External { size, digest, object } => {
                FileData::External { size, digest: Digest::from_bytes(of(digest)), object: object.map(of) }
            }
            Data::Symlink(target) => FileData::Symlink(of(target)),
            Data::CharDevice(rdev) => FileData::CharDevice(rdev),
            Data::BlockDevice(rdev) => FileData::BlockDevice(rdev),
            Data::Fifo => FileData::Fifo,
            Data::Socket => FileData::Socket,
            Data::Link(_) => unreachable!("a link leads to no link"),
        }
    }

    /// Returns the extended attributes of a node, sorted by key: keys and values.
    pub fn xattrs(&self, node: NodeIdx) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.own_pairs(self.inode(node).0).iter().map(|&pair| self.pairs.get(pair, &self.text))
    }

    /// Returns the algorithm of the digests in the tree: of the first one, if there is any.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.nodes.iter().find_map(|node| match node.data {
            Data::External { digest, .. } => Algorithm::of_len(digest.of(&self.text).len()),
            _ => None,
        })
    }

    /// Returns the path of a node, with a leading slash.
    pub fn path(&self, node: NodeIdx) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = node;
        while at != NodeIdx::ROOT {
            names.push(self.name(at));
            at = NodeIdx(self.nodes[at.at()].parent);
        }
        names.push(b"");
        names.reverse();
        if names.len() == 1 { b"/".to_vec() } else { names.join(&b'/') }
    }

    /// Returns the link count of a directory: 2 and the number of its directories.
    pub(crate) fn dir_nlink(&self, dir: NodeIdx) -> u32 {
        let is_dir = |child: &&u32| matches!(self.nodes[**child as usize].data, Data::Directory { .. });
        2 + self.children(dir.0).iter().filter(is_dir).count() as u32
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the entries of a directory, sorted by name; none of other nodes.
    pub(crate) fn children(&self, node: u32) -> &[u32] {
        match self.nodes[node as usize].data {
            Data::Directory { first, count } => &self.entries[first as usize..][..count as usize],
            _ => &[],
        }
    }

    /// Returns the attributes of a node, sorted by key, as indexes of [`CfsTree::pairs`].
    pub(crate) fn own_pairs(&self, node: u32) -> &[u32] {
        let (first, count) = self.nodes[node as usize].xattrs;
        &self.pair_refs[first as usize..][..count as usize]
    }

    /// Returns all pairs of key and value, each once.
    pub(crate) fn pairs(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.pairs.iter(&self.text)
    }

    pub(crate) fn text_of(&self, span: Span) -> &[u8] {
        span.of(&self.text)
    }
}

impl Data {
    /// Returns true for a whiteout of overlayfs: a character device with the number 0.
    pub(crate) fn is_whiteout(&self) -> bool {
        matches!(self, Data::CharDevice(0))
    }

    /// Returns the type; that of a link is a regular file.
    pub(crate) fn file_type(&self) -> FileType {
        match self {
            Data::Directory { .. } => FileType::Directory,
            Data::Empty | Data::Inline(_) | Data::External { .. } | Data::Link(_) => FileType::Regular,
            Data::Symlink(_) => FileType::Symlink,
            Data::CharDevice(_) => FileType::CharDevice,
            Data::BlockDevice(_) => FileType::BlockDevice,
            Data::Fifo => FileType::Fifo,
            Data::Socket => FileType::Socket,
        }
    }
}

/// Returns the path of an object in a store: two digits, a slash, and the other digits of its digest.
pub fn object_path(digest: &Digest) -> String {
    let hex = digest.to_string();
    format!("{}/{}", &hex[..2], &hex[2..])
}

// There are as many as files.
const _: () = assert!(size_of::<Node>() <= 128);
