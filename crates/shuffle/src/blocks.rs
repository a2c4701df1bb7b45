//! Blocks: runs of samples that are stored next to each other, the unit in which stored data is
//! read.

use std::ops::Range;

use crate::error::Invalid;

/// Location of a sample in storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredSample {
    /// Number of the sample, as the caller counts.
    pub sample: u32,
    /// Device of the address: 0 for the image itself.
    pub device: u16,
    /// Byte address of the first stored byte; of the first cluster, if several samples are
    /// compressed together.
    pub address: u64,
    /// Stored bytes that must be read for the sample, including all of each shared cluster.
    pub stored_len: u64,
}

/// Stored bytes of samples in stored order. Overlapping bytes count once.
#[derive(Default)]
struct Reach {
    len: u64,
    device: u16,
    end: u64,
}

impl Reach {
    fn add(&mut self, (device, address): (u16, u64), stored_len: u64) {
        if device != self.device {
            (self.device, self.end) = (device, 0);
        }
        let end = address.saturating_add(stored_len);
        self.len = self.len.saturating_add(end.saturating_sub(address.max(self.end)));
        self.end = end.max(self.end);
    }
}

/// All samples in stored order, cut into blocks. Takes 4 bytes per sample and 12 bytes per block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Numbers of the samples, in stored order.
    samples: Vec<u32>,
    /// End of each block in `samples`; the last is the number of samples.
    ends: Vec<u32>,
    /// Stored bytes to read for each block. Bytes that two blocks share count for both.
    stored_lens: Vec<u64>,
    /// Stored bytes of all blocks. Bytes that two blocks share count once.
    stored_len: u64,
    /// Number of stored bytes at which blocks were cut.
    block_bytes: u64,
}

impl Blocks {
    /// Cuts `stored`, which must be in stored order, into blocks of at least `block_bytes` stored
    /// bytes. Samples that begin in the same cluster stay in one block, so that it is decoded for
    /// one block only; so do files that share their stored data. A sample that covers several
    /// clusters may end in the one with which the next block begins.
    ///
    /// # Errors
    /// More than 2^32 − 1 samples; a `block_bytes` of 0.
    ///
    /// ```
    /// use kiln_shuffle::{Blocks, StoredSample};
    ///
    /// // Samples 2 and 0 are compressed together.
    /// let at = |sample, address| StoredSample { sample, device: 0, address, stored_len: 4096 };
    /// let blocks = Blocks::cut([at(3, 0), at(2, 4096), at(0, 4096), at(1, 8192)], 8192)?;
    /// assert_eq!(blocks.iter().collect::<Vec<_>>(), [&[3, 2, 0][..], &[1]]);
    /// assert_eq!(blocks.stored_len(), 12288);
    /// # Ok::<(), kiln_shuffle::Invalid>(())
    /// ```
    pub fn cut(stored: impl IntoIterator<Item = StoredSample>, block_bytes: u64) -> Result<Self, Invalid> {
        if block_bytes == 0 {
            return Err(Invalid::new("block_bytes", 0_u64, "1 or more"));
        }
        let stored = stored.into_iter();
        let mut blocks = Self { block_bytes, ..Self::default() };
        blocks.samples.reserve(stored.size_hint().0.min(u32::MAX as usize));
        // The cluster of the previous sample, and the stored bytes of all samples and of the block.
        let mut last = None;
        let (mut all, mut block) = (Reach::default(), Reach::default());
        for StoredSample { sample, device, address, stored_len } in stored {
            let cluster = (stored_len > 0).then_some((device, address));
            let shares_cluster = cluster.is_some() && cluster == last;
            if block.len >= block_bytes && !shares_cluster {
                blocks.close(std::mem::take(&mut block).len);
            }
            if blocks.samples.len() == u32::MAX as usize {
                return Err(Invalid::new(
                    "number of samples",
                    u64::from(u32::MAX) + 1,
                    "at most 2^32 - 1 in one index",
                ));
            }
            blocks.samples.push(sample);
            if let Some(cluster) = cluster {
                all.add(cluster, stored_len);
                block.add(cluster, stored_len);
                last = Some(cluster);
            }
        }
        if blocks.ends.last().copied().unwrap_or(0) as usize != blocks.samples.len() {
            blocks.close(block.len);
        }
        Ok(Self { stored_len: all.len, ..blocks })
    }

    fn close(&mut self, stored_len: u64) {
        // `cut` rejects more samples than fit.
        self.ends.push(self.samples.len() as u32);
        self.stored_lens.push(stored_len);
    }

    /// Returns the number of samples.
    pub fn sample_count(&self) -> u32 {
        self.samples.len() as u32
    }

    /// Returns the number of blocks.
    pub fn block_count(&self) -> usize {
        self.ends.len()
    }

    /// Returns all samples, in stored order.
    pub fn samples(&self) -> &[u32] {
        &self.samples
    }

    /// Returns the stored bytes of all samples. Bytes that several samples share count once if
    /// these are adjacent.
    pub fn stored_len(&self) -> u64 {
        self.stored_len
    }

    /// Returns the number of stored bytes at which blocks were cut.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Returns the samples of each block, in stored order.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.ends.len()).map(|block| &self.samples[self.range_usize(block)])
    }

    /// Returns the stored bytes to read for a block.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn block_stored_len(&self, block: usize) -> u64 {
        self.stored_lens[block]
    }

    /// Returns the range of a block's samples in [`Blocks::samples`].
    ///
    /// # Panics
    /// If there is no such block.
    pub fn range(&self, block: usize) -> Range<u32> {
        let start = if block == 0 { 0 } else { self.ends[block - 1] };
        start..self.ends[block]
    }

    fn range_usize(&self, block: usize) -> Range<usize> {
        let Range { start, end } = self.range(block);
        start as usize..end as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(sample: u32, device: u16, address: u64, stored_len: u64) -> StoredSample {
        StoredSample { sample, device, address, stored_len }
    }

    fn cut(stored: &[StoredSample], block_bytes: u64) -> (Vec<Vec<u32>>, Vec<u64>) {
        let blocks = Blocks::cut(stored.iter().copied(), block_bytes).unwrap();
        assert!(blocks.stored_lens.iter().sum::<u64>() >= blocks.stored_len());
        let samples: Vec<Vec<u32>> = blocks.iter().map(<[u32]>::to_vec).collect();
        assert_eq!(samples.concat(), blocks.samples());
        assert!(samples.iter().all(|samples| !samples.is_empty()));
        (samples, blocks.stored_lens)
    }

    #[test]
    fn blocks_end_at_their_length() {
        let places: Vec<_> = (0..7).map(|sample| stored(sample, 0, u64::from(sample) * 10, 10)).collect();
        assert_eq!(cut(&places, 1).0.len(), 7);
        assert_eq!(cut(&places, 20), (vec![vec![0, 1], vec![2, 3], vec![4, 5], vec![6]], vec![20, 20, 20, 10]));
        assert_eq!(cut(&places, 25).0, [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
        assert_eq!(cut(&places, u64::MAX).0.len(), 1);
        assert_eq!(cut(&[], 1).0.len(), 0);
    }

    #[test]
    fn samples_of_one_cluster_stay_together_and_count_once() {
        // Five samples in a cluster, one that ends in the next cluster, and one that begins there;
        // then another device.
        let places: Vec<_> = (0..5)
            .map(|sample| stored(sample, 0, 0, 100))
            .chain([stored(5, 0, 0, 200), stored(6, 0, 100, 100), stored(7, 1, 100, 100), stored(8, 1, 100, 100)])
            .collect();
        assert_eq!(cut(&places, 1), (vec![(0..6).collect(), vec![6], vec![7, 8]], vec![200, 100, 100]));
        assert_eq!(Blocks::cut(places.iter().copied(), 1).unwrap().stored_len(), 300);
        assert_eq!(cut(&places, 201), (vec![(0..9).collect()], vec![300]));
    }

    #[test]
    fn samples_without_data_join_the_block_before() {
        let places = [stored(0, 0, 0, 0), stored(1, 0, 50, 10), stored(2, 0, 0, 0), stored(3, 0, 60, 10)];
        assert_eq!(cut(&places, 100), (vec![vec![0, 1, 2, 3]], vec![20]));
        assert_eq!(cut(&places, 10).0, [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn hostile_lengths_do_not_overflow() {
        let places = [stored(0, 0, u64::MAX - 1, u64::MAX), stored(1, 1, 5, u64::MAX), stored(2, 2, 0, u64::MAX)];
        let blocks = Blocks::cut(places, u64::MAX).unwrap();
        assert_eq!(blocks.stored_len(), u64::MAX);
        let error = Blocks::cut([], 0).unwrap_err();
        assert_eq!(error.to_string(), "block_bytes is 0, but must be 1 or more");
    }
}
