//! A stream, of which a nameless file keeps what was passed.
//!
//! Members of an archive are small: one read and one write for each of their headers would cost more than the bytes. So the stream is read, and
//! the spool is written, by the buffer, whatever is asked for.

use kiln_output::Spool;
use std::fs::File;
use std::io::{self, Read};
use std::mem;

use super::layer::Layer;
use super::spool::SpoolPlace;
use super::stream_format::StreamFormat;

/// Bytes that are read ahead, and that are copied to a spool at once.
pub(super) const BUFFER_LEN: usize = 1 << 18;
/// Bytes that are read ahead behind what was compressed.
const PIECE_MIN_LEN: usize = 1 << 12;

/// A stream and its spool.
pub(super) struct Spooled {
    stream: Layer<'static>,
    is_at_end: bool,
    has_failed: bool,
    /// Bytes that are read at once: few behind what was compressed, as what follows may be compressed again, and is given back then.
    piece_len: usize,
    spool: Spool,
    place: SpoolPlace,
    /// First `passed` bytes that go to the spool, then those that were read ahead, up to `filled`.
    buffer: Vec<u8>,
    passed: usize,
    filled: usize,
}

impl Spooled {
    /// All of `stream`, with a spool in `place`.
    ///
    /// # Errors
    /// A spool that cannot be made.
    pub(super) fn new(stream: Box<dyn Read + Send>, place: SpoolPlace) -> io::Result<Self> {
        let spool = place.create()?;
        let (stream, buffer) = (Layer::plain(stream), vec![0; BUFFER_LEN]);
        let (is_at_end, has_failed, piece_len) = (false, false, BUFFER_LEN);
        Ok(Self { stream, is_at_end, has_failed, piece_len, spool, place, buffer, passed: 0, filled: 0 })
    }

    /// The bytes that come next, `len` of them or more: fewer only at the end. `len` is at most [`BUFFER_LEN`].
    ///
    /// # Errors
    /// Errors of the stream and of the spool.
    pub(super) fn ahead(&mut self, len: usize) -> io::Result<&[u8]> {
        while self.filled - self.passed < len.min(BUFFER_LEN) && !self.is_at_end {
            if self.filled == BUFFER_LEN {
                self.flush()?;
            }
            let end = BUFFER_LEN.min(self.filled + self.piece_len);
            self.piece_len = BUFFER_LEN.min(self.piece_len * 2);
            match self.stream.read(&mut self.buffer[self.filled..end]) {
                Ok(0) => self.is_at_end = true,
                Ok(part) => self.filled += part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What comes behind an error of a decoder is anything.
                    (self.is_at_end, self.has_failed) = (true, true);
                    return Err(stream_error(error));
                }
            }
        }
        Ok(&self.buffer[self.passed..self.filled])
    }

    /// Pass `len` bytes, which are ahead.
    pub(super) fn pass(&mut self, len: usize) {
        debug_assert!(len <= self.filled - self.passed, "{len} bytes are not ahead");
        self.passed += len;
    }

    /// Decompresses what comes next, as far as it is compressed by `compression`.
    ///
    /// # Errors
    /// A decoder that cannot be made; errors of the spool.
    pub(super) fn decompress(&mut self, compression: StreamFormat) -> io::Result<()> {
        self.flush()?;
        let mut outer = mem::replace(&mut self.stream, Layer::plain(Box::new(io::empty())));
        outer.give_back(&self.buffer[..self.filled]);
        self.stream = outer.decompressed(compression)?;
        (self.filled, self.is_at_end) = (0, false);
        Ok(())
    }

    /// Go on behind what was compressed, once all of it is passed. Returns at which byte of what it lies in; `None`: there is no such thing.
    pub(super) fn leave(&mut self) -> Option<u64> {
        if !self.is_at_end || self.has_failed || self.filled > self.passed {
            return None;
        }
        match mem::replace(&mut self.stream, Layer::plain(Box::new(io::empty()))).into_outer() {
            Ok((outer, passed)) => {
                (self.stream, self.is_at_end, self.piece_len) = (outer, false, PIECE_MIN_LEN);
                Some(passed)
            }
            Err(same) => {
                self.stream = same;
                None
            }
        }
    }

    /// The file with all that was passed.
    ///
    /// # Errors
    /// Errors of the spool.
    pub(super) fn finish(mut self) -> io::Result<File> {
        self.flush()?;
        Ok(self.spool.into_file())
    }

    /// Write what was passed to the spool.
    fn flush(&mut self) -> io::Result<()> {
        self.place.append(&self.spool, &self.buffer[..self.passed])?;
        self.buffer.copy_within(self.passed..self.filled, 0);
        (self.filled, self.passed) = (self.filled - self.passed, 0);
        Ok(())
    }
}

/// The error of a decoder whose stream is cut: it is not the end of the tape.
fn stream_error(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(io::ErrorKind::InvalidData, "the compressed data end too early"),
        _ => error,
    }
}
