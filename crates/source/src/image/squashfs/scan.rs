//! Scanner that adds all inodes of an image to a tree.

use kiln_tree::{
    Builder, ContentId, Entry as TreeEntry, Kind, Metadata as NodeMetadata, Node, NodeId, ThinSlice, Xattr,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::blocks::{Blocks, StoredBlock};
use super::contents::{BlockEnd, File, Files, ImageContents};
use super::inode::{FileData, Inode, InodeKind, Listing};
use super::listing::Entries;
use super::metadata::{Cursor, Metadata, Ref};
use super::problem::{Problem, corrupt};
use super::superblock::{NO_TABLE, Superblock, u32_le, u64_le};
use super::table::Table;
use super::xattrs::Xattrs;
use crate::archive::left_out::LeftOut;
use crate::error::{SourceError, Unreadable};
use crate::limit::MemoryLimit;
use crate::source::{Scan, ScanOptions};

/// Scans an image. Error messages name it `path`. Its contents keep fragment blocks of about `fragments_len` bytes.
///
/// # Errors
/// The first unreadable directory, inode or attribute, with its path, unless the scan keeps going;
/// an unreadable root; a directory with several names.
pub(super) fn scan(
    blocks: &Arc<Blocks>,
    superblock: &Superblock,
    path: &Path,
    fragments_len: u64,
    options: &ScanOptions<'_>,
) -> Result<Scan, Problem> {
    let metadata = Metadata::new(Arc::clone(blocks));
    let mut scanner = Scanner::new(&metadata, superblock, path, options)?;
    let check_stop = || options.check_stop();
    let mut next = scanner.begin()?;
    while let Some(dir) = next {
        scanner.directory(dir, &check_stop)?;
        next = scanner.pending.pop();
    }
    let contents = ImageContents::new(Arc::clone(blocks), superblock.block_len, scanner.files, fragments_len);
    let tree = scanner.builder.finish(Box::new(contents))?;
    Ok(Scan { skipped: scanner.left_out.into_list(), ..Scan::from(tree) })
}

/// A directory with its name, for messages.
struct Dir {
    node: NodeId,
    name: Box<[u8]>,
    /// Index of the parent directory; the root is its own parent.
    parent_idx: usize,
}

struct Scanner<'a> {
    metadata: &'a Metadata,
    superblock: &'a Superblock,
    ids: Table<4>,
    fragments: Option<Table<16>>,
    xattrs: Option<Xattrs>,
    builder: Builder,
    files: Files,
    /// Nodes of all inodes read so far. Names of one inode are hard links, regardless of its stored
    /// number of links.
    nodes: HashMap<Ref, NodeId>,
    dirs: Vec<Dir>,
    /// Indexes in `dirs` of directories that have not been read yet.
    pending: Vec<(usize, Listing)>,
    memory: MemoryLimit,
    path: &'a Path,
    left_out: LeftOut<'a>,
}

/// Memory cost per inode of the map `nodes`, in bytes.
const KNOWN_COST: usize = 2 * size_of::<(Ref, NodeId)>();

impl<'a> Scanner<'a> {
    fn new(
        metadata: &'a Metadata,
        superblock: &'a Superblock,
        path: &'a Path,
        options: &ScanOptions<'_>,
    ) -> Result<Self, Problem> {
        let blocks = metadata.blocks();
        let fragments = match superblock.fragment_table_off {
            NO_TABLE => None,
            off => Some(Table::new(blocks, "the table of fragments", off, superblock.fragment_count)?),
        };
        Ok(Self {
            metadata,
            superblock,
            ids: Table::new(blocks, "the table of ids", superblock.id_table_off, superblock.id_count.into())?,
            fragments,
            xattrs: Xattrs::new(blocks, superblock.xattr_table_off)?,
            builder: Builder::default(),
            files: Files::default(),
            nodes: HashMap::new(),
            dirs: Vec::new(),
            pending: Vec::new(),
            memory: MemoryLimit::new(blocks.len()),
            path,
            left_out: LeftOut::new(path, options),
        })
    }

    /// Adds the root to the tree, and returns its listing as the first to read.
    fn begin(&mut self) -> Result<Option<(usize, Listing)>, Problem> {
        let at = Ref(self.superblock.root);
        let (node, listing, unread) = self.node(at).map_err(|problem| problem.in_file(b"/"))?;
        if let Some(problem) = unread {
            return Err(problem.in_file(b"/"));
        }
        self.builder.insert(b"", node)?;
        self.nodes.insert(at, NodeId::ROOT);
        self.dirs.push(Dir { node: NodeId::ROOT, name: Box::default(), parent_idx: 0 });
        Ok(listing.map(|listing| (0, listing)))
    }

    /// Adds the entries of a directory to the tree. Calls `check_stop` before each.
    fn directory(
        &mut self,
        (dir_idx, listing): (usize, Listing),
        check_stop: &dyn Fn() -> Result<(), SourceError>,
    ) -> Result<(), Problem> {
        let entries = Entries::new(self.metadata, self.superblock.directory_table_off, listing);
        let Some(mut entries) = self.survive(entries, (dir_idx, b""))? else { return Ok(()) };
        // The position of the next entry depends on this one, so the listing ends here.
        loop {
            let entry = entries.next();
            let Some(Some(entry)) = self.survive(entry, (dir_idx, b""))? else { return Ok(()) };
            check_stop()?;
            self.memory.charge(size_of::<TreeEntry<'_>>() + entry.name.len(), self.path)?;
            let added = self.entry(dir_idx, &entry.name, entry.inode);
            self.survive(added, (dir_idx, &entry.name))?;
        }
    }

    /// Returns the value read for a name in a directory, or for the directory itself, or `None` if
    /// it was left out.
    fn survive<T>(
        &mut self,
        read: Result<T, Problem>,
        (dir_idx, name): (usize, &[u8]),
    ) -> Result<Option<T>, SourceError> {
        let Err(problem) = read else { return Ok(read.ok()) };
        let path = self.path_of(dir_idx, name);
        self.memory.charge(size_of::<Unreadable>() + path.len(), self.path)?;
        self.left_out.add(&path, problem.of_image(self.path)).map(|()| None)
    }

    /// Adds an entry and its inode to the tree.
    fn entry(&mut self, parent_idx: usize, name: &[u8], at: Ref) -> Result<(), Problem> {
        let parent = self.dirs[parent_idx].node;
        if let Some(&known) = self.nodes.get(&at) {
            // The tree reports a second name of a directory.
            self.builder.name(parent, name, known);
            return Ok(());
        }
        let (node, listing, unread) = self.node(at)?;
        if let Some(problem) = unread {
            self.survive::<()>(Err(problem), (parent_idx, name))?;
        }
        let node = self.builder.add(node)?;
        self.nodes.insert(at, node);
        self.builder.name(parent, name, node);
        if let Some(listing) = listing {
            self.memory.charge(size_of::<Dir>() + size_of::<(usize, Listing)>() + name.len(), self.path)?;
            self.dirs.push(Dir { node, name: name.into(), parent_idx });
            self.pending.push((self.dirs.len() - 1, listing));
        }
        Ok(())
    }

    /// Returns the node of the inode at `at`, without entries; the listing of a directory; and the
    /// error of reading the attributes, which does not remove the file if the scan keeps going.
    fn node(&mut self, at: Ref) -> Result<(Node, Option<Listing>, Option<Problem>), Problem> {
        let mut cursor = self.metadata.cursor(self.superblock.inode_table_off, at)?;
        let inode = Inode::read(&mut cursor)?;
        self.memory.charge(size_of::<Node>() + KNOWN_COST, self.path)?;
        let meta = NodeMetadata {
            permissions: inode.permissions,
            uid: self.id(inode.uid_idx)?,
            gid: self.id(inode.gid_idx)?,
            mtime: inode.mtime.into(),
            mtime_nsec: 0,
        };
        let (xattrs, unread) = match inode.xattr_idx.map(|idx| self.list_xattrs(idx)) {
            None => (ThinSlice::default(), None),
            Some(Ok(xattrs)) => (xattrs, None),
            Some(Err(problem)) => (ThinSlice::default(), Some(problem)),
        };
        let mut listing = None;
        let kind = match inode.kind {
            InodeKind::Directory(at) => {
                listing = Some(at);
                Kind::Directory(Box::default())
            }
            InodeKind::File(data) => self.file(&data, &mut cursor)?,
            InodeKind::Symlink(target) => {
                self.memory.charge(target.len(), self.path)?;
                Kind::Symlink(target.into())
            }
            InodeKind::BlockDevice(rdev) => Kind::BlockDevice(rdev),
            InodeKind::CharDevice(rdev) => Kind::CharDevice(rdev),
            InodeKind::Fifo => Kind::Fifo,
            InodeKind::Socket => Kind::Socket,
        };
        Ok((Node { meta, xattrs, kind }, listing, unread))
    }

    fn id(&self, idx: u16) -> Result<u32, Problem> {
        self.ids.record(self.metadata, idx.into()).map(u32::from_le_bytes)
    }

    fn list_xattrs(&mut self, idx: u32) -> Result<ThinSlice<Xattr>, Problem> {
        let (memory, path) = (&mut self.memory, self.path);
        let Some(xattrs) = &self.xattrs else {
            return Err(corrupt(56, format!("attributes {idx} in an image without a table of attributes")));
        };
        Ok(xattrs.list(self.metadata, idx, |bytes| Ok(memory.charge(bytes, path)?))?.into())
    }

    /// Returns a regular file. The cursor is at the stored lengths of its blocks.
    fn file(&mut self, data: &FileData, cursor: &mut Cursor<'_>) -> Result<Kind, Problem> {
        let block_len = self.superblock.block_len;
        self.memory.charge(size_of::<File>(), self.path)?;
        let (first, mut start, mut sparse) = (self.files.blocks.len(), data.start, false);
        for _ in 0..data.block_count(block_len) {
            let stored = StoredBlock::of_data(start, u32::from_le_bytes(cursor.array()?), block_len)?;
            if stored.range.end > self.superblock.bytes_used {
                let message = format!("a block that ends beyond bytes_used = {}", self.superblock.bytes_used);
                return Err(corrupt(stored.range.start, message));
            }
            self.memory.charge(size_of::<BlockEnd>(), self.path)?;
            sparse |= stored.range.is_empty();
            start = stored.range.end;
            self.files.blocks.push(BlockEnd::new(&stored));
        }
        let has_tail = !data.len.is_multiple_of(u64::from(block_len));
        let fragment = match (data.fragment, &self.fragments) {
            (Some(_), _) if !has_tail => None,
            (Some((idx, from)), Some(table)) => {
                let record = table.record(self.metadata, idx)?;
                Some((StoredBlock::of_data(u64_le(&record, 0), u32_le(&record, 8), block_len)?, from))
            }
            (Some((idx, _)), None) => {
                return Err(corrupt(80, format!("fragment {idx} in an image without a table of fragments")));
            }
            (None, _) => None,
        };
        let blocks = first..self.files.blocks.len();
        self.files.files.push(File { len: data.len, start: data.start, blocks, fragment });
        let content = ContentId(self.files.files.len() as u32 - 1);
        Ok(Kind::File { len: data.len, content, sparse })
    }

    /// Returns the path of a name in a directory, or of the directory if `name` is empty.
    fn path_of(&self, dir_idx: usize, name: &[u8]) -> Vec<u8> {
        let (mut idx, mut names) = (dir_idx, vec![name]);
        while idx != 0 {
            names.push(&self.dirs[idx].name);
            idx = self.dirs[idx].parent_idx;
        }
        names.reverse();
        let path = names.join(&b'/');
        path.strip_suffix(b"/").unwrap_or(&path).to_vec()
    }
}
