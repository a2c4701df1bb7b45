//! Uncompressed files in chunks of one size. Equal chunks are stored once, and chunks of zeros not at all.
//!
//! Workers take the digests; the one thread that writes looks for a chunk with the same, and reads it back: a
//! digest only nominates, bytes decide.

use kiln_format::{Blkaddr, BlockBits};
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_128;

use crate::error::BuildError;
use crate::format::Format;
use crate::options::Dedupe;
use crate::pack::device::Device;
use kiln_tree::PlacedRun;

/// Approximate bytes of an index entry.
const ENTRY_LEN: usize = 64;

/// Contents of a chunk, as found by a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChunkText {
    /// It has nothing but zeros.
    Zeros,
    /// It has text, with this digest if that matters.
    Text(Option<u128>),
}

impl ChunkText {
    /// Examines each chunk of `text`, whose last one may be shorter.
    pub(crate) fn of_all(text: &[u8], chunk_bits: u8, dedupe: Dedupe) -> Vec<Self> {
        let look = |chunk: &[u8]| match chunk.iter().all(|&byte| byte == 0) {
            true => ChunkText::Zeros,
            false => ChunkText::Text((dedupe != Dedupe::Off).then(|| xxh3_128(chunk))),
        };
        text.chunks(1 << chunk_bits).map(look).collect()
    }
}

/// Chunks of a file one behind the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkedText<'a> {
    /// log2 of their size.
    pub chunk_bits: u8,
    /// Their bytes, whole blocks; the last chunk may be shorter.
    pub bytes: &'a [u8],
    /// Contents of each chunk.
    pub texts: &'a [ChunkText],
}

/// Chunks of a file that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkRun {
    /// Number of the first chunk.
    pub first: u64,
    /// Number of chunks.
    pub count: u64,
    /// 0 for the image, else the number of an extra device.
    pub device: u16,
    /// First block there.
    pub start: Blkaddr,
}

/// Runs of chunks of a file, in order. The rest are holes.
pub(crate) type ChunkRuns = Vec<ChunkRun>;

/// Appends a run, which may continue the last one.
pub(crate) fn push_run(runs: &mut ChunkRuns, run: ChunkRun, blocks_per_chunk: u64) {
    let follows = |last: &ChunkRun| {
        let is_next = last.first + last.count == run.first && last.device == run.device;
        is_next && last.start.0 + last.count * blocks_per_chunk == run.start.0
    };
    match runs.last_mut() {
        Some(last) if follows(last) => last.count += run.count,
        _ => runs.push(run),
    }
}

/// Returns the runs of a file that lies on devices already, in chunks of 2^`chunk_bits` bytes: each is part of one
/// of `runs`, or a hole.
pub(crate) fn of_placed(runs: &[PlacedRun], chunk_bits: u8, block_bits: BlockBits) -> ChunkRuns {
    let chunks = runs.iter().map(|run| {
        let first = run.la >> chunk_bits;
        let count = run.end().div_ceil(1 << chunk_bits) - first;
        let start = Blkaddr(run.pa >> block_bits.bits());
        // The header has room for every device's number, so one more than its index fits.
        ChunkRun { first, count, device: run.device + 1, start }
    });
    chunks.collect()
}

/// All chunks that are stored, by digest.
pub(crate) struct ChunkStore {
    block_bits: BlockBits,
    by_digest: HashMap<(u128, u64), Blkaddr>,
    count_max: usize,
    buf: Vec<u8>,
    /// Bytes of chunks that were stored already.
    pub shared_bytes: u64,
}

impl ChunkStore {
    /// Creates an empty store.
    pub(crate) fn new(format: &Format) -> Self {
        Self {
            block_bits: format.block_bits,
            by_digest: HashMap::new(),
            count_max: format.work.index_budget() / ENTRY_LEN,
            buf: Vec::new(),
            shared_bytes: 0,
        }
    }

    /// Stores the chunks of a file from `number` on, and adds them to its `runs`.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn append(
        &mut self,
        device: &mut Device<'_>,
        mut number: u64,
        chunks: ChunkedText<'_>,
        runs: &mut ChunkRuns,
    ) -> Result<(), BuildError> {
        let ChunkedText { chunk_bits, bytes, texts } = chunks;
        let blocks_per_chunk = 1 << (chunk_bits - self.block_bits.bits());
        device.align_to_block();
        for (chunk, text) in bytes.chunks(1 << chunk_bits).zip(texts) {
            if let ChunkText::Text(digest) = *text {
                let start = self.store(device, chunk, digest)?;
                let run = ChunkRun { first: number, count: 1, device: device.number, start };
                push_run(runs, run, blocks_per_chunk);
            }
            number += 1;
        }
        Ok(())
    }

    /// Returns the place of a chunk: that of an equal one, or a new one behind all others.
    fn store(&mut self, device: &mut Device<'_>, chunk: &[u8], digest: Option<u128>) -> Result<Blkaddr, BuildError> {
        let key = digest.map(|digest| (digest, chunk.len() as u64));
        if let Some(&at) = key.and_then(|key| self.by_digest.get(&key))
            && device.holds(chunk, at.0 << self.block_bits.bits(), &mut self.buf)?
        {
            self.shared_bytes += chunk.len() as u64;
            return Ok(at);
        }
        let at = Blkaddr(device.append(chunk)? >> self.block_bits.bits());
        if let Some(key) = key.filter(|_| self.by_digest.len() < self.count_max) {
            self.by_digest.entry(key).or_insert(at);
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{BuildOptions, WorkOptions};
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::fs::File;

    #[test]
    fn equal_chunks_are_stored_once_and_zeros_nowhere() {
        let file = File::from(memfd_create("kiln-chunks", MemfdFlags::CLOEXEC).unwrap());
        let bits = BlockBits::DEFAULT;
        let chunk = |fill: u8| vec![fill; 8192];
        let bytes = [chunk(1), chunk(2), chunk(1), chunk(0), chunk(3), chunk(4), vec![1; 4096]].concat();
        let stored = |format: &Format| {
            let mut device = Device::new(3, (&file, 512), bits, 100);
            let (mut store, mut runs) = (ChunkStore::new(format), ChunkRuns::new());
            let texts = ChunkText::of_all(&bytes, 13, format.dedupe);
            let chunks = ChunkedText { chunk_bits: 13, bytes: &bytes, texts: &texts };
            store.append(&mut device, 10, chunks, &mut runs).unwrap();
            (runs, device.end, store.shared_bytes)
        };
        let run = |(first, count, start)| ChunkRun { first, count, device: 3, start: Blkaddr(start) };
        let runs = [(10, 2, 1), (12, 1, 1), (14, 3, 5)].map(run).to_vec();
        let default = Format::decide(&BuildOptions::default(), None);
        assert_eq!(stored(&default), (runs, 40960, 8192));
        let runs = [(10, 3, 1), (14, 3, 7)].map(run).to_vec();
        for format in [
            Format { dedupe: Dedupe::Off, ..default.clone() },
            Format { work: WorkOptions { memory: 0, ..default.work.clone() }, ..default.clone() },
        ] {
            assert_eq!(stored(&format), (runs.clone(), 49152, 0));
        }
        // A chunk that only seems equal is stored.
        let mut device = Device::new(3, (&file, 0), bits, 4096);
        let (mut store, mut runs) = (ChunkStore::new(&default), ChunkRuns::new());
        let texts = [ChunkText::Text(Some(7)); 2];
        let chunks = ChunkedText { chunk_bits: 12, bytes: &[[1; 4096], [2; 4096]].concat(), texts: &texts };
        store.append(&mut device, 0, chunks, &mut runs).unwrap();
        assert_eq!((runs, store.shared_bytes), (vec![run((0, 2, 1))], 0));
    }
}
