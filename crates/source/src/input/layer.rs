//! Streams with compressed streams embedded in them: the parts of an initramfs.
//!
//! A decoder of [`StreamFormat::decoder`] reads its input to the end. The decoders here stop after
//! the last stream of their format, and the enclosing stream continues there.

use std::io::{self, BufRead, Read};

use super::lz4_frames::Lz4Frames;
use super::stream_format::{StreamFormat, lzma_stream, zstd_decoder};

/// Length in bytes of the read buffer.
const BUFFER_LEN: usize = 1 << 17;
/// Number of bytes needed to recognise a compressed stream; the .lzma format needs the most.
const HEAD_LEN: usize = 16;

/// A stream with push-back: either plain, or decompressed from another layer.
pub(super) struct Layer<'a> {
    from: From<'a>,
    /// Bytes read ahead; those from `at` have not been returned yet.
    buffer: Vec<u8>,
    at: usize,
    /// Number of bytes returned, without those given back.
    passed: u64,
}

enum From<'a> {
    Plain(Box<dyn Read + Send + 'a>),
    Compressed(Streams<'a>),
}

impl<'a> Layer<'a> {
    /// Creates a layer of plain bytes.
    pub(super) fn plain(stream: Box<dyn Read + Send + 'a>) -> Self {
        Self::of(From::Plain(stream))
    }

    /// Returns a layer that decompresses this one from its current position, as long as there are
    /// streams of `format`.
    ///
    /// # Errors
    /// A decoder that cannot be created.
    pub(super) fn decompressed(self, format: StreamFormat) -> io::Result<Self> {
        Ok(Self::of(From::Compressed(Streams { format, current: Current::Stream(one(format, self)?) })))
    }

    fn of(from: From<'a>) -> Self {
        Self { from, buffer: Vec::new(), at: 0, passed: 0 }
    }

    /// Returns the layer that contains the compressed streams, positioned after them, and the
    /// number of its bytes that have been read. Returns this layer as an error if it is not
    /// compressed or has not been read to its end.
    pub(super) fn into_outer(self) -> Result<(Self, u64), Self> {
        match self.from {
            From::Compressed(Streams { current: Current::End(outer), .. }) => {
                let passed = outer.passed;
                Ok((*outer, passed))
            }
            from => Err(Self { from, ..self }),
        }
    }

    /// Pushes bytes back, so that they are read again.
    pub(super) fn give_back(&mut self, bytes: &[u8]) {
        self.passed -= bytes.len() as u64;
        match self.at.checked_sub(bytes.len()) {
            // Usually they are still in the buffer before the position.
            Some(at) => {
                self.buffer[at..self.at].copy_from_slice(bytes);
                self.at = at;
            }
            None => {
                self.buffer.splice(..self.at, bytes.iter().copied());
                self.at = 0;
            }
        }
    }

    /// Returns up to [`HEAD_LEN`] of the next bytes; fewer only at the end.
    fn head(&mut self) -> io::Result<&[u8]> {
        while self.buffer.len() - self.at < HEAD_LEN {
            let mut more = [0; HEAD_LEN];
            match self.from.read(&mut more)? {
                0 => break,
                len => self.buffer.extend_from_slice(&more[..len]),
            }
        }
        Ok(&self.buffer[self.at..])
    }
}

impl Read for From<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                From::Plain(stream) => stream.read(buf),
                From::Compressed(streams) => streams.read(buf),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Read for Layer<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // Large reads bypass the buffer.
        let len = match self.at == self.buffer.len() && buf.len() >= BUFFER_LEN {
            true => self.from.read(buf)?,
            false => {
                let ahead = self.fill_buf()?;
                let len = ahead.len().min(buf.len());
                buf[..len].copy_from_slice(&ahead[..len]);
                self.at += len;
                len
            }
        };
        self.passed += len as u64;
        Ok(len)
    }
}

impl BufRead for Layer<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.buffer.len() {
            self.at = 0;
            self.buffer.resize(BUFFER_LEN, 0);
            let len = self.from.read(&mut self.buffer);
            self.buffer.truncate(*len.as_ref().unwrap_or(&0));
            len?;
        }
        Ok(&self.buffer[self.at..])
    }

    fn consume(&mut self, len: usize) {
        self.at += len;
        self.passed += len as u64;
    }
}

/// Consecutive compressed streams of one format.
struct Streams<'a> {
    format: StreamFormat,
    current: Current<'a>,
}

enum Current<'a> {
    Stream(Box<dyn Stream<'a> + 'a>),
    /// The layer that continues after the streams.
    End(Box<Layer<'a>>),
    /// A stream that could not be read.
    Failed,
}

impl Read for Streams<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match &mut self.current {
                Current::Stream(stream) => match stream.read(buf) {
                    Ok(0) if !buf.is_empty() => {}
                    read => return read,
                },
                Current::End(_) | Current::Failed => return Ok(0),
            }
            if let Current::Stream(stream) = std::mem::replace(&mut self.current, Current::Failed) {
                let mut outer = stream.into_layer();
                self.current = match StreamFormat::of(outer.head()?) {
                    Some(format) if format == self.format => Current::Stream(one(format, outer)?),
                    _ => Current::End(Box::new(outer)),
                };
            }
        }
    }
}

/// A decoder of one stream.
trait Stream<'a>: Read + Send {
    /// Returns the layer that it has read, positioned after the stream.
    fn into_layer(self: Box<Self>) -> Layer<'a>;
}

/// Creates a decoder of one stream in `layer`.
fn one<'a>(format: StreamFormat, layer: Layer<'a>) -> io::Result<Box<dyn Stream<'a> + 'a>> {
    Ok(match format {
        StreamFormat::Gzip => Box::new(flate2::bufread::GzDecoder::new(layer)),
        StreamFormat::Xz | StreamFormat::Lzma | StreamFormat::Lzip => {
            Box::new(liblzma::bufread::XzDecoder::new_stream(layer, lzma_stream(format, 0)?))
        }
        StreamFormat::Zstd => Box::new(zstd_decoder(layer)?.single_frame()),
        StreamFormat::Bzip2 => Box::new(bzip2::bufread::BzDecoder::new(layer)),
        StreamFormat::Lz4 => Box::new(Lz4Frames::followed(layer)),
    })
}

impl<'a> Stream<'a> for flate2::bufread::GzDecoder<Layer<'a>> {
    fn into_layer(self: Box<Self>) -> Layer<'a> {
        self.into_inner()
    }
}

impl<'a> Stream<'a> for liblzma::bufread::XzDecoder<Layer<'a>> {
    fn into_layer(self: Box<Self>) -> Layer<'a> {
        self.into_inner()
    }
}

impl<'a> Stream<'a> for zstd::stream::read::Decoder<'static, Layer<'a>> {
    fn into_layer(self: Box<Self>) -> Layer<'a> {
        self.finish()
    }
}

impl<'a> Stream<'a> for bzip2::bufread::BzDecoder<Layer<'a>> {
    fn into_layer(self: Box<Self>) -> Layer<'a> {
        self.into_inner()
    }
}

impl<'a> Stream<'a> for Lz4Frames<Layer<'a>> {
    fn into_layer(self: Box<Self>) -> Layer<'a> {
        let (mut layer, over) = self.into_inner();
        layer.give_back(&over);
        layer
    }
}
