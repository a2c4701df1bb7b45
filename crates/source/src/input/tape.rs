//! Input that is read front to back, and spooled if it cannot be read again.

use kiln_read::{FileSource, ReadAt};
use std::io::{self, Read};
use std::sync::Arc;

use super::joined::JoinedSource;
use super::lazy::LazySource;
use super::reader::Reader;
use super::spool::SpoolPlace;
use super::spooled::Spooled;
use super::stream_format::StreamFormat;

/// Maximum allocation in bytes before the data it is for have been read.
const PIECE_LEN: usize = 1 << 18;

/// A stream, or a file that is read like one. The bytes that have been read can be read again at
/// their offsets after [`Tape::finish`].
pub struct Tape {
    medium: Medium,
    offset: u64,
}

enum Medium {
    /// Bytes that can be read at any position.
    InPlace { bytes: Arc<dyn ReadAt>, len: u64 },
    /// A stream; everything read from it is in the spool.
    Kept { stream: Spooled, front: Option<Front> },
}

/// The first `len` bytes of a source, which were read in place before the stream began.
struct Front {
    bytes: Arc<dyn ReadAt>,
    len: u64,
}

impl Tape {
    /// Creates a tape that reads `bytes` from the start.
    ///
    /// # Errors
    /// Those of [`ReadAt::len`].
    pub(crate) fn in_place(bytes: Arc<dyn ReadAt>) -> io::Result<Self> {
        let len = bytes.len()?;
        Ok(Self { medium: Medium::InPlace { bytes, len }, offset: 0 })
    }

    /// Creates a tape that reads `stream` and copies it to a spool in `place`.
    pub(crate) fn kept(stream: Box<dyn Read + Send>, place: SpoolPlace) -> Self {
        Self { medium: Medium::kept(stream, place, None), offset: 0 }
    }

    /// Returns true if it is a stream, whose bytes come only once.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.medium, Medium::Kept { .. })
    }

    /// Keeps nothing of a stream from here on.
    pub(crate) fn keep_nothing(&mut self) {
        if let Medium::Kept { stream, .. } = &mut self.medium {
            stream.keep_nothing();
        }
    }

    /// Returns the number of bytes that have been read or skipped.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads up to `buf.len()` bytes; fewer only at the end. Returns the number of bytes.
    ///
    /// # Errors
    /// Errors of the stream and of the spool.
    pub fn fill(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = match &mut self.medium {
            Medium::InPlace { bytes, len } => {
                let rest = len.saturating_sub(self.offset);
                let part = buf.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
                bytes.read_exact_at(&mut buf[..part], self.offset)?;
                part
            }
            Medium::Kept { stream, .. } => {
                let mut len = 0;
                while len < buf.len() {
                    let ahead = stream.ahead(1)?;
                    let part = ahead.len().min(buf.len() - len);
                    buf[len..len + part].copy_from_slice(&ahead[..part]);
                    stream.pass(part);
                    len += part;
                    if part == 0 {
                        break;
                    }
                }
                len
            }
        };
        self.offset += len as u64;
        Ok(len)
    }

    /// Reads like [`Tape::fill`] without consuming the bytes; at most 256 KiB.
    ///
    /// # Errors
    /// Those of [`Tape::fill`].
    pub(crate) fn peek(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.medium {
            Medium::InPlace { bytes, len } => {
                let rest = len.saturating_sub(self.offset);
                let part = buf.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
                bytes.read_exact_at(&mut buf[..part], self.offset)?;
                Ok(part)
            }
            Medium::Kept { stream, .. } => {
                let ahead = stream.ahead(buf.len())?;
                let part = ahead.len().min(buf.len());
                buf[..part].copy_from_slice(&ahead[..part]);
                Ok(part)
            }
        }
    }

    /// Decompresses the following bytes, as long as they are compressed with `compression`. Offsets
    /// continue as if the data had been stored decompressed.
    ///
    /// # Errors
    /// A spool or a decoder that cannot be created.
    pub(crate) fn decompress_from_here(&mut self, compression: StreamFormat, place: &SpoolPlace) -> io::Result<()> {
        if let Medium::InPlace { bytes, .. } = &mut self.medium {
            let rest = Reader::new(Arc::clone(bytes), self.offset)?;
            let front = Front { bytes: Arc::clone(bytes), len: self.offset };
            self.medium = Medium::kept(Box::new(rest), place.clone(), Some(front));
        }
        match &mut self.medium {
            Medium::InPlace { .. } => Ok(()),
            Medium::Kept { stream, .. } => stream.decompress(compression),
        }
    }

    /// Leaves a compressed stream that has been read completely. Returns the offset in the file or
    /// enclosing compressed stream, or `None` if there is none.
    pub(crate) fn leave_compressed(&mut self) -> Option<u64> {
        match &mut self.medium {
            Medium::InPlace { .. } => None,
            Medium::Kept { stream, front } => {
                stream.leave().map(|passed| passed + front.as_ref().map_or(0, |front| front.len))
            }
        }
    }

    /// Reads exactly `buf.len()` bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if there are fewer; those of [`Tape::fill`].
    pub fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        if self.fill(buf)? == buf.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Reads the next `len` bytes. The allocation grows with the bytes read.
    ///
    /// # Errors
    /// Those of [`Tape::read_exact`].
    pub fn read_vec(&mut self, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < len {
            let (start, rest) = (bytes.len(), len - bytes.len() as u64);
            bytes.resize(start + rest.min(PIECE_LEN as u64) as usize, 0);
            self.read_exact(&mut bytes[start..])?;
        }
        Ok(bytes)
    }

    /// Skips `len` bytes.
    ///
    /// # Errors
    /// Those of [`Tape::read_exact`].
    pub fn skip(&mut self, len: u64) -> io::Result<()> {
        let passed = match &mut self.medium {
            Medium::InPlace { len: end, .. } => len.min(end.saturating_sub(self.offset)),
            Medium::Kept { stream, .. } => {
                let mut passed = 0;
                while passed < len {
                    let part = (stream.ahead(1)?.len() as u64).min(len - passed);
                    stream.pass(part as usize);
                    passed += part;
                    if part == 0 {
                        break;
                    }
                }
                passed
            }
        };
        self.offset += passed;
        if passed == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Returns the bytes of a tape of which nothing has been read, and which has `len` bytes. A stream is read when
    /// its bytes are first asked for.
    ///
    /// # Errors
    /// Errors of the spool.
    pub(crate) fn finish_lazily(self, len: u64) -> io::Result<Arc<dyn ReadAt>> {
        debug_assert_eq!(self.offset, 0, "a part of the tape has been read");
        match self.medium {
            Medium::InPlace { bytes, .. } => Ok(bytes),
            Medium::Kept { stream, .. } => Ok(Arc::new(LazySource::new(stream, len)?)),
        }
    }

    /// Returns all bytes that have been read or skipped, at the same offsets. Of a file, returns
    /// the rest as well.
    ///
    /// # Errors
    /// I/O errors.
    pub fn finish(self) -> io::Result<Arc<dyn ReadAt>> {
        match self.medium {
            Medium::InPlace { bytes, .. } => Ok(bytes),
            Medium::Kept { stream, front } => {
                let spool = Arc::new(FileSource::from_file(stream.finish()?)?);
                match front {
                    Some(Front { bytes, len }) => Ok(Arc::new(JoinedSource::new(bytes, len, spool))),
                    None => Ok(spool),
                }
            }
        }
    }
}

impl Medium {
    fn kept(stream: Box<dyn Read + Send>, place: SpoolPlace, front: Option<Front>) -> Self {
        Self::Kept { stream: Spooled::new(stream, place), front }
    }
}

impl Read for Tape {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.fill(buf)
    }
}

/// Fills `buf` from `stream`, or reads to its end. Returns the number of bytes.
pub(super) fn read_full(stream: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buf.len() {
        match stream.read(&mut buf[len..]) {
            Ok(0) => break,
            Ok(part) => len += part,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::spool::SpoolLimit;
    use kiln_read::MemorySource;

    fn place() -> SpoolPlace {
        SpoolPlace { dir: std::env::temp_dir(), limit: SpoolLimit::default() }
    }

    #[test]
    fn both_kinds_of_tapes_give_the_same() {
        let bytes: Vec<u8> = (0..700_000_u32).map(|at| (at >> 3) as u8).collect();
        let stream = io::Cursor::new(bytes.clone());
        let tapes = [
            Tape::in_place(Arc::new(MemorySource::new(bytes.clone()))).unwrap(),
            Tape::kept(Box::new(stream), place()),
        ];
        for mut tape in tapes {
            let mut head = [0; 512];
            tape.read_exact(&mut head).unwrap();
            assert!(head == bytes[..512]);
            tape.skip(600_000).unwrap();
            assert_eq!(tape.offset(), 600_512);
            assert!(tape.read_vec(9_488).unwrap() == bytes[600_512..610_000]);
            assert_eq!(tape.read_vec(u64::MAX).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(tape.skip(1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(tape.fill(&mut head).unwrap(), 0);
            let again = tape.finish().unwrap();
            assert_eq!(again.len().unwrap(), 700_000);
            let mut all = vec![0; 700_000];
            again.read_exact_at(&mut all, 0).unwrap();
            assert!(all == bytes);
        }
    }

    #[test]
    fn following_bytes_are_decompressed() {
        let (front, plain) = (b"front of it".repeat(1000), b"plain ".repeat(100_000));
        let packed = [&front[..], &zstd::encode_all(&plain[..], 1).unwrap(), b"behind"].concat();
        let packed_end = packed.len() as u64 - 6;
        let tapes = [
            Tape::in_place(Arc::new(MemorySource::new(packed.clone()))).unwrap(),
            Tape::kept(Box::new(io::Cursor::new(packed)), place()),
        ];
        for mut tape in tapes {
            tape.skip(front.len() as u64).unwrap();
            let mut magic = [0; 4];
            assert_eq!(tape.peek(&mut magic).unwrap(), 4);
            assert_eq!(magic, *b"\x28\xB5\x2F\xFD");
            tape.decompress_from_here(StreamFormat::of(&magic).unwrap(), &place()).unwrap();
            assert_eq!((tape.peek(&mut magic).unwrap(), tape.offset()), (4, front.len() as u64));
            assert_eq!(tape.leave_compressed(), None);
            assert!(tape.read_vec(plain.len() as u64).unwrap() == plain);
            assert_eq!(tape.peek(&mut magic).unwrap(), 0);
            assert_eq!(tape.leave_compressed(), Some(packed_end));
            assert_eq!(tape.read_vec(6).unwrap(), b"behind");
            assert_eq!((tape.peek(&mut magic).unwrap(), tape.leave_compressed()), (0, None));
            let again = tape.finish().unwrap();
            let mut all = vec![0; front.len() + plain.len() + 6];
            assert_eq!(again.len().unwrap(), all.len() as u64);
            again.read_exact_at(&mut all, 0).unwrap();
            assert!(all == [&front[..], &plain, b"behind"].concat());
        }
    }
}
