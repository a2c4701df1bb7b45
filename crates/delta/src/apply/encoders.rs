//! Encoding of text by one thread.

use kiln_builder::Refiller;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::apply::steps::{Action, ApplyStep, ItemText, Shape};
use crate::error::DeltaError;
use crate::format::header::Header;
use crate::format::reader::block_defect;
use crate::stop::check_stop;

/// Maximum number of encoders that are ready for the next text; each may take 100 MB.
const READY_MAX: usize = 2;

/// Bytes of the new image at offset `at`.
pub(super) struct MadeBytes {
    pub at: u64,
    pub bytes: Bytes,
}

/// Bytes, or their position in the old image.
pub(super) enum Bytes {
    /// A range of the old image.
    Old {
        pos: u64,
        len: u64,
    },
    Text(ItemText),
    Encoded(Vec<u8>),
}

/// Encoders of one thread.
pub(super) struct Encoders<'a> {
    header: &'a Header,
    /// Encoders, each created on first use.
    refillers: Vec<Option<Refiller>>,
    stop: &'a AtomicBool,
}

impl<'a> Encoders<'a> {
    pub(super) fn new(header: &'a Header, stop: &'a AtomicBool) -> Self {
        Self { header, refillers: header.encoders.iter().map(|_| None).collect(), stop }
    }

    /// Runs a step.
    pub(super) fn make(&mut self, step: ApplyStep) -> Result<MadeBytes, DeltaError> {
        let ApplyStep { at, action } = step;
        let bytes = match action {
            Action::Old { pos, len } => Bytes::Old { pos, len },
            Action::Text(text) => Bytes::Text(text),
            Action::Encode { encoder, text, stored_len, shape, patch_at } => {
                let defect = |field, value, reason| block_defect(patch_at, field, value, reason);
                let unknown = || defect("encoder", encoder as u64, "is not an encoder of the header");
                let stop = self.stop;
                let refiller = self.refiller(encoder)?.ok_or_else(unknown)?;
                let encoded = encode(refiller, text.bytes(), &EncodeTarget { at, stored_len, shape }, stop)?;
                check_stop(stop)?;
                let other_len = || defect("stored_len", stored_len, "differs from the length of the encoded text");
                Bytes::Encoded(encoded.ok_or_else(other_len)?)
            }
        };
        Ok(MadeBytes { at, bytes })
    }

    /// Returns the encoder with this number, if the header has one.
    fn refiller(&mut self, encoder: usize) -> Result<Option<&mut Refiller>, DeltaError> {
        let Some(one) = self.header.encoders.get(encoder) else { return Ok(None) };
        if self.refillers[encoder].is_none() && self.refillers.iter().flatten().count() >= READY_MAX {
            self.refillers.iter_mut().for_each(|refiller| *refiller = None);
        }
        Ok(Some(match &mut self.refillers[encoder] {
            Some(refiller) => refiller,
            none => none.insert(Refiller::new(one.form)?),
        }))
    }
}

/// Stored form that encoding must produce, at byte `at` of the image.
struct EncodeTarget {
    at: u64,
    stored_len: u64,
    shape: Shape,
}

/// Encodes text, and returns the first bytes of the result; `None` if it is too short.
fn encode(
    refiller: &mut Refiller,
    text: &[u8],
    wanted: &EncodeTarget,
    stop: &AtomicBool,
) -> Result<Option<Vec<u8>>, DeltaError> {
    let EncodeTarget { at, stored_len, shape } = *wanted;
    match shape {
        Shape::Unit(end) => {
            let refilled = refiller.refill(text, end, at, &mut |bytes, _| {
                !stop.load(Ordering::Relaxed) && (bytes.len() as u64) < stored_len
            })?;
            let mut bytes = refilled.bytes;
            let is_enough = bytes.len() as u64 >= stored_len;
            bytes.truncate(stored_len as usize);
            Ok(is_enough.then_some(bytes))
        }
        Shape::Tail(room) => {
            let encoded = refiller.encode(text, room as usize)?;
            Ok(encoded.filter(|bytes| bytes.len() as u64 == stored_len))
        }
    }
}
