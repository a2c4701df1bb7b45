//! Compression of archives in independent pieces.
//!
//! Each piece becomes a complete stream of its format, and decoders of all these formats accept
//! concatenated streams. So pieces are compressed on all cores, and the output does not depend on
//! their number.

use std::io::{self, Write};
use std::ops::RangeInclusive;

/// Compression of an archive as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamCompression {
    /// gzip members (RFC 1952).
    Gzip,
    /// Zstandard frames (RFC 8878) with checksums.
    Zstd,
    /// Streams of the .xz format.
    Xz,
    /// bzip2 streams.
    Bzip2,
    /// Frames of the LZ4 frame format, with checksums.
    Lz4,
}

/// Size in bytes of a piece: many times the window of each method, so that the cold start does not
/// matter.
const PIECE_LEN: usize = 4 << 20;
/// Size in bytes of a piece for xz, whose dictionary has 8 MiB at the default level.
const XZ_PIECE_LEN: usize = 16 << 20;

impl StreamCompression {
    /// Returns the compression that a file name suffix, given without its dot, stands for.
    pub(super) fn of_suffix(suffix: &[u8]) -> Option<Self> {
        Some(match suffix {
            b"gz" => StreamCompression::Gzip,
            b"zst" => StreamCompression::Zstd,
            b"xz" => StreamCompression::Xz,
            b"bz2" => StreamCompression::Bzip2,
            b"lz4" => StreamCompression::Lz4,
            _ => return None,
        })
    }

    /// Returns the common name of the compression.
    pub fn name(self) -> &'static str {
        match self {
            StreamCompression::Gzip => "gzip",
            StreamCompression::Zstd => "zstd",
            StreamCompression::Xz => "xz",
            StreamCompression::Bzip2 => "bzip2",
            StreamCompression::Lz4 => "LZ4",
        }
    }

    /// Returns the range of levels. LZ4 has a single one.
    pub fn levels(self) -> RangeInclusive<u32> {
        match self {
            StreamCompression::Gzip | StreamCompression::Xz => 0..=9,
            StreamCompression::Zstd => 1..=19,
            StreamCompression::Bzip2 => 1..=9,
            StreamCompression::Lz4 => 1..=1,
        }
    }

    /// Returns the default level of the compression's own command.
    pub fn default_level(self) -> u32 {
        match self {
            StreamCompression::Gzip | StreamCompression::Xz => 6,
            StreamCompression::Zstd => 3,
            StreamCompression::Bzip2 => 9,
            StreamCompression::Lz4 => 1,
        }
    }

    /// Returns the size of a piece in bytes.
    pub(super) fn piece_len(self) -> usize {
        if self == StreamCompression::Xz { XZ_PIECE_LEN } else { PIECE_LEN }
    }

    /// Compresses a piece to a complete stream.
    ///
    /// # Errors
    /// Not enough memory for the encoder.
    pub(super) fn compress(self, level: u32, piece: &[u8]) -> io::Result<Vec<u8>> {
        let out = Vec::with_capacity(piece.len() / 2);
        match self {
            StreamCompression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::new(level));
                encoder.write_all(piece)?;
                encoder.finish()
            }
            StreamCompression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, level.try_into().unwrap_or(i32::MAX))?;
                encoder.include_checksum(true)?;
                encoder.set_pledged_src_size(Some(piece.len() as u64))?;
                encoder.write_all(piece)?;
                encoder.finish()
            }
            StreamCompression::Xz => {
                let mut encoder = liblzma::write::XzEncoder::new(out, level);
                encoder.write_all(piece)?;
                encoder.finish()
            }
            StreamCompression::Bzip2 => {
                let mut encoder = bzip2::write::BzEncoder::new(out, bzip2::Compression::new(level));
                encoder.write_all(piece)?;
                encoder.finish()
            }
            StreamCompression::Lz4 => {
                use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
                let info = FrameInfo::new()
                    .block_size(BlockSize::Max4MB)
                    .block_mode(BlockMode::Independent)
                    .content_checksum(true);
                let mut encoder = FrameEncoder::with_frame_info(info, out);
                encoder.write_all(piece)?;
                encoder.finish().map_err(io::Error::from)
            }
        }
    }
}
