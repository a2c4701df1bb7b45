//! Scanner that adds all inodes of an image to a tree.

use kiln_digest::contents::ContentHash;
use kiln_format::inode::{FileType, IndexKind, InodeData};
use kiln_read::{Image, Inode, Nid, ReadError};
use kiln_tree::{
    Base, Builder, ContentId, DigestStyle, Entry, Kind, Metadata, Node, NodeId, ThinSlice, TreeError, Xattr,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::contents::ImageContents;
use super::device::ImageDevices;
use super::digests::digest_name;
use crate::archive::left_out::LeftOut;
use crate::error::{SourceError, Unreadable};
use crate::limit::MemoryLimit;
use crate::source::{Scan, ScanOptions};

/// An image and its name in error messages.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub image: &'a Image,
    pub path: &'a Path,
    /// Offset of the image in its file, in bytes.
    pub offset: u64,
}

impl Named<'_> {
    /// Returns the error for an unreadable image.
    fn unreadable(self, source: ReadError) -> SourceError {
        SourceError::Image { path: self.path.to_owned(), offset: self.offset, source }
    }

    /// Returns the error for an invalid tree.
    fn tree_error(self, error: TreeError) -> SourceError {
        SourceError::tree(self.path)(error)
    }
}

/// Scans all of an image, to which others refer as `devices`, or whose data they reuse as that of
/// `base`. Returns the nids of regular files, too, by content id.
///
/// # Errors
/// The first unreadable directory, inode or attribute, with its path, unless the scan keeps going;
/// an unreadable root; a directory with several names.
pub(super) fn scan(
    named: Named<'_>,
    (devices, base): (Option<ImageDevices>, Option<Arc<dyn Base>>),
    options: &ScanOptions<'_>,
) -> Result<(Scan, Arc<[Nid]>), SourceError> {
    let image = named.image;
    let root = image.inode(image.root_nid()).map_err(|error| named.unreadable(error))?;
    let mut scanner = Scanner::new(named, options);
    for entry in image.walk(&root, b"") {
        options.check_stop()?;
        match entry {
            Ok(entry) => scanner.add(&entry.path, &entry.inode)?,
            Err(error) => scanner.leave_out(error)?,
        }
    }
    let nids: Arc<[Nid]> = scanner.contents.into();
    let digests = scanner.digest_hash.map(|hash| DigestStyle { name: digest_name(image), hash });
    let contents =
        ImageContents { image: image.clone(), path: named.path.into(), digests, nids: nids.clone(), devices, base };
    let tree = scanner.builder.finish(Box::new(contents)).map_err(|error| named.tree_error(error))?;
    Ok((Scan { skipped: scanner.left_out.into_list(), ..Scan::from(tree) }, nids))
}

struct Scanner<'a> {
    named: Named<'a>,
    builder: Builder,
    /// Nids of files, by content id.
    contents: Vec<Nid>,
    /// Function of the first stored digest, if any file has one.
    digest_hash: Option<ContentHash>,
    /// Nodes of inodes with several names.
    linked: HashMap<Nid, NodeId>,
    /// Directories from the root to the current position of the walk, with the lengths of their
    /// paths. `None` for a directory that is left out with everything below it.
    open: Vec<(Option<NodeId>, usize)>,
    memory: MemoryLimit,
    left_out: LeftOut<'a>,
}

impl<'a> Scanner<'a> {
    fn new(named: Named<'a>, options: &ScanOptions<'_>) -> Self {
        let (contents, linked, open) = (Vec::new(), HashMap::new(), Vec::new());
        let memory = MemoryLimit::new(named.image.source_len());
        let left_out = LeftOut::new(named.path, options);
        Self { named, builder: Builder::default(), contents, digest_hash: None, linked, open, memory, left_out }
    }

    /// Leaves out an entry that the walk could not read.
    fn leave_out(&mut self, error: ReadError) -> Result<(), SourceError> {
        let path = error.path().map(<[u8]>::to_vec).unwrap_or_default();
        self.charge(size_of::<Unreadable>() + path.len())?;
        self.left_out.add(&path, self.named.unreadable(error))
    }

    /// Adds the inode at `path`.
    fn add(&mut self, path: &[u8], inode: &Inode) -> Result<(), SourceError> {
        let (dir_len, name) = match path.iter().rposition(|&b| b == b'/') {
            Some(slash) => (slash, &path[slash + 1..]),
            None => (0, path),
        };
        // The walk is depth-first: the directories beyond this inode's parent have been read
        // completely.
        self.open.truncate(self.open.partition_point(|(_, len)| *len <= dir_len));
        let known = self.linked.get(&inode.nid).copied();
        let Some(&(parent, _)) = self.open.last() else {
            let root = self.node(path, inode)?;
            self.builder.insert(b"", root).map_err(|error| self.named.tree_error(error))?;
            self.open.push((Some(NodeId::ROOT), 0));
            return Ok(());
        };
        let node = match (parent, known) {
            (None, _) => None,
            (_, Some(node)) => Some(node),
            (_, None) => match self.node(path, inode) {
                Ok(node) => Some(self.builder.add(node).map_err(|error| self.named.tree_error(error))?),
                Err(error) => {
                    self.charge(size_of::<Unreadable>() + path.len())?;
                    self.left_out.add(path, error).map(|()| None)?
                }
            },
        };
        if inode.is_dir() {
            self.open.push((node, path.len()));
        }
        let (Some(parent), Some(node)) = (parent, node) else { return Ok(()) };
        if !inode.is_dir() && inode.meta.nlink != 1 {
            self.linked.insert(inode.nid, node);
        }
        self.charge(size_of::<Entry<'_>>() + name.len())?;
        self.builder.name(parent, name, node);
        Ok(())
    }

    /// Returns the node of an inode, without entries.
    fn node(&mut self, path: &[u8], inode: &Inode) -> Result<Node, SourceError> {
        let named = self.named;
        let at_path = |error: ReadError| named.unreadable(error.at_path(path));
        let meta = &inode.meta;
        let kind = self.kind(inode).map_err(at_path)?;
        let is_file = matches!(kind, Kind::File { len: 1.., .. });
        // With `keep_going`, unreadable attributes do not remove the file.
        let read = xattrs(named.image, inode).and_then(|xattrs| {
            let is_first = is_file && self.digest_hash.is_none();
            let digest = if is_first { named.image.content_digest(inode)? } else { None };
            Ok((xattrs, digest))
        });
        if read.is_err() {
            self.charge(size_of::<Unreadable>() + path.len())?;
        }
        let (xattrs, digest) = self.left_out.survive(path, read.map_err(at_path))?.unwrap_or_default();
        self.digest_hash = self.digest_hash.or(digest.map(|digest| digest.hash()));
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
            FileType::Symlink => Kind::Symlink(self.named.image.read_link(inode)?.into()),
            FileType::CharDevice => Kind::CharDevice(meta.rdev()),
            FileType::BlockDevice => Kind::BlockDevice(meta.rdev()),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
        })
    }

    fn charge(&mut self, bytes: usize) -> Result<(), SourceError> {
        self.memory.charge(bytes, self.named.path)
    }
}

fn xattrs(image: &Image, inode: &Inode) -> Result<ThinSlice<Xattr>, ReadError> {
    let mut xattrs = image.list_xattrs(inode)?;
    xattrs.sort_by(|a, b| a.name.cmp(&b.name));
    xattrs.dedup_by(|later, first| later.name == first.name);
    Ok(xattrs.into_iter().map(|x| Xattr { name: x.name.into(), value: x.value.into() }).collect())
}

/// Returns true if the layout can represent holes.
fn may_have_holes(inode: &Inode) -> bool {
    match inode.meta.data {
        InodeData::FlatPlain(start) => start.is_none(),
        InodeData::FlatInline(_) | InodeData::Compressed { index: IndexKind::Compact, .. } => false,
        InodeData::ChunkBased(_) | InodeData::Compressed { index: IndexKind::Full, .. } => true,
        InodeData::Device(_) | InodeData::Nothing => false,
    }
}
