//! Scanner that adds all inodes of an image to a tree.

use kiln_format::dirent::NAME_MAX_LEN;
use kiln_format::inode::FileType;
use kiln_read::ReadAt;
use kiln_tree::{Kind, Metadata, Node, NodeId, Xattr};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::dir::{Entry, entries};
use super::fields::invalid;
use super::inode::Inode;
use super::map::runs;
use super::volume::Volume;
use super::xattr::xattrs;
use crate::archive::members::Members;
use crate::error::SourceError;
use crate::source::{Scan, ScanOptions};
use crate::stored::StoredRun;

const ROOT_INO: u32 = 2;
/// Maximum length in bytes of the target of a symbolic link in Linux.
const TARGET_MAX_LEN: u64 = 4095;

/// Scans the image `bytes`. Error messages name it `path`.
///
/// # Errors
/// The first unreadable directory, inode or attribute, with its path, unless the scan keeps going;
/// an unreadable root.
pub(super) fn scan(
    volume: &Volume,
    bytes: Arc<dyn ReadAt>,
    path: &Path,
    options: &ScanOptions<'_>,
) -> Result<Scan, SourceError> {
    let members = Members::new(path, options, Metadata::default().into());
    let mut scanner = Scanner { volume, members, known: HashMap::new(), open: Vec::new() };
    scanner.begin()?;
    scanner.root().map_err(|error| scanner.members.malformed(0, format!("the root directory: {error}")))?;
    while let Some(Directory { node, path, inode }) = scanner.open.pop() {
        match entries(volume, &inode) {
            Ok(entries) => scanner.directory(node, &path, entries)?,
            Err(error) => scanner.members.leave_out(inode.off, &path, error)?,
        }
    }
    scanner.members.finish(bytes, None).map(|archived| archived.found)
}

/// A directory to read.
struct Directory {
    node: NodeId,
    path: Vec<u8>,
    inode: Inode,
}

struct Scanner<'a> {
    volume: &'a Volume,
    members: Members<'a>,
    /// Nodes of directories, and of inodes with several names, by inode number.
    known: HashMap<u32, NodeId>,
    open: Vec<Directory>,
}

impl Scanner<'_> {
    fn begin(&mut self) -> Result<(), SourceError> {
        self.members.begin(self.volume.len)
    }

    fn root(&mut self) -> io::Result<()> {
        let inode = self.volume.inode(ROOT_INO)?;
        if inode.file_type != FileType::Directory || inode.is_encrypted() {
            return Err(invalid("inode 2 is not a readable directory"));
        }
        let Made { node, unread: None, .. } = self.node(&inode)? else {
            return Err(invalid("the attributes of the root cannot be read"));
        };
        self.members.builder.insert(b"", node).map_err(io::Error::other)?;
        self.known.insert(ROOT_INO, NodeId::ROOT);
        self.open.push(Directory { node: NodeId::ROOT, path: Vec::new(), inode });
        Ok(())
    }

    /// Adds the entries of the directory `dir` at `path`.
    fn directory(&mut self, dir: NodeId, path: &[u8], entries: Vec<Entry>) -> Result<(), SourceError> {
        for Entry { name, ino } in entries {
            self.begin()?;
            let path = if path.is_empty() { name.to_vec() } else { [path, b"/", &name].concat() };
            match self.entry(ino, &name) {
                Ok((inode, named)) => {
                    let id = match named {
                        Named::Known(id) => {
                            self.members.charge(&name, path.len())?;
                            id
                        }
                        Named::New(Made { node, cost, unread }) => {
                            self.members.charge(&name, cost + path.len())?;
                            if let Some(error) = unread {
                                self.members.leave_out(inode.off, &path, error)?;
                            }
                            let added = self.members.builder.add(node);
                            let id = added.map_err(|error| self.members.malformed(inode.off, error.to_string()))?;
                            self.remember(id, ino, path, inode);
                            id
                        }
                    };
                    self.members.builder.name(dir, &name, id);
                }
                Err(error) => {
                    let off = self.volume.inode(ino).map_or(0, |inode| inode.off);
                    self.members.leave_out(off, &path, error)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the inode of the entry `name`.
    fn entry(&mut self, ino: u32, name: &[u8]) -> io::Result<(Inode, Named)> {
        if name.is_empty() || name.len() > NAME_MAX_LEN || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return Err(invalid("not a valid file name"));
        }
        let inode = self.volume.inode(ino)?;
        match self.known.get(&ino) {
            Some(_) if inode.file_type == FileType::Directory => Err(invalid("a directory with several names")),
            Some(id) => Ok((inode, Named::Known(*id))),
            None => {
                let made = self.node(&inode)?;
                Ok((inode, Named::New(made)))
            }
        }
    }

    /// Records the node of an inode that may occur again, and queues a directory.
    fn remember(&mut self, id: NodeId, ino: u32, path: Vec<u8>, inode: Inode) {
        let is_dir = inode.file_type == FileType::Directory;
        if is_dir || inode.links_count != 1 {
            self.known.insert(ino, id);
        }
        if is_dir {
            self.open.push(Directory { node: id, path, inode });
        }
    }

    /// Returns the node of an inode, without entries.
    fn node(&mut self, inode: &Inode) -> io::Result<Made> {
        if inode.is_encrypted() {
            let reason = "it is encrypted (fscrypt); mount the image with its key and pack the mount point";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let volume = self.volume;
        // With `keep_going`, unreadable attributes do not remove the file.
        let (xattrs, unread) = match xattrs(volume, inode, |ino, len| value(volume, ino, len)) {
            Ok(xattrs) => (xattrs, None),
            Err(error) => (Default::default(), Some(error)),
        };
        let mut cost: usize = xattrs.iter().map(|x| size_of::<Xattr>() + x.name.len() + x.value.len()).sum();
        let kind = match inode.file_type {
            FileType::Directory => Kind::Directory(Box::default()),
            FileType::Regular => {
                let runs = runs(volume, inode)?;
                cost += runs.len() * size_of::<StoredRun>();
                match runs[..] {
                    [] if inode.len == 0 => self.members.whole_file(0..0),
                    [StoredRun { la: 0, pa, len }] if len == inode.len => self.members.whole_file(pa..pa + len),
                    _ => self.members.sparse_file(inode.len, runs),
                }
            }
            FileType::Symlink => Kind::Symlink(target(volume, inode)?.into()),
            FileType::CharDevice => Kind::CharDevice(inode.rdev()?),
            FileType::BlockDevice => Kind::BlockDevice(inode.rdev()?),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
        };
        Ok(Made { node: Node { meta: inode.meta, xattrs: xattrs.into_iter().collect(), kind }, cost, unread })
    }
}

/// Node of an entry.
enum Named {
    /// A node that has another name.
    Known(NodeId),
    /// A new node.
    New(Made),
}

/// A new node.
struct Made {
    node: Node,
    /// Approximate memory cost in bytes.
    cost: usize,
    /// Error of reading the attributes; the node has none then.
    unread: Option<io::Error>,
}

fn target(volume: &Volume, inode: &Inode) -> io::Result<Vec<u8>> {
    match (inode.len, inode.fast_target()) {
        (1..=TARGET_MAX_LEN, Some(target)) => Ok(target.into()),
        (1..=TARGET_MAX_LEN, None) => contents(volume, inode),
        (len, _) => Err(invalid(format!("a symbolic link with a target of {len} bytes"))),
    }
}

/// Reads the value of an attribute that is stored in an inode.
fn value(volume: &Volume, ino: u32, len: u64) -> io::Result<Vec<u8>> {
    let inode = volume.inode(ino)?;
    if !inode.is_xattr_value() || inode.len != len {
        return Err(invalid(format!("inode {ino} is not an attribute value of {len} bytes")));
    }
    contents(volume, &inode)
}

/// Reads all contents of `inode`, which must be short.
fn contents(volume: &Volume, inode: &Inode) -> io::Result<Vec<u8>> {
    let mut contents = vec![0; inode.len as usize];
    for run in runs(volume, inode)? {
        let bytes = volume.read(run.pa, run.len as usize)?;
        contents[run.la as usize..run.end() as usize].copy_from_slice(&bytes);
    }
    Ok(contents)
}
