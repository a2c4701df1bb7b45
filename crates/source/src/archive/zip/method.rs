//! How members are compressed.

use rawzip::CompressionMethod;
use std::io::{self, BufReader, Cursor, Read};

use crate::input::stream_format::StreamFormat;

/// Bytes that are fetched at once.
const BUFFER_LEN: usize = 1 << 16;
/// General purpose bit 1 of LZMA: an end marker follows the data.
const FLAG_LZMA_END_MARKER: u16 = 1 << 1;

/// A method that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflate,
    /// LZMA behind a header of zip's own.
    Lzma {
        has_end_marker: bool,
    },
    /// As the stream of this kind.
    Stream(StreamFormat),
}

impl Method {
    /// By its number and the general purpose flags.
    ///
    /// # Errors
    /// A method that is not read.
    pub(super) fn of(method: CompressionMethod, flags: u16) -> io::Result<Self> {
        Ok(match method {
            CompressionMethod::STORE => Method::Stored,
            CompressionMethod::DEFLATE => Method::Deflate,
            CompressionMethod::LZMA => Method::Lzma { has_end_marker: flags & FLAG_LZMA_END_MARKER != 0 },
            CompressionMethod::BZIP2 => Method::Stream(StreamFormat::Bzip2),
            CompressionMethod::ZSTD | CompressionMethod::ZSTD_DEPRECATED => Method::Stream(StreamFormat::Zstd),
            CompressionMethod::XZ => Method::Stream(StreamFormat::Xz),
            method => {
                let reason = format!("it is compressed by method {method}, which is not read");
                return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
            }
        })
    }

    /// What `packed` holds, `len` bytes as the archive says. Memory is bounded, whatever the data ask for.
    ///
    /// # Errors
    /// A decoder that cannot be made; an LZMA header that is no such header.
    pub(super) fn decoder<'a>(
        self,
        mut packed: Box<dyn Read + Send + 'a>,
        len: u64,
    ) -> io::Result<Box<dyn Read + Send + 'a>> {
        match self {
            Method::Stored => Ok(packed),
            Method::Deflate => {
                let packed = BufReader::with_capacity(BUFFER_LEN, packed);
                Ok(Box::new(flate2::bufread::DeflateDecoder::new(packed)))
            }
            Method::Lzma { has_end_marker } => {
                let header = lzma_header(&mut packed, (!has_end_marker).then_some(len))?;
                StreamFormat::Lzma.decoder(Box::new(Cursor::new(header).chain(packed)))
            }
            Method::Stream(compression) => compression.decoder(packed),
        }
    }
}

/// The header of the .lzma format for the one that zip has: version of the encoder (2 bytes), length of the properties (2), properties.
fn lzma_header(packed: &mut dyn Read, len: Option<u64>) -> io::Result<[u8; 13]> {
    let mut head = [0; 9];
    packed.read_exact(&mut head)?;
    if head[2..4] != 5_u16.to_le_bytes() {
        let reason = format!("its LZMA properties are {} bytes, not 5", u16::from_le_bytes([head[2], head[3]]));
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let mut header = [0; 13];
    header[..5].copy_from_slice(&head[4..]);
    // The format's word for a length that an end marker tells.
    header[5..].copy_from_slice(&len.unwrap_or(u64::MAX).to_le_bytes());
    Ok(header)
}
