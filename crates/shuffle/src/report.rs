//! Quality and cost of an order, as measured figures.

use std::collections::VecDeque;

use crate::blocks::Blocks;
use crate::error::Invalid;
use crate::order::Order;

/// Quality of the mix of batches, by the classes of their samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing {
    /// Pearson's χ² of the counts of classes in a batch against those of the whole dataset, divided
    /// by its degrees of freedom; mean over all batches. 1 if each batch is drawn uniformly, more
    /// if samples of a class come together.
    pub dispersion: f64,
    /// Number of different classes in a batch; mean over all batches.
    pub classes: f64,
    /// The same number for batches that are drawn uniformly, with replacement.
    pub uniform_classes: f64,
}

/// Frequency of two samples of one block in one batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockPairs {
    /// Share of all pairs within blocks that are in one batch.
    pub share: f64,
    /// The same share for all pairs of samples. Every order that is 2-wise independent has it, such
    /// as a uniform one.
    pub uniform: f64,
}

/// Classes of samples.
#[derive(Clone, Copy, Debug)]
pub struct ClassLabels<'a>(&'a [u32]);

impl<'a> ClassLabels<'a> {
    /// Creates labels from the class of each sample, by sample number, for an index with these
    /// samples. Classes are numbered from 0.
    ///
    /// # Errors
    /// A sample without label; a class that is not below the number of labels, as there is a
    /// counter for each class.
    pub fn new(labels: &'a [u32], samples: &[u32]) -> Result<Self, Invalid> {
        let count = labels.len() as u64;
        if let Some(&sample) = samples.iter().find(|&&sample| u64::from(sample) >= count) {
            return Err(Invalid::new("number of labels", count, format!("above {sample}, the number of a sample")));
        }
        match labels.iter().find(|&&class| u64::from(class) >= count) {
            Some(&class) => Err(Invalid::new("label", class, format!("below {count}, the number of labels"))),
            None => Ok(Self(labels)),
        }
    }

    /// Returns the class of a sample; 0 if it has no label.
    fn of(&self, sample: u32) -> usize {
        self.0.get(sample as usize).map_or(0, |&class| class as usize)
    }

    fn counts(&self, samples: &[u32]) -> Vec<u64> {
        let mut counts = vec![0; self.0.iter().max().map_or(1, |&class| class as usize + 1)];
        samples.iter().for_each(|&sample| counts[self.of(sample)] += 1);
        counts
    }
}

/// Returns the number of classes that occur.
fn occurring(counts: &[u64]) -> usize {
    counts.iter().filter(|&&count| count > 0).count()
}

/// Returns how well the batches of `order` are mixed: whole batches of `batch_len` samples. A
/// shorter last batch is ignored.
pub fn mixing(order: &[u32], labels: ClassLabels<'_>, batch_len: usize) -> Mixing {
    let counts = labels.counts(order);
    let (total, freedom) = (order.len() as f64, occurring(&counts).saturating_sub(1).max(1) as f64);
    let share = |class: usize| counts[class] as f64 / total;
    let mut in_batch = vec![0_u32; counts.len()];
    let (mut batches, mut chi, mut classes) = (0_u64, 0.0, 0_u64);
    for batch in order.chunks_exact(batch_len.max(1)) {
        batch.iter().for_each(|&sample| in_batch[labels.of(sample)] += 1);
        // Σ (o − e)² / e = Σ o² / e − batch length, over the classes that occur in the batch.
        let mut sum = 0.0;
        for &sample in batch {
            let class = labels.of(sample);
            let count = std::mem::take(&mut in_batch[class]);
            if count > 0 {
                sum += f64::from(count).powi(2) / (share(class) * batch_len as f64);
                classes += 1;
            }
        }
        chi += sum - batch_len as f64;
        batches += 1;
    }
    let misses = |class: usize| (1.0 - share(class)).powi(i32::try_from(batch_len).unwrap_or(i32::MAX));
    let uniform_classes = (0..counts.len()).map(|class| 1.0 - misses(class)).sum();
    let batches = batches.max(1) as f64;
    Mixing { dispersion: chi / batches / freedom, classes: classes as f64 / batches, uniform_classes }
}

/// Returns the same as [`Mixing::dispersion`]. For the samples in stored order, it shows if they
/// are stored shuffled.
pub fn dispersion(order: &[u32], labels: ClassLabels<'_>, batch_len: usize) -> f64 {
    mixing(order, labels, batch_len).dispersion
}

/// Returns the similarity of the samples in a block: 1 if each block has one class, 0 if blocks are
/// independent of classes (or slightly below 0).
///
/// With p the share of a class, and q the share of pairs within blocks whose samples are both of
/// it, this is Σ (q − p²) / p over all classes, divided by their number less one: the part of the
/// expected χ² that pairs from one block contribute.
pub fn likeness(blocks: &Blocks, labels: ClassLabels<'_>) -> f64 {
    let counts = labels.counts(blocks.samples());
    let mut same = vec![0.0; counts.len()];
    let mut in_block = vec![0_u32; counts.len()];
    let mut pairs = 0.0;
    for block in blocks.iter() {
        block.iter().for_each(|&sample| in_block[labels.of(sample)] += 1);
        for &sample in block {
            let class = labels.of(sample);
            same[class] += pair_count(u64::from(std::mem::take(&mut in_block[class])));
        }
        pairs += pair_count(block.len() as u64);
    }
    let total = f64::from(blocks.sample_count());
    let classes = occurring(&counts);
    if pairs == 0.0 || classes < 2 {
        return 0.0;
    }
    let of_class = |class: usize| {
        let count = counts[class] as f64;
        // Pairs of all samples are used for p², as no sample is drawn twice.
        let all = count / total * (count - 1.0) / (total - 1.0);
        (same[class] / pairs - all) / (count / total)
    };
    let sum: f64 = (0..counts.len()).filter(|&class| counts[class] > 0).map(of_class).sum();
    sum / (classes - 1) as f64
}

/// Returns the expected dispersion of an order whose blocks have this [`likeness`]: 1 + h (G/C − 1)
/// / n, where a batch takes G/C samples from a lane with windows of n blocks.
pub fn expected_dispersion(order: &Order, likeness: f64) -> f64 {
    let lens: Vec<usize> = order.epoch(0).window_lens().collect();
    let mean_len = lens.iter().sum::<usize>() as f64 / lens.len().max(1) as f64;
    let per_lane = order.choices().batch_global / order.choices().lanes;
    if mean_len == 0.0 { 1.0 } else { 1.0 + likeness * f64::from(per_lane - 1) / mean_len }
}

fn pair_count(len: u64) -> f64 {
    len as f64 * len.saturating_sub(1) as f64 / 2.0
}

/// Returns the block of each sample, by sample number.
fn block_of(blocks: &Blocks) -> Vec<u32> {
    let len = blocks.samples().iter().max().map_or(0, |&sample| sample as usize + 1);
    let mut block_of = vec![0; len];
    for (block, samples) in blocks.iter().enumerate() {
        samples.iter().for_each(|&sample| block_of[sample as usize] = block as u32);
    }
    block_of
}

/// Returns how often samples of one block are in one batch, in an epoch of `order`.
pub fn pairs(order: &Order, epoch: u64) -> BlockPairs {
    let blocks = order.blocks();
    let (block_of, mut in_batch) = (block_of(blocks), vec![0_u32; blocks.block_count()]);
    let mut together = 0.0;
    let (mut epoch, whole) = (order.epoch(epoch), order.whole());
    while let Some(batch) = epoch.next_batch(&whole) {
        let block = |sample: u32| block_of[sample as usize] as usize;
        batch.iter().for_each(|&sample| in_batch[block(sample)] += 1);
        for &sample in &batch {
            together += pair_count(u64::from(std::mem::take(&mut in_batch[block(sample)])));
        }
    }
    let all: f64 = blocks.iter().map(|samples| pair_count(samples.len() as u64)).sum();
    let (batch, count) = (f64::from(order.choices().batch_global), f64::from(blocks.sample_count()));
    BlockPairs { share: together / all.max(1.0), uniform: (batch - 1.0) / (count - 1.0).max(1.0) }
}

/// Returns the stored bytes fetched in an epoch, per stored byte of the dataset, by readers that
/// fetch whole blocks and cache the most recently used. Each lane has its own reader, whose cache
/// holds as many bytes as `windows` of its windows.
pub fn fetched(order: &Order, epoch: u64, windows: f64) -> f64 {
    let blocks = order.blocks();
    let block_of = block_of(blocks);
    let lanes = order.choices().lanes;
    let mut fetched = 0_u64;
    for lane in 0..lanes {
        // As many ranks as lanes: each rank has its own lane.
        let Ok(share) = order.share(lane, lanes) else { continue };
        let mut epoch = order.epoch(epoch);
        let window_count = epoch.window_lens().count().max(1) as f64;
        let capacity = (windows * blocks.stored_len() as f64 / window_count) as u64;
        let mut cache = RecentBlocks { capacity, ..RecentBlocks::new(blocks) };
        while let Some(batch) = epoch.next_batch(&share) {
            batch.iter().for_each(|&sample| cache.read(block_of[sample as usize], blocks));
        }
        fetched += cache.fetched;
    }
    fetched as f64 / blocks.stored_len().max(1) as f64
}

/// Cache of blocks that evicts the least recently used ones.
struct RecentBlocks {
    capacity: u64,
    held: u64,
    fetched: u64,
    /// Time of the last use of each block; 0 if it is not cached.
    used: Vec<u64>,
    /// Uses in order of time. A use that is not the last one of its block is skipped.
    uses: VecDeque<(u32, u64)>,
    now: u64,
}

impl RecentBlocks {
    fn new(blocks: &Blocks) -> Self {
        let used = vec![0; blocks.block_count()];
        Self { capacity: 0, held: 0, fetched: 0, used, uses: VecDeque::new(), now: 0 }
    }

    fn read(&mut self, block: u32, blocks: &Blocks) {
        self.now += 1;
        if std::mem::replace(&mut self.used[block as usize], self.now) == 0 {
            let len = blocks.block_stored_len(block as usize);
            self.fetched += len;
            self.held += len;
        }
        self.uses.push_back((block, self.now));
        while let Some(&(oldest, time)) = self.uses.front() {
            let is_last = self.used[oldest as usize] == time;
            if is_last && (self.held <= self.capacity || time == self.now) {
                break;
            }
            if is_last {
                self.used[oldest as usize] = 0;
                self.held -= blocks.block_stored_len(oldest as usize);
            }
            self.uses.pop_front();
        }
    }
}
