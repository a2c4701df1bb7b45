//! The walk through the image, which creates directories and turns everything else into jobs.

use super::meta;
use super::node::{Entry, name_of, parent_of};
use super::run::Extraction;
use super::work::{Job, Large, RANGE_LEN};
use crate::SinkError;
use crate::selection::{Resolved, Start, components, is_within};
use kiln_format::inode::FileType;
use kiln_parallel::channel::Sender;
use kiln_read::{Inode, Nid, ReadError, WalkEntry};
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The walk, on one thread.
pub(super) struct Walker<'a> {
    run: &'a Extraction<'a>,
    /// `None` once the walk has ended.
    jobs: Option<Sender<Job>>,
    /// Directories from the root to the current one.
    ancestors: Vec<Ancestor>,
    /// Path of the current directory; the path of each ancestor is a prefix of it.
    here: Vec<u8>,
    /// Path and descriptor of the last directory in which an entry was created.
    last_parent: Option<(Vec<u8>, Arc<OwnedFd>)>,
    /// Directories to complete at the end, parents before their children.
    made: Vec<MadeDir>,
    /// First path of each inode with several names.
    first_names: HashMap<Nid, Vec<u8>>,
    /// Further paths of these inodes.
    links: Vec<(Nid, Vec<u8>)>,
    /// Path that could not be extracted; entries below it are skipped.
    lost: Option<Vec<u8>>,
}

/// A directory from the root to the current one.
struct Ancestor {
    path_len: usize,
    inode: Inode,
    /// Index in `made`, once the directory exists in the target.
    made: Option<usize>,
}

/// A directory in the target. It stores its parent's index and its name instead of a path, so that
/// deep trees take no more memory than wide ones.
struct MadeDir {
    parent: usize,
    name: Box<[u8]>,
    inode: Nid,
    /// True if its attributes come from the image, because it is new or selected itself.
    restore: bool,
}

impl<'a> Walker<'a> {
    pub(super) fn new(run: &'a Extraction<'a>, jobs: Sender<Job>) -> Self {
        Self {
            run,
            jobs: Some(jobs),
            ancestors: Vec::new(),
            here: Vec::new(),
            last_parent: None,
            made: Vec::new(),
            first_names: HashMap::new(),
            links: Vec::new(),
            lost: None,
        }
    }

    /// Walks everything that the selection may name. Errors go to the run.
    pub(super) fn walk(&mut self, selection: &mut Resolved) {
        for start in std::mem::take(&mut selection.starts) {
            if let Err(error) = self.descend(&start) {
                self.run.fail(&start.path, error);
                continue;
            }
            self.walk_from(&start, selection);
        }
    }

    /// Extracts the root, which is not a directory, as the file `name` of the target.
    pub(super) fn single(&mut self, name: Vec<u8>) {
        let inode = self.run.root;
        let made = self.is_left_out(&name, &inode).and_then(|left_out| match left_out {
            true => Ok(()),
            false => {
                let parent = self.open_parent(&name)?;
                self.hand_over(Entry { parent, path: name.clone(), inode });
                Ok(())
            }
        });
        made.unwrap_or_else(|error| self.run.fail(&name, error));
    }

    /// Closes the queue: workers end after the remaining jobs.
    pub(super) fn hang_up(&mut self) {
        self.jobs = None;
    }

    /// Creates the hard links, then completes the directories. All workers must have ended.
    pub(super) fn finish(mut self) {
        for (nid, path) in std::mem::take(&mut self.links) {
            if self.run.is_over() {
                return;
            }
            match self.link(nid, &path) {
                Ok(()) => self.run.count(|report| report.hard_links += 1),
                Err(error) => self.run.fail(&path, error),
            }
        }
        for idx in (0..self.made.len()).rev().filter(|&idx| self.made[idx].restore) {
            if self.run.is_over() {
                return;
            }
            let path = self.path_of(idx);
            match self.complete(&path, self.made[idx].inode) {
                Ok(()) => self.run.count(|report| report.dirs += 1),
                Err(error) => self.run.fail(&path, error),
            }
        }
    }

    fn walk_from(&mut self, start: &Start, selection: &mut Resolved) {
        // The contents of the last selected directory are selected, too.
        let mut selected: Option<Vec<u8>> = None;
        for entry in self.run.image.walk(&start.inode, &start.path) {
            if self.run.is_over() {
                return;
            }
            let WalkEntry { path, inode, .. } = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.run.fail(&error_path(&error, &start.path), error.into());
                    continue;
                }
            };
            if self.lost.as_ref().is_some_and(|lost| is_within(&path, lost)) {
                continue;
            }
            let named = selection.names(&path);
            let inside = selected.as_ref().is_some_and(|dir| is_within(&path, dir));
            let result = self.visit(&path, inode, named || inside);
            if named && !inside {
                selected = Some(path.clone());
            }
            if let Err(error) = result {
                self.run.fail(&path, error);
                self.lost = Some(path);
            }
        }
    }

    /// Enters the directories from the root to the parent of `start`; the walk will visit `start`
    /// itself. Directories that also contain the previous start stay entered, because they may
    /// exist in the target already.
    fn descend(&mut self, start: &Start) -> Result<(), SinkError> {
        let image = self.run.image;
        self.leave_for(&start.path);
        let mut path: Vec<u8> = Vec::new();
        let mut inode = self.run.root;
        let mut names = components(&start.path).peekable();
        while let Some(name) = names.next() {
            if self.ancestors.is_empty() || path.len() > self.here.len() {
                self.enter(&path, inode);
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            if names.peek().is_some() {
                let not_found = || ReadError::NotFound { path: path.clone() };
                inode = image.inode(image.lookup(&inode, name)?.ok_or_else(not_found)?.nid)?;
            }
        }
        Ok(())
    }

    fn visit(&mut self, path: &[u8], inode: Inode, selected: bool) -> Result<(), SinkError> {
        self.check_name(path, inode.nid)?;
        if inode.meta.file_type == FileType::Directory {
            self.enter(path, inode);
            if selected {
                self.make_ancestors(true)?;
            }
            return Ok(());
        }
        if !selected || self.is_left_out(path, &inode)? {
            return Ok(());
        }
        self.leave_for(path);
        self.make_ancestors(false)?;
        if inode.meta.nlink > 1 {
            if self.first_names.contains_key(&inode.nid) {
                self.links.push((inode.nid, path.to_vec()));
                return Ok(());
            }
            self.first_names.insert(inode.nid, path.to_vec());
        }
        let entry = Entry { parent: self.open_parent(path)?, path: path.to_vec(), inode };
        self.hand_over(entry);
        Ok(())
    }

    /// Returns true if the contents of a file are an object that is not in the image. Such a file
    /// is reported and not created.
    fn is_left_out(&self, path: &[u8], inode: &Inode) -> Result<bool, SinkError> {
        let object = self.run.image.composefs_object(inode).map_err(|error| error.at_path(path))?;
        match object {
            None => Ok(false),
            Some(object) => {
                self.run.fail(path, SinkError::NeedsObject { path: path.to_vec(), object });
                Ok(true)
            }
        }
    }

    /// Checks a name again, although the reader has checked it: a mistake here could write outside
    /// the target.
    fn check_name(&self, path: &[u8], nid: Nid) -> Result<(), SinkError> {
        let is_root = path.is_empty() && self.ancestors.is_empty();
        let is_bad = matches!(name_of(path), b"" | b"." | b"..") || path.contains(&0);
        // Only visited directories are parents, which detects a slash inside a name.
        let has_parent = is_within(&self.here, parent_of(path))
            && self.ancestors.iter().rev().any(|dir| dir.path_len == parent_of(path).len());
        if is_root || (!is_bad && has_parent) {
            return Ok(());
        }
        Err(SinkError::BadName { path: path.to_vec(), nid })
    }

    /// Enters the directory `path`, whose parent must be among the ancestors.
    fn enter(&mut self, path: &[u8], inode: Inode) {
        self.leave_for(path);
        // The walk may already be here after the previous start.
        if self.ancestors.last().is_none_or(|last| last.path_len != path.len()) {
            self.ancestors.push(Ancestor { path_len: path.len(), inode, made: None });
        }
        self.here.clear();
        self.here.extend_from_slice(path);
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

    /// Creates the missing directories down to the current one. `here_selected` is true if the
    /// current one is selected itself.
    fn make_ancestors(&mut self, here_selected: bool) -> Result<(), SinkError> {
        let missing = self.ancestors.iter().rposition(|dir| dir.made.is_some()).map_or(0, |idx| idx + 1);
        for idx in missing..self.ancestors.len() {
            let Ancestor { path_len, inode, .. } = self.ancestors[idx];
            let path = self.here[..path_len].to_vec();
            let selected = here_selected && idx + 1 == self.ancestors.len();
            let parent = idx.checked_sub(1).and_then(|above| self.ancestors[above].made).unwrap_or(0);
            let name = name_of(&path).into();
            // The root is the target, which exists.
            let is_new = match idx {
                0 => false,
                _ => Entry { parent: self.open_parent(&path)?, path, inode }.create_dir(self.run)?,
            };
            self.ancestors[idx].made = Some(self.made.len());
            self.made.push(MadeDir { parent, name, inode: inode.nid, restore: is_new || selected });
        }
        if here_selected && let Some(made) = self.ancestors.last().and_then(|here| here.made) {
            self.made[made].restore = true;
        }
        Ok(())
    }

    /// Opens the directory that contains `path`. Most entries are in the same one as the entry
    /// before.
    fn open_parent(&mut self, path: &[u8]) -> Result<Arc<OwnedFd>, SinkError> {
        let parent = parent_of(path);
        if let Some((last, fd)) = &self.last_parent
            && last == parent
        {
            return Ok(Arc::clone(fd));
        }
        let fd = self.run.target.open(parent, OFlags::PATH).map_err(self.run.io(parent, "open"))?;
        let fd = Arc::new(fd);
        self.last_parent = Some((parent.to_vec(), Arc::clone(&fd)));
        Ok(fd)
    }

    fn hand_over(&self, entry: Entry) {
        if entry.inode.meta.file_type != FileType::Regular || entry.inode.meta.size <= RANGE_LEN {
            return self.send(Job::Whole(entry));
        }
        Large::split(self.run, entry, |job| self.send(job));
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // Only fails if all workers have panicked, which the end of their scope reports.
            let _ = jobs.send(job);
        }
    }

    fn link(&mut self, nid: Nid, path: &[u8]) -> Result<(), SinkError> {
        let Some(first) = self.first_names.get(&nid).cloned() else { return Ok(()) };
        let inode = self.run.image.inode(nid)?;
        Entry { parent: self.open_parent(path)?, path: path.to_vec(), inode }.link_to(self.run, &first)
    }

    fn complete(&self, path: &[u8], nid: Nid) -> Result<(), SinkError> {
        let inode = self.run.image.inode(nid).map_err(|error| error.at_path(path))?;
        let dir = self.run.target.open(path, OFlags::RDONLY).map_err(self.run.io(path, "open"))?;
        meta::restore(self.run, dir, path, &inode)
    }

    fn path_of(&self, mut idx: usize) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        while !self.made[idx].name.is_empty() {
            names.push(&self.made[idx].name);
            idx = self.made[idx].parent;
        }
        names.reverse();
        names.join(&b'/')
    }
}

/// Returns the path that an error of the walk is about.
fn error_path(error: &ReadError, start: &[u8]) -> Vec<u8> {
    match error {
        ReadError::Corrupt { path: Some(path), .. }
        | ReadError::Unsupported { path: Some(path), .. }
        | ReadError::Io { path: Some(path), .. } => path.clone(),
        _ => start.to_vec(),
    }
}
