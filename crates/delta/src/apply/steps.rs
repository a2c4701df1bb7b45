//! Steps of a patch, front to back. Each makes some bytes of the new image, independently of the
//! others.

use kiln_builder::RefillEnd;
use kiln_parallel::ordered::Costed;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::DeltaError;
use crate::format::body::{Item, PatchPiece};
use crate::format::header::Header;
use crate::format::reader::BodyReader;
use crate::old_space::OldSpace;
use crate::stop::check_stop;

/// Approximate memory in bytes of a step itself.
const STEP_LEN: u64 = 256;
/// Maximum number of text buffers kept for reuse.
const BUFFERS_MAX: usize = 3;

/// A step that makes the bytes of the new image at offset `at`.
pub(super) struct ApplyStep {
    pub at: u64,
    pub action: Action,
}

/// Source of a step's bytes.
pub(super) enum Action {
    /// Copy bytes of the old image.
    Old { pos: u64, len: u64 },
    /// Use text unencoded.
    Text(ItemText),
    /// Encode text.
    Encode { encoder: usize, text: ItemText, stored_len: u64, shape: Shape, patch_at: u64 },
}

/// Form in which text is encoded.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// Consecutive pclusters.
    Unit(RefillEnd),
    /// One pcluster of at most this many bytes.
    Tail(u64),
}

/// Text of one item, as a range of its group's text.
pub(super) struct ItemText {
    group: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl ItemText {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.group[self.range.clone()]
    }
}

/// Iterator over the steps of a patch, which also makes the text of its groups.
pub(super) struct Steps<'a, R> {
    header: &'a Header,
    space: OldSpace,
    body: BodyReader<R>,
    /// Offset in the new image of the next item.
    at: u64,
    /// Number of first bytes of the new image that exist already.
    there: u64,
    /// Remaining items of the group, in reverse order.
    items: Vec<Item>,
    text: Arc<Vec<u8>>,
    /// Offset in the group's text of the next item.
    text_at: usize,
    buffers: Vec<Arc<Vec<u8>>>,
    is_over: bool,
    stop: &'a AtomicBool,
}

impl<R: Read> Iterator for Steps<'_, R> {
    type Item = Costed<Result<ApplyStep, DeltaError>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let step = self.step().transpose();
        self.is_over = !matches!(step, Some(Ok(_)));
        step.map(|step| {
            let cost = match &step {
                Ok(ApplyStep { action: Action::Text(text), .. }) => text.range.len() as u64,
                Ok(ApplyStep { action: Action::Encode { text, stored_len, .. }, .. }) => {
                    text.range.len() as u64 + stored_len
                }
                Ok(ApplyStep { action: Action::Old { .. }, .. }) | Err(_) => 0,
            };
            Costed { job: step, cost: cost + STEP_LEN }
        })
    }
}

impl<'a, R: Read> Steps<'a, R> {
    /// Returns the steps after the first `there` bytes of the new image.
    pub(super) fn new(
        header: &'a Header,
        space: OldSpace,
        body: BodyReader<R>,
        there: u64,
        stop: &'a AtomicBool,
    ) -> Self {
        let (items, text, buffers) = (Vec::new(), Arc::default(), Vec::new());
        Self { header, space, body, at: 0, there, items, text, text_at: 0, buffers, is_over: false, stop }
    }

    fn step(&mut self) -> Result<Option<ApplyStep>, DeltaError> {
        loop {
            check_stop(self.stop)?;
            while let Some(item) = self.items.pop() {
                let (at, text) = (self.at, self.text_at..self.text_at + item.text_len() as usize);
                if item.len() > self.header.new_len - at {
                    return Err(self.body.defect("item_len", item.len(), "exceeds the new image").into());
                }
                (self.at, self.text_at) = (at + item.len(), text.end);
                if self.at > self.there {
                    return Ok(Some(ApplyStep { at, action: self.action(item, text)? }));
                }
            }
            self.body.group(&mut self.items)?;
            if self.items.is_empty() {
                return Ok(None);
            }
            let text_len = self.items.iter().map(Item::text_len).sum();
            let len = self.items.iter().map(Item::len).fold(0, u64::saturating_add);
            match self.at.saturating_add(len) <= self.there {
                true => self.skip_text(text_len)?,
                false => self.make_text(text_len)?,
            }
            self.items.reverse();
            self.text_at = 0;
        }
    }

    /// Returns the action of an item whose text, if it has any, is this range.
    fn action(&self, item: Item, text: Range<usize>) -> Result<Action, DeltaError> {
        let text = ItemText { group: self.text.clone(), range: text };
        let patch_at = self.body.at();
        Ok(match item {
            Item::Old { pos, len } => {
                if pos.checked_add(len).is_none_or(|end| end > self.header.old_len) {
                    return Err(self.body.defect("old_pos", pos, "exceeds the old image").into());
                }
                Action::Old { pos, len }
            }
            Item::Raw { .. } => Action::Text(text),
            Item::Unit { encoder, stored_len, end, .. } => {
                Action::Encode { encoder, text, stored_len, shape: Shape::Unit(end), patch_at }
            }
            Item::Tail { encoder, stored_len, room, .. } => {
                Action::Encode { encoder, text, stored_len, shape: Shape::Tail(room), patch_at }
            }
        })
    }

    /// Makes the next `len` bytes of text.
    fn make_text(&mut self, len: u64) -> Result<(), DeltaError> {
        let mut buffer = self.buffer();
        // The buffer has no other owner.
        if let Some(text) = Arc::get_mut(&mut buffer) {
            text.resize(len as usize, 0);
            let mut at = 0;
            while at < text.len() {
                let piece = self.body.piece(len - at as u64)?;
                let (PatchPiece::Literal { len } | PatchPiece::Copy { len, .. } | PatchPiece::Add { len, .. }) = piece;
                let part = &mut text[at..][..len as usize];
                match piece {
                    PatchPiece::Literal { .. } => self.body.literals(part)?,
                    PatchPiece::Copy { pos, .. } | PatchPiece::Add { pos, .. } => {
                        if !self.space.read(pos, part)? {
                            return Err(self.body.defect("piece_pos", pos, "exceeds the file").into());
                        }
                        if matches!(piece, PatchPiece::Add { .. }) {
                            self.body.add_differences(part)?;
                        }
                    }
                }
                at += part.len();
            }
        }
        self.text = buffer;
        Ok(())
    }

    /// Returns a buffer that no step uses.
    fn buffer(&mut self) -> Arc<Vec<u8>> {
        let before = std::mem::take(&mut self.text);
        if self.buffers.len() < BUFFERS_MAX {
            self.buffers.push(before);
        }
        let free = self.buffers.iter_mut().position(|buffer| Arc::get_mut(buffer).is_some());
        free.map_or_else(Arc::default, |idx| self.buffers.swap_remove(idx))
    }

    /// Reads past the pieces of the next `len` bytes of text.
    fn skip_text(&mut self, len: u64) -> Result<(), DeltaError> {
        let (mut left, mut skipped) = (len, [0; 4096]);
        while left > 0 {
            let piece = self.body.piece(left)?;
            let (PatchPiece::Literal { len } | PatchPiece::Copy { len, .. } | PatchPiece::Add { len, .. }) = piece;
            left -= len;
            let mut part_len = len;
            while part_len > 0 && !matches!(piece, PatchPiece::Copy { .. }) {
                let part = &mut skipped[..part_len.min(4096) as usize];
                part_len -= part.len() as u64;
                match piece {
                    PatchPiece::Literal { .. } => self.body.literals(part)?,
                    _ => self.body.add_differences(part)?,
                }
            }
        }
        Ok(())
    }
}
