//! Tokens of text: literals and sequences.

use super::codes::{Recent, Sequence};
use super::frame::BlockTokens;

/// Literals and sequences of the open block.
#[derive(Default)]
pub(super) struct Tokens {
    pub(super) literals: Vec<u8>,
    pub(super) sequences: Vec<Sequence>,
    /// Number of literals after the last sequence.
    pub(super) pending: usize,
}

impl Tokens {
    pub(super) fn clear(&mut self) {
        self.literals.clear();
        self.sequences.clear();
        self.pending = 0;
    }

    /// Returns all tokens as one block of `text`.
    pub(super) fn all<'a>(&'a self, text: &'a [u8]) -> BlockTokens<'a> {
        BlockTokens { literals: &self.literals, sequences: &self.sequences, pending: self.pending, text }
    }

    /// Adds the bytes of `input` between the two positions as literals.
    #[inline(always)]
    pub(super) fn add_literals(&mut self, input: &[u8], from: usize, to: usize) {
        const AT_ONCE: usize = 16;
        let len = to - from;
        self.pending += len;
        if len <= AT_ONCE && from + AT_ONCE <= input.len() {
            self.literals.reserve(AT_ONCE);
            let old = self.literals.len();
            // SAFETY: there are AT_ONCE bytes at both places, and `len <= AT_ONCE` of them become
            // part of the vector.
            unsafe {
                let chunk = input.as_ptr().add(from).cast::<[u8; AT_ONCE]>().read();
                self.literals.as_mut_ptr().add(old).cast::<[u8; AT_ONCE]>().write(chunk);
                self.literals.set_len(old + len);
            }
        } else {
            self.literals.extend_from_slice(&input[from..to]);
        }
    }

    /// Adds a match of at least 3 bytes. `offset_value` comes from [`Recent::value`].
    #[inline]
    pub(super) fn add_match(&mut self, len: usize, offset_value: u32) {
        self.sequences.push(Sequence::new(self.pending as u32, len as u32, offset_value));
        self.pending = 0;
    }
}

/// End of a search for matches.
#[derive(Clone, Copy)]
pub(super) struct Until {
    /// Position at which the search stops; the cursor may pass it.
    pub(super) stop: usize,
    /// End of the block, which no match crosses.
    pub(super) limit: usize,
}

/// Position of the parse.
pub(super) struct Cursor {
    /// Next position.
    pub(super) at: usize,
    /// End of the text that is in the tokens.
    pub(super) done: usize,
    /// End of the last match.
    pub(super) anchor: usize,
    pub(super) recent: Recent,
}

impl Cursor {
    pub(super) const START: Cursor = Cursor { at: 0, done: 0, anchor: 0, recent: Recent::FIRST };

    pub(super) fn matched_to(&mut self, end: usize) {
        (self.at, self.done, self.anchor) = (end, end, end);
    }
}
