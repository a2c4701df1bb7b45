//! How the blocks of an epoch are dealt to lanes, and where the windows of a lane begin.

use std::ops::Range;

use crate::blocks::Blocks;
use crate::order::Choices;
use crate::rng::{Key, Purpose};

/// A block of a lane, or the part of a block that fitted.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Place of its first sample in the stored order.
    place: u32,
    /// Place of its first sample in the lane.
    at: u32,
}

/// The samples of one lane in one epoch: pieces of the stored order, in windows.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pieces: Vec<Piece>,
    len: u32,
    window_count: u64,
}

impl Lane {
    /// How many samples the lane has.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// How many windows the lane has.
    pub(crate) fn window_count(&self) -> u64 {
        self.window_count
    }

    fn push(&mut self, places: Range<u32>) {
        self.pieces.push(Piece { place: places.start, at: self.len });
        self.len += places.end - places.start;
    }

    /// Divide the lane into as many windows as have `window_blocks` pieces or more, evenly: no window at the end is short.
    fn divide(&mut self, window_blocks: u32) {
        let pieces = self.pieces.len() as u64;
        self.window_count = (pieces / u64::from(window_blocks)).max(pieces.min(1));
    }

    /// The pieces of a window: with k windows of n pieces, from ⌊wn/k⌋ on.
    pub(crate) fn window_pieces(&self, window: u64) -> Range<usize> {
        let start = |window: u64| (window * self.pieces.len() as u64 / self.window_count) as usize;
        start(window)..start(window + 1)
    }

    /// The window that holds sample `at` of the lane, which has one there.
    pub(crate) fn window_at(&self, at: u32) -> u64 {
        let piece = self.pieces.partition_point(|piece| piece.at <= at) as u64;
        // The last window that begins before piece number `piece`, counted from 1.
        (piece * self.window_count).div_ceil(self.pieces.len() as u64) - 1
    }

    /// The places in the lane that a window takes.
    pub(crate) fn window_range(&self, window: u64) -> Range<u32> {
        let Range { start, end } = self.window_pieces(window);
        self.start_of(start)..self.start_of(end)
    }

    /// Places in stored order, piece by piece, of the samples `range` of the lane.
    pub(crate) fn stored_places(&self, range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        let first = self.pieces.partition_point(|piece| piece.at <= range.start).saturating_sub(1);
        (first..self.pieces.len()).map_while(move |idx| {
            let Piece { place, at } = self.pieces[idx];
            let (start, end) = (range.start.max(at), range.end.min(self.start_of(idx + 1)));
            (start < end).then(|| place + (start - at)..place + (end - at))
        })
    }

    /// The place in the lane where the piece ends that place `at` is in; `at` itself where a piece begins.
    pub(crate) fn piece_end(&self, at: u32) -> u32 {
        self.start_of(self.pieces.partition_point(|piece| piece.at < at))
    }

    fn start_of(&self, piece: usize) -> u32 {
        self.pieces.get(piece).map_or(self.len, |piece| piece.at)
    }
}

/// Deal all samples: the lanes get equally many, the first ones one more where they cannot be divided.
pub(crate) fn deal(blocks: &Blocks, choices: &Choices, epoch: u64) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = (0..choices.lanes).map(|_| Lane::default()).collect();
    let (count, lane_count) = (blocks.sample_count(), choices.lanes);
    let room = |lane: usize| count / lane_count + u32::from((lane as u32) < count % lane_count);
    let mut next = 0;
    if choices.shuffle {
        let mut order: Vec<u32> = (0..blocks.block_count() as u32).collect();
        Key { seed: choices.seed, epoch, purpose: Purpose::Blocks, lane: 0, window: 0 }.rng().permute(&mut order);
        for block in order {
            let mut places = blocks.range(block as usize);
            while !places.is_empty() {
                while lanes[next].len == room(next) {
                    next = (next + 1) % lanes.len();
                }
                let end = places.end.min(places.start + (room(next) - lanes[next].len));
                lanes[next].push(places.start..end);
                places.start = end;
                next = (next + 1) % lanes.len();
            }
        }
    } else {
        for block in 0..blocks.block_count() {
            let mut places = blocks.range(block);
            while !places.is_empty() {
                while lanes[next].len == room(next) {
                    next += 1;
                }
                let end = places.end.min(places.start + (room(next) - lanes[next].len));
                lanes[next].push(places.start..end);
                places.start = end;
            }
        }
    }
    lanes.iter_mut().for_each(|lane| lane.divide(choices.window_blocks));
    lanes
}
