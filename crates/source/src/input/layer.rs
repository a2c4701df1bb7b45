//! Streams in which compressed ones lie, with something else behind them: the parts of an initramfs.
//!
//! A decoder of [`StreamFormat::decoder`] takes all that follows for its own. Here it stops behind the last stream of its format, and the
//! stream that it reads goes on there.

use std::io::{self, BufRead, Read};

use super::lz4_frames::Lz4Frames;
use super::stream_format::{StreamFormat, lzma_stream, zstd_decoder};

/// Bytes that are fetched at once.
const BUFFER_LEN: usize = 1 << 17;
/// Number of first bytes that tell a compressed stream; the .lzma format needs most.
const HEAD_LEN: usize = 16;

/// Bytes that are read front to back, and can be given back: plain, or what is compressed in another layer.
pub(super) struct Layer<'a> {
    from: From<'a>,
    /// Bytes that were read, from `at` on.
    buffer: Vec<u8>,
    at: usize,
    /// Bytes that were handed out, without those that were given back.
    passed: u64,
}

enum From<'a> {
    Plain(Box<dyn Read + Send + 'a>),
    Compressed(Streams<'a>),
}

impl<'a> Layer<'a> {
    /// Bytes as they are.
    pub(super) fn plain(stream: Box<dyn Read + Send + 'a>) -> Self {
        Self::of(From::Plain(stream))
    }

    /// Returns a layer that decompresses this one from here on, as far as there are streams of `format`.
    ///
    /// # Errors
    /// A decoder that cannot be made.
    pub(super) fn decompressed(self, format: StreamFormat) -> io::Result<Self> {
        Ok(Self::of(From::Compressed(Streams { format, current: Current::Stream(one(format, self)?) })))
    }

    fn of(from: From<'a>) -> Self {
        Self { from, buffer: Vec::new(), at: 0, passed: 0 }
    }

    /// Returns the layer that the compressed streams lie in, which goes on behind them, and how many bytes of it are
    /// passed; `Err`: this layer, which is not compressed, or was not read to its end.
    pub(super) fn into_outer(self) -> Result<(Self, u64), Self> {
        match self.from {
            From::Compressed(Streams { current: Current::End(outer), .. }) => {
                let passed = outer.passed;
                Ok((*outer, passed))
            }
            from => Err(Self { from, ..self }),
        }
    }

    /// The bytes were not wanted after all: they come again.
    pub(super) fn give_back(&mut self, bytes: &[u8]) {
        self.passed -= bytes.len() as u64;
        match self.at.checked_sub(bytes.len()) {
            // As a rule they still stand in front of the others.
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

    /// Up to [`HEAD_LEN`] of the bytes that come next: fewer only at the end.
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
        // What is asked for in large pieces is not copied twice.
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

/// Compressed streams of one format, one behind the other.
struct Streams<'a> {
    format: StreamFormat,
    current: Current<'a>,
}

enum Current<'a> {
    Stream(Box<dyn Stream<'a> + 'a>),
    /// Layer that goes on behind the streams.
    End(Box<Layer<'a>>),
    /// A stream could not be read.
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
    /// The layer that it has read, behind the stream.
    fn into_layer(self: Box<Self>) -> Layer<'a>;
}

/// A decoder of one stream in `layer`.
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
