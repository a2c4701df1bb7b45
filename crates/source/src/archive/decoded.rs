//! Long contents that a decoder produces only front to back.
//!
//! Callers read at any offset, and several threads may read a large file at once. So contents are
//! decoded once, by the first thread that opens them, into an unnamed file that all contents of an
//! archive share; other threads that open the same contents wait for it.

use flate2::Crc;
use kiln_tree::{Content, ContentError};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::input::shared_error::SharedError;
use crate::input::spool::SpoolPlace;

/// Length in bytes of the buffer for decoding.
const PIECE_LEN: usize = 1 << 18;

/// Compressed streams of an archive, by index.
pub(crate) trait Streams: Send + Sync {
    /// Returns the number of streams.
    fn count(&self) -> usize;

    /// Returns the length and checksum that the archive states for stream `idx`.
    fn plain(&self, idx: usize) -> Plain;

    /// Returns a decoder at the start of stream `idx`.
    ///
    /// # Errors
    /// A decoder that cannot be created; errors of the archive.
    fn decoder(&self, idx: usize) -> io::Result<Box<dyn Read + Send + '_>>;
}

/// Length and checksum that an archive states for a plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    /// Length in bytes.
    pub len: u64,
    /// CRC-32 of IEEE 802.3.
    pub crc: u32,
}

impl Plain {
    /// Decodes the text and passes it to `take` in pieces, each with its offset.
    ///
    /// # Errors
    /// A text whose length or checksum differs; errors of `decoder` and `take`.
    pub(crate) fn decode(
        self,
        decoder: &mut dyn Read,
        mut take: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut piece = vec![0; self.len.clamp(1, PIECE_LEN as u64) as usize];
        let (mut crc, mut off) = (Crc::new(), 0);
        loop {
            let part = match decoder.read(&mut piece) {
                Ok(0) => break,
                Ok(part) => part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if part as u64 > self.len - off {
                return Err(invalid(format!("it is longer than the {} bytes that the archive states", self.len)));
            }
            crc.update(&piece[..part]);
            take(&piece[..part], off)?;
            off += part as u64;
        }
        match (off == self.len, crc.sum() == self.crc) {
            (true, true) => Ok(()),
            (false, _) => Err(invalid(format!("it is {off} bytes long, and not {} as the archive states", self.len))),
            (true, false) => Err(wrong_crc(crc.sum(), self.crc)),
        }
    }

    /// Decodes the text into memory. The allocation grows with the decoded bytes, not with the
    /// stated length.
    ///
    /// # Errors
    /// Those of [`Plain::decode`].
    pub(crate) fn decode_to_vec(self, decoder: &mut dyn Read) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        self.decode(decoder, |piece, _| {
            plain.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(plain)
    }
}

/// Returns the error for a CRC-32 that differs from the stated one.
pub(crate) fn wrong_crc(actual: u32, expected: u32) -> io::Error {
    invalid(format!("its CRC-32 is {actual:08x}, not {expected:08x}"))
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Contents of an archive that are decoded on demand.
pub(crate) struct DecodedContents<S> {
    streams: S,
    place: SpoolPlace,
    spool: OnceLock<Result<Arc<File>, SharedError>>,
    /// Offset of the end of the used part of the spool, in bytes.
    spool_end: AtomicU64,
    /// Offset of each text in the spool, or the error of decoding it.
    decoded: Box<[OnceLock<Result<u64, SharedError>>]>,
}

impl<S: Streams> DecodedContents<S> {
    /// Creates the contents of `streams`, which are spooled in `place`.
    pub(crate) fn new(streams: S, place: SpoolPlace) -> Self {
        let decoded = (0..streams.count()).map(|_| OnceLock::new()).collect();
        Self { streams, place, spool: OnceLock::new(), spool_end: AtomicU64::new(0), decoded }
    }

    /// Returns the streams.
    pub(crate) fn streams(&self) -> &S {
        &self.streams
    }

    /// Opens the plain text of stream `idx`.
    ///
    /// # Errors
    /// A stream that cannot be decoded or differs from its stated length or checksum; I/O errors of
    /// the spool.
    pub(crate) fn open(&self, idx: usize) -> io::Result<Box<dyn Content>> {
        let plain = self.streams.plain(idx);
        let start = match self.decoded[idx].get_or_init(|| self.decode(idx, plain).map_err(SharedError::from)) {
            Ok(start) => *start,
            Err(error) => return Err(error.clone().into()),
        };
        Ok(Box::new(InSpool { file: self.spool()?, start, len: plain.len }))
    }

    /// Decodes stream `idx` into the spool and returns its offset there.
    fn decode(&self, idx: usize, plain: Plain) -> io::Result<u64> {
        let spool = self.spool()?;
        let mut decoder = self.streams.decoder(idx)?;
        let taken = self.spool_end.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |end| end.checked_add(plain.len));
        let start = taken.map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        plain.decode(&mut *decoder, |piece, off| {
            self.place.take(piece.len() as u64)?;
            spool.write_all_at(piece, start + off).map_err(|error| self.place.write_error("decoded contents", &error))
        })?;
        Ok(start)
    }

    fn spool(&self) -> io::Result<Arc<File>> {
        let create = || self.place.create().map(|spool| Arc::new(spool.into_file()));
        self.spool.get_or_init(|| create().map_err(SharedError::from)).clone().map_err(io::Error::from)
    }
}

struct InSpool {
    file: Arc<File>,
    start: u64,
    len: u64,
}

impl Content for InSpool {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        if off.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(self.file.read_exact_at(buf, self.start + off)?)
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        Ok((off < self.len).then_some(off..self.len))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::spool::SpoolLimit;
    use std::sync::atomic::AtomicUsize;

    fn place() -> SpoolPlace {
        SpoolPlace { dir: std::env::temp_dir(), limit: SpoolLimit::default() }
    }

    /// Plain texts, and the number of decoders made.
    struct Texts(Vec<(Vec<u8>, Plain)>, AtomicUsize);

    impl Streams for Texts {
        fn count(&self) -> usize {
            self.0.len()
        }

        fn plain(&self, idx: usize) -> Plain {
            self.0[idx].1
        }

        fn decoder(&self, idx: usize) -> io::Result<Box<dyn Read + Send + '_>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(&self.0[idx].0[..]))
        }
    }

    fn plain(text: &[u8]) -> Plain {
        let mut crc = Crc::new();
        crc.update(text);
        Plain { len: text.len() as u64, crc: crc.sum() }
    }

    #[test]
    fn texts_are_decoded_once_for_all_threads() {
        let texts: Vec<Vec<u8>> =
            [3, 1 << 20, 1 << 21].iter().map(|len| (0..*len as u32).map(|at| (at / 7) as u8).collect()).collect();
        let streams = Texts(texts.iter().map(|text| (text.clone(), plain(text))).collect(), AtomicUsize::new(0));
        let contents = DecodedContents::new(streams, place());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for (idx, text) in texts.iter().enumerate() {
                        let mut content = contents.open(idx).unwrap();
                        let mut buf = vec![0; text.len() - 2];
                        content.read_exact_at(&mut buf, 2).unwrap();
                        assert!(buf == text[2..]);
                        assert!(content.read_exact_at(&mut buf, 3).is_err());
                        assert_eq!(content.next_data(1).unwrap(), Some(1..text.len() as u64));
                        assert_eq!(content.next_data(text.len() as u64).unwrap(), None);
                    }
                });
            }
        });
        assert_eq!(contents.streams.1.load(Ordering::Relaxed), texts.len());
    }

    #[test]
    fn texts_that_are_not_what_the_archive_says_are_refused() {
        for len in [10, 3 << 20] {
            let text = vec![7; len];
            let good = plain(&text);
            let wrong = [
                Plain { len: good.len - 1, ..good },
                Plain { len: good.len + 1, ..good },
                Plain { crc: good.crc ^ 1, ..good },
            ];
            let streams = Texts(wrong.map(|plain| (text.clone(), plain)).into(), AtomicUsize::new(0));
            let contents = DecodedContents::new(streams, place());
            for (idx, reason) in [(0, "longer than the"), (1, "and not"), (2, "CRC-32")] {
                for _ in 0..2 {
                    let error = contents.open(idx).map(drop).unwrap_err();
                    assert!(error.to_string().contains(reason), "{error}");
                }
            }
        }
    }
}
