//! Walking an image, and putting what is found into one tree.

use kiln_builder::tree::{Builder, ContentId, Entry, Kind, Metadata, Node, NodeId, ThinSlice, Tree, TreeError, Xattr};
use kiln_format::inode::{FileType, IndexKind, InodeData};
use kiln_read::{Image, Inode, Nid, ReadError};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::contents::ImageContents;

/// The tree of an image of `n` bytes may take 256 MiB and `256 * n` bytes of memory. Honest ones stay far below; a hostile one
/// can name a shared attribute of 64 KiB with every inode of 32 bytes.
const MEMORY_FLOOR: u64 = 256 << 20;
const MEMORY_RATIO: u64 = 256;

/// Why an image is no tree.
#[derive(Debug)]
pub(super) enum Problem {
    /// It cannot be read.
    Read(ReadError),
    /// The caller asked to stop.
    Interrupted,
    /// Names, attributes and targets far larger than the image.
    TooLarge {
        /// The most that is allowed, in bytes.
        limit: u64,
    },
    /// What was found is no tree.
    Tree(TreeError),
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        Problem::Read(error)
    }
}

impl From<TreeError> for Problem {
    fn from(error: TreeError) -> Self {
        Problem::Tree(error)
    }
}

/// Scan all of `image`, until `stop` is set.
///
/// # Errors
/// The first directory, inode or attribute that cannot be read, with its path; a directory with several names.
pub(super) fn scan(image: &Image, stop: &AtomicBool) -> Result<Tree, Problem> {
    let root = image.inode(image.root_nid())?;
    let mut scanner = Scanner::new(image);
    for entry in image.walk(&root, b"") {
        if stop.load(Ordering::Relaxed) {
            return Err(Problem::Interrupted);
        }
        let entry = entry?;
        scanner.add(&entry.path, &entry.inode)?;
    }
    let contents = ImageContents { image: image.clone(), nids: scanner.contents };
    Ok(scanner.builder.finish(Box::new(contents))?)
}

struct Scanner<'a> {
    image: &'a Image,
    builder: Builder,
    /// Nid of each content.
    contents: Vec<Nid>,
    /// Nodes of inodes with several names.
    linked: HashMap<Nid, NodeId>,
    /// Directories from the root to where the walk is, with the lengths of their paths.
    open: Vec<(NodeId, usize)>,
    memory_limit: u64,
    memory: u64,
}

impl<'a> Scanner<'a> {
    fn new(image: &'a Image) -> Self {
        let memory_limit = image.source_len().saturating_mul(MEMORY_RATIO).saturating_add(MEMORY_FLOOR);
        let (contents, linked, open) = (Vec::new(), HashMap::new(), Vec::new());
        Self { image, builder: Builder::default(), contents, linked, open, memory_limit, memory: 0 }
    }

    /// Add what the walk has met at `path`.
    fn add(&mut self, path: &[u8], inode: &Inode) -> Result<(), Problem> {
        let (dir_len, name) = match path.iter().rposition(|&b| b == b'/') {
            Some(slash) => (slash, &path[slash + 1..]),
            None => (0, path),
        };
        // The walk is depth first: directories that are longer than this one's parent are behind it.
        self.open.truncate(self.open.partition_point(|(_, len)| *len <= dir_len));
        let known = self.linked.get(&inode.nid).copied();
        let Some(&(parent, _)) = self.open.last() else {
            let root = self.node(path, inode)?;
            self.builder.insert(b"", root)?;
            self.open.push((NodeId::ROOT, 0));
            return Ok(());
        };
        let node = match known {
            Some(node) => node,
            None => {
                let node = self.node(path, inode)?;
                self.builder.add(node)?
            }
        };
        if !inode.is_dir() && inode.meta.nlink != 1 {
            self.linked.insert(inode.nid, node);
        }
        self.charge(size_of::<Entry<'_>>() + name.len())?;
        self.builder.name(parent, name, node);
        if inode.is_dir() {
            self.open.push((node, path.len()));
        }
        Ok(())
    }

    /// The node of an inode, without entries.
    fn node(&mut self, path: &[u8], inode: &Inode) -> Result<Node, Problem> {
        let at_path = |error: ReadError| error.at_path(path);
        let meta = &inode.meta;
        let kind = self.kind(inode).map_err(at_path)?;
        let xattrs = xattrs(self.image, inode).map_err(at_path)?;
        let xattr_bytes: usize = xattrs.iter().map(|x| size_of::<Xattr>() + x.name.len() + x.value.len()).sum();
        let target_len = if let Kind::Symlink(target) = &kind { target.len() } else { 0 };
        self.charge(size_of::<Node>() + xattr_bytes + target_len)?;
        let meta = Metadata {
            permissions: meta.permissions,
            uid: meta.uid,
            gid: meta.gid,
            mtime: meta.mtime,
            mtime_nsec: meta.mtime_nsec,
        };
        Ok(Node { meta, xattrs, kind })
    }

    fn kind(&mut self, inode: &Inode) -> Result<Kind, ReadError> {
        let meta = &inode.meta;
        Ok(match meta.file_type {
            FileType::Directory => Kind::Directory(Box::default()),
            FileType::Regular => {
                self.contents.push(inode.nid);
                let content = ContentId(self.contents.len() as u32 - 1);
                Kind::File { len: meta.size, content, sparse: may_have_holes(inode) }
            }
            FileType::Symlink => Kind::Symlink(self.image.read_link(inode)?.into()),
            FileType::CharDevice => Kind::CharDevice(meta.rdev()),
            FileType::BlockDevice => Kind::BlockDevice(meta.rdev()),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
        })
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Problem> {
        self.memory = self.memory.saturating_add(bytes as u64);
        match self.memory <= self.memory_limit {
            true => Ok(()),
            false => Err(Problem::TooLarge { limit: self.memory_limit }),
        }
    }
}

fn xattrs(image: &Image, inode: &Inode) -> Result<ThinSlice<Xattr>, ReadError> {
    let mut xattrs = image.list_xattrs(inode)?;
    xattrs.sort_by(|a, b| a.name.cmp(&b.name));
    xattrs.dedup_by(|later, first| later.name == first.name);
    Ok(xattrs.into_iter().map(|x| Xattr { name: x.name.into(), value: x.value.into() }).collect())
}

/// Whether the layout can say that there are holes.
fn may_have_holes(inode: &Inode) -> bool {
    match inode.meta.data {
        InodeData::FlatPlain(start) => start.is_none(),
        InodeData::FlatInline(_) | InodeData::Compressed { index: IndexKind::Compact, .. } => false,
        InodeData::ChunkBased(_) | InodeData::Compressed { index: IndexKind::Full, .. } => true,
        InodeData::Device(_) | InodeData::Nothing => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_limited() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../read/tests/golden/xattrs.erofs");
        let image = Image::open_path(path.as_ref(), &[], &Default::default()).unwrap();
        let root = image.inode(image.root_nid()).unwrap();
        let fits = |limit| {
            let mut scanner = Scanner { memory_limit: limit, ..Scanner::new(&image) };
            let mut walk = image.walk(&root, b"").map(Result::unwrap);
            walk.try_for_each(|entry| scanner.add(&entry.path, &entry.inode)).map(|()| scanner.memory)
        };
        let needed = fits(u64::MAX).unwrap();
        assert!(needed < MEMORY_FLOOR / 100);
        assert_eq!(fits(needed).unwrap(), needed);
        assert!(matches!(fits(needed - 1), Err(Problem::TooLarge { .. })));
    }
}
