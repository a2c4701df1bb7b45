//! What an image contains and what it takes: files, extents, sharing, padding, metadata.

pub(crate) mod counts;
pub(crate) mod disk;
mod stored;
mod tally;

use crate::error::ReadError;
use crate::image::Image;
use crate::metadata::inode::Inode;
use crate::tree::walk::Walk;
use counts::{Count, ExtentCount, Histogram, StoredAs, entry};
use kiln_format::Incompat;
use kiln_format::Nid;
use kiln_format::device::DEVICE_SLOT_LEN;
use kiln_format::inode::{DataLayout, FileType};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stored::StoredRanges;
use tally::Tally;

/// Inodes that a thread takes from the walk at once.
const BATCH: usize = 256;

/// What an image contains. All counts are of inodes: further names of one count as hard links only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Inodes by type, with their sizes.
    pub types: Vec<(FileType, Count)>,
    /// Inodes with contents by layout, with their sizes; packed inode and metabox included.
    pub layouts: Vec<(DataLayout, Count)>,
    /// Names beyond the first of an inode.
    pub hard_links: u64,
    /// Regular files by size.
    pub sizes: Histogram,
    /// Extents of everything that is no directory, packed inode and metabox included.
    pub extents: Vec<(StoredAs, ExtentCount)>,
    /// Compressed extents by the length of their pcluster in bytes.
    pub pcluster_lens: Histogram,
    /// Compressed extents by their decoded length in bytes.
    pub extent_lens: Histogram,
    /// Bytes on devices that hold data of files: of a pcluster all, zeros in front of its stream included, which only
    /// the bytes themselves would tell.
    pub data: Sharing,
    /// Bytes of the packed inode's contents that files are made of.
    pub fragments: Sharing,
    /// Bytes in the same blocks as [`Usage::data`] that belong to no data: ends of blocks behind tails and plain data.
    pub padding: u64,
    /// Everything else.
    pub metadata: MetadataUsage,
}

/// Bytes that extents name, some of them more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Sum over all that name them.
    pub named: u64,
    /// The same bytes, each counted once.
    pub stored: u64,
}

impl Sharing {
    /// Bytes that deduplication has saved.
    pub fn saved(&self) -> u64 {
        self.named - self.stored
    }
}

/// Bytes of metadata. Those in a metabox are counted as they are in its contents; what the metabox takes is part of
/// [`Usage::data`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataUsage {
    /// Superblock, configurations of algorithms, device table.
    pub superblock: u64,
    /// Inodes alone.
    pub inodes: u64,
    /// Xattr bodies behind inodes.
    pub xattrs: u64,
    /// Shared xattrs.
    pub shared_xattrs: u64,
    /// Chunk tables and compression indexes, with the bytes that align them.
    pub indexes: u64,
    /// Contents of files that lie beside their inodes: tails, inline pclusters.
    pub inline: u64,
    /// Contents of directories, wherever they lie.
    pub directories: u64,
}

/// Count what an image contains, on `threads` threads. The result does not depend on their number.
///
/// Reads metadata only. Memory: about 16 bytes for each inode, and 40 for each run of adjacent data: at most about the
/// length of the image, and mostly far less.
///
/// # Errors
/// The first thing found that is damaged, with its path: sums over a damaged image mean nothing. A failing source.
pub fn usage(image: &Image, threads: usize) -> Result<Usage, ReadError> {
    let stored = StoredRanges::new(image);
    let mut sum = Tally::new(image, &stored);
    for inode in [image.core.packed, image.core.metabox].into_iter().flatten() {
        sum.add_special(&inode).map_err(|error| error.at_nid(inode.nid))?;
    }
    let root = image.inode(image.root_nid())?;
    let source =
        Mutex::new(Source { walk: image.walk(&root, b"/"), seen: HashSet::new(), hard_links: 0, failed: false });
    std::thread::scope(|scope| {
        let count = || tally_batches(Tally::new(image, &stored), &source);
        // Where the system has no more threads, fewer will do. This one is among them.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, count).ok();
        let workers: Vec<_> = (1..threads).map_while(start).collect();
        let panicked = |_| Err(ReadError::Internal { what: "a counting thread panicked".into() });
        sum.merge(&count()?);
        workers.into_iter().try_for_each(|worker| {
            sum.merge(&worker.join().unwrap_or_else(panicked)?);
            Ok::<_, ReadError>(())
        })
    })?;
    sum.usage.hard_links = lock(&source).hard_links;
    sum.usage.metadata.superblock = superblock_len(image)?;
    let mut usage = sum.finish()?;
    stored.report(&mut usage);
    Ok(usage)
}

/// Where the threads take inodes from.
struct Source {
    walk: Walk,
    seen: HashSet<Nid>,
    hard_links: u64,
    /// A thread has met an error: the others need not go on.
    failed: bool,
}

impl Source {
    /// Inodes that were not met before, with paths; none at the end.
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

/// Count inodes until there are none, or another thread has failed.
fn tally_batches<'i>(mut tally: Tally<'i>, source: &Mutex<Source>) -> Result<Tally<'i>, ReadError> {
    let counted = tally_all(&mut tally, source);
    if counted.is_err() {
        lock(source).failed = true;
    }
    counted.map(|()| tally)
}

fn tally_all(tally: &mut Tally<'_>, source: &Mutex<Source>) -> Result<(), ReadError> {
    loop {
        let batch = lock(source).next_batch()?;
        if batch.is_empty() {
            return Ok(());
        }
        for (path, inode) in &batch {
            tally.add(inode).map_err(|error| error.at_nid(inode.nid).at_path(path))?;
        }
        tally.flush()?;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn superblock_len(image: &Image) -> Result<u64, ReadError> {
    let sb = image.superblock();
    let has_records = sb.incompat.contains(Incompat::COMPR_CFGS);
    let records = if has_records { image.compr_cfgs().encode()?.len() as u64 } else { 0 };
    Ok(sb.record_len + records + DEVICE_SLOT_LEN as u64 * u64::from(sb.extra_devices))
}

impl Usage {
    fn empty() -> Self {
        use DataLayout::{ChunkBased, CompressedCompact, CompressedFull, FlatInline, FlatPlain};
        use FileType::{BlockDevice, CharDevice, Directory, Fifo, Regular, Socket, Symlink};
        let types = [Regular, Directory, Symlink, CharDevice, BlockDevice, Fifo, Socket];
        let layouts = [FlatPlain, FlatInline, ChunkBased, CompressedFull, CompressedCompact];
        Self {
            types: types.map(|key| (key, Count::default())).to_vec(),
            layouts: layouts.map(|key| (key, Count::default())).to_vec(),
            hard_links: 0,
            sizes: Histogram::default(),
            extents: StoredAs::ALL.map(|key| (key, ExtentCount::default())).to_vec(),
            pcluster_lens: Histogram::default(),
            extent_lens: Histogram::default(),
            data: Sharing::default(),
            fragments: Sharing::default(),
            padding: 0,
            metadata: MetadataUsage::default(),
        }
    }

    /// Inodes of one type.
    pub fn of_type(&self, file_type: FileType) -> Count {
        self.types.iter().find(|(key, _)| *key == file_type).map_or(Count::default(), |(_, count)| *count)
    }

    /// Inodes of all types.
    pub fn inodes(&self) -> u64 {
        self.types.iter().map(|(_, count)| count.count).sum()
    }

    /// Extents of one kind.
    pub fn stored_as(&self, kind: StoredAs) -> ExtentCount {
        self.extents.iter().find(|(key, _)| *key == kind).map_or(ExtentCount::default(), |(_, count)| *count)
    }

    /// All compressed extents.
    pub fn compressed(&self) -> ExtentCount {
        let mut sum = ExtentCount::default();
        let encoded = |kind: &StoredAs| matches!(kind, StoredAs::Encoded(_));
        self.extents.iter().filter(|(kind, _)| encoded(kind)).for_each(|(_, count)| sum.merge(count));
        sum
    }

    /// Add the counts of another part of the image. Ranges are not part of it.
    fn merge(&mut self, other: &Usage) {
        other.types.iter().for_each(|(key, count)| entry(&mut self.types, *key).merge(count));
        other.layouts.iter().for_each(|(key, count)| entry(&mut self.layouts, *key).merge(count));
        other.extents.iter().for_each(|(key, count)| entry(&mut self.extents, *key).merge(count));
        self.sizes.merge(&other.sizes);
        self.pcluster_lens.merge(&other.pcluster_lens);
        self.extent_lens.merge(&other.extent_lens);
        self.metadata.merge(&other.metadata);
    }
}

impl MetadataUsage {
    fn merge(&mut self, other: &MetadataUsage) {
        let pairs = [
            (&mut self.superblock, other.superblock),
            (&mut self.inodes, other.inodes),
            (&mut self.xattrs, other.xattrs),
            (&mut self.shared_xattrs, other.shared_xattrs),
            (&mut self.indexes, other.indexes),
            (&mut self.inline, other.inline),
            (&mut self.directories, other.directories),
        ];
        pairs.into_iter().for_each(|(sum, value)| *sum = sum.saturating_add(value));
    }
}
