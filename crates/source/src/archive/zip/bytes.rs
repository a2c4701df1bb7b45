//! Adapters from a source of bytes to the `rawzip` crate.

use kiln_read::ReadAt;
use parking_lot::Mutex;
use rawzip::{ReaderAt, ZipArchive};
use std::io;
use std::sync::Arc;

/// Length in bytes of a read that a window serves: a local header, or its name and extra fields.
const SHORT_LEN: usize = 1 << 10;
/// Length in bytes of the window where one short read comes shortly after another.
const WINDOW_LEN: usize = 64 << 10;
/// Most bytes from one short read to the next that make the window long. Members that are longer
/// than this are not read on the way.
const NEAR: u64 = 4 << 10;

/// An archive whose central directory has been located.
pub(super) type Archive = ZipArchive<Windowed>;

/// Bytes of an archive, readable by `rawzip`.
#[derive(Clone)]
pub(super) struct Bytes(pub(super) Arc<dyn ReadAt>);

impl ReaderAt for Bytes {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.0.len()?.saturating_sub(offset);
        let part = buf.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        self.0.read_exact_at(&mut buf[..part], offset)?;
        Ok(part)
    }
}

/// Bytes of an archive whose local headers are read one by one. Those of short members lie close
/// together, and one request fetches many.
pub(super) struct Windowed {
    pub(super) bytes: Bytes,
    window: Mutex<Window>,
}

/// Bytes of the archive from `start` on.
struct Window {
    start: u64,
    bytes: Vec<u8>,
    /// Offset of the last short read.
    last: u64,
}

impl Windowed {
    pub(super) fn new(bytes: Arc<dyn ReadAt>) -> Self {
        // No read is behind this one.
        let window = Window { start: 0, bytes: Vec::new(), last: u64::MAX };
        Self { bytes: Bytes(bytes), window: Mutex::new(window) }
    }
}

impl ReaderAt for Windowed {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if buf.len() > SHORT_LEN {
            return self.bytes.read_at(buf, offset);
        }
        let mut window = self.window.lock();
        // If bytes behind it cannot be read, the header itself perhaps can.
        if window.rest(offset).len() < buf.len() && window.move_to(offset, &self.bytes).is_err() {
            return self.bytes.read_at(buf, offset);
        }
        window.last = offset;
        let rest = window.rest(offset);
        let part = buf.len().min(rest.len());
        buf[..part].copy_from_slice(&rest[..part]);
        Ok(part)
    }
}

impl Window {
    /// Returns the bytes of the window from byte `offset` of the archive on.
    fn rest(&self, offset: u64) -> &[u8] {
        let at = offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }

    /// Reads the window that begins at byte `offset`, or what is left of the archive.
    fn move_to(&mut self, offset: u64, bytes: &Bytes) -> io::Result<()> {
        let is_near = offset.checked_sub(self.last).is_some_and(|gap| gap <= NEAR);
        self.bytes.resize(if is_near { WINDOW_LEN } else { SHORT_LEN }, 0);
        let read = bytes.read_at(&mut self.bytes, offset);
        self.start = offset;
        self.bytes.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_read::RangeMut;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Counts requests, and has bytes that tell of their offset. Those from `damaged_from` on
    /// cannot be read.
    struct Counted {
        len: u64,
        damaged_from: u64,
        count: AtomicU64,
    }

    impl Counted {
        fn new(len: u64, damaged_from: u64) -> Arc<Self> {
            Arc::new(Self { len, damaged_from, count: AtomicU64::new(0) })
        }
    }

    fn byte_at(off: u64) -> u8 {
        (off * 31 + off / 251) as u8
    }

    impl ReadAt for Counted {
        fn len(&self) -> io::Result<u64> {
            Ok(self.len)
        }

        fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
            self.count.fetch_add(1, Ordering::Relaxed);
            let end = off + buf.len() as u64;
            assert!(end <= self.len);
            if end > self.damaged_from {
                return Err(io::Error::other("damaged"));
            }
            buf.iter_mut().zip(off..).for_each(|(byte, off)| *byte = byte_at(off));
            Ok(())
        }

        fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
            ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
        }

        fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
            None
        }

        fn will_need(&self, _off: u64, _len: u64) {}
    }

    /// Reads 30 bytes in each `step` of an archive of 1 MiB. Returns the number of requests.
    fn requests(step: u64) -> u64 {
        let source = Counted::new(1 << 20, u64::MAX);
        let windowed = Windowed::new(Arc::clone(&source) as Arc<dyn ReadAt>);
        for off in (0..source.len).step_by(step as usize) {
            let mut buf = [0; 30];
            let len = windowed.read_at(&mut buf, off).unwrap();
            assert_eq!(len as u64, (source.len - off).min(30));
            assert!(buf[..len].iter().zip(off..).all(|(byte, off)| *byte == byte_at(off)), "at byte {off}");
        }
        source.count.load(Ordering::Relaxed)
    }

    #[test]
    fn headers_that_are_close_together_come_with_one_request() {
        // The first window is a short one.
        assert_eq!(requests(100), 1 + 16);
        assert!(requests(4000) <= 1 + 17);
        // Headers that are further apart come alone, and no data with them.
        assert_eq!(requests(8 << 10), 128);
    }

    #[test]
    fn a_read_ends_with_the_archive() {
        let windowed = Windowed::new(Counted::new(100, u64::MAX));
        let mut buf = [0; 30];
        let lens = [90, 100, 0, 60].map(|off| windowed.read_at(&mut buf, off).unwrap());
        assert_eq!(lens, [10, 0, 30, 30]);
    }

    #[test]
    fn headers_before_damaged_bytes_are_read() {
        let windowed = Windowed::new(Counted::new(1 << 20, 5000));
        let mut buf = [0; 30];
        let are_read = [0, 1000, 4000, 4970, 4971, 6000, 900].map(|off| windowed.read_at(&mut buf, off).is_ok());
        assert_eq!(are_read, [true, true, true, true, false, false, true]);
    }
}
