//! How archives are compressed: in pieces that do not depend on each other.
//!
//! Each piece becomes a whole stream of its format, and decoders of all these formats read any number of streams one behind the
//! other. So pieces are compressed on all cores, and what they become does not depend on how many there are.

use std::io::{self, Write};
use std::ops::RangeInclusive;

/// How an archive is compressed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamCompression {
    /// Members of RFC 1952.
    Gzip,
    /// Frames of RFC 8878, with checksums.
    Zstd,
    /// Streams of the .xz format.
    Xz,
    /// bzip2 streams.
    Bzip2,
    /// Frames of the LZ4 frame format, with checksums.
    Lz4,
}

/// Bytes of a piece: many windows of the method, so that what its beginning costs does not matter.
const PIECE_LEN: usize = 4 << 20;
/// For xz, whose dictionary has 8 MiB at the default level.
const XZ_PIECE_LEN: usize = 16 << 20;

impl StreamCompression {
    /// The compression that a file's last suffix tells, without its dot.
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

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            StreamCompression::Gzip => "gzip",
            StreamCompression::Zstd => "zstd",
            StreamCompression::Xz => "xz",
            StreamCompression::Bzip2 => "bzip2",
            StreamCompression::Lz4 => "LZ4",
        }
    }

    /// The levels that there are. LZ4 has one here.
    pub fn levels(self) -> RangeInclusive<u32> {
        match self {
            StreamCompression::Gzip | StreamCompression::Xz => 0..=9,
            StreamCompression::Zstd => 1..=19,
            StreamCompression::Bzip2 => 1..=9,
            StreamCompression::Lz4 => 1..=1,
        }
    }

    /// The level that its own command has.
    pub fn default_level(self) -> u32 {
        match self {
            StreamCompression::Gzip | StreamCompression::Xz => 6,
            StreamCompression::Zstd => 3,
            StreamCompression::Bzip2 => 9,
            StreamCompression::Lz4 => 1,
        }
    }

    /// Bytes of a piece.
    pub(super) fn piece_len(self) -> usize {
        if self == StreamCompression::Xz { XZ_PIECE_LEN } else { PIECE_LEN }
    }

    /// A piece as a stream of its own.
    ///
    /// # Errors
    /// No memory for the encoder.
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
