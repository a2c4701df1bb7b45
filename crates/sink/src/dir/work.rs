//! What workers do: files, and everything else that is no directory.

use super::node::Entry;
use super::run::Run;
use super::{content, meta};
use crate::SinkError;
use kiln_format::inode::FileType;
use kiln_read::SeekWhat;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Files above this many bytes are split into ranges of this length: a multiple of the longest pcluster, and long enough that an
/// extent across a boundary, which both sides decode, does not matter.
pub(super) const RANGE_LEN: u64 = 16 << 20;

/// A piece of work.
pub(super) enum Job {
    /// All of an entry.
    Whole(Entry),
    /// A range of a large file.
    Range(Arc<Large>, Range<u64>),
}

/// A large file that several workers fill. The last one completes it.
pub(super) struct Large {
    entry: Entry,
    file: File,
    /// Ranges in work, and one for the walker as long as it may add more.
    shares: AtomicU64,
    failed: AtomicBool,
}

impl Large {
    /// Create the file, and give `send` its ranges. Ranges within holes are left out: a file of nothing else may be of any size.
    pub(super) fn split(run: &Run<'_>, entry: Entry, send: impl Fn(Job)) {
        let file = match create_file(run, &entry) {
            Ok(file) => file,
            Err(error) => return run.fail(&entry.path, error),
        };
        let large = Arc::new(Self { entry, file, shares: AtomicU64::new(1), failed: AtomicBool::new(false) });
        let mut off = 0;
        while !large.failed.load(Ordering::Relaxed) {
            match large.next_range(run, off) {
                Ok(None) => break,
                Ok(Some(range)) => {
                    off = range.end;
                    large.shares.fetch_add(1, Ordering::Relaxed);
                    send(Job::Range(Arc::clone(&large), range));
                }
                Err(error) => large.fail(run, error),
            }
        }
        large.give_back_share(run);
    }

    /// The first range from `off` on that is not all hole.
    fn next_range(&self, run: &Run<'_>, off: u64) -> Result<Option<Range<u64>>, SinkError> {
        run.check()?;
        let (inode, size) = (&self.entry.inode, self.entry.inode.meta.size);
        let data = match run.image.seek(inode, off, SeekWhat::Data) {
            // Whoever reads the range will see what is lost.
            Err(_) if run.options.zeros => (off < size).then_some(off),
            data => data.map_err(|error| error.at_path(&self.entry.path))?,
        };
        let start = data.map_or(size, |data| (data - data % RANGE_LEN).max(off));
        run.advance(start - off);
        Ok((start < size).then(|| start..start.saturating_add(RANGE_LEN).min(size)))
    }

    fn fill(&self, run: &Run<'_>, range: Range<u64>, buffer: &mut [u8]) {
        if !self.failed.load(Ordering::Relaxed)
            && let Err(error) = content::copy(run, &self.entry, &self.file, range, buffer)
        {
            self.fail(run, error);
        }
        self.give_back_share(run);
    }

    fn give_back_share(&self, run: &Run<'_>) {
        if self.shares.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete(run);
        }
    }

    fn complete(&self, run: &Run<'_>) {
        if !self.failed.load(Ordering::Relaxed) {
            match meta::restore(run, &self.file, &self.entry.path, &self.entry.inode) {
                Ok(()) => count_file(run, &self.entry),
                Err(error) => self.fail(run, error),
            }
        }
        if self.failed.load(Ordering::Relaxed) {
            self.entry.remove();
        }
    }

    /// Of several ranges that fail, the first is reported.
    fn fail(&self, run: &Run<'_>, error: SinkError) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            run.fail(&self.entry.path, error);
        }
    }
}

/// Do one job.
pub(super) fn work(run: &Run<'_>, job: Job, buffer: &mut [u8]) {
    match job {
        Job::Range(large, range) => large.fill(run, range, buffer),
        Job::Whole(_) if run.is_over() => {}
        Job::Whole(entry) => {
            let done = match entry.inode.meta.file_type {
                FileType::Regular => extract_file(run, &entry, buffer),
                _ => extract_other(run, &entry),
            };
            done.unwrap_or_else(|error| run.fail(&entry.path, error));
        }
    }
}

fn extract_file(run: &Run<'_>, entry: &Entry, buffer: &mut [u8]) -> Result<(), SinkError> {
    let file = create_file(run, entry)?;
    content::copy(run, entry, &file, 0..entry.inode.meta.size, buffer)
        .and_then(|()| meta::restore(run, &file, &entry.path, &entry.inode))
        .inspect_err(|_| entry.remove())?;
    count_file(run, entry);
    Ok(())
}

/// Create a file of the right length, one hole so far.
fn create_file(run: &Run<'_>, entry: &Entry) -> Result<File, SinkError> {
    let file = entry.create_file(run)?;
    content::set_len(run, entry, &file).inspect_err(|_| entry.remove())?;
    Ok(file)
}

fn extract_other(run: &Run<'_>, entry: &Entry) -> Result<(), SinkError> {
    entry.create_other(run)?;
    meta::restore_other(run, entry).inspect_err(|_| entry.remove())?;
    run.count(|report| report.others += 1);
    Ok(())
}

fn count_file(run: &Run<'_>, entry: &Entry) {
    run.count(|report| {
        report.files += 1;
        report.bytes += entry.inode.meta.size;
    });
}
