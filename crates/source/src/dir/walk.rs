//! Walk over a directory on several threads, which adds all entries to one tree.

use kiln_parallel::queue;
use kiln_tree::{Builder, ContentId, Entries, Kind, Node, NodeId, TreeError};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use super::contents::{Stamp, open_beneath};
use super::entry::{Entry, EntryKind, is_dir, look, names};
use super::file_id::FileId;
use super::ignore::read_beneath;
use crate::source::{CLOCK_SECS, ScanOptions};
use kiln_tree::filter::{IgnoreRules, PathErrors};
use kiln_tree::path::join;

/// Result of the walk so far.
#[derive(Default)]
pub(super) struct Found {
    pub(super) builder: Builder,
    /// Stamps of regular files, by [`ContentId`].
    pub(super) stamps: Vec<Stamp>,
    /// Files changed after `settled`, sorted: too recently for their stamps to show another change.
    pub(super) unsettled: Vec<ContentId>,
    /// Seconds since 1970. Changes before this time were complete when the walk began.
    settled: i64,
    /// Nodes with several names.
    linked: HashMap<FileId, NodeId>,
    pub(super) errors: PathErrors,
    /// Paths of outputs.
    pub(super) outputs: Vec<Vec<u8>>,
    /// Error of building the tree.
    pub(super) failed: Option<TreeError>,
}

/// A directory to read.
struct Job {
    dir: NodeId,
    path: Vec<u8>,
    /// Rules of the ignore files of this directory's ancestors.
    ignored: IgnoreRules,
}

/// Parameters of the walk, shared by all threads.
pub(super) struct Walk<'a> {
    pub(super) root: BorrowedFd<'a>,
    /// Device number of the root.
    pub(super) device: u64,
    pub(super) options: &'a ScanOptions<'a>,
}

/// Entries found in a directory. They refer to `nodes` by index.
#[derive(Default)]
struct ListedDir {
    entries: Entries,
    nodes: Nodes,
    /// Indexes of nodes with several names, with their identities.
    linked: Vec<(usize, FileId)>,
    /// Indexes of directories to scan.
    subdirs: Vec<usize>,
    /// Rules of the ignore files of this directory and its ancestors.
    ignored: IgnoreRules,
    errors: PathErrors,
    /// Paths of outputs.
    outputs: Vec<Vec<u8>>,
}

impl Walk<'_> {
    /// Reads all directories beneath the root.
    pub(super) fn run(&self, root: Entry) -> Found {
        let mut builder = Builder::new(root.meta);
        *builder.meta_mut(NodeId::ROOT).1 = root.xattrs;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let found = Mutex::new(Found { builder, settled: now - CLOCK_SECS, ..Found::default() });
        let first = Job { dir: NodeId::ROOT, path: Vec::new(), ignored: IgnoreRules::default() };
        queue::run(self.options.threads, first, self.options.stop, |job, subdirs| {
            let listed = self.list(&job);
            found.lock().add(&job, listed, subdirs);
        });
        found.into_inner()
    }

    /// Reads the selected entries of a directory, sorted by name, and the errors of those that
    /// cannot be read.
    fn list(&self, job: &Job) -> ListedDir {
        let (dir, ignored, mut names) = match self.open(job) {
            Ok(opened) => opened,
            Err(error) => return ListedDir { errors: vec![(job.path.clone(), error)], ..ListedDir::default() },
        };
        names.sort_unstable();
        let mut listed = ListedDir { ignored, ..ListedDir::default() };
        for name in names {
            if self.options.stop.load(Ordering::Relaxed) {
                break;
            }
            let path = join(&job.path, name.to_bytes());
            match self.look(dir.as_fd(), &name, &path, &listed.ignored) {
                Ok(Some(found)) if self.options.outputs.contains(&found.id) => listed.outputs.push(path),
                Ok(Some(mut found)) => {
                    // With `keep_going` the file is packed without attributes; otherwise this error
                    // ends the scan.
                    listed.errors.extend(found.unread.take().map(|error| (path, error)));
                    listed.push(&name, self.enters(&found), found);
                }
                Ok(None) => {}
                Err(error) => listed.errors.push((path, error)),
            }
        }
        listed.entries.shrink_to_fit();
        listed
    }

    /// Opens a directory and reads its ignore files. Reads its names as well, unless a list gives
    /// them.
    fn open(&self, job: &Job) -> io::Result<(OwnedFd, IgnoreRules, Vec<Box<CStr>>)> {
        let filter = self.options.filter;
        let dir = open_beneath(self.root, &job.path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let read = |name: &CStr| read_beneath(dir.as_fd(), name);
        let ignored = job.ignored.with_files(&filter.ignore_files, &job.path, &read)?;
        let names = match &filter.only {
            Some(list) => list.names_in(&job.path).into_iter().flatten().map(|name| name.as_c_str().into()).collect(),
            None => names(dir.as_fd())?,
        };
        Ok((dir, ignored, names))
    }

    /// Reads the entry `name` in `dir`, or returns `None` if the filter excludes it.
    fn look(&self, dir: BorrowedFd<'_>, name: &CStr, path: &[u8], ignored: &IgnoreRules) -> io::Result<Option<Entry>> {
        let filter = self.options.filter;
        if !filter.wants(path, ignored, &|| is_dir(dir, name))? {
            return Ok(None);
        }
        let found = look(dir, name)?;
        let listed_below = filter.only.as_ref().is_some_and(|list| list.names_in(path).is_some());
        if listed_below && !matches!(found.what, EntryKind::Directory) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Some(found))
    }

    /// Returns true if the entry is a directory to scan.
    fn enters(&self, found: &Entry) -> bool {
        let elsewhere = found.is_mount_point || found.id.device != self.device;
        matches!(found.what, EntryKind::Directory) && !(self.options.filter.one_file_system && elsewhere)
    }
}

impl ListedDir {
    fn push(&mut self, name: &CStr, enters: bool, found: Entry) {
        let place = self.nodes.nodes.len();
        self.entries.push(name.to_bytes(), NodeId(place as u32));
        self.linked.extend(found.is_linked.then_some((place, found.id)));
        self.subdirs.extend(enters.then_some(place));
        self.nodes.push(found);
    }
}

impl Found {
    /// Adds the entries of a directory, and appends its subdirectories to the queue.
    fn add(&mut self, job: &Job, listed: ListedDir, subdirs: &mut Vec<Job>) {
        self.errors.extend(listed.errors);
        self.outputs.extend(listed.outputs);
        let mut identities = listed.linked.into_iter().peekable();
        let mut ids = Vec::with_capacity(listed.nodes.nodes.len());
        for (place, node) in listed.nodes.nodes.into_iter().enumerate() {
            let identity = identities.next_if(|(linked, _)| *linked == place).map(|(_, identity)| identity);
            let known = identity.and_then(|identity| self.linked.get(&identity).copied());
            match known.map_or_else(|| self.add_node(node, &listed.nodes.stamps), Ok) {
                Ok(id) => {
                    ids.push(id);
                    if let Some(identity) = identity {
                        self.linked.insert(identity, id);
                    }
                }
                Err(error) => return self.failed = Some(error),
            }
        }
        let mut entries = listed.entries;
        for place in listed.subdirs {
            let (path, ignored) = (join(&job.path, entries.at(place).name), listed.ignored.clone());
            subdirs.push(Job { dir: ids[place], path, ignored });
        }
        entries.renumber(|place| ids[place.idx()]);
        self.builder.set_entries(job.dir, entries);
    }

    /// Adds a node of a directory that has these stamps.
    fn add_node(&mut self, mut node: Node, stamps: &[(Stamp, i64)]) -> Result<NodeId, TreeError> {
        if let Kind::File { content, .. } = &mut node.kind {
            let (stamp, changed_at) = stamps[content.0 as usize];
            *content = ContentId(self.stamps.len() as u32);
            self.stamps.push(stamp);
            self.unsettled.extend((changed_at >= self.settled).then_some(*content));
        }
        self.builder.add(node)
    }
}

/// Nodes of a directory, with the stamps of its regular files by [`ContentId`] and their ctimes in
/// seconds.
#[derive(Default)]
struct Nodes {
    nodes: Vec<Node>,
    stamps: Vec<(Stamp, i64)>,
}

impl Nodes {
    fn push(&mut self, found: Entry) {
        let kind = match found.what {
            EntryKind::Directory => Kind::Directory(Box::default()),
            EntryKind::File { len, stamp, changed_at, sparse } => {
                self.stamps.push((stamp, changed_at));
                Kind::File { len, content: ContentId(self.stamps.len() as u32 - 1), sparse }
            }
            EntryKind::Symlink(target) => Kind::Symlink(target),
            EntryKind::CharDevice(rdev) => Kind::CharDevice(rdev),
            EntryKind::BlockDevice(rdev) => Kind::BlockDevice(rdev),
            EntryKind::Fifo => Kind::Fifo,
            EntryKind::Socket => Kind::Socket,
        };
        self.nodes.push(Node { meta: found.meta, xattrs: found.xattrs, kind });
    }
}
