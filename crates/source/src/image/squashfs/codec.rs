//! The six compressors.

use liblzma::stream::{Action, Status, Stream};
use std::cell::RefCell;

use super::lzo;
use crate::image::inflate::inflate;

/// What compresses all blocks of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compressor {
    /// A stream of zlib (RFC 1950) for each block.
    Gzip,
    /// LZO1X, without a header.
    Lzo,
    /// The .lzma format.
    Lzma,
    /// The .xz format, with any filters.
    Xz,
    /// A block of LZ4, without a frame.
    Lz4,
    /// Frames of zstd (RFC 8878).
    Zstd,
}

/// Most bytes that a decoder of xz or lzma may take: a dictionary is no longer than a block, of 1 MiB at most, in images of
/// mksquashfs.
const LZMA_MEMORY_LIMIT: u64 = 64 << 20;

thread_local! {
    /// A decoder is worth keeping, once the first block is met.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

impl Compressor {
    /// By its number in the superblock. Descriptions of the format have lzo as 2 and lzma as 3; mksquashfs 4.7 writes them the other way
    /// round, and the kernel agrees with it.
    pub(super) fn of(number: u16) -> Option<Self> {
        let all = [Self::Gzip, Self::Lzma, Self::Lzo, Self::Xz, Self::Lz4, Self::Zstd];
        all.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The name that `mksquashfs -comp` knows.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Lzo => "lzo",
            Self::Lzma => "lzma",
            Self::Xz => "xz",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Decode a whole block to the front of `plain`: how many bytes that are. `None`: the block is damaged, or longer than `plain`.
    pub(super) fn decode(self, packed: &[u8], plain: &mut [u8]) -> Option<usize> {
        match self {
            Self::Gzip => inflate(packed, plain),
            Self::Lzo => lzo::decode(packed, plain),
            Self::Lzma => run(Stream::new_lzma_decoder(LZMA_MEMORY_LIMIT).ok()?, packed, plain),
            Self::Xz => run(Stream::new_stream_decoder(LZMA_MEMORY_LIMIT, 0).ok()?, packed, plain),
            Self::Lz4 => lz4_flex::block::decompress_into(packed, plain).ok(),
            Self::Zstd => ZSTD.with_borrow_mut(|decoder| {
                let decoder = match decoder {
                    Some(decoder) => decoder,
                    none => none.insert(zstd::bulk::Decompressor::new().ok()?),
                };
                decoder.decompress_to_buffer(packed, plain).ok()
            }),
        }
    }
}

/// Let a decoder of liblzma go on until the end of its stream. A call that fills the output may leave the rest to the next one.
fn run(mut decoder: Stream, packed: &[u8], plain: &mut [u8]) -> Option<usize> {
    loop {
        let (read, written) = (decoder.total_in(), decoder.total_out());
        let (rest, room) = (&packed[read as usize..], &mut plain[written as usize..]);
        match decoder.process(rest, room, Action::Finish).ok()? {
            Status::StreamEnd => return Some(decoder.total_out() as usize),
            _ if (decoder.total_in(), decoder.total_out()) == (read, written) => return None,
            _ => {}
        }
    }
}
