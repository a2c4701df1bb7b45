//! What text becomes: literals and sequences.

use super::codes::{Recent, Sequence};
use super::frame::BlockTokens;

/// Literals and sequences of the open block.
#[derive(Default)]
pub(super) struct Tokens {
    pub(super) literals: Vec<u8>,
    pub(super) sequences: Vec<Sequence>,
    /// How many literals stand behind the last sequence.
    pub(super) pending: usize,
}

impl Tokens {
    pub(super) fn clear(&mut self) {
        self.literals.clear();
        self.sequences.clear();
        self.pending = 0;
    }

    /// All of them as one block, of `text`.
    pub(super) fn all<'a>(&'a self, text: &'a [u8]) -> BlockTokens<'a> {
        BlockTokens { literals: &self.literals, sequences: &self.sequences, pending: self.pending, text }
    }

    /// The bytes of `input` between the two positions.
    #[inline(always)]
    pub(super) fn add_literals(&mut self, input: &[u8], from: usize, to: usize) {
        const AT_ONCE: usize = 16;
        let len = to - from;
        self.pending += len;
        if len <= AT_ONCE && from + AT_ONCE <= input.len() {
            self.literals.reserve(AT_ONCE);
            let old = self.literals.len();
            // SAFETY: there are AT_ONCE bytes at both places, and `len` of them are kept.
            unsafe {
                let chunk = input.as_ptr().add(from).cast::<[u8; AT_ONCE]>().read();
                self.literals.as_mut_ptr().add(old).cast::<[u8; AT_ONCE]>().write(chunk);
                self.literals.set_len(old + len);
            }
        } else {
            self.literals.extend_from_slice(&input[from..to]);
        }
    }

    /// A match of at least 3 bytes, of an offset by its [`Recent::value`].
    #[inline]
    pub(super) fn add_match(&mut self, len: usize, offset_value: u32) {
        self.sequences.push(Sequence::new(self.pending as u32, len as u32, offset_value));
        self.pending = 0;
    }
}

/// Where a search for matches ends.
#[derive(Clone, Copy)]
pub(super) struct Until {
    /// The cursor is at this position or behind it.
    pub(super) stop: usize,
    /// No match reaches further: the block ends here.
    pub(super) limit: usize,
}

/// Where the parse is.
pub(super) struct Cursor {
    /// The next position.
    pub(super) at: usize,
    /// Text before this is in the tokens.
    pub(super) done: usize,
    /// Where the last match ended.
    pub(super) anchor: usize,
    pub(super) recent: Recent,
}

impl Cursor {
    pub(super) const START: Cursor = Cursor { at: 0, done: 0, anchor: 0, recent: Recent::FIRST };

    pub(super) fn matched_to(&mut self, end: usize) {
        (self.at, self.done, self.anchor) = (end, end, end);
    }
}
