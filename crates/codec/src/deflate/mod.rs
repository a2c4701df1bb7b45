//! Raw DEFLATE.
//!
//! libdeflate knows whole streams only: to fill a room with it, the length that fits has to be searched, over 4 to 5
//! compressions ([`fit`](crate::fit)). Levels 10 to 12, its near-optimal parse, do so. For levels 1 to 9 there is an
//! encoder of our own, that stops where the room ends.
//!
//! The plain algorithm: turn text into literals and matches ([`mod@parse`] over [`mod@matches`]); after each, make the
//! best codes for what the block has so far, and stop once it exceeds the room; write the block without its last token.
//! Departures ([`fill`]; speeds are those of level 6 at pclusters of 64 KiB, by libdeflate's for the same text in one
//! call: the search has 0.24, this encoder 0.94):
//!
//! * Codes are made once per block. Until then, an estimate from the counts of the symbols stands for the size, and it
//!   is asked only where the room might be full. To be sure, parsing goes on a little beyond the room: by 2 % of the
//!   text at 4 KiB, 0.5 % at 64 KiB.
//! * From there tokens are dropped until the block fits its codes. Pclusters are 0.9998 full or more. The codes have
//!   been made for the dropped tokens as well: they are too few to matter.
//! * A new block begins where the estimates of two blocks are smaller than that of one. Blocks that are complete are
//!   written at once, so that memory is bounded by the longest block, not by the extent.
//! * A token is stored as it is coded, with one literal-or-length and one distance, which may be empty: writing has no
//!   branch per token.
//! * One function per strategy, made by constant parameters (level 2: 1.02 times the speed, level 6: 1.1).
//!
//! Inputs that the room has space for uncompressed need no limit: there, libdeflate's own levels 1 to 8 are faster in
//! one call, by 1.1 (level 6) to 1.35 (level 1), and as small.
//!
//! libdeflate's window is always 32 KiB. Where a smaller one is asked for, it takes only texts that are no longer.

mod block;
mod decode;
mod fill;

mod libdeflate;
mod matches;
mod parse;
mod stored;
mod stream;
mod symbols;

pub(crate) use decode::DeflateDecoder;

use crate::fit::Fit;
use crate::{CodecError, Filled, Spec};
use fill::Filler;
use libdeflate::Compressor;
use parse::Level;
use symbols::WINDOW_LEN;

/// The part of a pcluster that may stay unused where it is searched for: less costs a compression for every tenth of a
/// percent.
const TOLERANCE: f64 = 0.003;
/// The highest level at which libdeflate is faster than we are.
const ONE_SHOT_LEVEL_MAX: i32 = 8;

pub(crate) struct DeflateEncoder {
    engine: Engine,
    /// The longest text that libdeflate may have.
    one_shot_max_len: usize,
    encodes: u64,
}

enum Engine {
    Own { filler: Box<Filler>, one_shot: Option<Compressor> },
    Search { compressor: Compressor, fit: Fit },
}

impl DeflateEncoder {
    pub(crate) fn new(spec: &Spec) -> Result<Self, CodecError> {
        let window_len = 1 << spec.deflate_window_bits();
        let engine = match Level::new(spec.level) {
            Some(level) => {
                let one_shot = (spec.level <= ONE_SHOT_LEVEL_MAX).then(|| Compressor::new(spec.level)).transpose()?;
                Engine::Own { filler: Box::new(Filler::new(level, window_len)), one_shot }
            }
            None => Engine::Search { compressor: Compressor::new(spec.level)?, fit: Fit::new(TOLERANCE) },
        };
        let one_shot_max_len = if window_len == WINDOW_LEN { usize::MAX } else { window_len };
        Ok(DeflateEncoder { engine, one_shot_max_len, encodes: 0 })
    }

    pub(crate) fn reset(&mut self) {
        match &mut self.engine {
            Engine::Own { filler, .. } => filler.reset(),
            Engine::Search { fit, .. } => fit.reset(),
        }
    }

    pub(crate) fn encodes(&self) -> u64 {
        match &self.engine {
            Engine::Own { .. } => self.encodes,
            Engine::Search { fit, .. } => fit.encodes(),
        }
    }

    pub(crate) fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Result<Filled, CodecError> {
        self.encodes += 1;
        let filled = match &mut self.engine {
            Engine::Own { one_shot: Some(compressor), .. } if input.len() <= out.len().min(self.one_shot_max_len) => {
                let produced = compressor.compress(input, out);
                produced.map_or(Filled::default(), |produced| Filled { consumed: input.len(), produced })
            }
            Engine::Own { filler, .. } => filler.fill(input, out),
            Engine::Search { compressor, fit } => {
                let first = fit.first_guess(input.len(), out.len());
                let compress = |len: usize, out: &mut [u8]| Ok(compressor.compress(&input[..len], out));
                fit.fill(input.len(), first, out, compress)?
            }
        };
        unlike_padding(&mut out[..filled.produced]);
        Ok(filled)
    }

    /// All of `input`: the length of the stream, or `None` if it does not fit `out`.
    pub(crate) fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Option<usize> {
        self.encodes += 1;
        let len = match &mut self.engine {
            Engine::Search { compressor, .. } => compressor.compress(input, out),
            Engine::Own { one_shot: Some(compressor), .. } if input.len() <= self.one_shot_max_len => {
                compressor.compress(input, out)
            }
            Engine::Own { filler, .. } => {
                let filled = filler.fill(input, out);
                (filled.consumed == input.len()).then_some(filled.produced)
            }
        };
        unlike_padding(&mut out[..len.unwrap_or(0)]);
        len
    }
}

/// Readers take zeros in front of a stream for padding. A stored block that is not the last starts with a zero byte; its
/// bits 3 to 7 are unused.
fn unlike_padding(stream: &mut [u8]) {
    if let Some(first @ 0) = stream.first_mut() {
        *first = 0x08;
    }
}
