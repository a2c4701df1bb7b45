//! Decoders of the six compressors.

use liblzma::stream::{Action, Status, Stream};
use std::cell::RefCell;

use super::lzo;
use crate::image::inflate::inflate;

/// Compressor of all blocks of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compressor {
    /// A zlib stream (RFC 1950) per block.
    Gzip,
    /// LZO1X, without a header.
    Lzo,
    /// The .lzma format.
    Lzma,
    /// The .xz format, with any filters.
    Xz,
    /// An LZ4 block, without a frame.
    Lz4,
    /// Zstandard frames (RFC 8878).
    Zstd,
}

/// Maximum memory in bytes of an xz or lzma decoder. In images of mksquashfs the dictionary is no
/// longer than a block, which has at most 1 MiB.
const LZMA_MEMORY_LIMIT: u64 = 64 << 20;

thread_local! {
    /// The decoder is created for the first block and reused.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

impl Compressor {
    /// Returns the compressor with this number in the superblock. Descriptions of the format say
    /// that 2 is lzo and 3 is lzma; mksquashfs 4.7 writes them the other way round, and the kernel
    /// agrees with it.
    pub(super) fn of(number: u16) -> Option<Self> {
        let all = [Self::Gzip, Self::Lzma, Self::Lzo, Self::Xz, Self::Lz4, Self::Zstd];
        all.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Returns the name used by `mksquashfs -comp`.
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

    /// Decodes a complete block to the front of `plain`. Returns the plain length in bytes, or
    /// `None` if the block is damaged or longer than `plain`.
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

/// Runs a liblzma decoder to the end of its stream. A call that fills the output may leave the end
/// marker to the next call.
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
