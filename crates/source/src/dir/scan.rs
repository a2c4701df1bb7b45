//! Walking a directory on several threads, and putting what they find into one tree.

use kiln_builder::BuildError;
use kiln_builder::tree::{ContentId, Entries, Kind, Node, NodeId, Tree};
use kiln_read::Escaped;
use rustix::fs::{Mode, OFlags, open};
use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::contents::{DirContents, Stamp, open_beneath};
use super::entry::{Found, What, is_dir, look, names};
use super::file_id::FileId;
use crate::filter::{Filter, Layers, join, read_layers};

/// How to scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions<'a> {
    /// Threads, at least 1. The tree does not depend on it.
    pub threads: usize,
    /// Leave out what cannot be read, and list it.
    pub keep_going: bool,
    /// What is left out anyway: it is not even looked at.
    pub filter: &'a Filter,
    /// Files that are never part of the tree, whatever they are called: what is being written.
    pub outputs: &'a [FileId],
    /// Ends the scan early once set.
    pub stop: &'a AtomicBool,
}

/// What a scan found.
pub struct Scan {
    /// The tree.
    pub tree: Tree,
    /// Entries left out, with `keep_going`.
    pub skipped: Vec<Unreadable>,
    /// Paths of outputs that were met, relative to the root, sorted.
    pub outputs: Vec<Vec<u8>>,
}

/// An entry that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", Escaped::path(path))]
pub struct Unreadable {
    /// Its path, that of the root in front.
    pub path: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

/// Why a scan failed.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// An entry, or the root itself, cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// More entries than a tree can have.
    #[error("{}: more than 2^32 entries", Escaped::path(.0))]
    TooMany(PathBuf),
    /// What was found is no tree.
    #[error(transparent)]
    Tree(#[from] BuildError),
}

/// Scan the directory `root`. A symbolic link as `root` is followed; none below it is.
///
/// # Errors
/// The first entry, in the order of paths, that cannot be read, unless such entries are to be skipped.
pub fn scan(root: &Path, options: &ScanOptions<'_>) -> Result<Scan, ScanError> {
    let unreadable = |source: io::Error| Unreadable { path: root.to_owned(), source };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root_fd = open(root, flags, Mode::empty()).map_err(|error| unreadable(error.into()))?;
    let root_found = look(root_fd.as_fd(), c"").map_err(unreadable)?;
    let walk = Walk { root: root_fd.as_fd(), device: root_found.id.device, options };
    let (mut found, mut errors, mut outputs) = walk.run(root_found);
    if options.stop.load(Ordering::Relaxed) {
        return Err(ScanError::Interrupted);
    }
    errors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let with_root = |(path, source): (Vec<u8>, io::Error)| {
        let path = if path.is_empty() { root.to_owned() } else { root.join(OsStr::from_bytes(&path)) };
        Unreadable { path, source }
    };
    let root_failed = errors.first().is_some_and(|(path, _)| path.is_empty());
    if (!options.keep_going || root_failed) && !errors.is_empty() {
        return Err(with_root(errors.swap_remove(0)).into());
    }
    if u32::try_from(found.nodes.len()).is_err() {
        return Err(ScanError::TooMany(root.to_owned()));
    }
    found.number_in_walk_order();
    let contents = DirContents { root: root_fd, stamps: found.stamps };
    let tree = Tree::new(found.nodes, Box::new(contents))?;
    outputs.sort();
    Ok(Scan { tree, skipped: errors.into_iter().map(with_root).collect(), outputs })
}

/// Directories that wait for a thread.
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    waiting: Vec<Job>,
    /// Directories that are waiting or being read.
    open: usize,
    found: Nodes,
    /// Nodes with several names.
    linked: HashMap<FileId, NodeId>,
    errors: Errors,
    outputs: Vec<Vec<u8>>,
}

/// Paths that cannot be read, and why.
type Errors = Vec<(Vec<u8>, io::Error)>;

struct Job {
    dir: NodeId,
    path: Vec<u8>,
    /// Rules of the ignore files above.
    layers: Layers,
}

/// What reads the directories.
struct Walk<'a> {
    root: BorrowedFd<'a>,
    /// The device that the root lies on.
    device: u64,
    options: &'a ScanOptions<'a>,
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
    fn run(&self, root: Found) -> (Nodes, Errors, Vec<Vec<u8>>) {
        let first = Job { dir: NodeId::ROOT, path: Vec::new(), layers: Layers::default() };
        let mut found = Nodes::default();
        found.push(root);
        let state = QueueState {
            waiting: vec![first],
            open: 1,
            found,
            linked: HashMap::new(),
            errors: Vec::new(),
            outputs: Vec::new(),
        };
        let queue = Queue { state: Mutex::new(state), changed: Condvar::new() };
        let work = || {
            while let Some(job) = queue.next(self.options.stop) {
                let listed = self.list(&job);
                queue.finish(&job, listed);
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.options.threads {
                // Where the system has no more threads, fewer will do. This one is among them.
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let state = queue.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (state.found, state.errors, state.outputs)
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
                Ok(Some(found)) => listed.push(&name, self.enters(&found), found),
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
        let layers = read_layers(&filter.ignore_files, dir.as_fd(), &job.path, &job.layers)?;
        let names = match &filter.only {
            Some(list) => list.names_in(&job.path).into_iter().flatten().map(|name| name.as_c_str().into()).collect(),
            None => names(dir.as_fd())?,
        };
        Ok((dir, layers, names))
    }

    /// What `name` in `dir` is, if it is wanted.
    fn look(&self, dir: BorrowedFd<'_>, name: &CStr, path: &[u8], layers: &Layers) -> io::Result<Option<Found>> {
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
    fn enters(&self, found: &Found) -> bool {
        let elsewhere = found.is_mount_point || found.id.device != self.device;
        matches!(found.what, What::Directory) && !(self.options.filter.one_file_system && elsewhere)
    }
}

impl Listed {
    fn push(&mut self, name: &CStr, enters: bool, found: Found) {
        let place = self.nodes.nodes.len();
        self.entries.push(name.to_bytes(), NodeId(place as u32));
        self.linked.extend(found.is_linked.then_some((place, found.id)));
        self.subdirs.extend(enters.then_some(place));
        self.nodes.push(found);
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, stop: &AtomicBool) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.open == 0 || stop.load(Ordering::Relaxed) {
                self.changed.notify_all();
                return None;
            }
            if let Some(job) = state.waiting.pop() {
                return Some(job);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn finish(&self, job: &Job, listed: Listed) {
        let mut state = self.lock();
        let QueueState { waiting, open, found, linked, errors, outputs } = &mut *state;
        errors.extend(listed.errors);
        outputs.extend(listed.outputs);
        let mut identities = listed.linked.into_iter().peekable();
        let ids = Vec::from_iter(listed.nodes.nodes.into_iter().enumerate().map(|(place, node)| {
            let next = NodeId(found.nodes.len() as u32);
            let identity = identities.next_if(|(linked, _)| *linked == place);
            let id = identity.map_or(next, |(_, identity)| *linked.entry(identity).or_insert(next));
            if id == next {
                found.add(node, &listed.nodes.stamps);
            }
            id
        }));
        let mut entries = listed.entries;
        for place in listed.subdirs {
            let (path, layers) = (join(&job.path, entries.at(place).name), listed.layers.clone());
            waiting.push(Job { dir: ids[place], path, layers });
            *open += 1;
        }
        entries.renumber(|place| ids[place.idx()]);
        found.nodes[job.dir.idx()].kind = Kind::Directory(Box::new(entries));
        *open -= 1;
        drop(state);
        self.changed.notify_all();
    }
}

/// Nodes, and stamps of regular files among them by [`ContentId`].
#[derive(Default)]
struct Nodes {
    nodes: Vec<Node>,
    stamps: Vec<Stamp>,
}

impl Nodes {
    fn push(&mut self, found: Found) {
        let kind = match found.what {
            What::Directory => Kind::Directory(Box::default()),
            What::File { len, stamp, sparse } => {
                self.stamps.push(stamp);
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

    /// Add a node of other ones, whose stamps are these.
    fn add(&mut self, mut node: Node, stamps: &[Stamp]) {
        if let Kind::File { content, .. } = &mut node.kind {
            self.stamps.push(stamps[content.0 as usize]);
            *content = ContentId(self.stamps.len() as u32 - 1);
        }
        self.nodes.push(node);
    }

    /// Number the nodes in walk order, each directory's one behind the other, whatever the order in which directories were
    /// read.
    fn number_in_walk_order(&mut self) {
        let mut numbers: Vec<Option<u32>> = vec![None; self.nodes.len()];
        numbers[0] = Some(0);
        let mut count = 1;
        let mut stack = vec![NodeId::ROOT];
        while let Some(dir) = stack.pop() {
            let Kind::Directory(entries) = &mut self.nodes[dir.idx()].kind else { continue };
            let before = stack.len();
            entries.renumber(|node| {
                let number = *numbers[node.idx()].get_or_insert_with(|| {
                    stack.push(node);
                    count += 1;
                    count - 1
                });
                NodeId(number)
            });
            stack[before..].reverse();
        }
        for at in 0..self.nodes.len() {
            while let Some(number) = numbers[at].take_if(|number| *number as usize != at) {
                let other = number as usize;
                self.nodes.swap(at, other);
                numbers[at] = numbers[other].replace(number);
            }
        }
    }
}
