//! Work of one worker on a part: it brings the text into the form in which it is stored.

use kiln_codec::Spec;
use kiln_format::BlockBits;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use xxhash_rust::xxh3::xxh3_128;

use crate::context::Context;
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::format::Format;
use crate::layout::lcluster_index::{self, IndexShape, MapEnd};
use crate::pack::chunks::ChunkText;
use crate::pack::fill::{End, FillForm, Filled, PartExtent, PclusterWriter};
use crate::pack::jobs::{JobText, PackJob, Task};
use crate::pack::recut;

/// Result of packing a part.
#[derive(Debug)]
pub(crate) struct PackOutput {
    /// Bytes to append: whole blocks, unless they are encoded extents.
    pub bytes: Vec<u8>,
    /// XXH3-128 of the bytes.
    pub digest: u128,
    /// Form of the bytes.
    pub shape: Shape,
    /// Bytes at the end of a file that are left for the packed stream.
    pub left: Vec<u8>,
}

/// The form of a part's bytes.
#[derive(Debug)]
pub(crate) enum Shape {
    /// Uncompressed, followed by an inline tail.
    Flat {
        /// Less than a block.
        tail: Vec<u8>,
    },
    /// As chunks, each a part of the bytes; the last may be shorter.
    Chunks {
        /// log2 of their size.
        chunk_bits: u8,
        /// Contents of each chunk.
        texts: Vec<ChunkText>,
    },
    /// As extents, one behind the other.
    Extents {
        /// All of them.
        list: Vec<PartExtent>,
        /// The pcluster of the last one, if it is not among the bytes but inline.
        inline: Vec<u8>,
    },
    /// As extents that take the place of one, see [`recut`](super::recut).
    Recut {
        /// All of them.
        list: Vec<PartExtent>,
        /// Number of first ones that lie where the one did.
        in_place: usize,
    },
}

impl PackOutput {
    /// Creates a result from these bytes.
    pub(crate) fn new(bytes: Vec<u8>, shape: Shape) -> Self {
        Self { digest: xxh3_128(&bytes), bytes, shape, left: Vec::new() }
    }

    fn of(filled: Filled, text: &[u8]) -> Self {
        let Filled { bytes, extents, inline, left } = filled;
        let left = text[text.len() - left..].to_vec();
        Self { left, ..Self::new(bytes, Shape::Extents { list: extents, inline }) }
    }
}

/// Packs parts; one for each thread.
pub(crate) struct PackWorker<'a> {
    format: &'a Format,
    control: &'a Control<'a>,
    block_bits: BlockBits,
    /// Encoders, each created on first use.
    fillers: HashMap<Spec, PclusterWriter>,
}

impl<'a> PackWorker<'a> {
    /// Creates a worker.
    pub(crate) fn new(context: Context<'a>) -> Self {
        let Context { format, control, .. } = context;
        Self { format, control, block_bits: format.block_bits, fillers: HashMap::new() }
    }

    /// Runs a job. Returns it without its text.
    ///
    /// # Errors
    /// A codec that fails; an interruption.
    pub(crate) fn pack(&mut self, job: PackJob) -> Result<(PackJob, PackOutput), BuildError> {
        let without_text = job.without_text();
        let output = match job.task {
            Task::Segment => self.compressed(&job, End::Padded)?,
            Task::Recut(ref recut) => {
                let (format, control) = (self.format, self.control);
                let (filled, in_place) = recut::run(recut, self.filler(&job)?, job.text.bytes(), format, control)?;
                PackOutput::new(filled.bytes, Shape::Recut { list: filled.extents, in_place })
            }
            Task::Whole { compress: true, inode_len } => {
                let end = match job.packs_end {
                    true => End::Fragments,
                    false => End::Inline(self.inline_room(job.range.end, inode_len)?),
                };
                let packed = self.compressed(&job, end)?;
                if self.gains(&packed, &job)? { packed } else { self.plain(job.text, inode_len) }
            }
            Task::Whole { compress: false, inode_len } => self.plain(job.text, inode_len),
            Task::Chunks(chunk_bits) => self.chunks(job.text, chunk_bits),
            Task::Copy => PackOutput::new(self.whole_blocks(job.text.into_bytes()), Shape::Flat { tail: Vec::new() }),
            Task::Tail => PackOutput::new(Vec::new(), Shape::Flat { tail: job.text.into_bytes() }),
        };
        Ok((without_text, output))
    }

    /// Stores the text uncompressed, in chunks if options say so.
    fn plain(&self, text: JobText, inode_len: usize) -> PackOutput {
        match self.format.layout.chunk_bits {
            Some(chunk_bits) => self.chunks(text, chunk_bits),
            None => self.flat(text, inode_len),
        }
    }

    fn chunks(&self, text: JobText, chunk_bits: u8) -> PackOutput {
        let texts = ChunkText::of_all(text.bytes(), chunk_bits, self.format.dedupe);
        PackOutput::new(self.whole_blocks(text.into_bytes()), Shape::Chunks { chunk_bits, texts })
    }

    /// Stores the text uncompressed, with an inline tail if the inode has room for it.
    fn flat(&self, text: JobText, inode_len: usize) -> PackOutput {
        let mut text = text.into_bytes();
        let tail_len = self.format.inline_tail_len(text.len() as u64, inode_len);
        let tail = text.split_off(text.len() - tail_len);
        PackOutput::new(self.whole_blocks(text), Shape::Flat { tail })
    }

    /// Returns the text, with zeros up to the end of a block.
    fn whole_blocks(&self, mut text: Vec<u8>) -> Vec<u8> {
        text.resize(text.len().next_multiple_of(self.block_bits.len() as usize), 0);
        text
    }

    /// Returns the bytes beside the inode of a compressed file of `len` bytes that may hold the end of its data.
    fn inline_room(&self, len: u64, inode_len: usize) -> Result<usize, BuildError> {
        if !self.format.packing.tails {
            return Ok(0);
        }
        let index_len = lcluster_index::len_behind(inode_len as u64, self.index_shape(len))?;
        Ok(lcluster_index::inline_room(inode_len as u64, index_len, self.block_bits) as usize)
    }

    /// Returns the shape of the index of a file of `len` bytes whose pclusters are contiguous.
    fn index_shape(&self, len: u64) -> IndexShape {
        let big = self.format.max_pcluster_blocks() > 1;
        IndexShape { len, block_bits: self.block_bits, big, scattered: false, end: MapEnd::Stored }
    }

    /// Returns whether a compressed file, including its map, is smaller than the plain one.
    fn gains(&self, packed: &PackOutput, job: &PackJob) -> Result<bool, BuildError> {
        let len = job.range.end;
        if self.format.compression.encoded_extents {
            // Small plain files, too, do without padding; blocks of their own suit large ones. The smallest go
            // beside their inode, but not into the metabox, where a walk would have to decode them.
            let small = job.spec.is_some_and(|spec| len <= spec.pcluster_len.into());
            let inline = len < self.block_bits.len() && self.format.metadata.metabox.is_none();
            return Ok(small && !inline || (packed.bytes.len() as u64) < len);
        }
        let shape = self.index_shape(len);
        let inline_len = match &packed.shape {
            Shape::Extents { inline, .. } => inline.len(),
            Shape::Flat { .. } | Shape::Chunks { .. } | Shape::Recut { .. } => 0,
        };
        let left_len = packed.left.len().min(self.block_bits.len() as usize);
        Ok((packed.bytes.len() + inline_len + left_len) as u64 + lcluster_index::index_len(shape)? < len)
    }

    /// Stores the text compressed; the end of a whole file goes where `end` says.
    fn compressed(&mut self, job: &PackJob, end: End) -> Result<PackOutput, BuildError> {
        let control = self.control;
        compress(self.filler(job)?, job.text.bytes(), job.ends_stream, end, control)
    }

    /// Returns the encoder of a job.
    fn filler(&mut self, job: &PackJob) -> Result<&mut PclusterWriter, BuildError> {
        let nothing = || BuildError::Internal("a part is to be compressed by nothing".to_owned());
        Ok(match self.fillers.entry(job.spec.ok_or_else(nothing)?) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let filler = PclusterWriter::new(entry.key(), FillForm::of(self.format))?;
                entry.insert(filler)
            }
        })
    }
}

/// Compresses `text`; its end goes where `end` says.
///
/// # Errors
/// A codec that fails; an interruption.
pub(crate) fn compress(
    filler: &mut PclusterWriter,
    text: &[u8],
    ends_stream: bool,
    end: End,
    control: &Control<'_>,
) -> Result<PackOutput, BuildError> {
    Ok(PackOutput::of(filler.write(text, ends_stream, end, control)?, text))
}
