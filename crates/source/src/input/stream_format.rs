//! Formats of compressed streams: gzip, xz, lzma, lzip, zstd, bzip2, LZ4 frames.

use std::io::{self, BufRead, BufReader, Read};

use super::lz4_frames::Lz4Frames;

/// Format of a compressed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFormat {
    /// RFC 1952, any number of members.
    Gzip,
    /// The .xz format, any number of streams.
    Xz,
    /// The .lzma format, which has no magic bytes.
    Lzma,
    /// The .lz format, any number of members.
    Lzip,
    /// RFC 8878, any number of frames, skippable ones among them.
    Zstd,
    /// bzip2, any number of streams.
    Bzip2,
    /// The LZ4 frame format, any number of frames, legacy ones among them.
    Lz4,
}

/// Maximum memory in bytes of an xz, lzma or lzip decoder; `xz -9` needs 65 MiB.
const LZMA_MEMORY_LIMIT: u64 = 512 << 20;
/// Maximum window of zstd streams as a power of two; `zstd --long` without a number uses this.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Length in bytes of the read buffer.
const BUFFER_LEN: usize = 1 << 17;

impl StreamFormat {
    /// Returns the format of a stream that starts with `head`, if it is compressed.
    pub fn of(head: &[u8]) -> Option<Self> {
        const MAGIC: [(&[u8], StreamFormat); 7] = [
            (b"\x1F\x8B\x08", StreamFormat::Gzip),
            (b"\xFD7zXZ\0", StreamFormat::Xz),
            (b"LZIP", StreamFormat::Lzip),
            (b"\x28\xB5\x2F\xFD", StreamFormat::Zstd),
            (b"\x04\x22\x4D\x18", StreamFormat::Lz4),
            // Legacy frames, which an initramfs compressed with LZ4 has.
            (b"\x02\x21\x4C\x18", StreamFormat::Lz4),
            (b"BZh", StreamFormat::Bzip2),
        ];
        let by_magic = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, compression)| *compression);
        // Skippable frames exist in zstd and LZ4; zstd is the more likely one (pzstd, eStargz,
        // zstd:chunked).
        let is_skippable = matches!(head, [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..]);
        by_magic.or(is_skippable.then_some(StreamFormat::Zstd)).or_else(|| is_lzma(head).then_some(StreamFormat::Lzma))
    }

    /// Returns the common name of the format.
    pub fn name(self) -> &'static str {
        match self {
            StreamFormat::Gzip => "gzip",
            StreamFormat::Xz => "xz",
            StreamFormat::Lzma => "lzma",
            StreamFormat::Lzip => "lzip",
            StreamFormat::Zstd => "zstd",
            StreamFormat::Bzip2 => "bzip2",
            StreamFormat::Lz4 => "LZ4",
        }
    }

    /// Returns a decoder of `stream`. Its memory is bounded regardless of the stream.
    ///
    /// # Errors
    /// A decoder that cannot be created.
    pub fn decoder<'a>(self, stream: Box<dyn Read + Send + 'a>) -> io::Result<Box<dyn Read + Send + 'a>> {
        let stream = BufReader::with_capacity(BUFFER_LEN, stream);
        Ok(match self {
            StreamFormat::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(stream)),
            StreamFormat::Xz | StreamFormat::Lzma | StreamFormat::Lzip => {
                let decoder = lzma_stream(self, liblzma::stream::CONCATENATED)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(stream, decoder))
            }
            StreamFormat::Zstd => Box::new(zstd_decoder(stream)?),
            StreamFormat::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(stream)),
            StreamFormat::Lz4 => Box::new(Lz4Frames::new(stream)),
        })
    }
}

/// Creates a decoder of xz, lzma or lzip. With the flag CONCATENATED it decodes the streams that
/// follow, too.
pub(super) fn lzma_stream(format: StreamFormat, flags: u32) -> io::Result<liblzma::stream::Stream> {
    use liblzma::stream::Stream;
    Ok(match format {
        StreamFormat::Lzma => Stream::new_lzma_decoder(LZMA_MEMORY_LIMIT)?,
        StreamFormat::Lzip => Stream::new_lzip_decoder(LZMA_MEMORY_LIMIT, flags)?,
        _ => Stream::new_stream_decoder(LZMA_MEMORY_LIMIT, flags)?,
    })
}

/// Creates a decoder of zstd.
pub(super) fn zstd_decoder<R: BufRead>(stream: R) -> io::Result<zstd::stream::read::Decoder<'static, R>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(stream)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

/// Returns true if `head` starts with a header of the .lzma format (13 bytes): properties that
/// `lzma_alone` decoders support, a dictionary of 2^n or 2^n + 2^(n-1) bytes, and a length that is
/// unknown or below 256 GiB. `xz` uses the same heuristic.
fn is_lzma(head: &[u8]) -> bool {
    let Some(header) = head.first_chunk::<13>() else { return false };
    let dictionary = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
    let len = header[5..].iter().rev().fold(0, |len: u64, &byte| len << 8 | u64::from(byte));
    let (lc, lp) = (header[0] % 9, header[0] / 9 % 5);
    let is_round = dictionary == u32::MAX || dictionary.is_power_of_two() || (dictionary / 3).is_power_of_two();
    header[0] < 225
        && lc + lp <= 4
        && dictionary >= 4096
        && is_round
        && (len == u64::MAX || (1..1 << 38).contains(&len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn lzma(bytes: &[u8], stream: liblzma::stream::Stream) -> Vec<u8> {
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        lzma(bytes, liblzma::stream::Stream::new_easy_encoder(1, liblzma::stream::Check::Crc32).unwrap())
    }

    fn lzma_alone(bytes: &[u8]) -> Vec<u8> {
        let options = liblzma::stream::LzmaOptions::new_preset(1).unwrap();
        lzma(bytes, liblzma::stream::Stream::new_lzma_encoder(&options).unwrap())
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn streams_are_recognised_and_decoded() {
        let (one, other) = (b"one ".repeat(50_000), b"other".to_vec());
        let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
        let skippable = [&b"\x5A\x2A\x4D\x18\x03\0\0\0abc"[..], &zstd(&one)].concat();
        let cases: [(StreamFormat, Vec<u8>, Vec<u8>); 7] = [
            (StreamFormat::Gzip, gzip(&one), gzip(&other)),
            (StreamFormat::Xz, xz(&one), xz(&other)),
            (StreamFormat::Zstd, zstd(&one), zstd(&other)),
            (StreamFormat::Zstd, skippable, zstd(&other)),
            (StreamFormat::Bzip2, bzip2(&one), bzip2(&other)),
            (StreamFormat::Lz4, lz4(&one), lz4(&other)),
            (StreamFormat::Lzma, lzma_alone(&[&one[..], &other].concat()), Vec::new()),
        ];
        for (compression, first, second) in cases {
            let stream = [first, second].concat();
            assert_eq!(StreamFormat::of(&stream), Some(compression));
            let mut plain = Vec::new();
            let decode = |stream: Vec<u8>, plain: &mut Vec<u8>| {
                compression.decoder(Box::new(io::Cursor::new(stream)))?.read_to_end(plain)
            };
            decode(stream.clone(), &mut plain).unwrap();
            assert!(plain == [&one[..], &other].concat(), "{compression:?}");
            let cut = decode(stream[..stream.len() - 3].to_vec(), &mut Vec::new());
            assert!(cut.is_err(), "{compression:?}: a stream that ends early is an error");
        }
        for plain in [&b"ustar"[..], b"", b"BZ", &[0; 512], b"]\0\0\0\0\0\0\0\0\0\0\0\0"] {
            assert_eq!(StreamFormat::of(plain), None);
        }
    }
}
