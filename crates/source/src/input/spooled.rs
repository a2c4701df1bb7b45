//! A stream, of which a nameless file keeps what was passed.
//!
//! Members of an archive are small: one read and one write for each of their headers would cost more than the bytes. So the stream is read, and
//! the spool is written, by the buffer, whatever is asked for.

use kiln_builder::Spool;
use std::fs::File;
use std::io::{self, Read};
use std::mem;

use super::spool::SpoolPlace;
use super::stream_format::StreamFormat;

/// Bytes that are read ahead, and that are copied to a spool at once.
pub(super) const BUFFER_LEN: usize = 1 << 18;

/// A stream and its spool.
pub(super) struct Spooled {
    stream: Box<dyn Read + Send>,
    is_at_end: bool,
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
        Ok(Self { stream, is_at_end: false, spool, place, buffer: vec![0; BUFFER_LEN], passed: 0, filled: 0 })
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
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.is_at_end = true,
                Ok(part) => self.filled += part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What comes behind an error of a decoder is anything.
                    self.is_at_end = true;
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

    /// What comes next is compressed, and comes decompressed.
    ///
    /// # Errors
    /// A decoder that cannot be made; errors of the spool.
    pub(super) fn decompress(&mut self, compression: StreamFormat) -> io::Result<()> {
        self.flush()?;
        let ahead = self.buffer[..self.filled].to_vec();
        let rest = mem::replace(&mut self.stream, Box::new(io::empty()));
        self.stream = compression.decoder(Box::new(io::Cursor::new(ahead).chain(rest)))?;
        (self.filled, self.is_at_end) = (0, false);
        Ok(())
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
