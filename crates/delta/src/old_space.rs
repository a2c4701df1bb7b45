//! The old space, from which text is made: the bytes of the old image, followed by the contents of
//! some of its files.

use kiln_read::{ExtentKind, Image, Inode, Nid, ReadAt};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{DeltaError, Side};
use crate::format::header::TextFile;

/// Maximum length in bytes of an extent in the cache: the longest that kernels decode.
const KEPT_MAX_LEN: u64 = 12 << 20;

/// The old space of a patch.
pub(crate) struct OldSpace {
    source: Arc<dyn ReadAt>,
    image: Image,
    source_len: u64,
    texts: Vec<FileText>,
    /// The packed inode, which has no name and holds the ends of other files.
    packed: Option<Inode>,
    /// Index and inode of the file that was read last.
    current: Option<(usize, Inode)>,
    kept: ExtentCache,
}

/// Position of a file. There may be many, so nothing else is stored.
struct FileText {
    /// Offset in the old space of its first byte.
    start: u64,
    len: u64,
    nid: Nid,
}

impl OldSpace {
    /// Creates the old space of the image in `source`, of which the first `source_len` bytes count
    /// (a device may be longer), with the files `texts`. Up to `kept_len` bytes of decoded extents
    /// are cached, or a single longer one. The image's own cache would decode an extent twice
    /// before it keeps it, but pieces are parts of extents, and the next part is usually needed
    /// soon.
    pub(crate) fn new(
        source: Arc<dyn ReadAt>,
        source_len: u64,
        image: Image,
        texts: &[TextFile],
        kept_len: usize,
    ) -> Result<Self, DeltaError> {
        let mut start = source_len;
        let texts = texts.iter().map(|text| {
            let text = FileText { start, len: text.len, nid: Nid(text.nid) };
            start += text.len;
            text
        });
        let texts = texts.collect();
        let packed = image.superblock().packed_nid.map(|nid| image.inode(nid)).transpose();
        let packed = packed.map_err(DeltaError::image(Side::Old))?;
        Ok(Self { source, image, source_len, texts, packed, current: None, kept: ExtentCache::new(kept_len) })
    }

    /// Fills `buf` with the bytes at `pos`. Returns false if the range is not within the image or
    /// one file.
    pub(crate) fn read(&mut self, pos: u64, buf: &mut [u8]) -> Result<bool, DeltaError> {
        let len = buf.len() as u64;
        let Some(end) = pos.checked_add(len) else { return Ok(false) };
        if pos < self.source_len {
            if end > self.source_len {
                return Ok(false);
            }
            let failed = |source| DeltaError::ImageBytes { side: Side::Old, off: pos, len, source };
            return self.source.read_exact_at(buf, pos).map_err(failed).map(|()| true);
        }
        let idx = self.texts.partition_point(|text| text.start <= pos);
        let Some(idx) = idx.checked_sub(1).filter(|idx| end <= self.texts[*idx].start + self.texts[*idx].len) else {
            return Ok(false);
        };
        let off = pos - self.texts[idx].start;
        let inode = self.inode(idx)?;
        self.read_text(&inode, off, buf).map(|()| true)
    }

    /// Returns the inode of a file.
    fn inode(&mut self, idx: usize) -> Result<Inode, DeltaError> {
        if let Some((current, inode)) = self.current
            && current == idx
        {
            return Ok(inode);
        }
        let FileText { nid, len, .. } = self.texts[idx];
        let inode = self.image.inode(nid).map_err(DeltaError::image(Side::Old))?;
        if !inode.is_file() || inode.size() != len {
            let what = format!("inode {} is no file of {len} bytes", nid.0);
            return Err(DeltaError::WrongOld { what });
        }
        self.current = Some((idx, inode));
        Ok(inode)
    }

    /// Fills `buf` with contents of an inode.
    fn read_text(&mut self, inode: &Inode, off: u64, buf: &mut [u8]) -> Result<(), DeltaError> {
        let mut at = 0;
        while at < buf.len() {
            let off = off + at as u64;
            if let Some(text) = self.kept.get(inode.nid, off) {
                let len = text.len().min(buf.len() - at);
                buf[at..at + len].copy_from_slice(&text[..len]);
                at += len;
                continue;
            }
            let extent = self.image.extent_at(inode, off).map_err(DeltaError::image(Side::Old))?;
            let end = extent.end().min(inode.size());
            let left = end.saturating_sub(off);
            let part_len = left.min((buf.len() - at) as u64) as usize;
            if part_len == 0 || extent.la > off {
                return Err(ends_too_early(inode));
            }
            let part = &mut buf[at..at + part_len];
            match (extent.kind, self.packed) {
                (ExtentKind::Encoded { .. }, _) if end - extent.la <= KEPT_MAX_LEN => {
                    let mut bytes = self.kept.room((end - extent.la) as usize);
                    read_whole(&self.image, inode, &mut bytes, extent.la)?;
                    self.kept.keep(inode.nid, extent.la, bytes);
                    continue;
                }
                // Cache the extents of the packed inode, which other files use, too.
                (ExtentKind::Fragment { off: start }, Some(packed)) if packed.nid != inode.nid => {
                    self.read_text(&packed, start.saturating_add(off - extent.la), part)?;
                }
                _ => read_whole(&self.image, inode, part, off)?,
            }
            at += part_len;
        }
        Ok(())
    }
}

fn ends_too_early(inode: &Inode) -> DeltaError {
    DeltaError::WrongOld { what: format!("inode {} ends too early", inode.nid.0) }
}

fn read_whole(image: &Image, inode: &Inode, buf: &mut [u8], off: u64) -> Result<(), DeltaError> {
    match image.read_at(inode, buf, off) {
        Ok(len) if len == buf.len() => Ok(()),
        Ok(_) => Err(ends_too_early(inode)),
        Err(error) => Err(DeltaError::image(Side::Old)(error)),
    }
}

/// Least-recently-used cache of decoded extents.
struct ExtentCache {
    /// Extents by nid and offset in the file of their first byte.
    extents: BTreeMap<(u64, u64), CachedExtent>,
    /// Memory in bytes of all extents, and its limit.
    len: usize,
    max_len: usize,
    /// Number of uses so far.
    uses: u64,
    /// Buffer of an extent that was evicted.
    spare: Vec<u8>,
}

struct CachedExtent {
    bytes: Vec<u8>,
    used: u64,
}

impl ExtentCache {
    fn new(max_len: usize) -> Self {
        Self { extents: BTreeMap::new(), len: 0, max_len, uses: 0, spare: Vec::new() }
    }

    /// Returns the cached contents of an inode from byte `off` to the end of an extent.
    fn get(&mut self, nid: Nid, off: u64) -> Option<&[u8]> {
        let ((of, la), extent) = self.extents.range_mut(..=(nid.0, off)).next_back()?;
        if *of != nid.0 || off - la >= extent.bytes.len() as u64 {
            return None;
        }
        self.uses += 1;
        extent.used = self.uses;
        Some(&extent.bytes[(off - la) as usize..])
    }

    /// Returns a buffer for an extent of `len` bytes. Makes room by evicting the eighth of the
    /// extents that was not used for the longest time.
    fn room(&mut self, len: usize) -> Vec<u8> {
        while self.len + len > self.max_len && !self.extents.is_empty() {
            let mut uses: Vec<u64> = self.extents.values().map(|extent| extent.used).collect();
            let eighth = uses.len() / 8;
            let (_, &mut limit, _) = uses.select_nth_unstable(eighth);
            self.extents.retain(|_, extent| {
                let stays = extent.used > limit;
                if !stays {
                    self.len -= extent.bytes.capacity();
                    self.spare = std::mem::take(&mut extent.bytes);
                }
                stays
            });
        }
        let mut bytes = std::mem::take(&mut self.spare);
        if bytes.capacity() > 2 * len {
            bytes = Vec::new();
        }
        bytes.resize(len, 0);
        bytes
    }

    fn keep(&mut self, nid: Nid, la: u64, bytes: Vec<u8>) {
        self.uses += 1;
        self.len += bytes.capacity();
        let extent = CachedExtent { bytes, used: self.uses };
        if let Some(before) = self.extents.insert((nid.0, la), extent) {
            self.len -= before.bytes.capacity();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_used_extents_stay() {
        let (len, max_len) = (1 << 20, 20 << 20);
        let mut kept = ExtentCache::new(max_len);
        for la in 0..40 {
            let bytes = kept.room(len);
            assert_eq!(bytes.len(), len);
            kept.keep(Nid(7), la * len as u64, bytes);
            assert!(kept.get(Nid(7), 5).is_some(), "the first one is used again and again");
            assert!(kept.len <= max_len + len, "{la}");
        }
        let at = |off: u64| (Nid(7), off << 20);
        let mut is_kept = |(nid, off)| kept.get(nid, off).is_some();
        assert!(is_kept(at(39)) && is_kept(at(0)) && !is_kept(at(2)) && !is_kept(at(40)) && !is_kept((Nid(8), 5)));
        let rest = kept.get(Nid(7), (39 << 20) + 10).unwrap();
        assert_eq!(rest.len(), len - 10);
        // An extent longer than the limit is cached alone.
        let long = kept.room(max_len + 1);
        kept.keep(Nid(9), 0, long);
        assert_eq!(kept.extents.len(), 1);
    }
}
