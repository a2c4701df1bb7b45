//! Distribution of an epoch's blocks to lanes, and the windows of a lane.

use std::ops::Range;

use crate::blocks::Blocks;
use crate::order::OrderChoices;
use crate::rng::{Key, Purpose};

/// Block of a lane, or the part of a block that fitted.
#[derive(Clone, Copy, Debug)]
struct BlockPart {
    /// Position of its first sample in the stored order.
    stored_at: u32,
    /// Position of its first sample in the lane.
    at: u32,
}

/// Samples of one lane in one epoch: parts of the stored order, in windows.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    parts: Vec<BlockPart>,
    len: u32,
    window_count: u64,
}

impl Lane {
    /// Returns the number of samples in the lane.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the number of windows in the lane.
    pub(crate) fn window_count(&self) -> u64 {
        self.window_count
    }

    fn push(&mut self, stored: Range<u32>) {
        self.parts.push(BlockPart { stored_at: stored.start, at: self.len });
        self.len += stored.end - stored.start;
    }

    /// Divides the lane evenly into as many windows as have at least `window_blocks` parts, so that
    /// no window at the end is short.
    fn divide(&mut self, window_blocks: u32) {
        let parts = self.parts.len() as u64;
        self.window_count = (parts / u64::from(window_blocks)).max(parts.min(1));
    }

    /// Returns the parts of a window: with k windows of n parts, from ⌊wn/k⌋ on.
    pub(crate) fn window_parts(&self, window: u64) -> Range<usize> {
        let start = |window: u64| (window * self.parts.len() as u64 / self.window_count) as usize;
        start(window)..start(window + 1)
    }

    /// Returns the window with sample `at` of the lane, which must exist.
    pub(crate) fn window_at(&self, at: u32) -> u64 {
        let part = self.parts.partition_point(|part| part.at <= at) as u64;
        // The last window that begins before part number `part`, counted from 1.
        (part * self.window_count).div_ceil(self.parts.len() as u64) - 1
    }

    /// Returns the range of a window's samples in the lane.
    pub(crate) fn window_range(&self, window: u64) -> Range<u32> {
        let Range { start, end } = self.window_parts(window);
        self.start_of(start)..self.start_of(end)
    }

    /// Returns the ranges in stored order, part by part, of the samples `range` of the lane.
    pub(crate) fn stored_ranges(&self, range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        let first = self.parts.partition_point(|part| part.at <= range.start).saturating_sub(1);
        (first..self.parts.len()).map_while(move |idx| {
            let BlockPart { stored_at, at } = self.parts[idx];
            let (start, end) = (range.start.max(at), range.end.min(self.start_of(idx + 1)));
            (start < end).then(|| stored_at + (start - at)..stored_at + (end - at))
        })
    }

    /// Returns the end, in the lane, of the part that contains sample `at`; `at` itself if a part
    /// begins there.
    pub(crate) fn part_end(&self, at: u32) -> u32 {
        self.start_of(self.parts.partition_point(|part| part.at < at))
    }

    fn start_of(&self, part: usize) -> u32 {
        self.parts.get(part).map_or(self.len, |part| part.at)
    }
}

/// Deals all samples to lanes of equal length; the first lanes get one more if the number of
/// samples is not divisible.
pub(crate) fn deal(blocks: &Blocks, choices: &OrderChoices, epoch: u64) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = (0..choices.lanes).map(|_| Lane::default()).collect();
    let (count, lane_count) = (blocks.sample_count(), choices.lanes);
    let room = |lane: usize| count / lane_count + u32::from((lane as u32) < count % lane_count);
    let mut next = 0;
    if choices.shuffle {
        let mut order: Vec<u32> = (0..blocks.block_count() as u32).collect();
        Key { seed: choices.seed, epoch, purpose: Purpose::Blocks, lane: 0, window: 0 }.rng().permute(&mut order);
        for block in order {
            let mut stored = blocks.range(block as usize);
            while !stored.is_empty() {
                while lanes[next].len == room(next) {
                    next = (next + 1) % lanes.len();
                }
                let end = stored.end.min(stored.start + (room(next) - lanes[next].len));
                lanes[next].push(stored.start..end);
                stored.start = end;
                next = (next + 1) % lanes.len();
            }
        }
    } else {
        for block in 0..blocks.block_count() {
            let mut stored = blocks.range(block);
            while !stored.is_empty() {
                while lanes[next].len == room(next) {
                    next += 1;
                }
                let end = stored.end.min(stored.start + (room(next) - lanes[next].len));
                lanes[next].push(stored.start..end);
                stored.start = end;
            }
        }
    }
    lanes.iter_mut().for_each(|lane| lane.divide(choices.window_blocks));
    lanes
}
