//! Jobs of the workers: regular files, and all others except directories.

use super::digest::DigestChain;
use super::node::Entry;
use super::run::Extraction;
use super::{content, meta};
use crate::SinkError;
use kiln_format::inode::FileType;
use kiln_read::{DigestVerifier, SeekWhat};
use parking_lot::Mutex;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Length in bytes of the ranges into which larger files are split. A multiple of the longest
/// pcluster, and long enough that an extent across a boundary, which both sides decode, does not
/// matter.
pub(super) const RANGE_LEN: u64 = 16 << 20;

/// A unit of work.
pub(super) enum Job {
    /// A whole entry.
    Whole(Entry),
    /// A range of a large file.
    Range(Arc<Large>, Range<u64>),
}

/// A large file that several workers fill. The last one completes it.
pub(super) struct Large {
    entry: Entry,
    file: File,
    /// Number of ranges in work, plus one while the walker may add more.
    shares: AtomicU64,
    failed: AtomicBool,
    /// True if contents are lost and replaced by zeros.
    is_lossy: AtomicBool,
    /// Digest of the file, if the image stores one.
    digest: Mutex<Option<DigestChain>>,
}

impl Large {
    /// Creates the file, and calls `send` for its ranges. Ranges within holes are skipped, because
    /// a sparse file may be of any size.
    pub(super) fn split(run: &Extraction<'_>, entry: Entry, send: impl Fn(Job)) {
        let made = verifier(run, &entry).and_then(|digest| Ok((create_file(run, &entry)?, digest)));
        let (file, digest) = match made {
            Ok(made) => made,
            Err(error) => return run.fail(&entry.path, error),
        };
        let digest = Mutex::new(digest.map(DigestChain::new));
        let (shares, [failed, is_lossy]) = (AtomicU64::new(1), [const { AtomicBool::new(false) }; 2]);
        let large = Arc::new(Self { entry, file, shares, failed, is_lossy, digest });
        let mut off = 0;
        while !large.failed.load(Ordering::Relaxed) {
            match large.next_range(run, off) {
                Ok(None) => break,
                Ok(Some(range)) => {
                    large.skip(off..range.start);
                    off = range.end;
                    large.shares.fetch_add(1, Ordering::Relaxed);
                    send(Job::Range(Arc::clone(&large), range));
                }
                Err(error) => large.fail(run, error),
            }
        }
        large.skip(off..large.entry.inode.meta.size);
        large.give_back_share(run, &mut content::buffer());
    }

    /// Returns the first range at or after `off` that holds data.
    fn next_range(&self, run: &Extraction<'_>, off: u64) -> Result<Option<Range<u64>>, SinkError> {
        run.check()?;
        let (inode, size) = (&self.entry.inode, self.entry.inode.meta.size);
        let data = match run.image.seek(inode, off, SeekWhat::Data) {
            // The worker that reads the range will find out what is lost.
            Err(_) if run.options.zeros => (off < size).then_some(off),
            data => data.map_err(|error| error.at_path(&self.entry.path))?,
        };
        let start = data.map_or(size, |data| (data - data % RANGE_LEN).max(off));
        run.advance(start - off);
        Ok((start < size).then(|| start..start.saturating_add(RANGE_LEN).min(size)))
    }

    /// Notes a range that is a hole.
    fn skip(&self, range: Range<u64>) {
        if let Some(chain) = self.digest.lock().as_mut().filter(|_| !range.is_empty()) {
            chain.note(range, true, None);
        }
    }

    fn fill(&self, run: &Extraction<'_>, range: Range<u64>, buffer: &mut [u8]) {
        if !self.failed.load(Ordering::Relaxed) {
            let mut digest = self.digest.lock().as_mut().and_then(|chain| chain.turn(range.start));
            match content::copy(run, (&self.entry, &self.file), range.clone(), buffer, digest.as_mut()) {
                Ok(is_whole) => {
                    if !is_whole {
                        self.is_lossy.store(true, Ordering::Relaxed);
                    }
                    if let Some(chain) = self.digest.lock().as_mut() {
                        chain.note(range, false, digest);
                    }
                }
                Err(error) => self.fail(run, error),
            }
        }
        self.give_back_share(run, buffer);
    }

    /// Updates the digest with the ranges that were written ahead of it.
    fn catch_up(&self, run: &Extraction<'_>, buffer: &mut [u8]) -> Result<(), SinkError> {
        let behind = || self.digest.lock().as_mut().and_then(DigestChain::behind);
        while let Some(mut behind) = behind() {
            behind.show(run, (&self.entry, &self.file), buffer)?;
            if let Some(chain) = self.digest.lock().as_mut() {
                chain.note(behind.range, false, Some(behind.digest));
            }
        }
        Ok(())
    }

    fn give_back_share(&self, run: &Extraction<'_>, buffer: &mut [u8]) {
        if !self.failed.load(Ordering::Relaxed) {
            self.catch_up(run, buffer).unwrap_or_else(|error| self.fail(run, error));
        }
        if self.shares.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete(run);
        }
    }

    fn complete(&self, run: &Extraction<'_>) {
        if !self.failed.load(Ordering::Relaxed) {
            let Self { entry, file, .. } = self;
            let digest = self.digest.lock().take().map(|chain| chain.finish(entry.inode.meta.size));
            let done =
                content::verify(run, entry, digest, !self.is_lossy.load(Ordering::Relaxed)).and_then(|is_equal| {
                    meta::restore(run, file, &entry.path, &entry.inode)?;
                    Ok(is_equal)
                });
            match done {
                Ok(is_digested) => count_file(run, entry, is_digested),
                Err(error) => self.fail(run, error),
            }
        }
        if self.failed.load(Ordering::Relaxed) {
            self.entry.remove();
        }
    }

    /// Fails the file. If several ranges fail, the first error is reported.
    fn fail(&self, run: &Extraction<'_>, error: SinkError) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            run.fail(&self.entry.path, error);
        }
    }
}

/// Returns a verifier of the contents if the image stores a digest of the file.
fn verifier(run: &Extraction<'_>, entry: &Entry) -> Result<Option<DigestVerifier>, SinkError> {
    run.image.digest_verifier(&entry.inode).map_err(|error| error.at_path(&entry.path).into())
}

/// Runs one job.
pub(super) fn work(run: &Extraction<'_>, job: Job, buffer: &mut [u8]) {
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

fn extract_file(run: &Extraction<'_>, entry: &Entry, buffer: &mut [u8]) -> Result<(), SinkError> {
    let mut digest = verifier(run, entry)?;
    let file = create_file(run, entry)?;
    let is_digested = content::copy(run, (entry, &file), 0..entry.inode.meta.size, buffer, digest.as_mut())
        .and_then(|is_whole| content::verify(run, entry, digest, is_whole))
        .and_then(|is_equal| meta::restore(run, &file, &entry.path, &entry.inode).map(|()| is_equal))
        .inspect_err(|_| entry.remove())?;
    count_file(run, entry, is_digested);
    Ok(())
}

/// Creates a file of its final length, which is one hole.
fn create_file(run: &Extraction<'_>, entry: &Entry) -> Result<File, SinkError> {
    let file = entry.create_file(run)?;
    content::set_len(run, entry, &file).inspect_err(|_| entry.remove())?;
    Ok(file)
}

fn extract_other(run: &Extraction<'_>, entry: &Entry) -> Result<(), SinkError> {
    entry.create_other(run)?;
    meta::restore_other(run, entry).inspect_err(|_| entry.remove())?;
    run.count(|report| report.others += 1);
    Ok(())
}

fn count_file(run: &Extraction<'_>, entry: &Entry, is_digested: bool) {
    run.count(|report| {
        report.files += 1;
        report.bytes += entry.inode.meta.size;
        report.digested_bytes += if is_digested { entry.inode.meta.size } else { 0 };
    });
}
