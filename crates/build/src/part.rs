//! What one worker does with a part: read it, store it.

use kiln_format::BlockBits;
use xxhash_rust::xxh3::xxh3_128;

use crate::fill::{Filled, Filler, PartExtent};
use crate::jobs::{Part, Stream, Task};
use crate::plan::Plan;
use crate::space::inline_tail_len;
use crate::survey::skippable;
use crate::zindex::{self, IndexShape};
use crate::{BuildError, BuildOptions, Control, Tree};

/// Bytes that the index of a file may take more behind the inode of another one that shares its data.
const INDEX_SLACK: u64 = 32;

/// What became of a part.
#[derive(Debug)]
pub struct PackedPart {
    /// Bytes to append: whole blocks, unless they are encoded extents.
    pub bytes: Vec<u8>,
    /// XXH3-128 of them.
    pub digest: u128,
    /// How they are to be read.
    pub shape: Shape,
    /// Members of the packed stream that cannot be read; zeros stand in their place.
    pub unreadable: Vec<(u32, BuildError)>,
}

/// How the bytes of a part are to be read.
#[derive(Debug)]
pub enum Shape {
    /// As they are, with these bytes behind them, inline.
    Flat {
        /// Less than a block.
        tail: Vec<u8>,
    },
    /// As extents, one behind the other.
    Extents {
        /// All of them.
        list: Vec<PartExtent>,
        /// The pcluster of the last one, if it is not among the bytes but inline.
        inline: Vec<u8>,
    },
}

impl PackedPart {
    /// A part of these bytes.
    pub fn new(bytes: Vec<u8>, shape: Shape) -> Self {
        Self { digest: xxh3_128(&bytes), bytes, shape, unreadable: Vec::new() }
    }

    fn of(filled: Filled) -> Self {
        Self::new(filled.bytes, Shape::Extents { list: filled.extents, inline: filled.inline })
    }
}

/// Packs parts; one for each thread.
pub struct Packer<'a> {
    tree: &'a Tree,
    plan: &'a Plan,
    options: &'a BuildOptions,
    control: &'a Control<'a>,
    block_bits: BlockBits,
    /// For files.
    filler: Option<Filler>,
    /// For the packed stream.
    packed_filler: Option<Filler>,
    text: Vec<u8>,
    /// Bytes of text after which a filler may stop.
    enough: u64,
}

impl<'a> Packer<'a> {
    /// A packer for `options`.
    ///
    /// # Errors
    /// An encoder that cannot be made.
    pub fn new(
        tree: &'a Tree,
        plan: &'a Plan,
        options: &'a BuildOptions,
        control: &'a Control<'a>,
    ) -> Result<Self, BuildError> {
        let block_bits = options.block_bits();
        let filler = options.compression.map(|spec| Filler::new(&spec, block_bits)).transpose()?;
        Ok(Self {
            tree,
            plan,
            options,
            control,
            block_bits,
            filler,
            packed_filler: None,
            text: Vec::new(),
            enough: u64::MAX,
        })
    }

    /// As this one, but what is compressed in segments ends once `enough` bytes of text are stored: for estimates.
    pub fn with_enough(mut self, enough: u64) -> Self {
        self.enough = enough;
        self.filler = self.filler.map(|filler| filler.with_enough(enough));
        self
    }

    /// The text that was read last.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Do a job.
    ///
    /// # Errors
    /// A file that cannot be read or has changed, with its path; a codec that fails.
    pub fn pack(&mut self, part: &Part) -> Result<PackedPart, BuildError> {
        let unreadable = self.read(part)?;
        let packed = match part.task {
            Task::Segment => self.compressed(part.stream, part.ends_stream, 0)?,
            Task::Whole { compress: true, inode_len } => {
                let room = self.inline_room(part.range.end, inode_len)?;
                let packed = self.compressed(part.stream, part.ends_stream, room)?;
                if self.gains(&packed, part.range.end)? { packed } else { self.flat(inode_len) }
            }
            Task::Whole { compress: false, inode_len } => self.flat(inode_len),
            Task::Copy => self.split_at(self.text.len()),
            Task::Tail => self.split_at(0),
        };
        Ok(PackedPart { unreadable, ..packed })
    }

    /// Read the part's text. Members of the packed stream that may be skipped are returned instead.
    ///
    /// # Errors
    /// As [`Packer::pack`].
    pub fn read(&mut self, part: &Part) -> Result<Vec<(u32, BuildError)>, BuildError> {
        let len = (part.range.end - part.range.start) as usize;
        self.text.resize(len, 0);
        let text = &mut self.text[..];
        if let Stream::File(file) = part.stream {
            read_file(self.tree, self.plan, file, part.range.start, text)?;
            return Ok(Vec::new());
        }
        let mut unreadable = Vec::new();
        self.plan.packed.read(part.range.start, text, |file, off, piece| {
            let read = read_file(self.tree, self.plan, file, off, piece);
            if let Err(error) = skippable(read, self.options)? {
                piece.fill(0);
                unreadable.push((file, error));
            }
            Ok::<_, BuildError>(())
        })?;
        Ok(unreadable)
    }

    /// The text uncompressed, its tail inline if the inode has room for it.
    fn flat(&self, inode_len: usize) -> PackedPart {
        let tail_len = inline_tail_len(self.text.len() as u64, inode_len, self.block_bits).unwrap_or(0);
        self.split_at(self.text.len() - tail_len)
    }

    fn split_at(&self, at: usize) -> PackedPart {
        let (blocks, tail) = self.text.split_at(at);
        let mut blocks = blocks.to_vec();
        blocks.resize(blocks.len().next_multiple_of(self.block_bits.len() as usize), 0);
        PackedPart::new(blocks, Shape::Flat { tail: tail.to_vec() })
    }

    /// Bytes beside the inode of a compressed file of `len` bytes that may hold the end of its data.
    fn inline_room(&self, len: u64, inode_len: usize) -> Result<usize, BuildError> {
        if !self.options.packs_tails() {
            return Ok(0);
        }
        let shape = self.index_shape(len);
        let taken = inode_len as u64 + zindex::len_behind(inode_len as u64, shape)? + INDEX_SLACK;
        Ok(self.block_bits.len().saturating_sub(taken) as usize)
    }

    /// The index of a file of `len` bytes whose pclusters lie one behind the other.
    fn index_shape(&self, len: u64) -> IndexShape {
        let big = self.options.max_pcluster_blocks() > 1;
        IndexShape { len, block_bits: self.block_bits, big, scattered: false, inline_len: 0 }
    }

    /// Whether a compressed file, its map included, is smaller than the plain one.
    fn gains(&self, packed: &PackedPart, len: u64) -> Result<bool, BuildError> {
        if self.options.encoded_extents {
            // Small plain files, too, do without padding; blocks of their own suit large ones. The smallest go beside their
            // inode, but not into the metabox, where a walk would have to decode them.
            let small = self.filler.as_ref().is_some_and(|filler| len <= filler.unit_len());
            let inline = len < self.block_bits.len() && self.options.metabox.is_none();
            return Ok(small && !inline || (packed.bytes.len() as u64) < len);
        }
        let shape = self.index_shape(len);
        let inline_len = match &packed.shape {
            Shape::Extents { inline, .. } => inline.len(),
            Shape::Flat { .. } => 0,
        };
        Ok((packed.bytes.len() + inline_len) as u64 + zindex::index_len(shape)? < len)
    }

    /// The text compressed; the end of a whole file beside its inode, if there are `room` bytes for it.
    fn compressed(&mut self, stream: Stream, ends_stream: bool, room: usize) -> Result<PackedPart, BuildError> {
        let filler = match (stream, self.options.packed_spec()) {
            (Stream::Packed, Some(spec)) => match &mut self.packed_filler {
                Some(filler) => filler,
                none => none.insert(Filler::new(&spec, self.block_bits)?.with_enough(self.enough)),
            },
            _ => self
                .filler
                .as_mut()
                .ok_or_else(|| BuildError::Internal("a part is to be compressed without an encoder".to_owned()))?,
        };
        compress(filler, &self.text, ends_stream, room, self.options, self.control)
    }
}

/// `text` compressed; its end beside an inode, if there are `room` bytes for it.
///
/// # Errors
/// A codec that fails; an interruption.
pub fn compress(
    filler: &mut Filler,
    text: &[u8],
    ends_stream: bool,
    room: usize,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<PackedPart, BuildError> {
    Ok(PackedPart::of(match options.encoded_extents {
        true => filler.units(text, control)?,
        false => filler.blocks(text, ends_stream, room, control)?,
    }))
}

/// Fill `text` from byte `off` of a file of the plan.
fn read_file(tree: &Tree, plan: &Plan, file: u32, off: u64, text: &mut [u8]) -> Result<(), BuildError> {
    let node = plan.files[file as usize].node;
    let mut content = tree.open(node)?;
    content
        .read_exact_at(text, off)
        .and_then(|()| content.verify_unchanged())
        .map_err(|source| BuildError::Read { path: tree.path(node), source })
}
