//! Counts of an image's contents and of the space that they take: files, extents, sharing, padding,
//! metadata.

pub(crate) mod blocks;
pub(crate) mod counts;
pub(crate) mod disk;
pub(crate) mod report;
mod stored;
mod tally;

use crate::error::ReadError;
use crate::image::Image;
use crate::metadata::inode::Inode;
use crate::tree::walk::Walk;
use kiln_format::Incompat;
use kiln_format::Nid;
use kiln_format::device::DEVICE_SLOT_LEN;
use kiln_parallel::Threads;
use kiln_parallel::locks::lock;
use report::Usage;
use std::collections::HashSet;
use std::sync::Mutex;
use stored::StoredRanges;
use tally::Tally;

/// Inodes that a thread takes from the walk at once.
const BATCH: usize = 256;

/// Implements `Image::usage`.
pub(crate) fn usage(image: &Image, threads: Threads) -> Result<Usage, ReadError> {
    let reader = image.reader();
    let stored = StoredRanges::new(reader);
    let mut sum = Tally::new(reader, &stored);
    for inode in [reader.special.packed, reader.special.metabox].into_iter().flatten() {
        sum.add_special(&inode).map_err(|error| error.at_nid(inode.nid))?;
    }
    let root = reader.inode(image.root_nid())?;
    let queue =
        Mutex::new(InodeQueue { walk: image.walk(&root, b"/"), seen: HashSet::new(), hard_links: 0, failed: false });
    std::thread::scope(|scope| {
        let count = || tally_batches(Tally::new(reader, &stored), &queue);
        // If the system refuses a thread, those that run do the work. This one is among them.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, count).ok();
        let workers: Vec<_> = (1..threads.count()).map_while(start).collect();
        let panicked = |_| Err(ReadError::Internal { what: "a counting thread panicked".into() });
        sum.merge(&count()?);
        workers.into_iter().try_for_each(|worker| {
            sum.merge(&worker.join().unwrap_or_else(panicked)?);
            Ok::<_, ReadError>(())
        })
    })?;
    sum.usage.hard_links = lock(&queue).hard_links;
    sum.usage.metadata.superblock = superblock_len(image)?;
    let mut usage = sum.finish()?;
    stored.report(&mut usage);
    Ok(usage)
}

/// The walk that all threads take inodes from.
struct InodeQueue {
    walk: Walk,
    seen: HashSet<Nid>,
    hard_links: u64,
    /// A thread has met an error: the others stop.
    failed: bool,
}

impl InodeQueue {
    /// Returns inodes that were not met before, with paths; none at the end.
    fn next_batch(&mut self) -> Result<Vec<(Vec<u8>, Inode)>, ReadError> {
        let mut batch = Vec::new();
        while batch.len() < BATCH && !self.failed {
            let Some(entry) = self.walk.next() else { break };
            let entry = entry?;
            match self.seen.insert(entry.inode.nid) {
                true => batch.push((entry.path, entry.inode)),
                false => self.hard_links += 1,
            }
        }
        Ok(batch)
    }
}

/// Counts inodes until there are none, or another thread has failed.
fn tally_batches<'i>(mut tally: Tally<'i>, queue: &Mutex<InodeQueue>) -> Result<Tally<'i>, ReadError> {
    let counted = tally_all(&mut tally, queue);
    if counted.is_err() {
        lock(queue).failed = true;
    }
    counted.map(|()| tally)
}

fn tally_all(tally: &mut Tally<'_>, queue: &Mutex<InodeQueue>) -> Result<(), ReadError> {
    loop {
        let batch = lock(queue).next_batch()?;
        if batch.is_empty() {
            return Ok(());
        }
        for (path, inode) in &batch {
            tally.add(inode).map_err(|error| error.at_nid(inode.nid).at_path(path))?;
        }
        tally.flush()?;
    }
}

fn superblock_len(image: &Image) -> Result<u64, ReadError> {
    let sb = image.superblock();
    let has_records = sb.incompat.contains(Incompat::COMPR_CFGS);
    let records = if has_records { image.compr_cfgs().encode()?.len() as u64 } else { 0 };
    Ok(sb.record_len + records + DEVICE_SLOT_LEN as u64 * u64::from(sb.extra_devices))
}
