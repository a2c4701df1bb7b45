//! Walking a directory on several threads, and putting what they find into one tree.

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
use super::entry::{Entry, What, is_dir, look, names};
use super::file_id::FileId;
use crate::error::Errors;
use crate::filter::ignore::{Layers, read_beneath, read_layers};
use crate::filter::path::join;
use crate::source::{CLOCK_SECS, ScanOptions};

/// What the walk has found so far.
#[derive(Default)]
pub(super) struct Found {
    pub(super) builder: Builder,
    /// Stamps of regular files, by [`ContentId`].
    pub(super) stamps: Vec<Stamp>,
    /// Those that were changed after `settled` or not long before it, sorted.
    pub(super) unsettled: Vec<ContentId>,
    /// Seconds since 1970: what was changed before it was so when the walk began.
    settled: i64,
    /// Nodes with several names.
    linked: HashMap<FileId, NodeId>,
    pub(super) errors: Errors,
    /// Paths of outputs.
    pub(super) outputs: Vec<Vec<u8>>,
    /// Why there is no tree.
    pub(super) failed: Option<TreeError>,
}

/// A directory to read.
struct Job {
    dir: NodeId,
    path: Vec<u8>,
    /// Rules of the ignore files above.
    layers: Layers,
}

/// What reads the directories.
pub(super) struct Walk<'a> {
    pub(super) root: BorrowedFd<'a>,
    /// The device that the root lies on.
    pub(super) device: u64,
    pub(super) options: &'a ScanOptions<'a>,
}

/// What has been found in a directory. Its entries name `nodes` by their places there.
#[derive(Default)]
struct Listed {
    entries: Entries,
    nodes: Nodes,
    /// Places of nodes with several names, and what tells that they are the same elsewhere.
    linked: Vec<(usize, FileId)>,
    /// Places of directories that are scanned, too.
    subdirs: Vec<usize>,
    /// Rules of the ignore files above and here.
    layers: Layers,
    errors: Errors,
    /// Paths of outputs.
    outputs: Vec<Vec<u8>>,
}

impl Walk<'_> {
    /// Read all directories beneath the root.
    pub(super) fn run(&self, root: Entry) -> Found {
        let mut builder = Builder::new(root.meta);
        *builder.meta_mut(NodeId::ROOT).1 = root.xattrs;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let found = Mutex::new(Found { builder, settled: now - CLOCK_SECS, ..Found::default() });
        let first = Job { dir: NodeId::ROOT, path: Vec::new(), layers: Layers::default() };
        queue::run(self.options.threads, first, self.options.stop, |job, subdirs| {
            let listed = self.list(&job);
            found.lock().add(&job, listed, subdirs);
        });
        found.into_inner()
    }

    /// All that is wanted of a directory, sorted by name, and what could not be read of it.
    fn list(&self, job: &Job) -> Listed {
        let (dir, layers, mut names) = match self.open(job) {
            Ok(opened) => opened,
            Err(error) => return Listed { errors: vec![(job.path.clone(), error)], ..Listed::default() },
        };
        names.sort_unstable();
        let mut listed = Listed { layers, ..Listed::default() };
        for name in names {
            if self.options.stop.load(Ordering::Relaxed) {
                break;
            }
            let path = join(&job.path, name.to_bytes());
            match self.look(dir.as_fd(), &name, &path, &listed.layers) {
                Ok(Some(found)) if self.options.outputs.contains(&found.id) => listed.outputs.push(path),
                Ok(Some(mut found)) => {
                    // No file is left out for its attributes, if the scan keeps going. Else this ends it.
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

    /// Open a directory; read its ignore files, and its names where no list has them.
    fn open(&self, job: &Job) -> io::Result<(OwnedFd, Layers, Vec<Box<CStr>>)> {
        let filter = self.options.filter;
        let dir = open_beneath(self.root, &job.path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let layers =
            read_layers(&filter.ignore_files, &job.path, &job.layers, &|name| read_beneath(dir.as_fd(), name))?;
        let names = match &filter.only {
            Some(list) => list.names_in(&job.path).into_iter().flatten().map(|name| name.as_c_str().into()).collect(),
            None => names(dir.as_fd())?,
        };
        Ok((dir, layers, names))
    }

    /// What `name` in `dir` is, if it is wanted.
    fn look(&self, dir: BorrowedFd<'_>, name: &CStr, path: &[u8], layers: &Layers) -> io::Result<Option<Entry>> {
        let filter = self.options.filter;
        if !filter.wants(path, layers, &|| is_dir(dir, name))? {
            return Ok(None);
        }
        let found = look(dir, name)?;
        let listed_below = filter.only.as_ref().is_some_and(|list| list.names_in(path).is_some());
        if listed_below && !matches!(found.what, What::Directory) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Some(found))
    }

    /// Whether what is in an entry is scanned, too.
    fn enters(&self, found: &Entry) -> bool {
        let elsewhere = found.is_mount_point || found.id.device != self.device;
        matches!(found.what, What::Directory) && !(self.options.filter.one_file_system && elsewhere)
    }
}

impl Listed {
    fn push(&mut self, name: &CStr, enters: bool, found: Entry) {
        let place = self.nodes.nodes.len();
        self.entries.push(name.to_bytes(), NodeId(place as u32));
        self.linked.extend(found.is_linked.then_some((place, found.id)));
        self.subdirs.extend(enters.then_some(place));
        self.nodes.push(found);
    }
}

impl Found {
    /// Add what is in a directory, whose subdirectories are to be read.
    fn add(&mut self, job: &Job, listed: Listed, subdirs: &mut Vec<Job>) {
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
            let (path, layers) = (join(&job.path, entries.at(place).name), listed.layers.clone());
            subdirs.push(Job { dir: ids[place], path, layers });
        }
        entries.renumber(|place| ids[place.idx()]);
        self.builder.set_entries(job.dir, entries);
    }

    /// Add a node of a directory, whose stamps are these.
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

/// Nodes of a directory, and stamps of regular files among them by [`ContentId`], with the seconds of the last change of the inodes.
#[derive(Default)]
struct Nodes {
    nodes: Vec<Node>,
    stamps: Vec<(Stamp, i64)>,
}

impl Nodes {
    fn push(&mut self, found: Entry) {
        let kind = match found.what {
            What::Directory => Kind::Directory(Box::default()),
            What::File { len, stamp, changed_at, sparse } => {
                self.stamps.push((stamp, changed_at));
                Kind::File { len, content: ContentId(self.stamps.len() as u32 - 1), sparse }
            }
            What::Symlink(target) => Kind::Symlink(target),
            What::CharDevice(rdev) => Kind::CharDevice(rdev),
            What::BlockDevice(rdev) => Kind::BlockDevice(rdev),
            What::Fifo => Kind::Fifo,
            What::Socket => Kind::Socket,
        };
        self.nodes.push(Node { meta: found.meta, xattrs: found.xattrs, kind });
    }
}
