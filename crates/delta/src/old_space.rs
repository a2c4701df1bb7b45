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
    /// Long extents, the one that was used last in front.
    long: Vec<LongExtent>,
}

/// A long extent, decoded.
struct LongExtent {
    text: usize,
    la: u64,
    bytes: Vec<u8>,
}

struct Text {
    /// First byte in the space.
    start: u64,
    len: u64,
    inode: Inode,
    /// Where its extents begin, if the first of them is long; found out when it is first read.
    extents: Option<Vec<u64>>,
}

impl OldSpace {
    /// Of the image in `source`, with these files.
    pub(crate) fn new(source: Arc<dyn ReadAt>, image: Image, texts: &[TextFile]) -> Result<Self, DeltaError> {
        let source_len = image.source_len();
        let mut start = source_len;
        let texts = texts.iter().map(|text| {
            let inode = image.inode(Nid(text.nid)).map_err(DeltaError::image(Side::Old))?;
            if !inode.is_file() || inode.size() != text.len {
                let what = format!("inode {} is no file of {} bytes", text.nid, text.len);
                return Err(DeltaError::WrongOld { what });
            }
            let text = Text { start, len: text.len, inode, extents: None };
            start += text.len;
            Ok(text)
        });
        let texts = texts.collect::<Result<_, _>>()?;
        Ok(Self { source, image, source_len, texts, long: Vec::new() })
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
        self.find_extents(idx)?;
        let mut at = 0;
        while at < buf.len() {
            at += self.read_text(idx, off + at as u64, &mut buf[at..])?;
        }
        Ok(true)
    }

    /// Note where extents of a file begin, if the first of them is long.
    fn find_extents(&mut self, idx: usize) -> Result<(), DeltaError> {
        let text = &mut self.texts[idx];
        if text.extents.is_some() {
            return Ok(());
        }
        let mut starts = Vec::new();
        for extent in self.image.extents(&text.inode) {
            let extent = extent.map_err(DeltaError::image(Side::Old))?;
            if starts.is_empty() && extent.llen < LONG_MIN_LEN {
                break;
            }
            starts.push(extent.la);
        }
        text.extents = Some(starts);
        Ok(())
    }

    /// Fill the front of `buf` with text of a file. How much it was.
    fn read_text(&mut self, idx: usize, off: u64, buf: &mut [u8]) -> Result<usize, DeltaError> {
        let Text { inode, len, extents, .. } = &self.texts[idx];
        let starts = extents.as_deref().unwrap_or_default();
        let extent = starts.partition_point(|start| *start <= off);
        let (la, end) = match extent {
            0 => (off, off),
            _ => (starts[extent - 1], starts.get(extent).copied().unwrap_or(*len)),
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
