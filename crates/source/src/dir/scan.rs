//! Walking a directory on several threads, and putting what they find into one tree.

use kiln_build::BuildError;
use kiln_build::tree::{ContentId, Entry, Kind, Node, NodeId, Tree};
use rustix::fs::{Mode, OFlags, open};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::contents::{DirContents, Stamp, open_beneath};
use super::entry::{Found, What, look, names};

/// How to scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions<'a> {
    /// Threads, at least 1. The tree does not depend on it.
    pub threads: usize,
    /// Leave out what cannot be read, and list it.
    pub keep_going: bool,
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
    let (listings, mut errors) = walk(root_fd.as_fd(), options);
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

/// A directory's entries, sorted, each with the place of its own listing if it is a directory.
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
}

/// Read all directories beneath `root`.
fn walk(root: BorrowedFd<'_>, options: &ScanOptions<'_>) -> (Vec<Option<Listing>>, Errors) {
    let first = Job { listing: 0, path: Vec::new() };
    let state = QueueState { waiting: vec![first], open: 1, listings: vec![None], errors: Vec::new() };
    let queue = Queue { state: Mutex::new(state), changed: Condvar::new() };
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                while let Some(job) = queue.next(options.stop) {
                    let (entries, errors) = list(root, &job.path, options.stop);
                    queue.finish(job, entries, errors);
                }
            });
        }
    });
    let state = queue.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    (state.listings, state.errors)
}

/// All that is in a directory, sorted by name, and what could not be read of it.
fn list(root: BorrowedFd<'_>, path: &[u8], stop: &AtomicBool) -> (Vec<Found>, Errors) {
    let dir = open_beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY);
    let listed = dir.and_then(|dir| names(dir.as_fd()).map(|names| (dir, names)));
    let (dir, names) = match listed {
        Ok(listed) => listed,
        Err(error) => return (Vec::new(), vec![(path.to_vec(), error)]),
    };
    let (mut entries, mut errors) = (Vec::with_capacity(names.len()), Vec::new());
    for name in names {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match look(dir.as_fd(), &name) {
            Ok(found) => entries.push(found),
            Err(error) => errors.push((join(path, name.to_bytes()), error)),
        }
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    (entries, errors)
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
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

    fn finish(&self, job: Job, entries: Vec<Found>, errors: Errors) {
        let mut state = self.lock();
        state.errors.extend(errors);
        let numbered = entries.into_iter().map(|found| {
            let listing = matches!(found.what, What::Directory).then(|| {
                let listing = state.listings.len();
                state.listings.push(None);
                state.waiting.push(Job { listing, path: join(&job.path, &found.name) });
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
