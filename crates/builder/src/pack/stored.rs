//! Places of files' data, as known after packing.

use kiln_format::{Blkaddr, BlockBits};

use crate::layout::lcluster_index::ZExtent;
use crate::pack::chunks::ChunkRuns;
use crate::pack::fill::PartExtent;
use crate::pack::inline_tails::TailRef;

/// Place of a file's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Nowhere: the file is empty, left out, or has the data of another one.
    Nothing,
    /// Contiguous blocks from this one on, which has no meaning without any.
    Flat(Blkaddr),
    /// A tail beside the inode, with its length and its place among tails: all of a small file.
    Tail(u16, u64),
    /// Contiguous blocks, then a tail beside the inode.
    FlatTail(Box<(Blkaddr, TailRef)>),
    /// Chunks.
    Chunks {
        /// log2 of the chunk size.
        chunk_bits: u8,
        /// Places of the chunks.
        runs: Box<ChunkRuns>,
    },
    /// Extents.
    Compressed(Box<Extents>),
    /// In the packed inode, from this byte on.
    Fragment(u64),
}

// There are as many as files.
const _: () = assert!(size_of::<Stored>() <= 16);

impl Stored {
    /// Returns contiguous blocks from `start` on, if there are any, then perhaps a tail.
    pub(crate) fn flat(start: Option<Blkaddr>, tail: Option<TailRef>) -> Self {
        match (start, tail) {
            (start, None) => Stored::Flat(start.unwrap_or(Blkaddr(0))),
            (None, Some(tail)) => Stored::Tail(tail.len, tail.off),
            (Some(start), Some(tail)) => Stored::FlatTail(Box::new((start, tail))),
        }
    }

    /// Returns first block and tail, if the data is flat.
    pub(crate) fn as_flat(&self) -> Option<(Blkaddr, Option<TailRef>)> {
        match self {
            Stored::Flat(start) => Some((*start, None)),
            Stored::Tail(len, off) => Some((Blkaddr(0), Some(TailRef { off: *off, len: *len }))),
            Stored::FlatTail(flat) => Some((flat.0, Some(flat.1))),
            _ => None,
        }
    }
}

/// The extents of a compressed stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    /// In order.
    pub list: Vec<ZExtent>,
    /// Blocks of its own.
    pub blocks: u64,
    /// Bytes of text that are stored for it; the rest is in holes or shared.
    pub text: u64,
    /// Bytes that this takes, including inline ones.
    pub bytes: u64,
    /// The pcluster of the last extent, if it lies beside the inode.
    pub inline: Option<TailRef>,
    /// Place of the last extent's text in the packed inode, if it is there.
    pub fragment: Option<u64>,
}

/// Start of a run of extents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentStart {
    /// Byte of the plain text.
    pub la: u64,
    /// Byte of the image.
    pub pa: u64,
}

impl Extents {
    /// Returns these extents, followed by others.
    pub(crate) fn followed_by(&self, others: Extents) -> Self {
        Self {
            list: [&self.list[..], &others.list].concat(),
            blocks: self.blocks + others.blocks,
            text: self.text + others.text,
            bytes: self.bytes + others.bytes,
            inline: others.inline,
            fragment: others.fragment,
        }
    }

    /// Adds extents that are contiguous from `at` on.
    pub(crate) fn extend(
        &mut self,
        at: ExtentStart,
        new: &[PartExtent],
        inline: Option<TailRef>,
        block_bits: BlockBits,
    ) {
        let ExtentStart { mut la, mut pa } = at;
        let first = pa >> block_bits.bits();
        for &PartExtent { llen, plen, kind } in new {
            self.list.push(ZExtent { la, llen, plen, pa, kind, partial: false });
            la += u64::from(llen);
            pa += u64::from(plen);
            self.text += u64::from(llen);
            self.bytes += u64::from(plen);
        }
        let inline_len = inline.map_or(0, |tail| tail.len.into());
        self.blocks += block_bits.blocks_for(pa - inline_len) - first;
        self.inline = inline;
    }
}
