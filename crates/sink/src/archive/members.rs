//! Selected files of an image in walk order, parents before their entries.

use crate::SinkError;
use crate::selection::{Resolved, Selection, Start, components, is_within};
use kiln_read::{Image, Inode, ReadError, Walk, WalkEntry};
use std::collections::VecDeque;
use std::vec;

/// Iterator over the paths and inodes of selected files, and of the directories above them except
/// the root.
pub(super) struct Members<'a> {
    image: &'a Image,
    root: Inode,
    selection: Resolved,
    starts: vec::IntoIter<Start>,
    walk: Option<Walk>,
    /// Last selected directory, whose contents are selected, too.
    selected: Option<Vec<u8>>,
    /// Directories from the root to the current one.
    ancestors: Vec<Ancestor>,
    /// Path of the current directory; the path of each ancestor is a prefix of it.
    here: Vec<u8>,
    /// Files to be returned next.
    ready: VecDeque<(Vec<u8>, Inode)>,
}

/// A directory from the root to the current one.
struct Ancestor {
    path_len: usize,
    inode: Inode,
    is_given: bool,
}

impl<'a> Members<'a> {
    /// Returns an iterator over the files that `selection` names in `image`.
    pub(super) fn new(image: &'a Image, selection: &Selection) -> Result<Self, SinkError> {
        let root = image.inode(image.root_nid())?;
        let mut selection = selection.resolve(image, root)?;
        let starts = std::mem::take(&mut selection.starts).into_iter();
        let (ancestors, here, ready) = (Vec::new(), Vec::new(), VecDeque::new());
        Ok(Self { image, root, selection, starts, walk: None, selected: None, ancestors, here, ready })
    }

    /// Returns the next file; `None` at the end.
    ///
    /// # Errors
    /// Damage of the image; at the end, a glob that has matched nothing.
    pub(super) fn next(&mut self) -> Result<Option<(Vec<u8>, Inode)>, SinkError> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            match self.walk.as_mut().map(Iterator::next) {
                Some(Some(entry)) => self.visit(entry?)?,
                Some(None) => self.walk = None,
                None => match self.starts.next() {
                    Some(start) => self.begin(&start)?,
                    None => return self.selection.check_all_matched().map(|()| None),
                },
            }
        }
    }

    /// Begins the walk at `start`, after entering the directories above it.
    fn begin(&mut self, start: &Start) -> Result<(), SinkError> {
        self.leave_for(&start.path);
        let (mut path, mut inode) = (Vec::new(), self.root);
        let mut names = components(&start.path).peekable();
        while let Some(name) = names.next() {
            self.enter(&path, inode, path.is_empty());
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            if names.peek().is_some() {
                let not_found = || ReadError::NotFound { path: path.clone() };
                inode = self.image.inode(self.image.lookup(&inode, name)?.ok_or_else(not_found)?.nid)?;
            }
        }
        self.selected = None;
        self.walk = Some(self.image.walk(&start.inode, &start.path));
        Ok(())
    }

    fn visit(&mut self, WalkEntry { path, inode }: WalkEntry) -> Result<(), SinkError> {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        // The reader has checked names already; a mistake here could do harm.
        if path.contains(&0) || matches!(name, b"." | b"..") || name.is_empty() && !path.is_empty() {
            return Err(SinkError::BadName { path, nid: inode.nid });
        }
        let is_named = self.selection.names(&path);
        let is_inside = self.selected.as_ref().is_some_and(|dir| is_within(&path, dir));
        let is_selected = is_named || is_inside;
        self.leave_for(&path);
        if is_selected {
            self.give_ancestors();
            self.ready.push_back((path.clone(), inode));
        }
        if inode.is_dir() {
            // The root is the place of extraction, which exists.
            self.enter(&path, inode, is_selected || path.is_empty());
        }
        if is_named && !is_inside {
            self.selected = Some(path);
        }
        Ok(())
    }

    /// Enters a directory whose parent is the last ancestor. The walk may already be there after
    /// the previous start.
    fn enter(&mut self, path: &[u8], inode: Inode, is_given: bool) {
        if self.ancestors.last().is_none_or(|last| last.path_len < path.len()) && is_within(path, &self.here) {
            self.ancestors.push(Ancestor { path_len: path.len(), inode, is_given });
            self.here = path.to_vec();
        }
    }

    /// Leaves the directories that do not contain `path`.
    fn leave_for(&mut self, path: &[u8]) {
        while let Some(last) = self.ancestors.last()
            && !is_within(path, &self.here[..last.path_len])
        {
            self.ancestors.pop();
        }
        self.here.truncate(self.ancestors.last().map_or(0, |last| last.path_len));
    }

    fn give_ancestors(&mut self) {
        for dir in self.ancestors.iter_mut().filter(|dir| !dir.is_given) {
            dir.is_given = true;
            self.ready.push_back((self.here[..dir.path_len].to_vec(), dir.inode));
        }
    }
}
