//! What of an image goes into an archive: in the order of a walk, directories before what is in them.

use crate::SinkError;
use crate::selection::{Resolved, Selection, Start, components, is_within};
use kiln_read::{Image, Inode, ReadError, Walk, WalkEntry};
use std::collections::VecDeque;
use std::vec;

/// Iterator over paths and inodes: of what is selected, and of the directories that it is in, but for the root.
pub(super) struct Members<'a> {
    image: &'a Image,
    root: Inode,
    selection: Resolved,
    starts: vec::IntoIter<Start>,
    walk: Option<Walk>,
    /// The last selected directory: what it contains is selected, too.
    selected: Option<Vec<u8>>,
    /// From the root to the directory that the walk is in.
    ancestors: Vec<Ancestor>,
    /// The path that the last of these has; each other's is a prefix of it.
    here: Vec<u8>,
    /// What is given out next.
    ready: VecDeque<(Vec<u8>, Inode)>,
}

/// A directory on the way to the current one.
struct Ancestor {
    path_len: usize,
    inode: Inode,
    is_given: bool,
}

impl<'a> Members<'a> {
    /// What `selection` names in `image`.
    pub(super) fn new(image: &'a Image, selection: &Selection) -> Result<Self, SinkError> {
        let root = image.inode(image.root_nid())?;
        let mut selection = selection.resolve(image, root)?;
        let starts = std::mem::take(&mut selection.starts).into_iter();
        let (ancestors, here, ready) = (Vec::new(), Vec::new(), VecDeque::new());
        Ok(Self { image, root, selection, starts, walk: None, selected: None, ancestors, here, ready })
    }

    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// The first thing that is damaged; at the end, a glob that has matched nothing.
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

    /// Walk from `start` on. The directories that lead to it are entered.
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
        // The reader has checked names already; this is where a mistake would do harm.
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
            // The root is the place itself, which nothing has to make.
            self.enter(&path, inode, is_selected || path.is_empty());
        }
        if is_named && !is_inside {
            self.selected = Some(path);
        }
        Ok(())
    }

    /// Go to a directory whose parent is the last of the ancestors. From one start to the next the walk may already be there.
    fn enter(&mut self, path: &[u8], inode: Inode, is_given: bool) {
        if self.ancestors.last().is_none_or(|last| last.path_len < path.len()) && is_within(path, &self.here) {
            self.ancestors.push(Ancestor { path_len: path.len(), inode, is_given });
            self.here = path.to_vec();
        }
    }

    /// Forget the directories that `path` does not lie in.
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
