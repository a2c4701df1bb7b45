//! A test of what every [`ReadAt`] promises, for any implementation.

use super::read_at::{RangeMut, ReadAt};
use std::io::ErrorKind;

/// Puts `source`, which must hold exactly `expected`, through all that the trait promises: lengths,
/// whole and partial reads at every kind of border, batches in any order, ends, hints, and many
/// threads at once. Meant for tests; a few hundred thousand bytes are enough.
///
/// # Panics
/// A promise is broken; the message says which.
pub fn assert_conforms(source: &dyn ReadAt, expected: &[u8]) {
    let len = expected.len() as u64;
    assert_eq!(source.len().expect("len() of a working source"), len, "len()");
    reads(source, expected);
    ends(source, len);
    batches(source, expected);
    for (off, hint) in [(0, len), (len, 1), (u64::MAX, u64::MAX), (0, 0)] {
        source.will_need(off, hint);
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| reads(source, expected));
        }
    });
}

/// Returns ranges at the borders of everything that an implementation may divide its bytes by.
fn ranges(len: usize) -> Vec<(usize, usize)> {
    let borders = [0, 1, 511, 512, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20, len / 2, len.saturating_sub(1), len];
    let mut ranges = Vec::new();
    for start in borders.into_iter().filter(|&start| start <= len) {
        ranges.extend(borders.into_iter().map(|end| (start, end)).filter(|&(start, end)| start <= end && end <= len));
    }
    ranges
}

fn reads(source: &dyn ReadAt, expected: &[u8]) {
    for (start, end) in ranges(expected.len()) {
        let mut buf = vec![0xA5; end - start];
        let result = source.read_exact_at(&mut buf, start as u64);
        assert!(result.is_ok(), "read_exact_at of bytes {start}..{end} fails: {result:?}");
        assert!(buf == expected[start..end], "read_exact_at of bytes {start}..{end} gives other bytes");
        if let Some(bytes) = source.borrow(start as u64, end - start) {
            assert!(bytes == &expected[start..end], "borrow of bytes {start}..{end} gives other bytes");
        }
    }
}

fn ends(source: &dyn ReadAt, len: u64) {
    for (off, wanted) in [(len, 1), (len.saturating_sub(1), 3), (0, len as usize + 1), (len + 4096, 1), (u64::MAX, 1)] {
        let error = source.read_exact_at(&mut vec![0; wanted], off);
        let kind = error.map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::UnexpectedEof), "read_exact_at of {wanted} bytes at {off}, behind the end");
        assert!(source.borrow(off, wanted).is_none(), "borrow of {wanted} bytes at {off}, behind the end");
    }
    assert!(source.read_exact_at(&mut [], len).is_ok(), "read_exact_at of nothing at the end");
}

fn batches(source: &dyn ReadAt, expected: &[u8]) {
    let mut ranges = ranges(expected.len());
    // Backwards, so that an implementation that merges must sort, and with overlaps.
    ranges.reverse();
    let mut bufs: Vec<Vec<u8>> = ranges.iter().map(|(start, end)| vec![0xA5; end - start]).collect();
    let with_off = |(&(start, _), buf)| RangeMut { off: start as u64, buf };
    let mut batch: Vec<_> = ranges.iter().zip(bufs.iter_mut().map(Vec::as_mut_slice)).map(with_off).collect();
    let result = source.read_ranges(&mut batch);
    assert!(result.is_ok(), "read_ranges fails: {result:?}");
    for ((start, end), buf) in ranges.iter().zip(&bufs) {
        assert!(*buf == expected[*start..*end], "read_ranges gives other bytes for {start}..{end}");
    }
    assert!(source.read_ranges(&mut []).is_ok(), "read_ranges of no ranges");
    let (mut first, mut behind) = ([0; 1], [0; 2]);
    let mut batch = Vec::new();
    if !expected.is_empty() {
        batch.push(RangeMut { off: 0, buf: &mut first });
    }
    batch.push(RangeMut { off: expected.len() as u64, buf: &mut behind });
    let kind = source.read_ranges(&mut batch).map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::UnexpectedEof), "read_ranges with a range behind the end");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::file::FileSource;
    use crate::source::memory::MemorySource;
    use crate::source::offset::OffsetSource;
    use kiln_tests::temp::TempDir;
    use std::io;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| ((i * i) >> 7) as u8).collect()
    }

    #[test]
    fn memory_conforms() {
        for len in [0, 1, 4096, 200_000] {
            assert_conforms(&MemorySource::new(pattern(len)), &pattern(len));
        }
    }

    #[test]
    fn files_conform() {
        let scratch = TempDir::new("conformance").unwrap();
        let path = scratch.join("file");
        for len in [0, 1, 70_000] {
            std::fs::write(&path, pattern(len)).unwrap();
            assert_conforms(&FileSource::open(&path).unwrap(), &pattern(len));
        }
    }

    #[test]
    fn parts_of_sources_conform() {
        let whole = pattern(150_000);
        for start in [0, 1, 1024, 149_999, 150_000] {
            let part = OffsetSource::new(MemorySource::new(whole.clone()), start as u64).unwrap();
            assert_conforms(&part.clone(), &whole[start..]);
            assert_conforms(&part.clone().with_max_len(70_001), &whole[start..][..70_001.min(150_000 - start)]);
            assert_conforms(&part.with_max_len(u64::MAX), &whole[start..]);
        }
        for start in [150_001, u64::MAX] {
            let error = OffsetSource::new(MemorySource::new(whole.clone()), start).unwrap_err();
            assert!(error.to_string().contains(&start.to_string()), "{error}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused_by_name() {
        let dir = std::env::temp_dir();
        let error = FileSource::open(&dir).unwrap_err();
        assert!(error.to_string().contains(dir.to_str().unwrap()), "{error}");
        assert!(FileSource::open("/dev/null".as_ref()).is_err());
        assert!(FileSource::open("/nonexistent/file".as_ref()).unwrap_err().to_string().contains("/nonexistent/file"));
    }

    /// A source that is wrong by one byte at its end.
    struct Short(MemorySource);

    impl ReadAt for Short {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
        fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
            let len = buf.len().saturating_sub(usize::from(off > 0));
            self.0.read_exact_at(&mut buf[..len], off)
        }
        fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
            self.0.read_ranges(ranges)
        }
        fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
            None
        }
        fn will_need(&self, _off: u64, _len: u64) {}
    }

    #[test]
    #[should_panic(expected = "gives other bytes")]
    fn a_wrong_source_is_caught() {
        assert_conforms(&Short(MemorySource::new(pattern(10_000))), &pattern(10_000));
    }
}
