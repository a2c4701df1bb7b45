//! What one worker does: read a part of a file, fill pclusters with it front to back.
//!
//! A part starts at a block boundary of the file and ends at one or at the end of the file. So its extents never share an
//! lcluster with those of another part, and parts can be packed in parallel.

use kiln_codec::{Encoder, Spec, probe};
use kiln_format::BlockBits;
use kiln_format::compr_cfg::EXTENT_MAX_LEN;
use kiln_format::zmap::HeadKind;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_128;

use crate::space::inline_tail_len;
use crate::tree::NodeId;
use crate::zindex::{self, IndexShape};
use crate::{BuildError, BuildOptions, Control, Tree};

/// What a job asks for.
#[derive(Clone, Debug)]
pub enum Task {
    /// A whole file of one part: compressed if that gains, else flat, its tail inline if there is room.
    Whole {
        /// Try to compress.
        compress: bool,
        /// Bytes of the inode with its xattrs.
        inode_len: usize,
    },
    /// A part of a compressed file.
    Segment,
    /// Blocks of an uncompressed file, as they are; the last is filled with zeros.
    Copy,
    /// The last bytes of an uncompressed file, to be inline.
    Tail,
}

/// A job.
#[derive(Clone, Debug)]
pub struct Part {
    /// Index of the file in the plan.
    pub file: u32,
    /// Its node.
    pub node: NodeId,
    /// Which bytes of it.
    pub range: Range<u64>,
    /// What to do with them.
    pub task: Task,
}

/// An extent relative to the blocks of its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartExtent {
    /// Bytes of plain text.
    pub llen: u32,
    /// Blocks stored.
    pub blocks: u16,
    /// How.
    pub kind: HeadKind,
}

/// What became of a part.
#[derive(Debug)]
pub struct PackedPart {
    /// Blocks to append, a multiple of the block size.
    pub blocks: Vec<u8>,
    /// XXH3-128 of them.
    pub digest: u128,
    /// How they are to be read.
    pub shape: Shape,
}

/// How the blocks of a part are to be read.
#[derive(Debug)]
pub enum Shape {
    /// As they are, with these bytes behind them, inline.
    Flat {
        /// Less than a block.
        tail: Vec<u8>,
    },
    /// As extents, one behind the other.
    Extents(Vec<PartExtent>),
}

/// Packs parts; one for each thread.
pub struct Packer<'a> {
    tree: &'a Tree,
    control: &'a Control<'a>,
    block_bits: BlockBits,
    encoder: Option<(Encoder, Spec)>,
    text: Vec<u8>,
    pcluster: Vec<u8>,
}

impl<'a> Packer<'a> {
    /// A packer for `options`.
    ///
    /// # Errors
    /// An encoder that cannot be made.
    pub fn new(tree: &'a Tree, options: &BuildOptions, control: &'a Control<'a>) -> Result<Self, BuildError> {
        let encoder = options.compression.map(|spec| Encoder::new(&spec).map(|encoder| (encoder, spec))).transpose()?;
        let pcluster = vec![0; options.compression.map_or(0, |spec| spec.pcluster_len as usize)];
        Ok(Self { tree, control, block_bits: options.block_bits(), encoder, text: Vec::new(), pcluster })
    }

    /// Do a job.
    ///
    /// # Errors
    /// A file that cannot be read or has changed, with its path; a codec that fails.
    pub fn pack(&mut self, part: &Part) -> Result<PackedPart, BuildError> {
        self.read(part)?;
        match part.task {
            Task::Segment => self.compressed(),
            Task::Whole { compress: true, inode_len } => {
                let packed = self.compressed()?;
                if self.gains(&packed, part.range.end)? { Ok(packed) } else { Ok(self.flat(inode_len)) }
            }
            Task::Whole { compress: false, inode_len } => Ok(self.flat(inode_len)),
            Task::Copy => Ok(self.split_at(self.text.len())),
            Task::Tail => Ok(self.split_at(0)),
        }
    }

    fn read(&mut self, part: &Part) -> Result<(), BuildError> {
        let mut content = self.tree.open(part.node)?;
        let len = (part.range.end - part.range.start) as usize;
        self.text.resize(len, 0);
        content
            .read_exact_at(&mut self.text, part.range.start)
            .and_then(|()| content.verify_unchanged())
            .map_err(|source| BuildError::Read { path: self.tree.path(part.node), source })
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
        PackedPart { digest: xxh3_128(&blocks), blocks, shape: Shape::Flat { tail: tail.to_vec() } }
    }

    /// Whether a compressed file, its index included, is smaller than the plain one.
    fn gains(&self, packed: &PackedPart, len: u64) -> Result<bool, BuildError> {
        let shape = IndexShape { len, block_bits: self.block_bits, big: self.is_big(), scattered: false };
        Ok(packed.blocks.len() as u64 + zindex::index_len(shape)? < len)
    }

    fn is_big(&self) -> bool {
        self.pcluster.len() as u64 > self.block_bits.len()
    }

    /// Fill pclusters with the text, front to back.
    fn compressed(&mut self) -> Result<PackedPart, BuildError> {
        let block_len = self.block_bits.len() as usize;
        let Some((encoder, spec)) = &mut self.encoder else {
            return Err(BuildError::Internal("a part is to be compressed without an encoder".to_owned()));
        };
        encoder.reset();
        let mut blocks = Vec::with_capacity(self.text.len() / 2);
        let mut extents = Vec::new();
        let mut rest = &self.text[..];
        while !rest.is_empty() {
            // A part of slow compression takes many seconds.
            self.control.check()?;
            let unit = rest.len().min(spec.pcluster_len as usize);
            // What fits one block saves none.
            let hopeless = rest.len() <= block_len || (unit > block_len && probe::is_incompressible(&rest[..unit]));
            let filled = if hopeless {
                None
            } else {
                let text = &rest[..rest.len().min(EXTENT_MAX_LEN)];
                let filled = encoder.fill(text, &mut self.pcluster)?;
                // An extent must save a block: then, too, its index has an entry for its count of blocks.
                let stored = filled.produced.next_multiple_of(block_len);
                (stored < filled.consumed).then_some((filled, stored))
            };
            let taken = match filled {
                Some((filled, stored)) => {
                    // Padding goes in front: the stream ends where its pcluster ends.
                    blocks.resize(blocks.len() + stored - filled.produced, 0);
                    blocks.extend_from_slice(&self.pcluster[..filled.produced]);
                    let (llen, count) = (filled.consumed as u32, (stored / block_len) as u16);
                    extents.push(PartExtent { llen, blocks: count, kind: HeadKind::Head1 });
                    filled.consumed
                }
                None => {
                    for block in rest[..unit].chunks(block_len) {
                        blocks.extend_from_slice(block);
                        blocks.resize(blocks.len().next_multiple_of(block_len), 0);
                        extents.push(PartExtent { llen: block.len() as u32, blocks: 1, kind: HeadKind::Plain });
                    }
                    unit
                }
            };
            rest = &rest[taken..];
        }
        Ok(PackedPart { digest: xxh3_128(&blocks), blocks, shape: Shape::Extents(extents) })
    }
}
