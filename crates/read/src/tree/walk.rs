//! All inodes below one, by their names.

use super::dir::{DirEntry, is_dot};
use crate::error::ReadError;
use crate::image::Image;
use crate::metadata::inode::Inode;
use kiln_format::Nid;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Longest path in bytes: deeper trees are not for programs, and hostile ones would cost their depth squared.
pub(crate) const PATH_MAX_LEN: usize = 64 << 10;
/// Entries that the walk holds of each directory that it has entered.
const BATCH: usize = 256;

/// An inode with the path that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkEntry {
    /// The start's path and all names below it.
    pub path: Vec<u8>,
    /// The inode.
    pub inode: Inode,
}

/// Iterator over a tree, see [`Image::walk`].
pub struct Walk {
    image: Image,
    /// The start, until it is given out.
    start: Option<WalkEntry>,
    stack: Vec<DirCursor>,
    /// Directories that were met: each has one name, or the tree has a cycle.
    seen: HashSet<Nid>,
}

/// A directory that the walk has entered and not left.
struct DirCursor {
    dir: Inode,
    path: Vec<u8>,
    /// Where the next batch starts; `None` behind the last.
    next: Option<u64>,
    /// Entries to come, the next one last.
    batch: Vec<DirEntry>,
}

impl Image {
    /// All inodes from `start` on, which has the path `path`: depth first, directories before what is in them, names in
    /// stored order. An inode with several names comes with each of them.
    ///
    /// An error ends the part of the tree that it makes unreachable, and nothing else. A directory that is met twice is
    /// an error, so that the walk ends even where directories form a cycle.
    pub fn walk(&self, start: &Inode, path: &[u8]) -> Walk {
        let start = Some(WalkEntry { path: path.to_vec(), inode: *start });
        Walk { image: self.clone(), start, stack: Vec::new(), seen: HashSet::new() }
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take() {
            return Some(self.enter(start));
        }
        while let Some(frame) = self.stack.last_mut() {
            if let Some(entry) = frame.batch.pop() {
                let path = joined(&frame.path, &entry.name);
                return Some(self.visit(path, entry.nid));
            }
            let Some(from) = frame.next.take() else {
                self.stack.pop();
                continue;
            };
            if let Err(error) = frame.read_batch(&self.image, from) {
                return Some(Err(error.at_path(&frame.path)));
            }
        }
        None
    }
}

impl Walk {
    fn visit(&mut self, path: Vec<u8>, nid: Nid) -> Result<WalkEntry, ReadError> {
        if path.len() > PATH_MAX_LEN {
            let error = ReadError::unsupported("erofs_dirent", 0, "path length", path.len() as u64, "over 64 KiB");
            return Err(error.at_nid(nid));
        }
        match self.image.inode(nid) {
            Ok(inode) => self.enter(WalkEntry { path, inode }),
            Err(error) => Err(error.at_path(&path)),
        }
    }

    /// Give out an entry; the next ones come from below it, if it is a directory.
    fn enter(&mut self, entry: WalkEntry) -> Result<WalkEntry, ReadError> {
        if entry.inode.is_dir() {
            let nid = entry.inode.nid;
            if !self.seen.insert(nid) {
                let error = ReadError::corrupt("erofs_dirent", 0, "nid", nid.0, "a directory with several names");
                return Err(error.at_nid(nid).at_path(&entry.path));
            }
            let (path, batch) = (entry.path.clone(), Vec::new());
            self.stack.push(DirCursor { dir: entry.inode, path, next: Some(0), batch });
        }
        Ok(entry)
    }
}

impl DirCursor {
    /// Read the entries from position `from` on. Entries before an error are kept.
    fn read_batch(&mut self, image: &Image, from: u64) -> Result<(), ReadError> {
        let DirCursor { dir, next, batch, .. } = self;
        let result = image.read_dir(dir, from, &mut |entry, behind| {
            if !is_dot(&entry.name) {
                batch.push(entry);
            }
            match batch.len() < BATCH {
                true => ControlFlow::Continue(()),
                false => {
                    *next = Some(behind);
                    ControlFlow::Break(())
                }
            }
        });
        batch.reverse();
        result
    }
}

pub(crate) fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}
