//! Recording of the ranges of files that programs read on a mount, as a hot list.
//!
//! ```text
//! start: cached pages are dropped ──► programs read ──► finish: inode numbers get their names
//!                                     │
//!             a thread fetches        ├── from our FUSE server: ranges
//!             what was read           └── from the kernel, for its own driver's mounts: files
//! ```
//!
//! Both report inodes. Their paths are searched for at the end, by a walk through the mount, so
//! that names of files that are never read need not be remembered.

mod events;
mod server;
mod tree;

use crate::MountError;
use crate::fuse::recorder::answer::ReadRecord;
use crate::table::Mounted;
use events::FileEvents;
use kiln_read::hotlist::{HotEntry, HotList};
use rustix::fd::OwnedFd;
use server::ServerReads;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Largest number of records: 128 MiB of memory.
const RECORDS_MAX: usize = 4 << 20;
/// Type of kernel mounts in the mount table.
const KERNEL_TYPE: &str = "erofs";

/// Recording in progress. Dropping it also ends it.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    root: OwnedFd,
    granularity: Granularity,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Reads>>>,
}

/// Precision of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Granularity {
    /// Pages of files.
    Pages {
        /// Bytes that the kernel may have read after those that a program read; 0 is exact.
        read_ahead: u64,
    },
    /// Whole files.
    Files,
}

/// Result of a recording.
#[derive(Debug)]
#[non_exhaustive]
pub struct Recorded {
    /// Ranges that were read, each byte once, in the order of the reads.
    pub list: HotList,
    /// Number of reads that were lost at least, as they came faster than they could be recorded.
    pub lost: u64,
    /// Number of files that were read and whose names were not found: their directories cannot be
    /// listed, or are hidden by other mounts.
    pub unnamed: u64,
}

/// Reads in order.
#[derive(Debug, Default)]
struct Reads {
    records: Vec<ReadRecord>,
    lost: u64,
}

impl Reads {
    /// Adds a record, unless there are too many.
    fn push(&mut self, record: ReadRecord) {
        let is_full = self.records.len() >= RECORDS_MAX;
        match self.records.last_mut() {
            Some(last) if last.ino == record.ino && last.offset + last.len == record.offset => last.len += record.len,
            _ if is_full => self.lost = self.lost.saturating_add(1),
            _ => self.records.push(record),
        }
    }
}

/// Source of reads.
enum ReadsSource {
    Server(ServerReads),
    Events(FileEvents),
}

impl ReadsSource {
    /// Fetches new reads.
    fn fetch(&mut self, reads: &mut Reads) -> io::Result<()> {
        match self {
            ReadsSource::Server(server) => server.fetch(reads),
            ReadsSource::Events(events) => events.fetch(reads),
        }
    }

    /// Waits until there may be new reads, or for a moment.
    fn wait(&self) -> io::Result<()> {
        match self {
            ReadsSource::Server(server) => server.wait(),
            ReadsSource::Events(events) => events.wait(),
        }
    }

    /// Fetches the last reads, and ends the recording.
    fn end(self, reads: &mut Reads) -> io::Result<()> {
        match self {
            ReadsSource::Server(server) => server.end(reads),
            ReadsSource::Events(mut events) => events.fetch(reads),
        }
    }
}

impl Recording {
    /// Begins to record the reads of all programs on the mount whose root is `dir`. It may be a
    /// mount of [`serve`](crate::fuse::serve) by another process, which the user who mounted it and
    /// root may record; or a mount by the kernel's driver, for root only. Pages of its files are
    /// dropped from the page cache first, which visits each file. Pages that programs have mapped
    /// stay, and reads of them are not recorded. `stop` ends that visit early.
    ///
    /// # Errors
    /// There is no such mount, it is already being recorded, or this user may not record it.
    pub fn start(dir: &Path, stop: &AtomicBool) -> Result<Self, MountError> {
        let path = || dir.to_path_buf();
        let failed = |source| MountError::Record { path: path(), source };
        let mounted = Mounted::at(dir).map_err(failed)?.ok_or_else(|| MountError::NotMounted { path: path() })?;
        let root = File::open(dir).map_err(failed)?;
        let (source, granularity) = match &*mounted.fs_type {
            KERNEL_TYPE => {
                // Errors are found before the walk, whose own accesses the first events would
                // report.
                FileEvents::start(&root).map_err(failed)?;
                tree::drop_pages(&root, stop).map_err(failed)?;
                (FileEvents::start(&root).map(ReadsSource::Events), Granularity::Files)
            }
            fs_type => {
                let no_recorder = || MountError::NoRecorder { path: path(), fs_type: fs_type.to_owned() };
                // The first recording ends prefetch, so that no page comes back while others are
                // dropped.
                let first = ServerReads::start(&root).map_err(failed)?.ok_or_else(no_recorder)?;
                tree::drop_pages(&root, stop).map_err(failed)?;
                first.end(&mut Reads::default()).map_err(failed)?;
                let server = ServerReads::start(&root).map_err(failed)?.ok_or_else(no_recorder)?;
                let granularity = Granularity::Pages { read_ahead: server.read_ahead() };
                (Ok(ReadsSource::Server(server)), granularity)
            }
        };
        let source = source.map_err(failed)?;
        let is_over = Arc::<AtomicBool>::default();
        let until = Arc::clone(&is_over);
        let thread = thread::Builder::new().name("kiln-record".into()).spawn(move || collect(source, &until));
        let thread = Some(thread.map_err(failed)?);
        // The root is that of the same mount, even if another one is mounted over it later.
        Ok(Self { path: path(), root: root.into(), granularity, stop: is_over, thread })
    }

    /// Returns the precision.
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// Ends the recording. Names are searched for in the whole mount, until all are found.
    ///
    /// # Errors
    /// The mount has gone meanwhile, or its server has ended the recording.
    pub fn finish(mut self) -> Result<Recorded, MountError> {
        let path = self.path.clone();
        let failed = |source| MountError::Record { path: path.clone(), source };
        let reads = self.end().unwrap_or_else(|| Err(io::Error::other("its thread has ended"))).map_err(failed)?;
        let inodes: HashSet<u64> = reads.records.iter().map(|record| record.ino).collect();
        let count = inodes.len();
        let names = tree::find_names(&self.root, inodes).map_err(failed)?;
        let unnamed = (count - names.len()) as u64;
        let entry = |record: ReadRecord| {
            let ReadRecord { ino, offset, len, micros } = record;
            names.get(&ino).map(|path| HotEntry { offset, len, micros, path: path.clone() })
        };
        let list = HotList::new(reads.records.into_iter().filter_map(entry).collect());
        // A page that was dropped meanwhile was read twice.
        Ok(Recorded { list: list.without(&HotList::default()), lost: reads.lost, unnamed })
    }

    /// Stops the thread. Returns `None` if that was done before, or if it panicked.
    fn end(&mut self) -> Option<io::Result<Reads>> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        thread.join().ok()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // The reads are not needed.
        let _ = self.end();
    }
}

/// Collects reads until `stop` is set.
fn collect(mut source: ReadsSource, stop: &AtomicBool) -> io::Result<Reads> {
    let mut reads = Reads::default();
    while !stop.load(Ordering::Relaxed) {
        source.fetch(&mut reads)?;
        source.wait()?;
    }
    source.end(&mut reads)?;
    Ok(reads)
}
