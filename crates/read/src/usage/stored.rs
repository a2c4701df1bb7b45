//! Bytes that are in use, counted once for all threads.

use super::report::{Sharing, Usage};
use crate::error::ReadError;
use crate::explain::range_set::RangeSet;
use crate::image::reader::Reader;
use kiln_format::BlockBits;
use kiln_format::addr::align_up;
use kiln_parallel::locks::lock;
use std::ops::Range;
use std::sync::Mutex;

/// Runs that are kept for even the smallest image.
const RUNS_MIN: usize = 1 << 16;

/// Bytes that a part of a file refers to. Threads collect some ranges before they take the lock.
#[derive(Clone, Debug)]
pub(super) enum NamedRange {
    /// Data on a device: bytes that are data, and how many more belong to its pcluster.
    Data { device: u16, bytes: Range<u64>, slack: u64 },
    /// Contents of the packed inode.
    Fragment(Range<u64>),
    /// A shared xattr.
    Xattr(Range<u64>),
}

/// All bytes in use.
pub(super) struct StoredRanges {
    sets: Mutex<Sets>,
    block_bits: BlockBits,
    /// Most runs in a set.
    runs_max: usize,
}

#[derive(Default)]
struct Sets {
    data: RangeSet,
    /// The same, in whole blocks.
    blocks: RangeSet,
    fragments: RangeSet,
    xattrs: RangeSet,
    /// Sums over all extents that name data, and over all fragments.
    data_named: u64,
    fragments_named: u64,
}

impl StoredRanges {
    /// Returns no ranges of one image. A run for each 32 bytes is more than blocks and inodes can
    /// need; a hostile index that names more must not cost more memory.
    pub(super) fn new(reader: Reader<'_>) -> Self {
        let runs_max = usize::try_from(reader.volume.devices.total_len() / 32).unwrap_or(usize::MAX).max(RUNS_MIN);
        Self { sets: Mutex::default(), block_bits: reader.superblock().block_bits, runs_max }
    }

    pub(super) fn add(&self, named: &mut Vec<NamedRange>) -> Result<(), ReadError> {
        let mut sets = lock(&self.sets);
        for range in named.drain(..) {
            let runs = sets.add(range, self.block_bits);
            if runs > self.runs_max {
                let (record, reason) = ("z_erofs_lcluster_index", "more extents than the image has room for");
                return Err(ReadError::unsupported(record, 0, "count", runs as u64, reason));
            }
        }
        Ok(())
    }

    /// Puts the sums into `usage`.
    pub(super) fn report(&self, usage: &mut Usage) {
        let sets = lock(&self.sets);
        usage.data = Sharing { named: sets.data_named, stored: sets.data.len() };
        usage.fragments = Sharing { named: sets.fragments_named, stored: sets.fragments.len() };
        usage.padding = sets.blocks.len() - sets.data.len();
        usage.metadata.shared_xattrs = sets.xattrs.len();
    }
}

impl Sets {
    /// Adds what something names. Returns in how many runs its set is now.
    fn add(&mut self, named: NamedRange, block_bits: BlockBits) -> usize {
        match named {
            NamedRange::Data { device, bytes, slack } => {
                let end = bytes.end.checked_add(slack).and_then(|end| align_up(end, block_bits.len()));
                self.blocks.add(device, block_bits.floor(bytes.start)..end.unwrap_or(u64::MAX));
                self.data_named = self.data_named.saturating_add(bytes.end - bytes.start);
                self.data.add(device, bytes);
                self.data.runs()
            }
            NamedRange::Fragment(bytes) => {
                self.fragments_named = self.fragments_named.saturating_add(bytes.end - bytes.start);
                self.fragments.add(0, bytes);
                self.fragments.runs()
            }
            NamedRange::Xattr(bytes) => {
                self.xattrs.add(0, bytes);
                self.xattrs.runs()
            }
        }
    }
}
