//! Contents in memory of their own, which outlives the image.
//!
//! The size of a file is a claim of the image until its bytes are read. So no more memory is taken
//! at once than the image has bytes; a longer range grows with the bytes read so far.

use super::batch_plan::cut;
use super::read::readable;
use super::view::ViewBytes;
use crate::cache::byte_cache::SharedBytes;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::file_map::FileMap;
use crate::metadata::inode::Inode;
use crate::source::read_at::ReadAt;
use bytes::Bytes;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

/// So many bytes are taken at once in any case.
const AT_ONCE_MIN: u64 = 16 << 20;
/// The longest range is so many times as long as the image, about the ratio at which zeros
/// compress, or [`LEN_MIN`] bytes: holes cost an image nothing, and would fill any memory.
const RATIO_MAX: u64 = 4096;
const LEN_MIN: u64 = 1 << 30;

/// The owner of bytes in the memory of a source.
struct SourceBytes {
    source: Arc<dyn ReadAt>,
    off: u64,
    len: usize,
}

impl AsRef<[u8]> for SourceBytes {
    fn as_ref(&self) -> &[u8] {
        self.source.borrow(self.off, self.len).unwrap_or_default()
    }
}

/// The owner of cached bytes.
struct CacheBytes(SharedBytes);

impl AsRef<[u8]> for CacheBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<'a> Reader<'a> {
    /// Implements `Image::read_bytes`.
    pub(crate) fn read_bytes(self, inode: &Inode, range: Range<u64>) -> Result<Bytes, ReadError> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let len = readable(inode, len, range.start)?;
        if len == 0 {
            return Ok(Bytes::new());
        }
        if len as u64 > self.at_once_max() {
            let mut bytes = Vec::new();
            self.append(inode, range.start, len, &mut bytes)?;
            return Ok(bytes.into());
        }
        self.volume.counters.read(len);
        self.owned(inode, range.start, len).map_err(|error| error.at_nid(inode.nid))
    }

    /// Implements `Image::range_len_max`.
    pub(crate) fn range_len_max(self) -> u64 {
        LEN_MIN.max(self.volume.devices.total_len().saturating_mul(RATIO_MAX))
    }

    /// Implements `Image::at_once_max`.
    pub(crate) fn at_once_max(self) -> u64 {
        self.volume.devices.total_len().max(AT_ONCE_MIN)
    }

    fn owned(self, inode: &Inode, off: u64, len: usize) -> Result<Bytes, ReadError> {
        let mut buf = Vec::new();
        match self.view_range(inode, off, len, &mut buf)?.into_place() {
            ViewBytes::Source { bytes, device, pa } => {
                let source = self.volume.devices.source(device).cloned();
                let owned = source.map(|source| Bytes::from_owner(SourceBytes { source, off: pa, len }));
                // A source may have had its bytes in memory once, and not a second time.
                Ok(owned.filter(|owned| owned.len() == len).unwrap_or_else(|| Bytes::copy_from_slice(bytes)))
            }
            ViewBytes::Shared(bytes, range) => Ok(Bytes::from_owner(CacheBytes(bytes)).slice(range)),
            ViewBytes::Buffer(_) => Ok(from_end(buf, len)),
        }
    }

    /// Returns `len` bytes of a file from `off` on, which it has, if one extent holds them and its
    /// source has them in memory.
    pub(crate) fn borrow_contents(self, inode: &Inode, off: u64, len: usize) -> Result<Option<&'a [u8]>, ReadError> {
        if len == 0 {
            return Ok(Some(&[]));
        }
        let part = FileMap::open(self, inode)?.parts(off..off + len as u64).next().transpose()?;
        match part.filter(|part| part.len() == len as u64 && part.pcluster().is_none()).and_then(|part| part.stored()) {
            Some((device, bytes)) => self.borrow_raw("data", device, bytes.start, len),
            None => Ok(None),
        }
    }

    /// Appends `len` bytes of a file from `off` on, which it has, to `out`. After an error `out` is
    /// as long as before.
    pub(crate) fn append(self, inode: &Inode, off: u64, len: usize, out: &mut Vec<u8>) -> Result<(), ReadError> {
        let before = out.len();
        let appended = self.append_in_steps(inode, off..off + len as u64, out);
        if appended.is_err() {
            out.truncate(before);
        }
        appended.map_err(|error| error.at_nid(inode.nid))
    }

    fn append_in_steps(self, inode: &Inode, range: Range<u64>, out: &mut Vec<u8>) -> Result<(), ReadError> {
        let len = range.end - range.start;
        if len > self.range_len_max() {
            let reason = "far longer than the image: can only be read in parts";
            return Err(ReadError::unsupported("erofs_inode", 0, "i_size", inode.size(), reason));
        }
        let (mut off, mut step) = (range.start, self.at_once_max());
        let (mut map, pattern) = self.map_for_read(inode, &range)?;
        while off < range.end {
            let end = cut(map.file(), off, range.end, step)?;
            let (start, part_len) = (out.len(), (end - off) as usize);
            out.try_reserve_exact(part_len)
                .map_err(|_| ReadError::io(off, end - off, ErrorKind::OutOfMemory.into()))?;
            out.resize(start + part_len, 0);
            self.volume.counters.read(part_len);
            self.fill_by(&mut map, &mut out[start..], off, pattern)?;
            // The bytes read so far are as good a bound as the image's length.
            step = step.max(end - range.start);
            off = end;
        }
        Ok(())
    }
}

/// Returns the last `len` bytes of a buffer. Bytes in front of them were decoded on the way; the
/// buffer is kept if they are few.
fn from_end(buf: Vec<u8>, len: usize) -> Bytes {
    match buf.len() - len {
        0 => buf.into(),
        skip if skip <= len => Bytes::from(buf).slice(skip..),
        skip => Bytes::copy_from_slice(&buf[skip..]),
    }
}
