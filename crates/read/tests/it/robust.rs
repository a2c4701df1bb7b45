//! Failing sources and images that are cut off give errors, and nothing of a fault that is over
//! stays behind. (Images damaged in other ways: `hostile.rs` beside this file, and `mutations.rs`
//! of the project's tests.)

use crate::common::{named, read_whole, regular_files};
use kiln_format::inode::FileType;
use kiln_read::{
    FollowLast, Image, ImageOptions, Inode, MemorySource, RangeMut, ReadAt, ReadError, SeekWhat, Threads, conformance,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Fault at the chosen call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The read fails.
    Fail,
    /// The read ends early.
    Shorten,
    /// The read is late.
    Delay,
}

/// A source with a fault at its `at`th read, counted from 0.
struct Faulty {
    inner: MemorySource,
    fault: Fault,
    at: u64,
    calls: AtomicU64,
}

impl ReadAt for Faulty {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.at {
            match self.fault {
                Fault::Fail => return Err(io::Error::other("injected")),
                Fault::Shorten => {
                    let half = buf.len() / 2;
                    self.inner.read_exact_at(&mut buf[..half], off)?;
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Fault::Delay => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        self.inner.read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, off: u64, len: u64) {
        self.inner.will_need(off, len);
    }
}

/// Read everything, with the errors counted.
fn everything(image: &Image) -> Result<(u64, u64), ReadError> {
    let (mut errors, mut bytes) = (0, 0);
    let mut count = |result: Result<u64, ReadError>| match result {
        Ok(len) => bytes += len,
        Err(_) => errors += 1,
    };
    let root = image.inode(image.root_nid())?;
    for entry in image.walk(&root, b"") {
        match entry {
            Ok(entry) => {
                count(visit(image, &entry.inode));
                count(image.resolve(&entry.path, FollowLast::Keep).map(|_| 0));
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                count(Err(error));
            }
        }
    }
    Ok((errors, bytes))
}

/// Most bytes and extents of a file that are looked at: a damaged size may be anything.
const BYTES_MAX: u64 = 1 << 20;
const EXTENTS_MAX: usize = 2000;

fn visit(image: &Image, inode: &Inode) -> Result<u64, ReadError> {
    let mut len = 0;
    for xattr in image.list_xattrs(inode)? {
        assert_eq!(image.get_xattr(inode, &xattr.name)?.is_some(), image.get_xattr(inode, &xattr.name)?.is_some());
        len += xattr.value.len() as u64;
    }
    let size = inode.meta.size;
    match inode.meta.file_type {
        FileType::Regular => {
            let mut buf = vec![0; size.min(BYTES_MAX) as usize];
            len += image.read_at(inode, &mut buf, 0)? as u64;
            image.read_at(inode, &mut buf, size.saturating_sub(4096))?;
            image.read_at(inode, &mut buf[..size.min(1) as usize], size / 2)?;
        }
        FileType::Symlink => len += image.read_link(inode)?.len() as u64,
        _ => return Ok(len),
    }
    let mut off = 0;
    for _ in 0..EXTENTS_MAX {
        if off >= size {
            break;
        }
        let extent = image.extent_at(inode, off)?;
        assert!(extent.la <= off && off < extent.end(), "{extent:?} at {off}");
        off = extent.end();
    }
    if size < BYTES_MAX {
        image.seek(inode, 0, SeekWhat::Hole)?;
        image.seek(inode, 0, SeekWhat::Data)?;
    }
    Ok(len)
}

/// The errors seen with a fault at read `at`; `None` if there are fewer reads.
fn with_fault(bytes: &[u8], fault: Fault, at: u64) -> Option<u64> {
    let source = Arc::new(Faulty { inner: MemorySource::new(bytes.to_vec()), fault, at, calls: AtomicU64::new(0) });
    let errors = match Image::open(source.clone(), vec![], &ImageOptions::default()) {
        Err(_) => 1,
        Ok(image) => {
            let errors = everything(&image).map_or(1, |(errors, _)| errors);
            if source.calls.load(Ordering::Relaxed) <= at {
                return None;
            }
            // A fault that is over leaves nothing behind: no cached error, no half-filled window.
            assert_eq!(everything(&image).expect("the source works again").0, 0);
            errors
        }
    };
    Some(errors)
}

#[test]
fn every_failing_read_is_an_error_and_the_next_one_is_not() {
    for name in ["xattrs", "xattr-prefix", "xattr-metabox", "metabox-zstd", "lz4-dedupe-frag-tail"] {
        let bytes = named(name).bytes();
        for fault in [Fault::Fail, Fault::Shorten, Fault::Delay] {
            let mut at = 0;
            while let Some(errors) = with_fault(&bytes, fault, at) {
                assert_eq!(errors > 0, fault != Fault::Delay, "{name}: {fault:?} at read {at}");
                // All of the first reads, then every so many: the later ones are reads of file
                // contents.
                at += 1 + at / 24;
            }
            assert!(at > 3, "{name}: only {at} reads");
        }
    }
}

#[test]
fn a_check_of_a_failing_source_fails() {
    let bytes = named("lz4").bytes();
    for at in [3, 10, 40] {
        let inner = MemorySource::new(bytes.clone());
        let source = Faulty { inner, fault: Fault::Fail, at, calls: AtomicU64::new(0) };
        let Ok(image) = Image::open(Arc::new(source), vec![], &ImageOptions::default()) else { continue };
        assert!(matches!(image.check(Threads::at_least_one(2)), Err(ReadError::Io { .. })), "at read {at}");
    }
}

#[test]
fn the_faulty_source_without_a_fault_conforms() {
    let bytes = named("xattrs").bytes();
    let inner = MemorySource::new(bytes.clone());
    let source = Faulty { inner, fault: Fault::Fail, at: u64::MAX, calls: AtomicU64::new(0) };
    conformance::assert_conforms(&source, &bytes);
}

#[test]
fn cut_images_are_survived() {
    for name in ["xattr-metabox", "lz4-frag"] {
        let original = named(name).bytes();
        let options = ImageOptions::default().with_any_checksum();
        for cut in (0..original.len()).step_by(original.len() / 97).chain([1024, 1100, 1151, 1152, 1153]) {
            let source = Arc::new(MemorySource::new(original[..cut].to_vec()));
            if let Ok(image) = Image::open(source, vec![], &options) {
                let errors = everything(&image).map_or(1, |(errors, _)| errors);
                let report = image.check(Threads::ONE).unwrap();
                assert!(report.problem_count > 0 || errors > 0, "{name} cut at {cut}");
            }
        }
    }
}

#[test]
fn a_wrong_number_of_devices_is_named() {
    let golden = named("blobdev");
    let mut devices = golden.device_paths();
    devices.push(golden.path());
    let error = Image::open_path(&golden.path(), &devices, &ImageOptions::default()).unwrap_err();
    assert!(matches!(error, ReadError::DeviceCount { expected: 1, given: 2 }), "{error}");
}

/// An image and its device in one file: addresses go on behind the primary device.
#[test]
fn a_flat_image_needs_no_devices() {
    let golden = named("blobdev");
    let mut bytes = golden.bytes();
    bytes.extend(std::fs::read(&golden.device_paths()[0]).unwrap());
    let flat = Image::open(Arc::new(MemorySource::new(bytes)), vec![], &ImageOptions::default()).unwrap();
    let apart = golden.open();
    for (_, inode) in regular_files(&apart) {
        assert!(read_whole(&flat, &inode).unwrap() == read_whole(&apart, &inode).unwrap());
    }
    assert_eq!(flat.check(Threads::ONE).unwrap().problem_count, 0);
}

#[test]
fn a_wrong_checksum_is_refused_or_reported() {
    let golden = named("inline");
    let mut bytes = golden.bytes();
    bytes[1024 + 64] ^= 1;
    let source = Arc::new(MemorySource::new(bytes));
    let error = Image::open(source.clone(), vec![], &ImageOptions::default()).err().unwrap();
    assert!(error.is_corrupt() && error.to_string().contains("checksum"), "{error}");
    let options = ImageOptions::default().with_any_checksum();
    let report = Image::open(source, vec![], &options).unwrap().check(Threads::ONE).unwrap();
    assert_eq!(report.problem_count, 1);
    assert!(report.problems[0].to_string().contains("checksum"));
}
