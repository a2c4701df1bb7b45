//! Compression methods of members.

use rawzip::CompressionMethod;
use std::io::{self, BufReader, Cursor, Read};

use crate::input::stream_format::StreamFormat;

/// Length in bytes of the read buffer.
const BUFFER_LEN: usize = 1 << 16;
/// General purpose bit 1 of LZMA members: an end marker follows the data.
const FLAG_LZMA_END_MARKER: u16 = 1 << 1;

/// A supported compression method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflate,
    /// LZMA after a header specific to zip.
    Lzma {
        has_end_marker: bool,
    },
    /// A complete stream in this format.
    Stream(StreamFormat),
}

impl Method {
    /// Returns the method with this number and these general purpose flags.
    ///
    /// # Errors
    /// A method that is not supported.
    pub(super) fn of(method: CompressionMethod, flags: u16) -> io::Result<Self> {
        Ok(match method {
            CompressionMethod::STORE => Method::Stored,
            CompressionMethod::DEFLATE => Method::Deflate,
            CompressionMethod::LZMA => Method::Lzma { has_end_marker: flags & FLAG_LZMA_END_MARKER != 0 },
            CompressionMethod::BZIP2 => Method::Stream(StreamFormat::Bzip2),
            CompressionMethod::ZSTD | CompressionMethod::ZSTD_DEPRECATED => Method::Stream(StreamFormat::Zstd),
            CompressionMethod::XZ => Method::Stream(StreamFormat::Xz),
            method => {
                let reason = format!("compression method {method} is not supported");
                return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
            }
        })
    }

    /// All methods, by [`Method::number`].
    const ALL: [Self; 7] = [
        Method::Stored,
        Method::Deflate,
        Method::Lzma { has_end_marker: false },
        Method::Lzma { has_end_marker: true },
        Method::Stream(StreamFormat::Bzip2),
        Method::Stream(StreamFormat::Zstd),
        Method::Stream(StreamFormat::Xz),
    ];

    /// Returns the number of the method in kept places of members.
    pub(super) fn number(self) -> u8 {
        Self::ALL.iter().position(|one| *one == self).expect("a method of the list") as u8
    }

    /// Returns the method with this number.
    pub(super) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns a decoder of `packed`, whose plain text is `len` bytes long according to the
    /// archive. Its memory is bounded regardless of the data.
    ///
    /// # Errors
    /// A decoder that cannot be created; an invalid LZMA header.
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

/// Converts the LZMA header of zip to that of the .lzma format. Zip has version of the encoder (2
/// bytes), length of the properties (2) and properties.
fn lzma_header(packed: &mut dyn Read, len: Option<u64>) -> io::Result<[u8; 13]> {
    let mut head = [0; 9];
    packed.read_exact(&mut head)?;
    if head[2..4] != 5_u16.to_le_bytes() {
        let reason =
            format!("its LZMA properties are {} bytes long, and not 5", u16::from_le_bytes([head[2], head[3]]));
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let mut header = [0; 13];
    header[..5].copy_from_slice(&head[4..]);
    // All ones: the length is unknown, and an end marker follows.
    header[5..].copy_from_slice(&len.unwrap_or(u64::MAX).to_le_bytes());
    Ok(header)
}
