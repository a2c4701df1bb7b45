//! Windows of the packed stream: small files wait here until some MiB of them are known, and are sorted then.
//!
//! Each window is filled into pclusters of its own, one behind the other, and ends where a pack of the compact index
//! ends: so the next window may lie elsewhere in the image.

use std::ops::Range;
use std::sync::Arc;

use crate::error::BuildError;
use crate::layout::lcluster_index;
use crate::plan::dedupe::chunker::ChunkHash;
use crate::plan::dedupe::matching::Chunk;
use crate::plan::dedupe::parts::OlderText;
use crate::plan::fragments::{FragmentStream, Head};
use crate::plan::text::TextSource;
use kiln_format::BlockBits;

/// Plain text of files in plan order that are sorted together, in bytes.
const WINDOW_LEN: u64 = 4 << 20;

/// A file that goes into the packed stream.
pub(crate) struct Candidate {
    /// Index in the plan.
    pub file: u32,
    /// Its length in bytes.
    pub len: u64,
    /// Its first bytes.
    pub head: Head,
    /// Its text; none in an estimate.
    pub text: Arc<Vec<u8>>,
    /// Its chunks, if parts are looked for.
    pub chunks: Box<[Chunk]>,
}

/// Text of the packed stream.
pub(crate) struct Window {
    /// Bytes of the stream.
    pub range: Range<u64>,
    /// The text; none in an estimate.
    pub text: Vec<u8>,
    /// Its chunks, if parts are looked for.
    pub chunks: Box<[Chunk]>,
}

/// The packed stream, and files that wait for a window.
pub(crate) struct PackedWindow {
    stream: FragmentStream,
    block_bits: BlockBits,
    pending: Vec<Candidate>,
    pending_len: u64,
    /// Byte of the stream up to which windows were closed.
    closed: u64,
    /// Byte of the stream up to which text has arrived. A long file arrives in pieces.
    filled: u64,
    /// Text of the stream from there on, which the next window begins with, and its chunks.
    rest: (Vec<u8>, Vec<Chunk>),
}

impl PackedWindow {
    /// Begins the stream at byte `start`.
    pub(crate) fn new(start: u64, block_bits: BlockBits) -> Self {
        let (pending, rest) = (Vec::new(), Default::default());
        Self {
            stream: FragmentStream::behind(start),
            block_bits,
            pending,
            pending_len: 0,
            closed: start,
            filled: start,
            rest,
        }
    }

    /// Adds a file. Files come in plan order.
    pub(crate) fn push(&mut self, candidate: Candidate) {
        self.pending_len += candidate.len;
        self.pending.push(candidate);
    }

    /// Puts a file of several pieces into the stream; its pieces follow. No file may wait.
    pub(crate) fn begin_long(&mut self, file: u32, len: u64) {
        debug_assert!(self.pending.is_empty(), "files before it are in the stream");
        self.stream.push(file, len);
    }

    /// Adds a piece of the long file, of `len` bytes; an estimate has no text.
    pub(crate) fn push_piece(&mut self, len: u64, text: &[u8], chunks: &[Chunk]) {
        self.filled += len;
        self.rest.0.extend_from_slice(text);
        self.rest.1.extend_from_slice(chunks);
    }

    /// Ends a long file of which no more pieces come.
    pub(crate) fn abandon_long(&mut self) {
        self.stream.end_at(self.filled);
    }

    /// Returns true if the window is to be closed.
    pub(crate) fn is_full(&self) -> bool {
        self.pending_len + (self.filled - self.closed) >= WINDOW_LEN
    }

    /// Returns the offset of a file in the stream, if it is there.
    pub(crate) fn place_of(&self, file: u32) -> Option<u64> {
        self.stream.members().filter(|member| member.file == file).last().map(|member| member.off)
    }

    /// Fills `buf` from byte `off` of the stream, from `older` text or from the next window.
    ///
    /// # Errors
    /// Those of `older`.
    pub(crate) fn read(&self, off: u64, buf: &mut [u8], older: &mut dyn OlderText) -> Result<(), BuildError> {
        let stored = self.closed.saturating_sub(off).min(buf.len() as u64) as usize;
        let (front, rest) = buf.split_at_mut(stored);
        if !front.is_empty() {
            older.read(TextSource::Fragments, off, front, &self.stream)?;
        }
        if !rest.is_empty() {
            let at = (off + stored as u64 - self.closed) as usize;
            rest.copy_from_slice(&self.rest.0[at..at + rest.len()]);
        }
        Ok(())
    }

    /// Returns the stream so far.
    pub(crate) fn stream(&self) -> &FragmentStream {
        &self.stream
    }

    /// Returns the whole stream.
    pub(crate) fn into_stream(self) -> FragmentStream {
        self.stream
    }

    /// Puts the files that wait into the stream: in plan order if it `keeps_order`, else sorted by their first bytes.
    /// Returns the next window, if there is any text; what remains behind its last pack begins the next one. The memory
    /// of `buffer` is used for it.
    ///
    /// # Errors
    /// Block sizes that the compact index cannot have.
    pub(crate) fn close(
        &mut self,
        keeps_order: bool,
        end: WindowEnd,
        buffer: Vec<u8>,
    ) -> Result<Option<Window>, BuildError> {
        let mut files = std::mem::take(&mut self.pending);
        self.pending_len = 0;
        if !keeps_order {
            // Indexes follow paths.
            files.sort_unstable_by_key(|candidate| (candidate.head, candidate.file));
        }
        let (rest, mut chunks) = std::mem::take(&mut self.rest);
        let mut text = buffer;
        text.clear();
        text.reserve_exact(rest.len() + files.iter().map(|candidate| candidate.text.len()).sum::<usize>());
        text.extend_from_slice(&rest);
        for candidate in &files {
            self.stream.push(candidate.file, candidate.len);
            self.filled += candidate.len;
            text.extend_from_slice(&candidate.text);
            chunks.extend_from_slice(&candidate.chunks);
        }
        let len = self.filled;
        let start = self.closed;
        self.closed = match end {
            WindowEnd::Open => lcluster_index::last_pack_start(len, self.block_bits)?.max(start),
            WindowEnd::Padded if len > start => lcluster_index::pack_start(len, self.block_bits)?,
            WindowEnd::Last | WindowEnd::Padded => len,
        };
        if self.closed > len {
            self.stream.pad(self.closed);
            self.filled = self.closed;
        }
        // An estimate has no text.
        let has_text = text.len() as u64 == len - start;
        if has_text {
            text.resize(text.len().max((self.closed - start) as usize), 0);
        }
        let window_len = (self.closed - start) as usize;
        let text_rest = if has_text { text.split_off(window_len) } else { Vec::new() };
        let chunks_rest = split_off(&mut chunks, window_len, &text);
        if let Some(first) = chunks_rest.first().filter(|_| has_text).copied() {
            let hash = ChunkHash::of(&text_rest[..first.len as usize]);
            self.rest.1 = [&[Chunk { hash, ..first }][..], &chunks_rest[1..]].concat();
        } else {
            self.rest.1 = chunks_rest;
        }
        self.rest.0 = text_rest;
        Ok((window_len > 0).then(|| Window { range: start..start + window_len as u64, text, chunks: chunks.into() }))
    }
}

/// End of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowEnd {
    /// More files follow.
    Open,
    /// Something else follows in the stream.
    Padded,
    /// Nothing follows.
    Last,
}

/// Cuts the chunks of a window, `text`, from those that follow it: adds one for zeros at its end, or divides one.
fn split_off(chunks: &mut Vec<Chunk>, window_len: usize, text: &[u8]) -> Vec<Chunk> {
    if chunks.is_empty() {
        return Vec::new();
    }
    let hash = |from: usize, len: usize| text.get(from..from + len).map_or(ChunkHash([0; 3]), ChunkHash::of);
    let mut end = 0;
    for idx in 0..chunks.len() {
        let len = chunks[idx].len as usize;
        if end + len > window_len {
            let mut rest = chunks.split_off(idx);
            let here = window_len - end;
            if here > 0 {
                chunks.push(Chunk { hash: hash(end, here), len: here as u32 });
                rest[0].len -= here as u32;
            }
            return rest;
        }
        end += len;
    }
    if end < window_len {
        chunks.push(Chunk { hash: hash(end, window_len - end), len: (window_len - end) as u32 });
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::fragments::HEAD_LEN;

    fn candidate(file: u32, first: u8, len: u64) -> Candidate {
        let text = Arc::new(vec![first; len as usize]);
        let chunks = Box::new([Chunk { hash: ChunkHash::of(&text), len: len as u32 }]);
        Candidate { file, len, head: [first; HEAD_LEN], text, chunks }
    }

    fn window() -> PackedWindow {
        PackedWindow::new(0, BlockBits::DEFAULT)
    }

    #[test]
    fn kinds_stand_together_within_a_window_but_ordered_files_do_not_move() {
        for (keeps_order, files) in [(false, [2, 4, 1, 3]), (true, [1, 2, 3, 4])] {
            let mut packed = window();
            [(1, b'b'), (2, b'a'), (3, b'b'), (4, b'a')]
                .into_iter()
                .for_each(|(file, head)| packed.push(candidate(file, head, 10)));
            assert!(!packed.is_full());
            let window = packed.close(keeps_order, WindowEnd::Last, Vec::new()).unwrap().unwrap();
            assert_eq!((window.range, window.text.len()), (0..40, 40));
            let members: Vec<u32> = packed.stream().members().map(|member| member.file).collect();
            assert_eq!(members, files);
        }
    }

    #[test]
    fn windows_end_where_packs_end_and_their_text_and_chunks_go_on() {
        let mut packed = window();
        let (mut text, mut at, mut files) = (Vec::new(), 0, Vec::new());
        for file in 0..9_u32 {
            let len = 700_000 + 12_345 * u64::from(file);
            packed.push(candidate(file, 100 + file as u8, len));
            text.extend(vec![100 + file as u8; len as usize]);
            files.push(len);
            let is_last = file == 8;
            if !packed.is_full() && !is_last {
                continue;
            }
            let end = if is_last { WindowEnd::Padded } else { WindowEnd::Open };
            let Window { range, text: part, chunks } = packed.close(true, end, vec![7; 100]).unwrap().unwrap();
            assert_eq!(range.start, at);
            at = range.end;
            assert_eq!(lcluster_index::pack_start(at, BlockBits::DEFAULT).unwrap(), at, "a pack begins");
            text.resize(text.len().max(at as usize), 0);
            assert!(part == text[range.start as usize..range.end as usize]);
            let mut start = 0;
            for chunk in &chunks {
                let bytes = &part[start..start + chunk.len as usize];
                assert_eq!(chunk.hash, ChunkHash::of(bytes));
                start += chunk.len as usize;
            }
            assert_eq!(start, part.len(), "chunks cover the window");
        }
        let total: u64 = files.iter().sum();
        assert_eq!(at, lcluster_index::pack_start(total, BlockBits::DEFAULT).unwrap());
        assert!(packed.close(true, WindowEnd::Last, Vec::new()).unwrap().is_none(), "nothing is left");
    }
}
