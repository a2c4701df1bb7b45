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
use crate::plan::fragments::{FragmentStream, Head};
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
}

impl PackedWindow {
    /// Begins the stream at byte `start`.
    pub(crate) fn new(start: u64, block_bits: BlockBits) -> Self {
        Self { stream: FragmentStream::behind(start), block_bits, pending: Vec::new(), pending_len: 0 }
    }

    /// Adds a file. Files come in plan order.
    pub(crate) fn push(&mut self, candidate: Candidate) {
        self.pending_len += candidate.len;
        self.pending.push(candidate);
    }

    /// Returns true if the window is to be closed.
    pub(crate) fn is_full(&self) -> bool {
        self.pending_len >= WINDOW_LEN
    }

    /// Returns the stream so far.
    pub(crate) fn stream(&self) -> &FragmentStream {
        &self.stream
    }

    /// Returns the whole stream.
    pub(crate) fn into_stream(self) -> FragmentStream {
        self.stream
    }

    /// Puts the files that wait into the stream, if there are any: in plan order if it `keeps_order`, else sorted by
    /// their first bytes. `pads` tells whether something follows that may lie elsewhere.
    ///
    /// # Errors
    /// Block sizes that the compact index cannot have.
    pub(crate) fn close(&mut self, keeps_order: bool, pads: bool) -> Result<Option<Window>, BuildError> {
        let mut files = std::mem::take(&mut self.pending);
        if files.is_empty() {
            return Ok(None);
        }
        if !keeps_order {
            // Indexes follow paths.
            files.sort_unstable_by_key(|candidate| (candidate.head, candidate.file));
        }
        let start = self.stream.len();
        let has_text = files.iter().all(|candidate| candidate.text.len() as u64 == candidate.len);
        let has_chunks = files.iter().any(|candidate| !candidate.chunks.is_empty());
        let (mut text, mut chunks) = (Vec::new(), Vec::new());
        for candidate in &files {
            self.stream.push(candidate.file, candidate.len);
            chunks.extend_from_slice(&candidate.chunks);
        }
        let end = self.stream.len();
        if pads {
            self.stream.pad(lcluster_index::pack_start(end, self.block_bits)?);
        }
        let padding = vec![0; (self.stream.len() - end) as usize];
        if has_chunks && !padding.is_empty() {
            chunks.push(Chunk { hash: ChunkHash::of(&padding), len: padding.len() as u32 });
        }
        if has_text {
            text.reserve_exact((self.stream.len() - start) as usize);
            files.iter().for_each(|candidate| text.extend_from_slice(&candidate.text));
            text.extend_from_slice(&padding);
        }
        self.pending_len = 0;
        Ok(Some(Window { range: start..self.stream.len(), text, chunks: chunks.into() }))
    }
}
