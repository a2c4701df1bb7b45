//! Reads of a batch on one thread. It looks up the pieces of all units first, unless the plan has
//! them; then one call fetches their stored bytes; then it decodes.
//!
//! A batch is bounded by the stored bytes that are fetched at once, and by the number of pieces: a
//! batch that needs more is read in several steps.

use super::batch_front::{Fronts, Reuse};
use super::batch_plan::{BatchPlan, ReadUnit, cut};
use super::batch_stage::{Need, Stage, Stored};
use super::plan::DecodeTarget;
use crate::cache::access_pattern::AccessPattern;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::DataPart;
use crate::map::file_map::FileMap;
use crate::metadata::inode::Inode;
use crate::source::devices::DeviceRange;
use kiln_format::Nid;
use std::mem;
use std::ops::Range;

/// Most pieces that are looked up before they are read.
const TASKS_MAX: usize = 1024;

/// Destination of the items of a batch.
pub(super) trait BatchOutput {
    /// Longer units are given in items of about this many bytes.
    const ITEM_LEN: u64;
    /// True if each unit has memory of its own. Each is then given as one item.
    const HAS_MEMORY_OF_UNITS: bool;

    /// Returns memory for an item of `len` bytes of unit `nth` of the batch.
    fn memory(&mut self, nth: usize, len: usize) -> &mut [u8];

    /// Returns the memory of all units of the batch, in their order, if each has its own; else
    /// none.
    fn memories(&mut self) -> Vec<&mut [u8]>;

    /// Takes an item: its bytes, or `None` if its memory has them.
    fn give(&mut self, item: &Item, bytes: Result<Option<&[u8]>, ReadError>);
}

/// Bytes that an output gets at once.
#[derive(Clone, Copy)]
pub(super) struct Item {
    /// Number of its unit in the batch.
    pub(super) nth: usize,
    /// Number of the range that has the unit.
    pub(super) idx: usize,
    nid: Nid,
    pub(super) off: u64,
    pub(super) len: usize,
}

/// The state of one thread.
pub(super) struct Worker<'a> {
    reader: Reader<'a>,
    plan: &'a BatchPlan,
    /// Pieces that were looked up and are to be read, in the order of the items.
    tasks: Vec<Task>,
    /// Stored bytes for the tasks.
    stage: Stage,
    fronts: Fronts<'a>,
    /// Number of tasks that will decode into `fronts`.
    front_tasks: usize,
    /// Error of the item that is being read.
    failure: Option<ReadError>,
    /// The unit that failed last: nothing more of it is given.
    failed: Option<usize>,
}

/// A piece that is to be read, or the end of an item.
enum Task {
    Piece(Piece),
    /// All pieces of the item are read, or the item has an error.
    End(Item, Result<(), ReadError>),
}

/// The part of an item that one extent holds.
struct Piece {
    /// Number of its unit in the batch.
    nth: usize,
    part: DataPart,
    /// Place of the bytes in the item, and the item's length.
    dst: Range<usize>,
    item_len: usize,
    stored: Stored,
}

/// Place of the bytes of an item.
enum ItemBytes {
    /// In the output's memory.
    Memory,
    /// In one of the fronts.
    Front(usize, Range<usize>),
    /// In the stage.
    Stage(Range<usize>),
}

impl Piece {
    /// Returns the byte of the extent behind the piece.
    fn end(&self) -> u64 {
        self.part.wanted.end - self.part.extent.la
    }

    /// Returns true if it is all of its item.
    fn is_alone(&self) -> bool {
        self.dst.len() == self.item_len
    }

    fn reuse(&self) -> Reuse {
        if self.is_alone() { Reuse::Adjacent } else { Reuse::Anywhere }
    }

    /// Returns true if only a part of an encoded extent is wanted.
    fn is_part(&self) -> bool {
        self.part.is_encoded() && self.part.len() < self.part.extent.llen
    }

    /// Returns the piece's part of its item's memory.
    fn memory<'m>(&self, output: &'m mut impl BatchOutput) -> &'m mut [u8] {
        &mut output.memory(self.nth, self.item_len)[self.dst.clone()]
    }
}

impl<'a> Worker<'a> {
    pub(super) fn new(reader: Reader<'a>, plan: &'a BatchPlan) -> Self {
        Self {
            reader,
            plan,
            tasks: Vec::new(),
            stage: Stage::default(),
            fronts: Fronts::new(reader, &plan.shared),
            front_tasks: 0,
            failure: None,
            failed: None,
        }
    }

    /// Reads the units of a batch, and passes their items to `output`.
    pub(super) fn read_batch<'u, O: BatchOutput>(
        &mut self,
        units: &'u [ReadUnit],
        inode_of: impl Fn(&'u ReadUnit) -> &'u Inode,
        output: &mut O,
    ) {
        for (nth, unit) in units.iter().enumerate() {
            let inode = inode_of(unit);
            let mut item = Item { nth, idx: unit.idx, nid: inode.nid, off: unit.range.start, len: 0 };
            let end = unit.range.end;
            let added = match self.plan.parts(unit) {
                parts @ [_, ..] if end - item.off <= O::ITEM_LEN => self.add_planned(parts, &mut item, end, output),
                _ => self.add_items(inode, &mut item, end, output),
            };
            if let Err(error) = added {
                self.tasks.push(Task::End(item, Err(error)));
            }
        }
        self.finish(output);
        self.failed = None;
    }

    /// Adds the pieces of a unit, which the plan has looked up, as one item.
    fn add_planned<O: BatchOutput>(
        &mut self,
        parts: &[DataPart],
        item: &mut Item,
        end: u64,
        output: &mut O,
    ) -> Result<(), ReadError> {
        let item_len = (end - item.off) as usize;
        for part in parts {
            self.add_part(part.clone(), item, item_len, output)?;
        }
        self.tasks.push(Task::End(*item, Ok(())));
        Ok(())
    }

    /// Looks up the pieces of a unit up to byte `end` of the file, from the beginning of `item` on,
    /// which becomes the next item in turn. If they do not fit beside those that were looked up
    /// before, these are read.
    fn add_items<O: BatchOutput>(
        &mut self,
        inode: &Inode,
        item: &mut Item,
        end: u64,
        output: &mut O,
    ) -> Result<(), ReadError> {
        let mut map = FileMap::open(self.reader, inode)?;
        while self.failed != Some(item.nth) {
            let stop = cut(map.file(), item.off, end, O::ITEM_LEN)?;
            let item_len = (stop - item.off) as usize;
            for part in map.parts(item.off..stop) {
                self.add_part(part?, item, item_len, output)?;
            }
            self.tasks.push(Task::End(*item, Ok(())));
            (item.off, item.len) = (stop, 0);
            if stop >= end {
                break;
            }
        }
        Ok(())
    }

    /// Adds a part of a file to an item of `item_len` bytes.
    fn add_part<O: BatchOutput>(
        &mut self,
        part: DataPart,
        item: &mut Item,
        item_len: usize,
        output: &mut O,
    ) -> Result<(), ReadError> {
        let dst = item.len..item.len + part.len() as usize;
        item.len = dst.end;
        let mut piece = Piece { nth: item.nth, part, dst, item_len, stored: Stored::NotFetched };
        if self.tasks.len() >= TASKS_MAX {
            self.finish(output);
        }
        let is_encoded = piece.part.is_encoded();
        let mut need = self.need(&piece)?;
        if O::HAS_MEMORY_OF_UNITS && !is_encoded {
            piece.stored = Stored::InPlace(need);
        } else {
            if !self.stage.has_room_for(&need) {
                self.finish(output);
                // It may be decoded by now.
                need = self.need(&piece)?;
            }
            piece.stored = self.stage.add(&need);
        }
        self.front_tasks += usize::from(piece.is_part());
        self.tasks.push(Task::Piece(piece));
        Ok(())
    }

    /// Returns the bytes that a piece takes from devices.
    fn need(&self, piece: &Piece) -> Result<Need, ReadError> {
        let (reader, len) = (self.reader, piece.dst.len());
        let Some(encoded) = piece.part.encoded()? else { return reader.stored_need(&piece.part) };
        let state = reader.volume.state();
        if state.pinned.get(&encoded).is_some() {
            return Ok(Need::default());
        }
        if len == encoded.len() {
            return reader.encoded_need(&encoded, len);
        }
        let (users, decoded_len) = self.fronts.need(&encoded, piece.end(), piece.reuse());
        let mut need = reader.encoded_need(&encoded, decoded_len)?;
        // The fronts after other tasks are not known.
        let is_held = || self.front_tasks == 0 && self.fronts.position(&encoded, piece.end()).is_some();
        if need.len() > 0 && (is_held() || state.decoded.has(&encoded)) {
            return Ok(Need::default());
        }
        need.shared = (users > 1).then_some(encoded);
        Ok(need)
    }

    /// Fetches for all tasks, and do them.
    fn finish(&mut self, output: &mut impl BatchOutput) {
        let (mut tasks, mut stage) = (mem::take(&mut self.tasks), mem::take(&mut self.stage));
        let stored = stage.fetch(self.reader, in_place(&tasks, output));
        let (mut bytes, mut failure) = (ItemBytes::Memory, self.failure.take());
        for task in tasks.drain(..) {
            match task {
                Task::Piece(piece) => {
                    if self.failed != Some(piece.nth) && failure.is_none() {
                        match self.read(&piece, stored, output) {
                            Ok(found) => bytes = found,
                            Err(error) => failure = Some(error),
                        }
                    }
                }
                Task::End(item, result) => {
                    if self.failed != Some(item.nth) {
                        let result = failure.take().map_or(result, Err).map_err(|error| error.at_nid(item.nid));
                        if result.is_err() {
                            self.failed = Some(item.nth);
                        } else {
                            self.reader.volume.counters.read(item.len);
                        }
                        output.give(&item, result.map(|()| self.bytes(&bytes, stored)));
                    }
                    bytes = ItemBytes::Memory;
                }
            }
        }
        self.failure = failure;
        stage.clear();
        (self.tasks, self.stage, self.front_tasks) = (tasks, stage, 0);
    }

    /// Returns the bytes of an item, unless they are in the output's memory.
    fn bytes<'b>(&'b self, at: &ItemBytes, stored: Option<&'b [u8]>) -> Option<&'b [u8]> {
        match at {
            ItemBytes::Memory => None,
            ItemBytes::Front(which, range) => Some(&self.fronts.front(*which)[range.clone()]),
            ItemBytes::Stage(range) => Some(&stored.unwrap_or_default()[range.clone()]),
        }
    }

    /// Reads a piece, from `stored` if that has the bytes: it is `None` if nothing could be
    /// fetched. Returns where the item is, if this is all of it.
    fn read(
        &mut self,
        piece: &Piece,
        stored: Option<&[u8]>,
        output: &mut impl BatchOutput,
    ) -> Result<ItemBytes, ReadError> {
        let at_hand = match (&piece.stored, stored) {
            (Stored::Staged(range), Some(stored)) => &stored[range.clone()],
            _ => &[],
        };
        let Some(encoded) = piece.part.encoded()? else {
            match (&piece.stored, stored) {
                (Stored::InPlace(need), Some(_)) if need.len() > 0 => {}
                (Stored::Staged(range), Some(_)) if piece.is_alone() => return Ok(ItemBytes::Stage(range.clone())),
                (Stored::Staged(_), Some(_)) => piece.memory(output).copy_from_slice(at_hand),
                _ => {
                    self.reader.read_part(&piece.part, piece.memory(output), AccessPattern::default())?;
                }
            }
            return Ok(ItemBytes::Memory);
        };
        if piece.dst.len() == encoded.len() {
            if let Some(bytes) = self.reader.volume.state().pinned.get(&encoded) {
                self.reader.volume.counters.hit();
                piece.memory(output).copy_from_slice(&bytes);
                return Ok(ItemBytes::Memory);
            }
            self.reader.decode_front(&encoded, piece.memory(output), DecodeTarget::Destination, at_hand)?;
            return Ok(ItemBytes::Memory);
        }
        let which = self.fronts.decode(&encoded, piece.end(), piece.reuse(), at_hand)?;
        let range = piece.part.skip() as usize..piece.end() as usize;
        if piece.is_alone() {
            return Ok(ItemBytes::Front(which, range));
        }
        piece.memory(output).copy_from_slice(&self.fronts.front(which)[range]);
        Ok(ItemBytes::Memory)
    }
}

/// Returns the ranges that are fetched straight into the memory of units.
fn in_place<'m>(tasks: &[Task], output: &'m mut impl BatchOutput) -> Vec<DeviceRange<'m>> {
    let mut ranges = Vec::new();
    let mut memories = output.memories().into_iter().enumerate();
    // The memory of unit `unit` from byte `done` on.
    let (mut unit, mut done, mut rest) = (None, 0, <&mut [u8]>::default());
    for task in tasks {
        let Task::Piece(Piece { nth, dst, stored: Stored::InPlace(need), .. }) = task else { continue };
        if unit != Some(*nth) {
            // Tasks are in the order of the units.
            let Some((_, memory)) = memories.find(|(idx, _)| idx == nth) else { return ranges };
            (unit, done, rest) = (Some(*nth), 0, memory);
        }
        let (_, from_start) = mem::take(&mut rest).split_at_mut(dst.start - done);
        let (part, behind) = from_start.split_at_mut(dst.len());
        need.split(part, &mut ranges);
        (done, rest) = (dst.end, behind);
    }
    ranges
}
