//! Walking an image, and putting what is found into one tree.

use kiln_builder::BuildError;
use kiln_builder::tree::{ContentId, Entry, Kind, Metadata, Node, NodeId, ThinSlice, Tree, Xattr};
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
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// More inodes than a tree can have.
    #[error("more than 2^32 inodes")]
    TooMany,
    /// Names, attributes and targets far larger than the image.
    #[error("names and attributes take more than {limit} bytes: far more than such an image should hold")]
    TooLarge {
        /// The most that is allowed, in bytes.
        limit: u64,
    },
    /// What was found is no tree.
    #[error(transparent)]
    Tree(#[from] BuildError),
}

/// Scan all of `image`, until `stop` is set.
///
/// An inode with several names is one node; attributes that Linux does not show are not there, and of several with one name
/// the first counts, as in Linux.
///
/// # Errors
/// The first directory, inode or attribute that cannot be read, with its path; a directory with several names.
pub fn scan(image: &Image, stop: &AtomicBool) -> Result<Tree, ScanError> {
    let root = image.inode(image.root_nid())?;
    let mut scanner = Scanner::new(image);
    for entry in image.walk(&root, b"") {
        if stop.load(Ordering::Relaxed) {
            return Err(ScanError::Interrupted);
        }
        let entry = entry?;
        scanner.add(&entry.path, &entry.inode)?;
    }
    let contents = ImageContents { image: image.clone(), nids: scanner.contents };
    Ok(Tree::new(scanner.nodes, Box::new(contents))?)
}

struct Scanner<'a> {
    image: &'a Image,
    nodes: Vec<Node>,
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
        let (nodes, contents, linked, open) = (Vec::new(), Vec::new(), HashMap::new(), Vec::new());
        Self { image, nodes, contents, linked, open, memory_limit, memory: 0 }
    }

    /// Add what the walk has met at `path`.
    fn add(&mut self, path: &[u8], inode: &Inode) -> Result<(), ScanError> {
        let (dir_len, name) = match path.iter().rposition(|&b| b == b'/') {
            Some(slash) => (slash, &path[slash + 1..]),
            None => (0, path),
        };
        // The walk is depth first: directories that are longer than this one's parent are behind it.
        self.open.truncate(self.open.partition_point(|(_, len)| *len <= dir_len));
        let known = self.linked.get(&inode.nid).copied();
        let node = match known {
            Some(node) => node,
            None => self.add_node(path, inode)?,
        };
        let Some(&(parent, _)) = self.open.last() else {
            self.open.push((node, 0)); // the root
            return Ok(());
        };
        self.charge(size_of::<Entry<'_>>() + name.len())?;
        if let Kind::Directory(entries) = &mut self.nodes[parent.idx()].kind {
            entries.push(name, node);
        }
        if inode.is_dir() {
            self.open.push((node, path.len()));
        }
        Ok(())
    }

    fn add_node(&mut self, path: &[u8], inode: &Inode) -> Result<NodeId, ScanError> {
        let id = NodeId(u32::try_from(self.nodes.len()).map_err(|_| ScanError::TooMany)?);
        let at_path = |error: ReadError| error.at_path(path);
        let meta = &inode.meta;
        let kind = self.kind(inode).map_err(at_path)?;
        let xattrs = xattrs(self.image, inode).map_err(at_path)?;
        let xattr_bytes: usize = xattrs.iter().map(|x| size_of::<Xattr>() + x.name.len() + x.value.len()).sum();
        let target_len = if let Kind::Symlink(target) = &kind { target.len() } else { 0 };
        self.charge(size_of::<Node>() + xattr_bytes + target_len)?;
        let metadata = Metadata {
            permissions: meta.permissions,
            uid: meta.uid,
            gid: meta.gid,
            mtime: meta.mtime,
            mtime_nsec: meta.mtime_nsec,
        };
        self.nodes.push(Node { meta: metadata, xattrs, kind });
        if !inode.is_dir() && meta.nlink != 1 {
            self.linked.insert(inode.nid, id);
        }
        Ok(id)
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

    fn charge(&mut self, bytes: usize) -> Result<(), ScanError> {
        self.memory = self.memory.saturating_add(bytes as u64);
        match self.memory <= self.memory_limit {
            true => Ok(()),
            false => Err(ScanError::TooLarge { limit: self.memory_limit }),
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
        assert!(matches!(fits(needed - 1), Err(ScanError::TooLarge { .. })));
    }
}
