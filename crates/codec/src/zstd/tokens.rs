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

/// Writer of the tokens of one search, into reserved places.
pub(super) struct TokenWriter<'a> {
    input: &'a [u8],
    tokens: &'a mut Tokens,
    literals: *mut u8,
    sequences: *mut Sequence,
    /// Number of literals that wait for the next sequence.
    pub(super) pending: usize,
}

/// Bytes that a writer copies at once.
const AT_ONCE: usize = 32;
/// Shortest match that a writer takes.
const MATCH_MIN: usize = 4;

impl Tokens {
    /// Returns a writer of tokens of the text from `from` on, with matches that start at `end` or
    /// before.
    pub(super) fn writer<'a>(&'a mut self, input: &'a [u8], from: usize, end: usize) -> TokenWriter<'a> {
        let len = end.saturating_sub(from);
        self.literals.reserve(len + AT_ONCE);
        self.sequences.reserve(len / MATCH_MIN + 2);
        let pending = self.pending;
        // SAFETY: one past the last element.
        let literals = unsafe { self.literals.as_mut_ptr().add(self.literals.len()) };
        // SAFETY: likewise.
        let sequences = unsafe { self.sequences.as_mut_ptr().add(self.sequences.len()) };
        TokenWriter { input, tokens: self, literals, sequences, pending }
    }
}

impl TokenWriter<'_> {
    /// Adds the literals between `done` and `start`, and a match of `len` bytes.
    ///
    /// # Safety
    /// `done` is the end of the match before, or the start of the text, and `start` is at the end
    /// of the search or before; `len` is at least [`MATCH_MIN`].
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, done: usize, start: usize, len: usize, offset_value: u32) {
        let literal_len = start - done;
        // SAFETY: all literals are text of the search, and each sequence takes at least MATCH_MIN
        // bytes of it: the reserved places suffice. AT_ONCE bytes can be read if the text has them.
        unsafe {
            let source = self.input.as_ptr().add(done);
            if literal_len <= AT_ONCE && done + AT_ONCE <= self.input.len() {
                self.literals.cast::<[u8; AT_ONCE]>().write(source.cast::<[u8; AT_ONCE]>().read());
            } else {
                self.literals.copy_from_nonoverlapping(source, literal_len);
            }
            self.literals = self.literals.add(literal_len);
            self.sequences.write(Sequence::new((self.pending + literal_len) as u32, len as u32, offset_value));
            self.sequences = self.sequences.add(1);
        }
        self.pending = 0;
    }

    /// Ends the search.
    pub(super) fn finish(self) {
        let Tokens { literals, sequences, pending } = self.tokens;
        *pending = self.pending;
        // SAFETY: `push` has written all elements up to these pointers.
        unsafe {
            literals.set_len(self.literals.offset_from_unsigned(literals.as_ptr()));
            sequences.set_len(self.sequences.offset_from_unsigned(sequences.as_ptr()));
        }
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

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use proptest::prelude::*;

    /// Returns the text of the tokens, by the simplest decoder.
    pub(crate) fn text_of(tokens: &Tokens) -> Vec<u8> {
        let (mut text, mut literals) = (Vec::new(), tokens.literals.as_slice());
        let mut recent = [1, 4, 8];
        for sequence in &tokens.sequences {
            let (these, rest) = literals.split_at(sequence.literal_len as usize);
            text.extend(these);
            literals = rest;
            let value = sequence.offset_value as usize;
            let repeated = (value + usize::from(sequence.literal_len == 0)).checked_sub(1);
            let dist = match (value, repeated) {
                (1..=3, Some(3)) => recent[0] - 1,
                (1..=3, Some(i)) => recent[i],
                _ => value - 3,
            };
            match (value, repeated) {
                (1..=3, Some(0)) => {}
                (1..=3, Some(1)) => recent = [dist, recent[0], recent[2]],
                _ => recent = [dist, recent[0], recent[1]],
            }
            (0..sequence.match_len).for_each(|_| text.push(text[text.len() - dist]));
        }
        text.extend(literals);
        text
    }

    /// Generates text that repeats itself at several distances.
    pub(crate) fn any_text() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            prop::collection::vec(0..4u8, 1..40).prop_map(|bytes| (bytes, 1)),
            prop::collection::vec(any::<u8>(), 1..60).prop_map(|bytes| (bytes, 1)),
            (prop::collection::vec(any::<u8>(), 1..20), 1..30usize),
        ];
        prop::collection::vec((part, any::<prop::sample::Index>()), 1..60).prop_map(|parts| {
            let mut text = Vec::new();
            for ((bytes, times), again) in parts {
                text.extend(bytes.repeat(times));
                let from = again.index(text.len());
                text.extend_from_within(from..text.len().min(from + 70));
            }
            text
        })
    }

    /// Returns the tokens of a text by a search that pauses after each of these lengths.
    pub(crate) fn parse_until(
        text: &[u8],
        stops: &[usize],
        mut parse: impl FnMut(&mut Cursor, Until, &mut Tokens),
    ) -> Tokens {
        let (mut tokens, mut cursor) = (Tokens::default(), Cursor::START);
        let ends = stops.iter().scan(0, |at, stop| {
            *at += stop;
            Some(*at)
        });
        for stop in ends.chain([text.len()]) {
            let stop = stop.min(text.len());
            if stop > cursor.at {
                parse(&mut cursor, Until { stop, limit: text.len() }, &mut tokens);
            }
            tokens.add_literals(text, cursor.done, cursor.at);
            cursor.done = cursor.at;
        }
        tokens
    }
}
