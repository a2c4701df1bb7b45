//! Uncompressed files in chunks of one size, of which equal ones are stored once and those of zeros not at all.
//!
//! Workers take the digests; the one thread that writes looks for a chunk with the same, and reads it back: a digest only
//! nominates, bytes decide.

use kiln_format::{Blkaddr, BlockBits};
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_128;

use crate::error::BuildError;
use crate::options::{BuildOptions, Dedupe};
use crate::pack::device::Device;

/// Bytes that an entry of the index takes, about.
const ENTRY_LEN: usize = 64;

/// What a worker knows of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChunkText {
    /// It has nothing but zeros.
    Zeros,
    /// It has text, with this digest if that matters.
    Text(Option<u128>),
}

impl ChunkText {
    /// Look at each chunk of `text`, whose last one may be shorter.
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
    /// What is known of each.
    pub texts: &'a [ChunkText],
}

/// Runs of chunks of a file that lie one behind the other: number of the first chunk, count, first block. The rest are
/// holes.
pub(crate) type ChunkRuns = Vec<(u64, u64, Blkaddr)>;

/// Append chunks from `first` on that lie one behind the other from `at` on.
pub(crate) fn push_run(runs: &mut ChunkRuns, first: u64, count: u64, at: Blkaddr, blocks_per_chunk: u64) {
    match runs.last_mut() {
        Some((run, before, start)) if *run + *before == first && start.0 + *before * blocks_per_chunk == at.0 => {
            *before += count;
        }
        _ => runs.push((first, count, at)),
    }
}

/// All chunks that are stored, by digest.
pub(crate) struct ChunkStore {
    block_bits: BlockBits,
    by_digest: HashMap<(u128, u64), Blkaddr>,
    count_max: usize,
    buf: Vec<u8>,
    /// Bytes of chunks that were there already.
    pub shared_bytes: u64,
}

impl ChunkStore {
    /// None yet.
    pub(crate) fn new(options: &BuildOptions) -> Self {
        Self {
            block_bits: options.block_bits,
            by_digest: HashMap::new(),
            count_max: options.index_budget() / ENTRY_LEN,
            buf: Vec::new(),
            shared_bytes: 0,
        }
    }

    /// Store the chunks of a file from `number` on, and add them to its `runs`.
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
                let at = self.store(device, chunk, digest)?;
                push_run(runs, number, 1, at, blocks_per_chunk);
            }
            number += 1;
        }
        Ok(())
    }

    /// Where a chunk lies: where an equal one does, or behind all others.
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
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::fs::File;

    #[test]
    fn equal_chunks_are_stored_once_and_zeros_nowhere() {
        let file = File::from(memfd_create("kiln-chunks", MemfdFlags::CLOEXEC).unwrap());
        let bits = BlockBits::DEFAULT;
        let chunk = |fill: u8| vec![fill; 8192];
        let bytes = [chunk(1), chunk(2), chunk(1), chunk(0), chunk(3), chunk(4), vec![1; 4096]].concat();
        let stored = |options: &BuildOptions| {
            let mut device = Device::new(&file, 512, bits, 100);
            let (mut store, mut runs) = (ChunkStore::new(options), ChunkRuns::new());
            let texts = ChunkText::of_all(&bytes, 13, options.dedupe);
            let chunks = ChunkedText { chunk_bits: 13, bytes: &bytes, texts: &texts };
            store.append(&mut device, 10, chunks, &mut runs).unwrap();
            (runs, device.end, store.shared_bytes)
        };
        let at = Blkaddr;
        let runs = vec![(10, 2, at(1)), (12, 1, at(1)), (14, 3, at(5))];
        assert_eq!(stored(&BuildOptions::default()), (runs, 40960, 8192));
        let runs = vec![(10, 3, at(1)), (14, 3, at(7))];
        for options in [
            BuildOptions { dedupe: Dedupe::Off, ..BuildOptions::default() },
            BuildOptions { memory: 0, ..BuildOptions::default() },
        ] {
            assert_eq!(stored(&options), (runs.clone(), 49152, 0));
        }
        // What only seems to be equal is stored.
        let mut device = Device::new(&file, 0, bits, 4096);
        let (mut store, mut runs) = (ChunkStore::new(&BuildOptions::default()), ChunkRuns::new());
        let texts = [ChunkText::Text(Some(7)); 2];
        let chunks = ChunkedText { chunk_bits: 12, bytes: &[[1; 4096], [2; 4096]].concat(), texts: &texts };
        store.append(&mut device, 0, chunks, &mut runs).unwrap();
        assert_eq!((runs, store.shared_bytes), (vec![(0, 2, at(1))], 0));
    }
}
