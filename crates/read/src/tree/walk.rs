//! All inodes below one, by their names.

use super::entries::DirEntries;
use crate::error::ReadError;
use crate::image::Image;
use crate::metadata::inode::Inode;
use kiln_format::Nid;
use kiln_format::dirent::PATH_MAX_LEN;
use std::collections::HashSet;

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
    path: Vec<u8>,
    entries: DirEntries,
}

impl Iterator for Walk {
    type Item = Result<WalkEntry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take() {
            return Some(self.enter(start));
        }
        while let Some(cursor) = self.stack.last_mut() {
            match cursor.entries.next() {
                Some(Ok(entry)) => {
                    let path = joined(&cursor.path, &entry.name);
                    return Some(self.visit(path, entry.nid));
                }
                Some(Err(error)) => return Some(Err(error.at_path(&cursor.path))),
                None => drop(self.stack.pop()),
            }
        }
        None
    }
}

impl Walk {
    pub(crate) fn new(image: &Image, start: &Inode, path: &[u8]) -> Self {
        let start = Some(WalkEntry { path: path.to_vec(), inode: *start });
        Self { image: image.clone(), start, stack: Vec::new(), seen: HashSet::new() }
    }

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

    /// Passes out an entry; the next ones come from below it, if it is a directory.
    fn enter(&mut self, entry: WalkEntry) -> Result<WalkEntry, ReadError> {
        if entry.inode.is_dir() {
            let nid = entry.inode.nid;
            if !self.seen.insert(nid) {
                let error = ReadError::corrupt("erofs_dirent", 0, "nid", nid.0, "a directory with several names");
                return Err(error.at_nid(nid).at_path(&entry.path));
            }
            let entries = DirEntries::new(&self.image, &entry.inode);
            self.stack.push(DirCursor { path: entry.path.clone(), entries });
        }
        Ok(entry)
    }
}

pub(crate) fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}
