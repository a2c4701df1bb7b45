//! A stream as a sequence of blocks. The last takes as many tokens as there is room for.

use super::block::BlockCode;
use super::stored;
use super::symbols::Token;
use crate::bits::BitWriter;

/// Unfinished stream: whole blocks, none marked as the last.
pub(super) struct Stream<'a> {
    bits: BitWriter<'a>,
    /// Length of the output in bits.
    room: usize,
    /// Bit position of the last block's header.
    last_header: Option<usize>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Self {
        Stream { room: out.len() * 8, bits: BitWriter::new(out), last_header: None }
    }

    /// Returns the number of bits so far.
    pub(super) fn bit_len(&self) -> usize {
        self.bits.bit_len()
    }

    /// Returns the number of bits that are left.
    pub(super) fn rest(&self) -> usize {
        self.room - self.bits.bit_len()
    }

    /// Appends a block, coded or stored, whichever is smaller. Returns false if there is no room.
    pub(super) fn push(&mut self, code: &BlockCode, tokens: &[Token], text: &[u8]) -> bool {
        let stored_bits = stored::bits(self.bits.bit_len(), text.len());
        if stored_bits.min(code.bits) > self.rest() {
            return false;
        }
        if stored_bits < code.bits {
            self.last_header = stored::write(text, &mut self.bits);
        } else {
            self.push_coded(code, tokens);
        }
        true
    }

    fn push_coded(&mut self, code: &BlockCode, tokens: &[Token]) {
        self.last_header = Some(self.bits.bit_len());
        code.write(tokens, &mut self.bits);
    }

    /// Appends a block of as many tokens as fit, and returns the length of their text in bytes.
    pub(super) fn push_prefix(&mut self, code: &BlockCode, mut tokens: &[Token], text: &[u8]) -> usize {
        let (mut bits, mut len) = (code.bits, text.len());
        while bits > self.rest() {
            let Some((last, others)) = tokens.split_last() else { break };
            bits -= code.token_bits(*last);
            len -= last.len();
            tokens = others;
        }
        let stored_len = stored::len_that_fits(self.bits.bit_len(), self.rest()).min(text.len());
        if stored_len > len || stored_len == len && stored::bits(self.bits.bit_len(), len) < bits {
            self.last_header = stored::write(&text[..stored_len], &mut self.bits).or(self.last_header);
            return stored_len;
        }
        if !tokens.is_empty() {
            self.push_coded(code, tokens);
        }
        len
    }

    /// Returns the length of the stream in bytes; 0 if there is no block.
    pub(super) fn finish(mut self) -> usize {
        let Some(header) = self.last_header else { return 0 };
        self.bits.set(header);
        self.bits.finish()
    }
}
