//! The old space: what text is made of. First the bytes of the old image, then the contents of files of it, one behind the other.

use kiln_read::{Image, Inode, Nid, ReadAt};
use std::sync::Arc;

use crate::error::{DeltaError, Side};
use crate::format::header::TextFile;

/// Extents that are longer than this would be decoded anew for each piece: the image's cache does not hold them. In bytes.
const LONG_MIN_LEN: u64 = 1 << 20;
/// The longest extent that is kept decoded, in bytes: the longest that kernels decode.
const LONG_MAX_LEN: u64 = 12 << 20;
/// Bytes of long extents that are kept decoded, but for one that is longer alone.
const LONG_KEPT_LEN: usize = 20 << 20;

/// The old space of a patch.
pub(crate) struct OldSpace {
    source: Arc<dyn ReadAt>,
    image: Image,
    source_len: u64,
    texts: Vec<Text>,
    /// The file that was read last.
    current: Option<Current>,
    /// Long extents, the one that was used last in front.
    long: Vec<LongExtent>,
}

/// A long extent, decoded.
struct LongExtent {
    text: usize,
    la: u64,
    bytes: Vec<u8>,
}

/// A file, about which no more is kept: there may be many.
struct Text {
    /// First byte in the space.
    start: u64,
    len: u64,
    nid: Nid,
}

/// What is known of a file.
struct Current {
    text: usize,
    inode: Inode,
    /// Where its extents begin, if the first of them is long.
    extents: Vec<u64>,
}

impl OldSpace {
    /// Of the image in `source`, which has `source_len` bytes (a device may be longer), with these files.
    pub(crate) fn new(source: Arc<dyn ReadAt>, source_len: u64, image: Image, texts: &[TextFile]) -> Self {
        let mut start = source_len;
        let texts = texts.iter().map(|text| {
            let text = Text { start, len: text.len, nid: Nid(text.nid) };
            start += text.len;
            text
        });
        let texts = texts.collect();
        Self { source, image, source_len, texts, current: None, long: Vec::new() }
    }

    /// Fill `buf` from byte `pos` on; the range must be in the image's bytes or in one file. Whether it is.
    pub(crate) fn read(&mut self, pos: u64, buf: &mut [u8]) -> Result<bool, DeltaError> {
        let len = buf.len() as u64;
        let Some(end) = pos.checked_add(len) else { return Ok(false) };
        if pos < self.source_len {
            return match end <= self.source_len {
                true => self.read_raw(pos, buf).map(|()| true),
                false => Ok(false),
            };
        }
        let idx = self.texts.partition_point(|text| text.start <= pos);
        let Some(idx) = idx.checked_sub(1).filter(|idx| end <= self.texts[*idx].start + self.texts[*idx].len) else {
            return Ok(false);
        };
        let off = pos - self.texts[idx].start;
        self.open(idx)?;
        let mut at = 0;
        while at < buf.len() {
            at += self.read_text(idx, off + at as u64, &mut buf[at..])?;
        }
        Ok(true)
    }

    /// Make a file the current one.
    fn open(&mut self, idx: usize) -> Result<(), DeltaError> {
        if self.current.as_ref().is_some_and(|current| current.text == idx) {
            return Ok(());
        }
        let Text { nid, len, .. } = self.texts[idx];
        let inode = self.image.inode(nid).map_err(DeltaError::image(Side::Old))?;
        if !inode.is_file() || inode.size() != len {
            let what = format!("inode {} is no file of {len} bytes", nid.0);
            return Err(DeltaError::WrongOld { what });
        }
        let mut extents = Vec::new();
        for extent in self.image.extents(&inode) {
            let extent = extent.map_err(DeltaError::image(Side::Old))?;
            if extents.is_empty() && extent.llen < LONG_MIN_LEN {
                break;
            }
            extents.push(extent.la);
        }
        self.current = Some(Current { text: idx, inode, extents });
        Ok(())
    }

    /// Fill the front of `buf` with text of a file. How much it was.
    fn read_text(&mut self, idx: usize, off: u64, buf: &mut [u8]) -> Result<usize, DeltaError> {
        let Some(Current { inode, extents: starts, .. }) = &self.current else { return Ok(buf.len()) };
        let len = self.texts[idx].len;
        let extent = starts.partition_point(|start| *start <= off);
        let (la, end) = match extent {
            0 => (off, off),
            _ => (starts[extent - 1], starts.get(extent).copied().unwrap_or(len)),
        };
        let image = &self.image;
        let read = |buf: &mut [u8], off| match image.read_at(inode, buf, off) {
            Ok(len) if len == buf.len() => Ok(len),
            Ok(_) => Err(DeltaError::WrongOld { what: format!("inode {} ends too early", inode.nid.0) }),
            Err(error) => Err(DeltaError::image(Side::Old)(error)),
        };
        if !(LONG_MIN_LEN..=LONG_MAX_LEN).contains(&(end - la)) {
            let part = if end > off { (end - off).min(buf.len() as u64) as usize } else { buf.len() };
            return read(&mut buf[..part], off);
        }
        match self.long.iter().position(|long| long.text == idx && long.la == la) {
            Some(found) => self.long[..=found].rotate_right(1),
            None => {
                let mut kept = (end - la) as usize;
                self.long.retain(|long| {
                    kept += long.bytes.len();
                    kept <= LONG_KEPT_LEN
                });
                let mut bytes = vec![0; (end - la) as usize];
                read(&mut bytes, la)?;
                self.long.insert(0, LongExtent { text: idx, la, bytes });
            }
        }
        let from = &self.long[0].bytes[(off - la) as usize..];
        let len = from.len().min(buf.len());
        buf[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }

    /// Bytes of the old image.
    pub(crate) fn read_raw(&self, off: u64, buf: &mut [u8]) -> Result<(), DeltaError> {
        let len = buf.len() as u64;
        self.source.read_exact_at(buf, off).map_err(|source| DeltaError::ImageBytes {
            side: Side::Old,
            off,
            len,
            source,
        })
    }
}
