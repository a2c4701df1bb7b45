//! Stream that is read when its bytes are first asked for.

use kiln_read::{RangeMut, ReadAt};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::shared_error::SharedError;
use super::spooled::Spooled;

/// Bytes of a stream, readable at any position: the stream is read up to the last byte that was asked for, once, and
/// kept in a spool.
pub(super) struct LazySource {
    stream: Mutex<Stream>,
    spool: File,
    /// Number of bytes that the spool has.
    kept: AtomicU64,
    len: u64,
}

struct Stream {
    spooled: Spooled,
    failed: Option<SharedError>,
}

impl LazySource {
    /// Returns the bytes of `spooled`, of which nothing has been read yet, and which has `len` bytes.
    ///
    /// # Errors
    /// Errors of the spool.
    pub(super) fn new(mut spooled: Spooled, len: u64) -> io::Result<Self> {
        let spool = spooled.spool_file()?;
        Ok(Self { stream: Mutex::new(Stream { spooled, failed: None }), spool, kept: AtomicU64::new(0), len })
    }

    /// Reads the stream up to byte `end`.
    fn read_to(&self, end: u64) -> io::Result<()> {
        if self.kept.load(Ordering::Acquire) >= end {
            return Ok(());
        }
        let mut stream = self.stream.lock();
        if let Some(error) = &stream.failed {
            return Err(error.clone().into());
        }
        while self.kept.load(Ordering::Acquire) < end {
            match stream.spooled.keep_next() {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(part) => self.kept.fetch_add(part as u64, Ordering::Release),
                Err(error) => {
                    let error = stream.failed.insert(error.into());
                    return Err(error.clone().into());
                }
            };
        }
        Ok(())
    }
}

impl ReadAt for LazySource {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        let end = off.checked_add(buf.len() as u64).filter(|end| *end <= self.len);
        self.read_to(end.ok_or(io::ErrorKind::UnexpectedEof)?)?;
        self.spool.read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, _off: u64, _len: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::spool::{SpoolLimit, SpoolPlace};
    use std::io::Read;
    use std::thread;

    fn lazy(stream: impl Read + Send + 'static, len: u64) -> LazySource {
        let place = SpoolPlace { dir: std::env::temp_dir(), limit: SpoolLimit::default() };
        LazySource::new(Spooled::new(Box::new(stream), place), len).unwrap()
    }

    #[test]
    fn bytes_are_read_in_any_order_and_the_stream_only_as_far_as_needed() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 5) as u8).collect();
        let source = lazy(io::Cursor::new(bytes.clone()), 3_000_000);
        assert_eq!((source.len().unwrap(), source.kept.load(Ordering::Relaxed)), (3_000_000, 0));
        let mut buf = [0; 1000];
        source.read_exact_at(&mut buf, 900_000).unwrap();
        assert!(buf == bytes[900_000..901_000]);
        assert!((901_000..1_500_000).contains(&source.kept.load(Ordering::Relaxed)));
        thread::scope(|scope| {
            for reader in 0..4 {
                let (source, bytes) = (&source, &bytes);
                scope.spawn(move || {
                    for off in (reader * 100..2_999_000).step_by(77_777) {
                        let mut buf = [0; 1000];
                        source.read_exact_at(&mut buf, off as u64).unwrap();
                        assert!(buf == bytes[off..off + 1000], "{off}");
                    }
                });
            }
        });
        assert_eq!(source.read_exact_at(&mut buf, 2_999_001).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(source.read_exact_at(&mut buf, u64::MAX).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn every_read_behind_a_failure_tells_of_it() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::new(io::ErrorKind::InvalidData, "bad block"))
            }
        }
        let source = lazy(io::Cursor::new(vec![7; 100_000]).chain(Broken), 200_000);
        let mut buf = [0; 10];
        source.read_exact_at(&mut buf, 50_000).unwrap();
        for _ in 0..2 {
            assert_eq!(source.read_exact_at(&mut buf, 150_000).unwrap_err().to_string(), "bad block");
        }
        source.read_exact_at(&mut buf, 90_000).unwrap();
        // A stream that ends before the length that was stated.
        let short = lazy(io::Cursor::new(vec![7; 100]), 200);
        assert_eq!(short.read_exact_at(&mut buf, 95).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
