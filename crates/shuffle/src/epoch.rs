//! One epoch, read batch by batch from any step on.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::blocks::Blocks;
use crate::lanes::{Lane, deal};
use crate::order::{LastBatch, Order, OrderChoices, Share};
use crate::rng::{Key, Purpose};

/// Order of one epoch, and a position in it. Stores the order of the blocks, but that of samples
/// only for the current window of each lane.
///
/// ```
/// use kiln_shuffle::{Blocks, OrderChoices, Order, StoredSample};
///
/// let stored = (0..1000).map(|sample| StoredSample { sample, device: 0, address: u64::from(sample) * 100, stored_len: 100 });
/// let choices = OrderChoices { batch_global: 64, window_blocks: 4, ..OrderChoices::default() };
/// let order = Order::new(Blocks::cut(stored, 3800)?, choices)?;
///
/// // The second of four processes, after seven steps of the third epoch.
/// let share = order.share(1, 4)?;
/// let mut epoch = order.epoch(2);
/// epoch.seek(7);
/// let batch = epoch.next_batch(&share).unwrap();
/// assert_eq!(batch, order.order(2)[7 * 64 + 16..][..16]);
/// assert_eq!(order.steps(), 15);
/// # Ok::<(), kiln_shuffle::Invalid>(())
/// ```
#[derive(Debug)]
pub struct Epoch {
    blocks: Arc<Blocks>,
    choices: OrderChoices,
    epoch: u64,
    steps: u64,
    step: u64,
    lanes: Vec<Lane>,
    /// The window of each lane that was read last; empty before the first read.
    windows: Vec<Window>,
    permuted: u64,
}

/// Samples of a window, in the order in which they are visited.
#[derive(Debug, Default)]
struct Window {
    /// Their positions in the lane.
    range: Range<u32>,
    samples: Vec<u32>,
}

impl Order {
    /// Returns an epoch, at its start. Takes time and 8 bytes for each block; samples cost only
    /// when their window is read.
    pub fn epoch(&self, epoch: u64) -> Epoch {
        Epoch::new(self, epoch)
    }

    /// Returns all batches of an epoch, one after the other. Takes 4 bytes per sample.
    pub fn order(&self, epoch: u64) -> Vec<u32> {
        let (mut epoch, whole) = (self.epoch(epoch), self.whole());
        let mut order = Vec::new();
        while let Some(batch) = epoch.next_batch(&whole) {
            order.extend(batch);
        }
        order
    }
}

impl Epoch {
    fn new(order: &Order, epoch: u64) -> Self {
        let (blocks, choices, steps) = (order.shared_blocks(), *order.choices(), order.steps());
        let lanes = deal(&blocks, &choices, epoch);
        let windows = lanes.iter().map(|_| Window::default()).collect();
        Self { blocks, choices, epoch, steps, step: 0, lanes, windows, permuted: 0 }
    }

    /// Returns the number of the epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the number of batches.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the number of the next batch, counted from 0; [`Epoch::steps`] at the end.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Moves to a batch, or to the end if there are fewer. Takes constant time: the batches between
    /// are not computed.
    pub fn seek(&mut self, step: u64) {
        self.step = step.min(self.steps);
    }

    /// Returns the samples of the next batch that are in `share`, in the order in which they are
    /// visited, and moves on. Returns `None` at the end.
    pub fn next_batch(&mut self, share: &Share) -> Option<Vec<u32>> {
        let batch = self.batch(share)?;
        self.step += 1;
        Some(batch)
    }

    /// Returns the same as [`Epoch::next_batch`], without moving on.
    pub fn batch(&mut self, share: &Share) -> Option<Vec<u32>> {
        let mut batch = Vec::with_capacity(share.0.len());
        for (lane, wanted) in self.wanted(share)? {
            let mut from = wanted.start;
            while from < wanted.end {
                let at = self.position(lane, from);
                let window = self.window(lane, at);
                let skipped = (at - window.range.start) as usize;
                let len = ((window.range.end - at) as u64).min(wanted.end - from);
                batch.extend_from_slice(&window.samples[skipped..skipped + len as usize]);
                from += len;
            }
        }
        Some(batch)
    }

    /// Returns samples of the following windows to announce to the storage with the next batch, in
    /// stored order within each block. Announced with each batch of the share, they add up to the
    /// whole following window by the time that a batch needs it: evenly, but in whole blocks, each
    /// of which one request can fetch. The first window of an epoch, and the one to which a seek
    /// leads, are not among them: see [`Epoch::underway`].
    pub fn upcoming(&self, share: &Share) -> Vec<u32> {
        let per_lane = u64::from(self.choices.batch_global / self.choices.lanes);
        let mut samples = Vec::new();
        for (lane, wanted) in self.wanted(share).unwrap_or_default() {
            let lane = &self.lanes[lane];
            let mut from = wanted.start;
            while from < wanted.end.min(u64::from(lane.len())) {
                let window = lane.window_at(from as u32);
                let this = lane.window_range(window);
                let end = wanted.end.min(u64::from(this.end));
                if window + 1 < lane.window_count() {
                    let next = lane.window_range(window + 1);
                    // Complete one batch before the end, so that a batch that crosses into the next
                    // window finds it announced.
                    let span = u64::from(this.end - this.start).saturating_sub(per_lane).max(1);
                    let scale = |at: u64| {
                        let (done, len) = (at - u64::from(this.start), u64::from(next.end - next.start));
                        lane.part_end(next.start + (done * len / span).min(len) as u32)
                    };
                    let stored = lane.stored_ranges(scale(from)..scale(end)).flatten();
                    samples.extend(stored.map(|at| self.blocks.samples()[at as usize]));
                }
                from = end;
            }
        }
        samples
    }

    /// Returns the samples that the share still needs of the current windows, to announce before
    /// the next batch, in stored order within each block. Nothing has announced these windows where
    /// reading begins.
    pub fn underway(&mut self, share: &Share) -> Vec<u32> {
        let per_lane = u64::from(self.choices.batch_global / self.choices.lanes);
        let mut samples = Vec::new();
        for (lane, wanted) in self.wanted(share).unwrap_or_default() {
            let at = self.position(lane, wanted.start);
            let slots = wanted.start % per_lane..wanted.start % per_lane + (wanted.end - wanted.start);
            let window = self.window(lane, at);
            let is_wanted = |&(at, _): &(u32, &u32)| slots.contains(&(u64::from(at) % per_lane));
            let left = (at..window.range.end).zip(&window.samples[(at - window.range.start) as usize..]);
            let left: HashSet<u32> = left.filter(is_wanted).map(|(_, &sample)| sample).collect();
            let lane = &self.lanes[lane];
            let stored = lane.stored_ranges(lane.window_range(lane.window_at(at))).flatten();
            let stored = stored.map(|at| self.blocks.samples()[at as usize]);
            samples.extend(stored.filter(|sample| left.contains(sample)));
        }
        samples
    }

    /// Returns the number of samples permuted so far: the cost of reading and seeking, in addition
    /// to that of the blocks.
    pub fn permuted(&self) -> u64 {
        self.permuted
    }

    /// Returns the number of blocks, or parts of blocks, in each window of each lane.
    pub fn window_lens(&self) -> impl Iterator<Item = usize> {
        self.lanes.iter().flat_map(|lane| (0..lane.window_count()).map(|window| lane.window_parts(window).len()))
    }

    /// Returns the samples of each lane that are the next batch's part in `share`. Positions beyond
    /// the end of a lane wrap around to its start.
    fn wanted(&self, share: &Share) -> Option<Vec<(usize, Range<u64>)>> {
        let per_lane = self.choices.batch_global / self.choices.lanes;
        let start = self.step * u64::from(per_lane);
        // Shares of another order may exceed this order's batches.
        let bound = |at: u32| at.min(self.choices.batch_global);
        let (first, end) = (bound(share.0.start), bound(share.0.end));
        let part = |lane: u32| {
            let len = match self.choices.last {
                LastBatch::Short => u64::from(self.lanes[lane as usize].len()),
                LastBatch::Drop | LastBatch::Fill => u64::MAX,
            };
            let slot = |at: u32| u64::from(at.saturating_sub(lane * per_lane).min(per_lane));
            (lane as usize, (start + slot(first)).min(len)..(start + slot(end)).min(len))
        };
        let parts = (first / per_lane..end.div_ceil(per_lane)).map(part);
        (self.step < self.steps).then(|| parts.filter(|(_, wanted)| !wanted.is_empty()).collect())
    }

    /// Returns the position in a lane for `at`, which may wrap around.
    fn position(&self, lane: usize, at: u64) -> u32 {
        // Below the lane's length, which is not 0 if there are batches.
        (at % u64::from(self.lanes[lane].len())) as u32
    }

    /// Returns the window with sample `at` of a lane.
    fn window(&mut self, lane: usize, at: u32) -> &Window {
        if !self.windows[lane].range.contains(&at) {
            let number = self.lanes[lane].window_at(at);
            let range = self.lanes[lane].window_range(number);
            // The memory of the previous window is reused.
            let mut samples = std::mem::take(&mut self.windows[lane].samples);
            samples.clear();
            for range in self.lanes[lane].stored_ranges(range.clone()) {
                samples.extend_from_slice(&self.blocks.samples()[range.start as usize..range.end as usize]);
            }
            if self.choices.shuffle {
                let OrderChoices { seed, .. } = self.choices;
                let key = Key { seed, epoch: self.epoch, purpose: Purpose::Window, lane: lane as u64, window: number };
                key.rng().permute(&mut samples);
            }
            self.permuted += samples.len() as u64;
            self.windows[lane] = Window { range, samples };
        }
        &self.windows[lane]
    }
}
