//! The frame that is being written: blocks of as many tokens as fit.

use super::block::{self, BlockCode};
use super::codes::Sequence;
use super::fse::COST_BITS;
use super::{BLOCK_LEN, FRAME_HEADER_LEN};

/// Largest size in bytes of a block while it is written: uncompressed literals, and sequences that
/// cost as much.
const BLOCK_ROOM: usize = 2 * BLOCK_LEN + 1024;

pub(super) struct Frame<'a> {
    out: &'a mut [u8],
    /// Buffer for the block that is being written.
    scratch: &'a mut Vec<u8>,
    /// Number of bytes that are complete.
    pub(super) len: usize,
    /// Offset of the last block.
    last_block: Option<usize>,
}

/// Tokens of one block.
#[derive(Clone, Copy)]
pub(super) struct BlockTokens<'a> {
    pub(super) literals: &'a [u8],
    pub(super) sequences: &'a [Sequence],
    /// Number of literals after the last sequence.
    pub(super) pending: usize,
    /// Text of the tokens.
    pub(super) text: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Starts a bare frame: no content size, no checksum. Returns `None` if not even the header
    /// fits in `out`.
    pub(super) fn new(out: &'a mut [u8], scratch: &'a mut Vec<u8>, window_log: u8) -> Option<Self> {
        let [magic @ .., descriptor, window] = out.first_chunk_mut::<FRAME_HEADER_LEN>()?;
        *magic = 0xFD2F_B528u32.to_le_bytes();
        (*descriptor, *window) = (0, (window_log - 10) << 3);
        scratch.resize(BLOCK_ROOM, 0);
        Some(Frame { out, scratch, len: FRAME_HEADER_LEN, last_block: None })
    }

    /// Returns the bytes that the contents of another block may take.
    pub(super) fn rest(&self) -> usize {
        (self.out.len() - self.len).saturating_sub(block::HEADER_LEN)
    }

    /// Appends a block of as many of the tokens as fit, and returns the length of their text in
    /// bytes.
    pub(super) fn push(&mut self, code: &BlockCode, mut tokens: BlockTokens<'_>) -> usize {
        if !code.pays(tokens.text.len()) {
            let len = tokens.text.len().min(self.rest());
            return if len == 0 { 0 } else { self.push_plain(&tokens.text[..len]) };
        }
        let mut excess = code.len.saturating_sub(self.rest());
        loop {
            if excess > 0 && !tokens.drop_last(code, excess) {
                return 0;
            }
            let written = code.write(tokens.literals, tokens.sequences, self.scratch);
            if written <= self.rest() + block::HEADER_LEN {
                self.out[self.len..][..written].copy_from_slice(&self.scratch[..written]);
                self.end_block(written);
                return tokens.text.len();
            }
            // The costs are averages over the states, so the block can be longer.
            excess = written - self.rest() - block::HEADER_LEN + 1;
        }
    }

    fn push_plain(&mut self, text: &[u8]) -> usize {
        let written = block::write_plain(text, &mut self.out[self.len..]);
        self.end_block(written);
        text.len()
    }

    fn end_block(&mut self, written: usize) {
        self.last_block = Some(self.len);
        self.len += written;
    }

    /// Returns the length of the frame; 0 if it has no block.
    pub(super) fn finish(self) -> usize {
        let Some(last_block) = self.last_block else { return 0 };
        self.out[last_block] |= block::LAST;
        self.len
    }
}

impl BlockTokens<'_> {
    /// Drops tokens from the end that take `excess` bytes. Returns false if there are not that
    /// many.
    fn drop_last(&mut self, code: &BlockCode, excess: usize) -> bool {
        let mut cost = (excess as i64) << (COST_BITS + 3);
        while cost > 0 {
            let dropped_len = if self.pending > 0 {
                let Some((last, before)) = self.literals.split_last() else { return false };
                cost -= i64::from(code.literal_cost(*last));
                (self.literals, self.pending) = (before, self.pending - 1);
                1
            } else {
                let Some((last, before)) = self.sequences.split_last() else { return false };
                cost -= i64::from(code.sequence_cost(last));
                (self.sequences, self.pending) = (before, last.literal_len as usize);
                last.match_len as usize
            };
            self.text = &self.text[..self.text.len() - dropped_len];
        }
        !self.text.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Want;
    use crate::zstd::ZstdDecoder;
    use crate::zstd::codes::{Counts, Recent};
    use crate::zstd::tokens::Tokens;
    use proptest::prelude::*;

    const WINDOW_LOG: u8 = 17;

    /// Parts of a sequence: literals, the length of a match, and its offset.
    #[derive(Clone, Debug)]
    struct SequenceParts {
        literals: Vec<u8>,
        match_len: usize,
        offset: Offset,
    }

    #[derive(Clone, Copy, Debug)]
    enum Offset {
        Recent(usize),
        /// Distance in bytes, modulo the length of the text.
        Any(usize),
        /// One less than the last offset.
        Less,
    }

    fn any_steps() -> impl Strategy<Value = Vec<SequenceParts>> {
        let literal = prop_oneof![4 => 0..3u8, 2 => 0..40u8, 1 => any::<u8>()];
        let len = prop_oneof![8 => 0..9usize, 2 => 0..80usize, 1 => 0..3000usize];
        let literals = len.prop_flat_map(move |len| prop::collection::vec(literal.clone(), len));
        let offset = prop_oneof![
            (0..3usize).prop_map(Offset::Recent),
            (0..1usize << 17).prop_map(Offset::Any),
            Just(Offset::Less),
        ];
        let match_len = prop_oneof![8 => 3..12usize, 2 => 3..200usize, 1 => 3..6000usize];
        let step = (literals, match_len, offset);
        let step = step.prop_map(|(literals, match_len, offset)| SequenceParts { literals, match_len, offset });
        prop::collection::vec(step, 0..200)
    }

    /// Returns the tokens and the text of these sequences, followed by literals.
    fn tokens_of(steps: &[SequenceParts], behind: &[u8]) -> (Tokens, Vec<u8>) {
        let (mut tokens, mut text, mut recent) = (Tokens::default(), Vec::new(), Recent::FIRST);
        for step in steps {
            if text.len() + step.literals.len() + step.match_len + behind.len() > BLOCK_LEN {
                break;
            }
            tokens.add_literals(&step.literals, 0, step.literals.len());
            text.extend(&step.literals);
            let offset = match step.offset {
                Offset::Recent(i) => recent.0[i] as usize,
                Offset::Any(n) => 1 + n % text.len().max(1),
                Offset::Less => recent.0[0] as usize - 1,
            };
            if (1..=text.len()).contains(&offset) {
                tokens.add_match(step.match_len, recent.value(offset as u32, tokens.pending == 0));
                (0..step.match_len).for_each(|_| text.push(text[text.len() - offset]));
            }
        }
        tokens.add_literals(behind, 0, behind.len());
        text.extend(behind);
        (tokens, text)
    }

    fn decode(frame: &[u8], len: usize) -> Vec<u8> {
        let mut text = vec![0; len];
        ZstdDecoder::new(WINDOW_LOG).unwrap().decode(frame, &mut text, Want::Whole).unwrap();
        text
    }

    proptest! {
        /// libzstd reads the frame for any room, and what is left out would not have fitted.
        #[test]
        fn as_many_tokens_as_fit(
            steps in any_steps(),
            behind in prop::collection::vec(any::<u8>(), 0..50),
            room in 0..20_000usize,
        ) {
            let (mut tokens, text) = tokens_of(&steps, &behind);
            prop_assume!(!text.is_empty());
            let mut counts = Counts::NONE;
            counts.add(&tokens.literals, &mut tokens.sequences);
            let code = BlockCode::new(&counts);
            let (mut scratch, mut out) = (Vec::new(), vec![0; room]);
            let Some(mut frame) = Frame::new(&mut out, &mut scratch, WINDOW_LOG) else {
                prop_assert!(room < FRAME_HEADER_LEN);
                return Ok(());
            };
            let used = frame.push(&code, tokens.all(&text));
            let len = frame.finish();
            prop_assert!(len <= room && used <= text.len());
            prop_assert_eq!(len == 0, used == 0);
            if used > 0 {
                prop_assert!(decode(&out[..len], used) == text[..used]);
            }
            let whole = FRAME_HEADER_LEN + block::HEADER_LEN + code.len.min(text.len());
            prop_assert!(used == text.len() || room < whole + 8, "{used} of {} in {room} of {whole}", text.len());
            // The dropped sequence takes some bytes. In small buffers, descriptions are a large
            // part of the output.
            prop_assert!(used == 0 || used == text.len() || room < 1024 || room - len < 40 + room / 20, "{len} of {room}");
        }

        /// The length of a block is known within some bytes before it is written.
        #[test]
        fn blocks_are_as_long_as_said(steps in any_steps()) {
            let (mut tokens, _) = tokens_of(&steps, &[]);
            let mut counts = Counts::NONE;
            counts.add(&tokens.literals, &mut tokens.sequences);
            let (code, mut out) = (BlockCode::new(&counts), vec![0; BLOCK_ROOM]);
            let written = code.write(&tokens.literals, &tokens.sequences, &mut out) - block::HEADER_LEN;
            prop_assert!(written.abs_diff(code.len) <= 8 + code.len / 100, "{written}, not {}", code.len);
        }
    }

    #[test]
    fn blocks_follow_each_other() {
        let (mut scratch, mut out) = (Vec::new(), vec![0; 1000]);
        let mut frame = Frame::new(&mut out, &mut scratch, WINDOW_LOG).unwrap();
        let mut text = Vec::new();
        for (byte, pending) in [(b'a', 300), (b'b', 5), (b'c', 70)] {
            let part = [vec![byte; 100], (0..pending as u32 * 7 % 250).map(|i| (i * i) as u8).collect()].concat();
            let mut tokens = Tokens::default();
            tokens.add_literals(&part, 0, part.len());
            let mut counts = Counts::NONE;
            counts.add(&tokens.literals, &mut []);
            assert_eq!(frame.push(&BlockCode::new(&counts), tokens.all(&part)), part.len());
            text.extend(part);
        }
        let len = frame.finish();
        assert_eq!(decode(&out[..len], text.len()), text);
    }
}
