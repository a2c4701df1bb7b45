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
    use kiln_read::{FileSource, MemorySource};
    use kiln_tests::counted::Counted;
    use kiln_tests::temp::TempDir;
    use std::fs::{self, File};

    /// Returns bytes that tell of their offset.
    fn archive(len: u64) -> Vec<u8> {
        (0..len).map(byte_at).collect()
    }

    fn byte_at(off: u64) -> u8 {
        (off * 31 + off / 251) as u8
    }

    /// Reads 30 bytes in each `step` of an archive of 1 MiB. Returns the number of requests.
    fn requests(step: u64) -> u64 {
        let len = 1 << 20;
        let source = Arc::new(Counted::new(MemorySource::new(archive(len))));
        let windowed = Windowed::new(Arc::clone(&source) as Arc<dyn ReadAt>);
        for off in (0..len).step_by(step as usize) {
            let mut buf = [0; 30];
            let read = windowed.read_at(&mut buf, off).unwrap();
            assert_eq!(read as u64, (len - off).min(30));
            assert!(buf[..read].iter().zip(off..).all(|(byte, off)| *byte == byte_at(off)), "at byte {off}");
        }
        source.counts().0
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
        let windowed = Windowed::new(Arc::new(MemorySource::new(archive(100))));
        let mut buf = [0; 30];
        let lens = [90, 100, 0, 60].map(|off| windowed.read_at(&mut buf, off).unwrap());
        assert_eq!(lens, [10, 0, 30, 30]);
    }

    #[test]
    fn headers_before_damaged_bytes_are_read() {
        let dir = TempDir::new("damaged").unwrap();
        let path = dir.join("archive.zip");
        fs::write(&path, archive(1 << 20)).unwrap();
        let windowed = Windowed::new(Arc::new(FileSource::open(&path).unwrap()));
        // The source keeps the length that it has seen.
        File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
        let mut buf = [0; 30];
        let are_read = [0, 1000, 4000, 4970, 4971, 6000, 900].map(|off| windowed.read_at(&mut buf, off).is_ok());
        assert_eq!(are_read, [true, true, true, true, false, false, true]);
    }
}
