//! Work of one worker on a part: it reads and stores the part.

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
use crate::options::Dedupe;
use crate::pack::chunks::ChunkText;
use crate::pack::fill::{End, FillForm, Filled, PartExtent, PclusterWriter};
use crate::pack::jobs::{PackJob, Task};
use crate::plan::analysis::skippable;
use crate::plan::fragments::FragmentStream;
use crate::plan::text::TextSource;
use crate::plan::{PackSources, Plan};
use kiln_tree::{Content, Tree, Version};

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
    pub left: usize,
    /// Errors of the files that it was read from.
    pub amiss: Amiss,
}

/// Errors of files that a part was read from.
#[derive(Debug, Default)]
pub(crate) struct Amiss {
    /// Members of the packed stream that cannot be read; zeros stand in their place.
    pub unreadable: Vec<(u32, BuildError)>,
    /// Files that have changed, and are stored as read.
    pub changed: Vec<(u32, BuildError)>,
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
}

impl PackOutput {
    /// Creates a result from these bytes.
    pub(crate) fn new(bytes: Vec<u8>, shape: Shape) -> Self {
        Self { digest: xxh3_128(&bytes), bytes, shape, left: 0, amiss: Amiss::default() }
    }

    fn of(filled: Filled) -> Self {
        let Filled { bytes, extents, inline, left } = filled;
        Self { left, ..Self::new(bytes, Shape::Extents { list: extents, inline }) }
    }
}

/// Packs parts; one for each thread.
pub(crate) struct PackWorker<'a> {
    tree: &'a Tree,
    plan: &'a Plan,
    sources: &'a PackSources,
    /// Source of the packed inode's text.
    fragments: &'a FragmentStream,
    format: &'a Format,
    control: &'a Control<'a>,
    block_bits: BlockBits,
    /// Encoders, each created on first use.
    fillers: HashMap<Spec, PclusterWriter>,
    text: Vec<u8>,
}

impl<'a> PackWorker<'a> {
    /// Creates a worker for jobs of `plan`. Those of the packed inode are read from `fragments`.
    pub(crate) fn new(
        plan: &'a Plan,
        sources: &'a PackSources,
        fragments: &'a FragmentStream,
        context: Context<'a>,
    ) -> Self {
        let Context { tree, format, control, .. } = context;
        let block_bits = format.block_bits;
        let (fillers, text) = (HashMap::new(), Vec::new());
        Self { tree, plan, sources, fragments, format, control, block_bits, fillers, text }
    }

    /// Runs a job.
    ///
    /// # Errors
    /// A file that cannot be read or has changed, with its path; a codec that fails.
    pub(crate) fn pack(&mut self, part: &PackJob) -> Result<PackOutput, BuildError> {
        let amiss = self.read(part)?;
        let packed = match part.task {
            Task::Segment => self.compressed(part.stream, part.ends_stream, End::Padded)?,
            Task::Whole { compress: true, inode_len } => {
                let end = match self.plan.packs_end(part.stream) {
                    true => End::Fragments,
                    false => End::Inline(self.inline_room(part.range.end, inode_len)?),
                };
                let packed = self.compressed(part.stream, part.ends_stream, end)?;
                if self.gains(&packed, part)? { packed } else { self.plain(inode_len) }
            }
            Task::Whole { compress: false, inode_len } => self.plain(inode_len),
            Task::Chunks(chunk_bits) if amiss.changed.is_empty() => self.chunks(chunk_bits),
            Task::Chunks(chunk_bits) => self.chunks_apart(chunk_bits),
            Task::Copy => self.split_at(self.text.len()),
            // There is nothing to read.
            Task::Tail => self.split_at(0),
        };
        Ok(PackOutput { amiss, ..packed })
    }

    /// Reads the part's text. Returns tolerated errors.
    ///
    /// # Errors
    /// As [`PackWorker::pack`].
    fn read(&mut self, part: &PackJob) -> Result<Amiss, BuildError> {
        let len = (part.range.end - part.range.start) as usize;
        let mut text = match std::mem::take(&mut self.text) {
            // With room to fill the last block, so that nothing has to be moved then.
            text if text.capacity() == 0 => vec![0; len.next_multiple_of(self.block_bits.len() as usize)],
            text => text,
        };
        text.resize(len, 0);
        let mut amiss = Amiss::default();
        let read = match part.stream {
            TextSource::File(file) => self.read_file(file, part.range.start, &mut text).map(|change| {
                amiss.changed.extend(change.map(|change| (file, change)));
            }),
            TextSource::Fragments => self.fragments.read(part.range.start, &mut text, |file, off, piece| {
                match skippable(self.read_file(file, off, piece), self.format)? {
                    Ok(change) => amiss.changed.extend(change.map(|change| (file, change))),
                    Err(error) => {
                        piece.fill(0);
                        amiss.unreadable.push((file, error));
                    }
                }
                Ok::<_, BuildError>(())
            }),
        };
        self.text = text;
        read.map(|()| amiss)
    }

    /// Fills `text` from byte `off` of a file of the plan. Shared text is verified. Returns the change of a file
    /// that may change; such a file is stored as read.
    fn read_file(&self, file: u32, off: u64, text: &mut [u8]) -> Result<Option<BuildError>, BuildError> {
        let tree = self.tree;
        let node = self.plan.files[file as usize].node;
        let mut read = |content: Result<Box<dyn Content>, BuildError>| {
            let mut content = content?;
            content
                .read_exact_at(text, off)
                .and_then(|()| {
                    self.sources.checks().try_for_each(|checks| checks.verify(&mut *content, file, off, text))
                })
                .and_then(|()| content.verify_unchanged())
                .map_err(|source| BuildError::Read { path: tree.path(node), source })
        };
        // Bytes beside the inode of a reused file come from that file.
        let version = if self.plan.is_kept_whole(file) { Version::Reused } else { Version::Scanned };
        match read(tree.open_version(node, version).map_err(Into::into)) {
            Ok(()) => Ok(None),
            Err(change) if change.is_change() && self.may_change(file) => {
                read(tree.open_version(node, Version::Changed).map_err(Into::into)).map(|()| Some(change))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether a file may differ from the plan, as long as others find the text that they share. A digest
    /// would describe the old contents.
    fn may_change(&self, file: u32) -> bool {
        let has_digest = self.format.metadata.has_digests && !self.plan.apart.contains(&file);
        self.format.work.keep_going && !has_digest
    }

    /// Stores the text uncompressed, in chunks if options say so.
    fn plain(&mut self, inode_len: usize) -> PackOutput {
        match self.format.layout.chunk_bits {
            Some(chunk_bits) => self.chunks(chunk_bits),
            None => self.flat(inode_len),
        }
    }

    fn chunks(&mut self, chunk_bits: u8) -> PackOutput {
        self.chunks_of(ChunkText::of_all(&self.text, chunk_bits, self.format.dedupe), chunk_bits)
    }

    /// Stores the text in chunks like [`PackWorker::chunks`], but without sharing any.
    fn chunks_apart(&mut self, chunk_bits: u8) -> PackOutput {
        self.chunks_of(ChunkText::of_all(&self.text, chunk_bits, Dedupe::Off), chunk_bits)
    }

    fn chunks_of(&mut self, texts: Vec<ChunkText>, chunk_bits: u8) -> PackOutput {
        PackOutput::new(self.whole_blocks(), Shape::Chunks { chunk_bits, texts })
    }

    /// Stores the text uncompressed, with an inline tail if the inode has room for it.
    fn flat(&mut self, inode_len: usize) -> PackOutput {
        let tail_len = self.format.inline_tail_len(self.text.len() as u64, inode_len);
        self.split_at(self.text.len() - tail_len)
    }

    fn split_at(&mut self, at: usize) -> PackOutput {
        let tail = self.text[at..].to_vec();
        self.text.truncate(at);
        PackOutput::new(self.whole_blocks(), Shape::Flat { tail })
    }

    /// Returns the text, with zeros up to the end of a block. Its buffer is handed on, as a copy takes as long as
    /// reading; but a much larger buffer is copied, as it would wait with the text until that is written.
    fn whole_blocks(&mut self) -> Vec<u8> {
        let len = self.text.len().next_multiple_of(self.block_bits.len() as usize);
        let mut blocks = if self.text.capacity() / 2 > len {
            let mut blocks = Vec::with_capacity(len);
            blocks.extend_from_slice(&self.text);
            blocks
        } else {
            std::mem::take(&mut self.text)
        };
        blocks.resize(len, 0);
        blocks
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
    fn gains(&self, packed: &PackOutput, part: &PackJob) -> Result<bool, BuildError> {
        let len = part.range.end;
        if self.format.compression.encoded_extents {
            // Small plain files, too, do without padding; blocks of their own suit large ones. The smallest go
            // beside their inode, but not into the metabox, where a walk would have to decode them.
            let small = self.plan.compression_of(part.stream).is_some_and(|spec| len <= spec.pcluster_len.into());
            let inline = len < self.block_bits.len() && self.format.metadata.metabox.is_none();
            return Ok(small && !inline || (packed.bytes.len() as u64) < len);
        }
        let shape = self.index_shape(len);
        let inline_len = match &packed.shape {
            Shape::Extents { inline, .. } => inline.len(),
            Shape::Flat { .. } | Shape::Chunks { .. } => 0,
        };
        let left_len = packed.left.min(self.block_bits.len() as usize);
        Ok((packed.bytes.len() + inline_len + left_len) as u64 + lcluster_index::index_len(shape)? < len)
    }

    /// Stores the text compressed; the end of a whole file goes where `end` says.
    fn compressed(&mut self, stream: TextSource, ends_stream: bool, end: End) -> Result<PackOutput, BuildError> {
        let nothing = || BuildError::Internal("a part is to be compressed by nothing".to_owned());
        let filler = match self.fillers.entry(self.plan.compression_of(stream).ok_or_else(nothing)?) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let filler = PclusterWriter::new(entry.key(), FillForm::of(self.format))?;
                entry.insert(filler)
            }
        };
        compress(filler, &self.text, ends_stream, end, self.control)
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
    Ok(PackOutput::of(filler.write(text, ends_stream, end, control)?))
}
