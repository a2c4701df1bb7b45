//! Recording: which ranges of which files programs read on a mount, as a hot list.
//!
//! ```text
//! start: cached pages are dropped ──► programs read ──► finish: inode numbers get their names
//!                                     │
//!             a thread fetches        ├── from our FUSE server: ranges
//!             what was read           └── from the kernel, for its own driver's mounts: files
//! ```
//!
//! Both tell inodes. Their paths are looked for at the end, by a walk through the mount, so that nothing has to remember names of files
//! that nobody reads.

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

/// Records that are kept at most: 128 MiB of memory.
const RECORDS_MAX: usize = 4 << 20;
/// The type of kernel mounts in the mount table.
const KERNEL_TYPE: &str = "erofs";

/// A recording under way. Dropping it ends it, too.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    root: OwnedFd,
    granularity: Granularity,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Reads>>>,
}

/// How exact a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Granularity {
    /// Pages of files. The kernel may have read so many bytes behind what a program wanted, and 0 is exact.
    Pages {
        /// Bytes that the kernel reads ahead.
        read_ahead: u64,
    },
    /// Files as a whole.
    Files,
}

/// What was recorded.
#[derive(Debug)]
#[non_exhaustive]
pub struct Recorded {
    /// What was read, each byte once, in the order in which it was.
    pub list: HotList,
    /// How many reads were lost at least, as they came faster than they could be kept.
    pub lost: u64,
    /// Files that were read, and whose names were not found: their directories may not be listed, or are hidden by other mounts.
    pub unnamed: u64,
}

/// Reads, in their order.
#[derive(Debug, Default)]
struct Reads {
    records: Vec<ReadRecord>,
    lost: u64,
}

impl Reads {
    /// Add a record, unless there are too many.
    fn push(&mut self, record: ReadRecord) {
        let is_full = self.records.len() >= RECORDS_MAX;
        match self.records.last_mut() {
            Some(last) if last.ino == record.ino && last.offset + last.len == record.offset => last.len += record.len,
            _ if is_full => self.lost = self.lost.saturating_add(1),
            _ => self.records.push(record),
        }
    }
}

/// Where reads are learned from.
enum Source {
    Server(ServerReads),
    Events(FileEvents),
}

impl Source {
    /// Fetch what is new.
    fn fetch(&mut self, reads: &mut Reads) -> io::Result<()> {
        match self {
            Source::Server(server) => server.fetch(reads),
            Source::Events(events) => events.fetch(reads),
        }
    }

    /// Wait until something may be new, or for a moment.
    fn wait(&self) -> io::Result<()> {
        match self {
            Source::Server(server) => server.wait(),
            Source::Events(events) => events.wait(),
        }
    }

    /// Fetch the last, and end.
    fn end(self, reads: &mut Reads) -> io::Result<()> {
        match self {
            Source::Server(server) => server.end(reads),
            Source::Events(mut events) => events.fetch(reads),
        }
    }
}

impl Recording {
    /// Begin to record what any program reads on the mount whose root is `dir`: a mount of [`serve`](crate::fuse::serve) by another
    /// process, which the user who has mounted it may record, and root; or a mount by the kernel's driver, for root alone. Pages of its files are
    /// dropped from the page cache first, which takes a look at each file; those that programs have mapped stay, and what is read of
    /// them is not recorded. `stop` ends that look early.
    ///
    /// # Errors
    /// There is no such mount, it is recorded already, this user may not.
    pub fn start(dir: &Path, stop: &AtomicBool) -> Result<Self, MountError> {
        let path = || dir.to_path_buf();
        let failed = |source| MountError::Record { path: path(), source };
        let mounted = Mounted::at(dir).map_err(failed)?.ok_or_else(|| MountError::NotMounted { path: path() })?;
        let root = File::open(dir).map_err(failed)?;
        let (source, granularity) = match &*mounted.fs_type {
            KERNEL_TYPE => {
                // Whether that is possible is found out before the walk, which the first ones see.
                FileEvents::start(&root).map_err(failed)?;
                tree::drop_pages(&root, stop).map_err(failed)?;
                (FileEvents::start(&root).map(Source::Events), Granularity::Files)
            }
            fs_type => {
                let no_recorder = || MountError::NoRecorder { path: path(), fs_type: fs_type.to_owned() };
                // The first recording ends prefetch, so that no page comes back while others are dropped.
                let first = ServerReads::start(&root).map_err(failed)?.ok_or_else(no_recorder)?;
                tree::drop_pages(&root, stop).map_err(failed)?;
                first.end(&mut Reads::default()).map_err(failed)?;
                let server = ServerReads::start(&root).map_err(failed)?.ok_or_else(no_recorder)?;
                let granularity = Granularity::Pages { read_ahead: server.read_ahead() };
                (Ok(Source::Server(server)), granularity)
            }
        };
        let source = source.map_err(failed)?;
        let is_over = Arc::<AtomicBool>::default();
        let until = Arc::clone(&is_over);
        let thread = thread::Builder::new().name("kiln-record".into()).spawn(move || collect(source, &until));
        let thread = Some(thread.map_err(failed)?);
        // Through the same mount, whatever is mounted over it by then.
        Ok(Self { path: path(), root: root.into(), granularity, stop: is_over, thread })
    }

    /// How exact it is.
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// End the recording. Names are looked for in the whole mount, until all are found.
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

    /// Stop the thread. `None` if that was done before, or if it panicked.
    fn end(&mut self) -> Option<io::Result<Reads>> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        thread.join().ok()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Nobody wants the reads.
        let _ = self.end();
    }
}

/// Collect reads until `stop` is set.
fn collect(mut source: Source, stop: &AtomicBool) -> io::Result<Reads> {
    let mut reads = Reads::default();
    while !stop.load(Ordering::Relaxed) {
        source.fetch(&mut reads)?;
        source.wait()?;
    }
    source.end(&mut reads)?;
    Ok(reads)
}
