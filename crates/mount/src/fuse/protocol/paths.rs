//! Paths of inodes: an inode does not store its name, so listings are searched for it.
//!
//! A walk through the listing of a large directory takes long, so each search has a budget of
//! entries. When dentries are prefetched, a reader waits for the search: [`DirPaths`] remembers the
//! positions of subdirectories in listings, and continues where the last search ended, so that each
//! entry is visited about once, for any directories in any order.

use super::node;
use super::parents::Parents;
use fuser::INodeNo;
use kiln_format::inode::FileType;
use kiln_read::{Image, Inode, Nid};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Depth of the deepest directory whose path is searched for.
const DEPTH_MAX: usize = 256;
/// Most entries that one search for a line of the log visits, on all levels together: some
/// milliseconds.
const LOG_BUDGET: usize = 16 << 10;
/// Most entries that one search visits while a reader waits, on all levels together: about 0.1 ms.
const PREFETCH_BUDGET: usize = 1 << 10;
/// Number of subdirectories whose positions are remembered, 16 bytes each, besides the overhead of
/// a hash table.
const POSITIONS_MAX: usize = 32 << 10;

/// Returns the path of a node below the root, for the log. Returns `None` if its parent is not
/// known, or if the search visits more than [`LOG_BUDGET`] entries.
pub(super) fn path_of(image: &Image, parents: &Parents, node: INodeNo) -> Option<PathBuf> {
    let mut paths = DirPaths::default();
    let mut budget = LOG_BUDGET;
    let inode = image.inode(node::nid(image, node)).ok();
    if let Some(dir) = inode.filter(Inode::is_dir) {
        return paths.path(image, &dir, &mut budget);
    }
    let parent = image.inode(node::nid(image, parents.find(node)?)).ok()?;
    let name = name_in(image, &parent, 0, node::nid(image, node), &mut budget)?;
    Some(paths.path(image, &parent, &mut budget)?.join(OsStr::from_bytes(&name)))
}

/// Returns the name of an inode in a directory, at position `from` or after it.
fn name_in(image: &Image, dir: &Inode, from: u64, nid: Nid, budget: &mut usize) -> Option<Vec<u8>> {
    let mut found = None;
    let listed = image.server().read_dir(dir, from, &mut |entry, _| {
        if entry.nid == nid && !entry.is_dot() {
            found = Some(entry.name);
            return ControlFlow::Break(());
        }
        take(budget)
    });
    listed.ok().and(found)
}

/// Takes one entry from a budget.
fn take(budget: &mut usize) -> ControlFlow<()> {
    *budget = budget.saturating_sub(1);
    if *budget == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Positions of directories in the listings of their parents, as far as searches have met them.
#[derive(Default)]
pub(in crate::fuse) struct DirPaths {
    /// Parent of a directory, and position of its entry there.
    positions: HashMap<Nid, (Nid, u64)>,
    /// Position where the last search in a parent ended, if it has not met all entries yet.
    searched: HashMap<Nid, u64>,
}

impl DirPaths {
    /// Returns the path of a directory below the root. A search that finds none may succeed the
    /// next time, if `dir` is deep in large directories. Also returns `None` if the tree is too
    /// deep or damaged.
    pub(in crate::fuse) fn find(&mut self, image: &Image, dir: &Inode) -> Option<PathBuf> {
        self.path(image, dir, &mut PREFETCH_BUDGET.clone())
    }

    fn path(&mut self, image: &Image, dir: &Inode, budget: &mut usize) -> Option<PathBuf> {
        let (mut names, mut dir) = (Vec::new(), *dir);
        while dir.nid != image.root_nid() {
            let parent = image.inode(image.lookup(&dir, b"..").ok()??.nid).ok()?;
            names.push(self.name(image, &parent, dir.nid, budget)?);
            if names.len() > DEPTH_MAX {
                return None;
            }
            dir = parent;
        }
        Some(names.iter().rev().map(|name| OsStr::from_bytes(name)).collect())
    }

    /// Returns the name of the directory `nid` in `parent`.
    fn name(&mut self, image: &Image, parent: &Inode, nid: Nid, budget: &mut usize) -> Option<Vec<u8>> {
        if let Some(&(known, at)) = self.positions.get(&nid)
            && known == parent.nid
        {
            return name_in(image, parent, at, nid, &mut 1);
        }
        // A search that has reached the end starts again: positions may have been forgotten
        // meanwhile.
        let start = self.searched.remove(&parent.nid).unwrap_or(0);
        let (mut at, mut found) = (start, None);
        let mut is_at_end = true;
        let listed = image.server().read_dir(parent, start, &mut |entry, next| {
            let here = std::mem::replace(&mut at, next);
            if !entry.is_dot() {
                let is_dir = entry.file_type == FileType::Directory.dirent_number();
                if (is_dir || entry.nid == nid) && self.positions.len() < POSITIONS_MAX {
                    self.positions.insert(entry.nid, (parent.nid, here));
                }
                if entry.nid == nid {
                    found = Some(entry.name);
                }
            }
            let goes_on = if found.is_some() { ControlFlow::Break(()) } else { take(budget) };
            is_at_end = goes_on.is_continue();
            goes_on
        });
        if !is_at_end {
            self.searched.insert(parent.nid, at);
        }
        if self.positions.len() >= POSITIONS_MAX || self.searched.len() >= POSITIONS_MAX {
            // To forget all is simple, and rare.
            (self.positions, self.searched) = Default::default();
        }
        listed.ok().and(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_read::ImageOptions;
    use std::path::Path;

    fn golden(name: &str) -> Image {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../read/tests/golden").join(name);
        Image::open_path(&path, &[], &ImageOptions::default()).unwrap()
    }

    /// Returns the directories of an image with their paths.
    fn dirs(image: &Image) -> Vec<(PathBuf, Inode)> {
        let root = image.inode(image.root_nid()).unwrap();
        let entries = image.walk(&root, b"").map(Result::unwrap).filter(|entry| entry.inode.is_dir());
        let path = |path: &[u8]| PathBuf::from(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)));
        entries.map(|entry| (path(&entry.path), entry.inode)).collect()
    }

    #[test]
    fn paths_of_all_directories_are_found_again_and_again() {
        let image = golden("lz4.erofs");
        let mut paths = DirPaths::default();
        let dirs = dirs(&image);
        assert!(dirs.len() > 2, "{dirs:?}");
        for (path, dir) in dirs.iter().chain(dirs.iter().rev()) {
            assert_eq!(paths.find(&image, dir).as_ref(), Some(path));
            assert_eq!(path_of(&image, &Parents::new(), node::node_id(&image, dir.nid)).as_ref(), Some(path));
        }
    }

    #[test]
    fn files_are_found_in_the_directory_in_which_they_were_named() {
        let image = golden("lz4.erofs");
        let root = image.inode(image.root_nid()).unwrap();
        let big = image.inode(image.lookup(&root, b"big").unwrap().unwrap().nid).unwrap();
        let text = node::node_id(&image, image.lookup(&big, b"text").unwrap().unwrap().nid);
        let parents = Parents::new();
        assert_eq!(path_of(&image, &parents, text), None);
        parents.note(text, node::node_id(&image, big.nid));
        assert_eq!(path_of(&image, &parents, text), Some("big/text".into()));
    }

    #[test]
    fn a_search_ends_with_its_budget_and_the_next_one_goes_on() {
        let image = golden("lz4.erofs");
        let dirs = dirs(&image);
        let (path, dir) = dirs.iter().max_by_key(|(path, _)| path.components().count()).unwrap();
        let mut paths = DirPaths::default();
        let mut searches = 1;
        // Two entries of each listing at a time; "." and ".." are the first of them.
        while paths.path(&image, dir, &mut 2) != Some(path.clone()) {
            searches += 1;
            assert!(searches < 1000);
        }
        assert!(searches > 1);
        assert_eq!(paths.path(&image, dir, &mut 1), Some(path.clone()), "all positions are known");
    }
}
