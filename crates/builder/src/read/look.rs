//! Facts about text in memory, which decisions need.

use kiln_codec::{Method, probe};
use std::sync::Arc;

use crate::format::Format;
use crate::plan::dedupe::chunker::{ChunkHash, ChunkSizes, Chunker};
use crate::plan::dedupe::matching::Chunk;
use crate::plan::fragments::Head;
use crate::read::piece::{Piece, ReadRequest};

/// Bytes of a piece whose entropy is measured.
const SAMPLE_LEN: usize = 64 << 10;

/// Returns the number of first bytes of `len` that facts need if neither digest nor chunks are wanted.
pub(super) fn least(len: usize) -> usize {
    len.min(SAMPLE_LEN)
}

/// Examines text; one for each thread.
pub(crate) struct Looker {
    /// Method of the packed stream, if there is one.
    method: Option<Method>,
    chunker: Chunker,
}

impl Looker {
    pub(crate) fn new(format: &Format) -> Self {
        let method = format.compression.spec.map(|spec| spec.method);
        Self { method, chunker: Chunker::new(ChunkSizes::DEFAULT) }
    }

    /// Makes a piece of its text, with the facts that are wanted.
    pub(crate) fn piece(&mut self, request: ReadRequest, text: Vec<u8>) -> Piece {
        let wanted = request.wanted;
        let sample = &text[..text.len().min(SAMPLE_LEN)];
        let start = &text[..text.len().min(probe::START_LEN)];
        Piece {
            digest: wanted.digest.then(|| *blake3::hash(&text).as_bytes()),
            digests: if wanted.is_whole { wanted.hashes.digests(&text) } else { Vec::new() },
            head: wanted.head.then(|| head(start, self.method)).flatten(),
            chunks: if wanted.chunks { self.chunks(&text) } else { Box::default() },
            entropy: (wanted.entropy && probe::is_incompressible(sample)).then(|| probe::entropy(sample)),
            changed: None,
            request,
            text: Arc::new(text),
        }
    }

    fn chunks(&mut self, text: &[u8]) -> Box<[Chunk]> {
        let mut chunks = Vec::with_capacity(text.len() / ChunkSizes::DEFAULT.avg + 1);
        self.chunker.chunk(text, |range| {
            let bytes = &text[range];
            chunks.push(Chunk { hash: ChunkHash::of(bytes), len: bytes.len() as u32 });
        });
        chunks.into()
    }
}

/// Returns the first bytes of a file that begins with `start`, if it looks compressible by `method`.
fn head(start: &[u8], method: Option<Method>) -> Option<Head> {
    if probe::start_is_incompressible(start, method?) {
        return None;
    }
    let mut head = Head::default();
    let known = head.len().min(start.len());
    head[..known].copy_from_slice(&start[..known]);
    Some(head)
}
