//! Jobs of the workers: text in memory, and the form in which it is to be stored.

use kiln_codec::Spec;
use std::ops::Range;
use std::sync::Arc;

use crate::plan::text::TextSource;

/// Kind of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// A whole file of one part: compressed if that gains, else in chunks or flat, its tail inline if there is room.
    Whole {
        /// Try to compress.
        compress: bool,
        /// Bytes of the inode with its xattrs.
        inode_len: usize,
    },
    /// A part of a compressed stream.
    Segment,
    /// Blocks of an uncompressed file, as they are; the last is filled with zeros.
    Copy,
    /// Chunks of 2^n bytes, to be compared with others.
    Chunks(u8),
    /// The last bytes of an uncompressed file, to be inline.
    Tail,
    /// The text of a stored pcluster, to be cut.
    Recut(Recut),
}

/// Cuts of a stored pcluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recut {
    /// First byte of each part but the first, from the start of the text.
    pub cuts: Vec<usize>,
    /// Bytes of the pcluster, which the first new ones take.
    pub room: u32,
    /// The stream ends with the text.
    pub ends_stream: bool,
}

/// Text of a job: some bytes of a piece.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobText {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl JobText {
    /// Returns all of a piece.
    pub(crate) fn all(bytes: Arc<Vec<u8>>) -> Self {
        let range = 0..bytes.len();
        Self { bytes, range }
    }

    /// Returns some of these bytes; none in an estimate.
    pub(crate) fn part(&self, range: Range<u64>) -> Self {
        let range = self.range.start + range.start as usize..self.range.start + range.end as usize;
        let range = if range.end <= self.range.end { range } else { 0..0 };
        Self { bytes: Arc::clone(&self.bytes), range }
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }

    /// Returns the bytes in a buffer of their own. That of a piece is handed on if nobody else has it.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let is_all = self.range == (0..self.bytes.len());
        if !is_all {
            return self.bytes().to_vec();
        }
        Arc::unwrap_or_clone(self.bytes)
    }
}

/// A unit of work, which one worker fills front to back.
///
/// Parts that start at block boundaries never share an lcluster with others; those that are cut where references begin
/// keep the rules of [`crate::plan::dedupe::split_points`]. So parts can be packed in parallel.
#[derive(Clone, Debug)]
pub(crate) struct PackJob {
    /// Source of the text.
    pub stream: TextSource,
    /// Range of the source.
    pub range: Range<u64>,
    /// Kind of work.
    pub task: Task,
    /// The next part, if any, starts at a block boundary: the last extent may have any length.
    pub ends_stream: bool,
    /// Compression, if any.
    pub spec: Option<Spec>,
    /// The end of a whole file may go to the packed inode.
    pub packs_end: bool,
    /// log2 of the chunks in which the file is stored, whatever packing shows.
    pub chunk_bits: Option<u8>,
    /// The text; none in an estimate.
    pub text: JobText,
}

impl PackJob {
    /// Returns the job for a part of a compressed stream.
    pub(crate) fn segment(stream: TextSource, range: Range<u64>, spec: Option<Spec>, text: JobText) -> Self {
        Self { stream, range, task: Task::Segment, ends_stream: true, spec, packs_end: false, chunk_bits: None, text }
    }

    /// Returns the number of bytes of text.
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns the job without its text.
    pub(crate) fn without_text(&self) -> Self {
        Self { range: self.range.clone(), task: self.task.clone(), text: JobText::default(), ..*self }
    }
}
