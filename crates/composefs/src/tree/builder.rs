//! Builder of a tree, node by node, parents before children.

use super::pairs::Pairs;
use super::{Attributes, CfsTree, Data, Node, NodeIdx, Span};
use super::{FILE_MAX_LEN, INLINE_MAX_LEN, TARGET_MAX_LEN, XATTRS_MAX_COST, xattr_cost};
use crate::error::{TreeError, TreeProblem};
use kiln_digest::Digest;
use kiln_format::dirent::NAME_MAX_LEN;
use kiln_format::xattr;

/// Type of a file, with the data of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileData<'a> {
    /// Directory.
    Directory,
    /// Regular file whose contents are stored in the image.
    Inline(&'a [u8]),
    /// Regular file whose contents are an object beside the image.
    External {
        /// Size in bytes. An empty file has no object: the rest is dropped then.
        size: u64,
        /// fs-verity digest of the contents, if known.
        digest: Option<Digest>,
        /// Path of the object in a store, without leading slash; `None` for a file of zeros.
        object: Option<&'a [u8]>,
    },
    /// Symbolic link with its target.
    Symlink(&'a [u8]),
    /// Character device with its number, as in `st_rdev`; 0 for a whiteout.
    CharDevice(u32),
    /// Block device with its number.
    BlockDevice(u32),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// A tree under construction.
///
/// ```
/// use kiln_composefs::tree::{Attributes, Builder, FileData, NodeIdx};
/// let mut builder = Builder::new(&Attributes { permissions: 0o755, ..Attributes::default() });
/// let file = Attributes { permissions: 0o644, nlink: 2, ..Attributes::default() };
/// let a = builder.add(NodeIdx::ROOT, b"a", &file, FileData::Inline(b"hello"))?;
/// builder.xattr(b"user.comment", b"a greeting")?;
/// builder.link(NodeIdx::ROOT, b"b", a)?;
/// let tree = builder.finish().map_err(|error| error.problem)?;
/// assert_eq!(tree.data(tree.inode(a)), FileData::Inline(b"hello"));
/// # Ok::<(), kiln_composefs::TreeProblem>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    text: Vec<u8>,
    nodes: Vec<Node>,
    pairs: Pairs,
    pair_refs: Vec<u32>,
    /// Sum for the attributes of the last node, see [`xattr_cost`].
    cost: usize,
}

impl Builder {
    /// Creates a tree of a root directory.
    pub fn new(root: &Attributes) -> Self {
        let data = Data::Directory { first: 0, count: 0 };
        let node = Node { name: Span::default(), parent: 0, attributes: *root, xattrs: (0, 0), data };
        Self { text: Vec::new(), nodes: vec![node], pairs: Pairs::default(), pair_refs: Vec::new(), cost: 0 }
    }

    /// Adds a file to the directory `parent`. Regular files without contents become equal, whatever
    /// their data was.
    ///
    /// # Errors
    /// A name or data that no image can have; a parent that is no directory.
    pub fn add(
        &mut self,
        parent: NodeIdx,
        name: &[u8],
        attributes: &Attributes,
        data: FileData<'_>,
    ) -> Result<NodeIdx, TreeProblem> {
        if attributes.permissions > 0o7777 {
            return Err(TreeProblem::Permissions(attributes.permissions));
        }
        if attributes.mtime_nsec >= 1_000_000_000 {
            return Err(TreeProblem::Nanoseconds(attributes.mtime_nsec));
        }
        check_name(name)?;
        let data = self.data(data)?;
        self.push(parent, name, *attributes, data)
    }

    /// Adds a further name of the file `target` to the directory `parent`. The link count of `target`
    /// stays as it is.
    ///
    /// # Errors
    /// As [`Builder::add`]; a target that is a directory or a whiteout.
    pub fn link(&mut self, parent: NodeIdx, name: &[u8], target: NodeIdx) -> Result<NodeIdx, TreeProblem> {
        check_name(name)?;
        let target = match self.nodes.get(target.at()).ok_or(TreeProblem::NoSuchNode)?.data {
            Data::Link(target) => NodeIdx(target),
            _ => target,
        };
        check_target(&self.nodes[target.at()].data)?;
        self.push(parent, name, Attributes::default(), Data::Link(target.0))
    }

    /// Adds an extended attribute to the file that was added last. A key that the file has already
    /// gets the new value.
    ///
    /// # Errors
    /// A key or a value that is too long, or too many attributes of one file.
    pub fn xattr(&mut self, key: &[u8], value: &[u8]) -> Result<(), TreeProblem> {
        let pair = self.intern(key, value)?;
        self.push_pair(pair, xattr_cost(key, value))
    }

    /// Checks the tree and returns it.
    ///
    /// # Errors
    /// Two files of one name.
    pub fn finish(mut self) -> Result<CfsTree, TreeError> {
        self.seal();
        let entries = self.sort_entries();
        let Self { text, nodes, pairs, pair_refs, .. } = self;
        let tree = CfsTree { text, nodes, pairs, pair_refs, entries };
        for dir in (0..tree.len() as u32).map(NodeIdx) {
            let entries = tree.children(dir.0);
            let is_double = |pair: &&[u32]| tree.name(NodeIdx(pair[0])) == tree.name(NodeIdx(pair[1]));
            if let Some(double) = entries.windows(2).find(is_double) {
                let node = NodeIdx(double[0].max(double[1]));
                return Err(TreeError { path: tree.path(node), node, problem: TreeProblem::DoubleName });
            }
        }
        Ok(tree)
    }

    /// Adds a link to a file that is not known yet.
    pub(crate) fn add_unresolved(&mut self, parent: NodeIdx, name: &[u8]) -> Result<NodeIdx, TreeProblem> {
        check_name(name)?;
        self.push(parent, name, Attributes::default(), Data::Link(u32::MAX))
    }

    pub(crate) fn name(&self, node: NodeIdx) -> &[u8] {
        self.nodes[node.at()].name.of(&self.text)
    }

    pub(crate) fn parent(&self, node: NodeIdx) -> NodeIdx {
        NodeIdx(self.nodes[node.at()].parent)
    }

    /// Returns a pair's index, for [`Builder::push_pair`].
    pub(crate) fn intern(&mut self, key: &[u8], value: &[u8]) -> Result<u32, TreeProblem> {
        if key.is_empty() || key.len() > xattr::NAME_MAX_LEN || key.contains(&0) {
            return Err(TreeProblem::XattrKey(key.len()));
        }
        if xattr_cost(key, value) > XATTRS_MAX_COST {
            return Err(TreeProblem::XattrsTooLong);
        }
        self.pairs.intern(&mut self.text, key, value).ok_or(TreeProblem::TooMany)
    }

    /// Adds an attribute to the last node.
    pub(crate) fn push_pair(&mut self, pair: u32, cost: usize) -> Result<(), TreeProblem> {
        self.cost += cost;
        if self.cost > XATTRS_MAX_COST {
            return Err(TreeProblem::XattrsTooLong);
        }
        if self.pair_refs.len() == u32::MAX as usize {
            return Err(TreeProblem::TooMany);
        }
        self.pair_refs.push(pair);
        self.nodes.last_mut().expect("the root").xattrs.1 += 1;
        Ok(())
    }

    fn push(
        &mut self,
        parent: NodeIdx,
        name: &[u8],
        attributes: Attributes,
        data: Data,
    ) -> Result<NodeIdx, TreeProblem> {
        match self.nodes.get(parent.at()).ok_or(TreeProblem::NoSuchNode)?.data {
            Data::Directory { .. } => {}
            _ => return Err(TreeProblem::ParentNotADirectory),
        }
        // Images have 256 stubs beside them, and the highest number is no index.
        if self.nodes.len() >= u32::MAX as usize - 256 {
            return Err(TreeProblem::TooMany);
        }
        self.seal();
        let idx = NodeIdx(self.nodes.len() as u32);
        let name = Span::append(&mut self.text, name);
        let xattrs = (self.pair_refs.len() as u32, 0);
        self.nodes.push(Node { name, parent: parent.0, attributes, xattrs, data });
        Ok(idx)
    }

    /// Sorts the attributes of the last node by key. Of equal keys the last one stays.
    fn seal(&mut self) {
        self.cost = 0;
        let (text, pairs) = (&self.text, &self.pairs);
        let node = self.nodes.last_mut().expect("the root");
        let (first, count) = (node.xattrs.0 as usize, node.xattrs.1);
        let key = |&pair: &u32| pairs.get(pair, text).0;
        if count < 2 || self.pair_refs[first..].is_sorted_by(|a, b| key(a) < key(b)) {
            return;
        }
        let mut own = self.pair_refs.split_off(first);
        own.reverse();
        own.sort_by(|a, b| key(a).cmp(key(b)));
        own.dedup_by(|later, kept| key(later) == key(kept));
        node.xattrs.1 = own.len() as u32;
        self.pair_refs.append(&mut own);
    }

    fn data(&mut self, data: FileData<'_>) -> Result<Data, TreeProblem> {
        let mut store = |bytes: &[u8]| Span::append(&mut self.text, bytes);
        Ok(match data {
            FileData::Directory => Data::Directory { first: 0, count: 0 },
            FileData::External { object: Some(object), .. } if object.len() > TARGET_MAX_LEN || object.contains(&0) => {
                return Err(TreeProblem::Object(object.len()));
            }
            FileData::Inline([]) | FileData::External { size: 0, .. } => Data::Empty,
            FileData::Inline(contents) if contents.len() > INLINE_MAX_LEN => {
                return Err(TreeProblem::InlineTooLong(contents.len()));
            }
            FileData::Inline(contents) => Data::Inline(store(contents)),
            FileData::External { size, .. } if size > FILE_MAX_LEN => return Err(TreeProblem::FileTooLarge(size)),
            FileData::External { size, digest, object } => Data::External {
                size,
                digest: store(digest.as_ref().map_or(&[], Digest::as_bytes)),
                object: object.map(store),
            },
            FileData::Symlink(target) if target.is_empty() || target.len() > TARGET_MAX_LEN || target.contains(&0) => {
                return Err(TreeProblem::Target(target.len()));
            }
            FileData::Symlink(target) => Data::Symlink(store(target)),
            FileData::CharDevice(rdev) => Data::CharDevice(rdev),
            FileData::BlockDevice(rdev) => Data::BlockDevice(rdev),
            FileData::Fifo => Data::Fifo,
            FileData::Socket => Data::Socket,
        })
    }

    /// Returns the entries of all directories, sorted by name, and tells each directory its place.
    fn sort_entries(&mut self) -> Vec<u32> {
        let mut counts = vec![0_u32; self.nodes.len()];
        for node in &self.nodes[1..] {
            counts[node.parent as usize] += 1;
        }
        let mut next = 0;
        for (node, count) in self.nodes.iter_mut().zip(&counts) {
            if let Data::Directory { first, count: own } = &mut node.data {
                (*first, *own) = (next, *count);
                next += count;
            }
        }
        // Counts become the next free places.
        let mut places = counts;
        for (node, place) in self.nodes.iter().zip(&mut places) {
            if let Data::Directory { first, .. } = node.data {
                *place = first;
            }
        }
        let mut entries = vec![0; self.nodes.len() - 1];
        for (idx, node) in self.nodes.iter().enumerate().skip(1) {
            let place = &mut places[node.parent as usize];
            entries[*place as usize] = idx as u32;
            *place += 1;
        }
        for node in &self.nodes {
            if let Data::Directory { first, count } = node.data {
                let own = &mut entries[first as usize..][..count as usize];
                let name = |&idx: &u32| self.nodes[idx as usize].name.of(&self.text);
                // Most dumps are sorted.
                if !own.is_sorted_by_key(name) {
                    own.sort_by(|a, b| name(a).cmp(name(b)));
                }
            }
        }
        entries
    }
}

/// Refuses names that no directory can hold.
fn check_name(name: &[u8]) -> Result<(), TreeProblem> {
    if name.len() > NAME_MAX_LEN {
        return Err(TreeProblem::NameTooLong(name.len()));
    }
    let is_bad = matches!(name, b"" | b"." | b"..") || name.iter().any(|&byte| byte == 0 || byte == b'/');
    if is_bad { Err(TreeProblem::BadName) } else { Ok(()) }
}

/// Refuses targets that can have only one name.
pub(crate) fn check_target(target: &Data) -> Result<(), TreeProblem> {
    match target {
        Data::Directory { .. } => Err(TreeProblem::LinkToDirectory),
        data if data.is_whiteout() => Err(TreeProblem::LinkToWhiteout),
        _ => Ok(()),
    }
}
