//! The choices that define an order, and the orders of all epochs.

use std::ops::Range;
use std::sync::Arc;

use crate::blocks::Blocks;
use crate::error::Invalid;

/// Choices that define an order of given blocks. Two orders with the same blocks and choices are
/// equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderChoices {
    /// Seed of the order.
    pub seed: u64,
    /// Number of samples in a global batch: all ranks together in one step.
    pub batch_global: u32,
    /// Number of parts of the dataset from which each batch takes equally many samples: 1 for local
    /// data; the number of nodes if each node fetches its own data. Must divide `batch_global`.
    pub lanes: u32,
    /// Number of blocks whose samples are mixed, in each lane. See
    /// [`defaults`](crate::defaults::window_blocks).
    pub window_blocks: u32,
    /// True to shuffle. Otherwise samples come in stored order, and each lane is a contiguous part
    /// of it.
    pub shuffle: bool,
    /// Treatment of samples that do not fill a batch.
    pub last: LastBatch,
}

/// Treatment of samples at the end of an epoch that do not fill a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastBatch {
    /// They are left out in this epoch.
    Drop,
    /// They are a shorter batch: each sample comes once.
    Short,
    /// The batch is filled with samples from the start of the epoch, each lane with its own
    /// samples: all ranks have equally many.
    Fill,
}

impl Default for OrderChoices {
    /// Returns seed 0, batches of 256 from one lane, 256 blocks, shuffled, and drops the samples
    /// left over.
    fn default() -> Self {
        Self { seed: 0, batch_global: 256, lanes: 1, window_blocks: 256, shuffle: true, last: LastBatch::Drop }
    }
}

impl OrderChoices {
    /// Returns the number of batches in an epoch of `sample_count` samples.
    pub fn steps(&self, sample_count: u32) -> u64 {
        let (count, batch) = (u64::from(sample_count), u64::from(self.batch_global.max(1)));
        if self.last == LastBatch::Drop { count / batch } else { count.div_ceil(batch) }
    }
}

/// Orders of all epochs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Order {
    blocks: Arc<Blocks>,
    choices: OrderChoices,
}

/// Part of each global batch that one rank takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share(pub(crate) Range<u32>);

impl Share {
    /// Returns the number of the rank's samples in each batch that is not short.
    pub fn len(&self) -> u32 {
        self.0.len() as u32
    }
}

impl Order {
    /// Returns the orders of `blocks` under `choices`.
    ///
    /// # Errors
    /// A choice that is 0 or does not fit another one.
    pub fn new(blocks: impl Into<Arc<Blocks>>, choices: OrderChoices) -> Result<Self, Invalid> {
        let blocks = blocks.into();
        let OrderChoices { batch_global, lanes, window_blocks, last, .. } = choices;
        for (field, value) in [("batch_global", batch_global), ("lanes", lanes), ("window_blocks", window_blocks)] {
            if value == 0 {
                return Err(Invalid::new(field, 0_u32, "1 or more"));
            }
        }
        if !batch_global.is_multiple_of(lanes) {
            return Err(Invalid::new("lanes", lanes, format!("a divisor of batch_global, which is {batch_global}")));
        }
        let count = blocks.sample_count();
        if last == LastBatch::Fill && count > 0 && count < lanes {
            return Err(Invalid::new("lanes", lanes, format!("at most {count}: there are no more samples")));
        }
        Ok(Self { blocks, choices })
    }

    /// Returns the choices.
    pub fn choices(&self) -> &OrderChoices {
        &self.choices
    }

    /// Returns the blocks.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    pub(crate) fn shared_blocks(&self) -> Arc<Blocks> {
        self.blocks.clone()
    }

    /// Returns the number of batches in each epoch.
    pub fn steps(&self) -> u64 {
        self.choices.steps(self.blocks.sample_count())
    }

    /// Returns the part of each batch that `rank` of `world_size` takes. The parts of all ranks, in
    /// order, are the global batch.
    ///
    /// # Errors
    /// A `world_size` that does not divide the global batch; a rank not below `world_size`.
    pub fn share(&self, rank: u32, world_size: u32) -> Result<Share, Invalid> {
        let batch = self.choices.batch_global;
        if world_size == 0 || !batch.is_multiple_of(world_size) {
            let expected = format!("a divisor of batch_global, which is {batch}");
            return Err(Invalid::new("world_size", world_size, expected));
        }
        if rank >= world_size {
            return Err(Invalid::new("rank", rank, format!("below world_size, which is {world_size}")));
        }
        let len = batch / world_size;
        Ok(Share(rank * len..(rank + 1) * len))
    }

    /// Returns the share that is the whole of each batch.
    pub fn whole(&self) -> Share {
        Share(0..self.choices.batch_global)
    }
}
