//! Scanner that adds all inodes of an image to a tree.

use kiln_format::dirent::NAME_MAX_LEN;
use kiln_format::inode::{FileType, Rdev};
use kiln_tree::{ContentId, Kind, Metadata, Node, NodeId};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::blocks::{Table, table_range};
use super::contents::{File, ImageContents, read_all};
use super::inode::{Entry, INODE_LEN, Inode, entries};
use super::regions::{REGION_COST, Regions, Use};
use super::volume::{Volume, invalid};
use crate::archive::members::Members;
use crate::error::SourceError;
use crate::source::{Scan, ScanOptions};

/// Maximum length in bytes of the target of a symbolic link in Linux.
const TARGET_MAX_LEN: u32 = 4095;

/// Scans an image. Error messages name it `path`; `intact` is the result of the CRC check.
///
/// # Errors
/// An unreadable root directory. Unless the scan keeps going, also a wrong CRC, and the first
/// unreadable directory or inode, with its path.
pub(super) fn scan(
    volume: &Arc<Volume>,
    path: &Path,
    intact: Result<(), SourceError>,
    options: &ScanOptions<'_>,
) -> Result<Scan, SourceError> {
    let mut members = Members::new(path, options, Metadata::default().into());
    members.survive(b"", intact)?;
    let mut scanner = Scanner { volume, members, regions: Regions::default(), files: Vec::new(), open: Vec::new() };
    scanner.begin()?;
    let root = scanner.root();
    root.map_err(|error| scanner.members.malformed(volume.root_off, format!("the root directory: {error}")))?;
    while let Some(dir) = scanner.open.pop() {
        match scanner.read(&dir) {
            Ok(bytes) => scanner.directory(&dir, &bytes)?,
            Err(error) => scanner.members.leave_out(dir.inode_off, &dir.path, error)?,
        }
    }
    let Scanner { members, files, .. } = scanner;
    members.finish_with(Box::new(ImageContents { volume: Arc::clone(volume), files }))
}

/// A directory to read.
struct Directory {
    node: NodeId,
    path: Vec<u8>,
    inode: Inode,
    /// Offset of the inode in the image, in bytes.
    inode_off: u64,
}

struct Scanner<'a> {
    volume: &'a Volume,
    members: Members<'a>,
    regions: Regions,
    files: Vec<File>,
    open: Vec<Directory>,
}

impl Scanner<'_> {
    fn begin(&mut self) -> Result<(), SourceError> {
        self.members.begin(self.volume.len)
    }

    fn root(&mut self) -> io::Result<()> {
        let (mut bytes, inode_off) = ([0; INODE_LEN], self.volume.root_off);
        self.volume.read(&mut bytes, inode_off)?;
        let inode = Inode::decode(&bytes, self.volume.order);
        if inode.file_type()? != FileType::Directory {
            return Err(invalid("the inode after the superblock is not a directory"));
        }
        let (node, _) = self.node(&inode)?;
        self.members.builder.insert(b"", node).map_err(io::Error::other)?;
        self.open.push(Directory { node: NodeId::ROOT, path: Vec::new(), inode, inode_off });
        Ok(())
    }

    /// Reads the bytes of a directory.
    fn read(&mut self, dir: &Directory) -> io::Result<Vec<u8>> {
        let (off, len) = (dir.inode.data_off, u64::from(dir.inode.size));
        if len == 0 {
            return Ok(Vec::new());
        }
        if self.regions.get(&(off..off + len))?.is_some() {
            return Err(invalid(format!("the directory at byte {off} has several names")));
        }
        let bytes = self.volume.read_vec(off, len)?;
        self.regions.set(off..off + len, Use::Directory);
        Ok(bytes)
    }

    /// Adds the entries of a directory, which are in `bytes`.
    fn directory(&mut self, dir: &Directory, bytes: &[u8]) -> Result<(), SourceError> {
        for entry in entries(bytes, self.volume.order) {
            self.begin()?;
            match entry {
                Ok(entry) => self.entry(dir, &entry)?,
                Err(error) => self.members.leave_out(dir.inode_off, &dir.path, error)?,
            }
        }
        Ok(())
    }

    fn entry(&mut self, dir: &Directory, entry: &Entry<'_>) -> Result<(), SourceError> {
        let Entry { at, inode, name } = *entry;
        let path = if dir.path.is_empty() { name.to_vec() } else { [&dir.path, &b"/"[..], name].concat() };
        let inode_off = dir.inode.data_off + at as u64;
        let found = check_name(name).and_then(|()| self.node(&inode));
        let (node, cost) = match found {
            Ok(found) => found,
            Err(error) => return self.members.leave_out(inode_off, &path, error),
        };
        self.members.charge(name, cost + path.len())?;
        let is_dir = matches!(node.kind, Kind::Directory(_));
        let added = self.members.builder.add(node);
        let node = added.map_err(|error| self.members.malformed(inode_off, error.to_string()))?;
        self.members.builder.name(dir.node, name, node);
        if is_dir {
            self.open.push(Directory { node, path, inode, inode_off });
        }
        Ok(())
    }

    /// Returns the node of an inode, without entries, and its memory cost in bytes.
    fn node(&mut self, inode: &Inode) -> io::Result<(Node, usize)> {
        let (mut cost, rdev) = (0, Rdev::decode(inode.size));
        let kind = match inode.file_type()? {
            FileType::Directory => {
                cost = REGION_COST + size_of::<Directory>();
                Kind::Directory(Box::default())
            }
            FileType::Regular => {
                cost = REGION_COST + size_of::<File>();
                self.file(inode)?
            }
            FileType::Symlink => {
                let target = target(self.volume, inode)?;
                cost = target.len();
                Kind::Symlink(target.into())
            }
            FileType::CharDevice => Kind::CharDevice(rdev),
            FileType::BlockDevice => Kind::BlockDevice(rdev),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
        };
        Ok((Node { meta: inode.metadata(), xattrs: Default::default(), kind }, cost))
    }

    fn file(&mut self, inode: &Inode) -> io::Result<Kind> {
        let (off, len) = (inode.data_off, u64::from(inode.size));
        let range = table_range(off, len);
        let known = if range.is_empty() { None } else { self.regions.get(&range)? };
        let sparse = match known {
            Some(Use::Table { has_holes }) => has_holes,
            Some(Use::Directory) => return Err(invalid(format!("its blocks are the directory at byte {off}"))),
            Some(Use::Damaged) => return Err(invalid(format!("the table of blocks at byte {off} is damaged"))),
            None if range.is_empty() => false,
            None => {
                let table = Table::read(self.volume, off, len);
                let has_holes = table.as_ref().map(Table::has_holes).ok();
                self.regions.set(range, has_holes.map_or(Use::Damaged, |has_holes| Use::Table { has_holes }));
                table?.has_holes()
            }
        };
        // Offsets have 28 bits.
        self.files.push(File { off: off as u32, len: inode.size });
        Ok(Kind::File { len, content: ContentId(self.files.len() as u32 - 1), sparse })
    }
}

fn check_name(name: &[u8]) -> io::Result<()> {
    let is_dots = matches!(name, b"." | b"..");
    if name.is_empty() || is_dots || name.len() > NAME_MAX_LEN || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(invalid("not a valid file name"));
    }
    Ok(())
}

fn target(volume: &Volume, inode: &Inode) -> io::Result<Vec<u8>> {
    match inode.size {
        1..=TARGET_MAX_LEN => read_all(volume, File { off: inode.data_off as u32, len: inode.size }),
        len => Err(invalid(format!("a symbolic link with a target of {len} bytes"))),
    }
}
