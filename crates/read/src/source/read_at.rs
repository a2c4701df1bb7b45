//! The seam for I/O: positional, blocking reads.

use std::io;
use std::sync::Arc;

/// A range of a source, and where its bytes go.
pub struct RangeMut<'a> {
    /// Byte offset in the source.
    pub off: u64,
    /// Filled completely.
    pub buf: &'a mut [u8],
}

impl RangeMut<'_> {
    /// Returns the byte offset behind the range, if it has one.
    pub(super) fn end(&self) -> Option<u64> {
        self.off.checked_add(self.buf.len() as u64)
    }
}

/// Most bytes of pclusters that are fetched at once, unless one pcluster alone is longer: they are
/// in memory until they are decoded.
pub(crate) const FETCH_MAX_LEN: usize = 1 << 20;

/// The same for sources that lend bytes in memory.
pub(super) const LENT_FETCH_LEN: usize = 64 << 10;

/// Bytes that can be read at any position by any thread: a file, memory, an object in a store.
///
/// Blocking, because FUSE, the command and Python are. All methods but two are required, so that a
/// wrapper (cache, counter, fault injector) cannot forget to forward one; without
/// [`ReadAt::fetch_max_len`] only the length of calls is another, without [`ReadAt::is_resident`]
/// only what is announced. [`conformance`](crate::conformance) tests implementations.
///
/// ```
/// # fn main() -> Result<(), kiln_read::ReadError> {
/// use kiln_read::{Image, MemorySource, RangeMut, ReadAt};
/// use std::io;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Counts the reads of another source.
/// struct Counting<S>(S, AtomicU64);
///
/// impl<S: ReadAt> ReadAt for Counting<S> {
///     fn len(&self) -> io::Result<u64> {
///         self.0.len()
///     }
///     fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.read_exact_at(buf, off)
///     }
///     fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.read_ranges(ranges)
///     }
///     fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
///         None // else nothing would be read
///     }
///     fn will_need(&self, off: u64, len: u64) {
///         self.0.will_need(off, len);
///     }
/// }
///
/// # let bytes = std::fs::read("tests/golden/zstd.erofs").expect("a file");
/// let source = Arc::new(Counting(MemorySource::new(bytes.clone()), AtomicU64::new(0)));
/// kiln_read::conformance::assert_conforms(&*source, &bytes);
/// let image = Image::open(source, vec![], &Default::default())?;
/// # Ok(())
/// # }
/// ```
pub trait ReadAt: Send + Sync {
    /// Returns the length in bytes. It does not change.
    ///
    /// # Errors
    /// The source cannot tell.
    fn len(&self) -> io::Result<u64>;

    /// Fills `buf` from byte `off` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] where the range ends behind the source; else what the
    /// source reports.
    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()>;

    /// Fills many ranges, in any order; an implementation may merge them.
    ///
    /// # Errors
    /// As [`ReadAt::read_exact_at`], for the first range that fails; what the other buffers hold is
    /// then unspecified.
    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()>;

    /// Returns the bytes themselves, where they are in memory, so that a reader need not copy them.
    /// `None` for a source that must be read, and where the range ends behind the source.
    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]>;

    /// Returns a hint: these bytes will be read soon. Ranges behind the end are allowed.
    fn will_need(&self, off: u64, len: u64);

    /// Returns most bytes of encoded data that one read should fetch by one call, where the
    /// operating system reads ahead ([`Readahead::System`](crate::Readahead::System)). A source
    /// whose calls cost little asks for little: what is decoded at once is then still in the
    /// processor's nearest caches. The default of 1 MiB is for all other sources, and the most that
    /// is fetched.
    fn fetch_max_len(&self) -> usize {
        FETCH_MAX_LEN
    }

    /// Returns true if these bytes are probably in memory, or `None`, the default, if the source
    /// cannot tell without fetching cannot. Ask before you announce much: announcing bytes that are
    /// in memory costs as much as reading them.
    fn is_resident(&self, _off: u64, _len: u64) -> Option<bool> {
        None
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Arc<T> {
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        (**self).read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        (**self).read_ranges(ranges)
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        (**self).borrow(off, len)
    }

    fn will_need(&self, off: u64, len: u64) {
        (**self).will_need(off, len);
    }

    fn fetch_max_len(&self) -> usize {
        (**self).fetch_max_len()
    }

    fn is_resident(&self, off: u64, len: u64) -> Option<bool> {
        (**self).is_resident(off, len)
    }
}
