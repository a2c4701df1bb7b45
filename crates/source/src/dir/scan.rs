//! Walking a directory on several threads, and putting what they find into one tree.

use kiln_build::BuildError;
use kiln_build::tree::{ContentId, Entry, Kind, Node, NodeId, Tree};
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
    /// Ends the scan early once set.
    pub stop: &'a AtomicBool,
}

/// What a scan found.
pub struct Scan {
    /// The tree.
    pub tree: Tree,
    /// Entries left out, with `keep_going`.
    pub skipped: Vec<Unreadable>,
}

/// An entry that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
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
    #[error("{}: more than 2^32 entries", .0.display())]
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
    let walk = Walk { root: root_fd.as_fd(), device: root_found.device, options };
    let (listings, mut errors) = walk.run();
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
    let tree = assemble(root_fd, root_found, listings).map_err(|error| match error {
        None => ScanError::TooMany(root.to_owned()),
        Some(error) => error.into(),
    })?;
    Ok(Scan { tree, skipped: errors.into_iter().map(with_root).collect() })
}

/// A directory's entries, sorted, each with the place of its own listing if it is a directory that is entered.
struct Listing {
    entries: Vec<(Found, Option<usize>)>,
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
    /// By number of the directory.
    listings: Vec<Option<Listing>>,
    errors: Errors,
}

/// Paths that cannot be read, and why.
type Errors = Vec<(Vec<u8>, io::Error)>;

struct Job {
    listing: usize,
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

/// What has been found in a directory.
#[derive(Default)]
struct Listed {
    entries: Vec<Found>,
    /// Rules of the ignore files above and here.
    layers: Layers,
    errors: Errors,
}

impl Walk<'_> {
    /// Read all directories beneath the root.
    fn run(&self) -> (Vec<Option<Listing>>, Errors) {
        let first = Job { listing: 0, path: Vec::new(), layers: Layers::default() };
        let state = QueueState { waiting: vec![first], open: 1, listings: vec![None], errors: Vec::new() };
        let queue = Queue { state: Mutex::new(state), changed: Condvar::new() };
        thread::scope(|scope| {
            for _ in 0..self.options.threads.max(1) {
                scope.spawn(|| {
                    while let Some(job) = queue.next(self.options.stop) {
                        let listed = self.list(&job);
                        queue.finish(job, listed, |found| self.enters(found));
                    }
                });
            }
        });
        let state = queue.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (state.listings, state.errors)
    }

    /// All that is wanted of a directory, sorted by name, and what could not be read of it.
    fn list(&self, job: &Job) -> Listed {
        let (dir, layers, names) = match self.open(job) {
            Ok(opened) => opened,
            Err(error) => return Listed { errors: vec![(job.path.clone(), error)], ..Listed::default() },
        };
        let mut listed = Listed { entries: Vec::with_capacity(names.len()), layers, errors: Vec::new() };
        for name in names {
            if self.options.stop.load(Ordering::Relaxed) {
                break;
            }
            let path = join(&job.path, name.to_bytes());
            match self.look(dir.as_fd(), &name, &path, &listed.layers) {
                Ok(found) => listed.entries.extend(found),
                Err(error) => listed.errors.push((path, error)),
            }
        }
        listed.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        listed
    }

    /// Open a directory; read its ignore files, and its names where no list has them.
    fn open(&self, job: &Job) -> io::Result<(OwnedFd, Layers, Vec<Box<CStr>>)> {
        let filter = self.options.filter;
        let dir = open_beneath(self.root, &job.path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let layers = read_layers(filter, dir.as_fd(), &job.path, &job.layers)?;
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
        let elsewhere = found.is_mount_point || found.device != self.device;
        matches!(found.what, What::Directory) && !(self.options.filter.one_file_system && elsewhere)
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

    fn finish(&self, job: Job, listed: Listed, enters: impl Fn(&Found) -> bool) {
        let mut state = self.lock();
        state.errors.extend(listed.errors);
        let numbered = listed.entries.into_iter().map(|found| {
            let listing = enters(&found).then(|| {
                let listing = state.listings.len();
                state.listings.push(None);
                let (path, layers) = (join(&job.path, &found.name), listed.layers.clone());
                state.waiting.push(Job { listing, path, layers });
                state.open += 1;
                listing
            });
            (found, listing)
        });
        let entries = numbered.collect();
        state.listings[job.listing] = Some(Listing { entries });
        state.open -= 1;
        drop(state);
        self.changed.notify_all();
    }
}

/// Number the nodes in walk order, whatever the order in which directories were read. `Err(None)`: too many.
fn assemble(root: OwnedFd, found: Found, mut listings: Vec<Option<Listing>>) -> Result<Tree, Option<BuildError>> {
    let mut nodes = vec![Node { meta: found.meta, xattrs: found.xattrs, kind: Kind::Directory(Vec::new()) }];
    let mut stamps: Vec<Stamp> = Vec::new();
    let mut by_identity = HashMap::new();
    let mut stack = vec![(NodeId::ROOT, 0)];
    while let Some((dir, listing)) = stack.pop() {
        let found = listings[listing].take().map_or_else(Vec::new, |listing| listing.entries);
        let mut entries = Vec::with_capacity(found.len());
        let mut subdirs = Vec::new();
        for (found, listing) in found {
            let next = NodeId(u32::try_from(nodes.len()).map_err(|_| None)?);
            let node = found.identity.map_or(next, |identity| *by_identity.entry(identity).or_insert(next));
            entries.push(Entry { name: found.name, node });
            if node != next {
                continue;
            }
            if let Some(listing) = listing {
                subdirs.push((node, listing));
            }
            let kind = kind(found.what, &mut stamps);
            nodes.push(Node { meta: found.meta, xattrs: found.xattrs, kind });
        }
        nodes[dir.idx()].kind = Kind::Directory(entries);
        stack.extend(subdirs.into_iter().rev());
    }
    Tree::new(nodes, Box::new(DirContents { root, stamps })).map_err(Some)
}

fn kind(what: What, stamps: &mut Vec<Stamp>) -> Kind {
    match what {
        What::Directory => Kind::Directory(Vec::new()),
        What::File { stamp, sparse } => {
            stamps.push(stamp);
            Kind::File { len: stamp.len, content: ContentId(stamps.len() as u32 - 1), sparse }
        }
        What::Symlink(target) => Kind::Symlink(target),
        What::CharDevice(rdev) => Kind::CharDevice(rdev),
        What::BlockDevice(rdev) => Kind::BlockDevice(rdev),
        What::Fifo => Kind::Fifo,
        What::Socket => Kind::Socket,
    }
}
