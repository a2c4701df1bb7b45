//! Stream whose contents are copied to a spool as they are read.
//!
//! Members of an archive are small: a system call to read and one to write each of their headers
//! would dominate the cost. So the stream is read, and the spool written, in units of the buffer.

use kiln_output::Spool;
use std::fs::File;
use std::io::{self, Read};
use std::mem;

use super::layer::Layer;
use super::spool::SpoolPlace;
use super::stream_format::StreamFormat;

/// Length in bytes of the buffer for reading ahead and for writing to the spool.
pub(super) const BUFFER_LEN: usize = 1 << 18;
/// Length in bytes of the first read after a compressed stream.
const PIECE_MIN_LEN: usize = 1 << 12;

/// A stream and its spool.
pub(super) struct Spooled {
    stream: Layer<'static>,
    is_at_end: bool,
    has_failed: bool,
    /// Number of bytes per read. It starts small after a compressed stream, because the data after
    /// it may be compressed again and are given back then.
    piece_len: usize,
    /// The spool, once something is written to it.
    spool: Option<Spool>,
    /// False if nothing is kept.
    keeps: bool,
    place: SpoolPlace,
    /// Buffer: the first `passed` bytes go to the spool; the bytes read ahead follow, up to
    /// `filled`.
    buffer: Vec<u8>,
    passed: usize,
    filled: usize,
}

impl Spooled {
    /// Reads all of `stream`, which is kept in a spool in `place`.
    pub(super) fn new(stream: Box<dyn Read + Send>, place: SpoolPlace) -> Self {
        Self {
            stream: Layer::plain(stream),
            is_at_end: false,
            has_failed: false,
            piece_len: BUFFER_LEN,
            spool: None,
            keeps: true,
            place,
            buffer: vec![0; BUFFER_LEN],
            passed: 0,
            filled: 0,
        }
    }

    /// Keeps nothing of what is read.
    pub(super) fn keep_nothing(&mut self) {
        self.keeps = false;
    }

    /// Returns the next bytes without consuming them: at least `len`, or fewer at the end. `len`
    /// must be at most [`BUFFER_LEN`].
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
                    // The output after a decoding error is undefined.
                    (self.is_at_end, self.has_failed) = (true, true);
                    return Err(stream_error(error));
                }
            }
        }
        Ok(&self.buffer[self.passed..self.filled])
    }

    /// Consumes `len` bytes, which must have been returned by [`Spooled::ahead`].
    pub(super) fn pass(&mut self, len: usize) {
        debug_assert!(len <= self.filled - self.passed, "{len} bytes are not ahead");
        self.passed += len;
    }

    /// Decompresses the following bytes, as long as they are compressed with `compression`.
    ///
    /// # Errors
    /// A decoder that cannot be created; errors of the spool.
    pub(super) fn decompress(&mut self, compression: StreamFormat) -> io::Result<()> {
        self.flush()?;
        let mut outer = mem::replace(&mut self.stream, Layer::plain(Box::new(io::empty())));
        outer.give_back(&self.buffer[..self.filled]);
        self.stream = outer.decompressed(compression)?;
        (self.filled, self.is_at_end) = (0, false);
        Ok(())
    }

    /// Leaves a compressed stream that has been consumed completely. Returns the offset in the
    /// enclosing stream, or `None` if there is no such stream.
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

    /// Consumes the next bytes and writes them to the spool, before anything else is consumed. Returns their number, 0
    /// at the end.
    ///
    /// # Errors
    /// Errors of the stream and of the spool.
    pub(super) fn keep_next(&mut self) -> io::Result<usize> {
        let part = self.ahead(1)?.len();
        self.pass(part);
        self.flush()?;
        Ok(part)
    }

    /// Returns the spool, open for reading at any position.
    ///
    /// # Errors
    /// Errors of the spool.
    pub(super) fn spool_file(&mut self) -> io::Result<File> {
        let spool = self.take_spool()?;
        let file = spool.file().try_clone();
        self.spool = Some(spool);
        file
    }

    /// Returns the file with all consumed bytes.
    ///
    /// # Errors
    /// Errors of the spool.
    pub(super) fn finish(mut self) -> io::Result<File> {
        self.flush()?;
        Ok(self.take_spool()?.into_file())
    }

    /// Takes the spool, or creates it.
    fn take_spool(&mut self) -> io::Result<Spool> {
        self.spool.take().map_or_else(|| self.place.create(), Ok)
    }

    /// Writes the consumed bytes to the spool, if they are kept.
    fn flush(&mut self) -> io::Result<()> {
        if self.keeps && self.passed > 0 {
            let spool = self.take_spool()?;
            let written = self.place.append(&spool, &self.buffer[..self.passed]);
            self.spool = Some(spool);
            written?;
        } else {
            self.place.take(self.passed as u64)?;
        }
        self.buffer.copy_within(self.passed..self.filled, 0);
        (self.filled, self.passed) = (self.filled - self.passed, 0);
        Ok(())
    }
}

/// Converts the error for a truncated compressed stream, so that it is not mistaken for the end of
/// the tape.
fn stream_error(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(io::ErrorKind::InvalidData, "the compressed data are truncated"),
        _ => error,
    }
}
