//! Parts of a file one behind the other, with fragments resolved: the one iterator that tells where
//! bytes lie.

use super::data_part::DataPart;
use super::extent::{Extent, ExtentKind};
use super::extents::extent_over;
use super::inode_map::Map;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::metadata::inode::Inode;
use std::iter::FusedIterator;
use std::ops::Range;

/// Maps of a file and of the packed inode, which holds its fragments.
pub(crate) struct FileMap<'a> {
    reader: Reader<'a>,
    file: Map<'a>,
    /// Opened for the first fragment and kept for the next ones: there may be many, and each may be
    /// small.
    packed: Option<Map<'a>>,
    /// Extent of the file that was looked up last.
    listed: Option<Extent>,
}

impl<'a> FileMap<'a> {
    pub(crate) fn open(reader: Reader<'a>, inode: &Inode) -> Result<Self, ReadError> {
        Ok(Self { reader, file: Map::open(reader, inode)?, packed: None, listed: None })
    }

    /// Opens the map of another file in place of the one in `slot`, if any, and keeps that of the
    /// packed inode.
    pub(crate) fn open_in<'s>(
        slot: &'s mut Option<Self>,
        reader: Reader<'a>,
        inode: &Inode,
    ) -> Result<&'s mut Self, ReadError> {
        let file = Map::open(reader, inode)?;
        let packed = slot.take().and_then(|map| map.packed);
        Ok(slot.insert(Self { reader, file, packed, listed: None }))
    }

    /// Returns the map of the file itself.
    pub(crate) fn file(&mut self) -> &mut Map<'a> {
        &mut self.file
    }

    /// Returns the map of the packed inode, if it is open.
    pub(crate) fn packed(&self) -> Option<&Map<'a>> {
        self.packed.as_ref()
    }

    /// Returns the extent of the file that was looked up last, which may be a fragment.
    pub(crate) fn listed(&self) -> Option<&Extent> {
        self.listed.as_ref()
    }

    /// Returns the parts of bytes `range` of the file, which must have them.
    pub(crate) fn parts(&mut self, range: Range<u64>) -> DataParts<'_, 'a> {
        DataParts { map: self, left: range }
    }

    /// Returns the part of `wanted` that begins it; the range must not be empty.
    fn part_at(&mut self, wanted: &Range<u64>) -> Result<DataPart, ReadError> {
        let off = wanted.start;
        let listed = match self.listed.filter(|listed| (listed.la..listed.end()).contains(&off)) {
            Some(listed) => listed,
            None => extent_over(&mut self.file, off)?,
        };
        self.listed = Some(listed);
        let end = listed.end().min(wanted.end);
        let ExtentKind::Fragment { off: start } = listed.kind else {
            return Ok(DataPart { extent: listed, wanted: off..end, nid: self.file.nid(), is_fragment: false });
        };
        let (from, len) = (start.saturating_add(off - listed.la), end - off);
        let packed = self.reader.packed_range(from, len)?;
        if packed.nid == self.file.nid() {
            return Err(fragment_error(from, "a fragment inside the packed inode"));
        }
        let map = match self.packed.take() {
            Some(map) => map,
            None => Map::open(self.reader, packed)?,
        };
        let extent = extent_over(self.packed.insert(map), from)?;
        match extent.kind {
            ExtentKind::Fragment { .. } => Err(fragment_error(from, "a fragment inside the packed inode")),
            _ => {
                let wanted = from..extent.end().min(from + len);
                Ok(DataPart { extent, wanted, nid: packed.nid, is_fragment: true })
            }
        }
    }

    /// Extends a raw part by the extents that follow it in the file and on its device, up to byte
    /// `end` of its inode: chunks are often contiguous, and one large read is cheaper than many
    /// small ones.
    fn join_raw(&mut self, part: &mut DataPart, end: u64) -> Result<(), ReadError> {
        let ExtentKind::Raw { device, pa } = part.extent.kind else { return Ok(()) };
        while part.wanted.end < end {
            let map = if part.is_fragment { self.packed.as_mut() } else { Some(&mut self.file) };
            let Some(map) = map else { return Ok(()) };
            let next = map.extent_at(part.extent.end())?;
            let follows = ExtentKind::Raw { device, pa: pa.saturating_add(part.extent.llen) };
            if next.llen == 0 || next.kind != follows {
                if !part.is_fragment {
                    self.listed = Some(next);
                }
                break;
            }
            part.extent.llen += next.llen;
            part.wanted.end = part.extent.end().min(end);
        }
        Ok(())
    }
}

/// Iterator over the parts of a range of a file. An error ends it.
pub(crate) struct DataParts<'m, 'a> {
    map: &'m mut FileMap<'a>,
    left: Range<u64>,
}

impl<'a> DataParts<'_, 'a> {
    /// Returns the map that the parts are looked up in.
    pub(crate) fn file_map(&mut self) -> &mut FileMap<'a> {
        self.map
    }

    /// Returns the bytes of the file that are left.
    pub(crate) fn left(&self) -> Range<u64> {
        self.left.clone()
    }

    /// Returns the next part, joined with those that follow it on its device.
    pub(crate) fn next_joined(&mut self) -> Option<Result<DataPart, ReadError>> {
        let left = self.left.clone();
        self.next_part(|map, part| {
            // In a fragment, no further than its end.
            let fragment = map.listed.filter(|_| part.is_fragment).map_or(u64::MAX, |listed| listed.end());
            let len = fragment.min(left.end) - left.start;
            map.join_raw(part, part.wanted.start.saturating_add(len))
        })
    }

    fn next_part(
        &mut self,
        change: impl FnOnce(&mut FileMap<'a>, &mut DataPart) -> Result<(), ReadError>,
    ) -> Option<Result<DataPart, ReadError>> {
        if self.left.is_empty() {
            return None;
        }
        let part = self.map.part_at(&self.left).and_then(|mut part| change(self.map, &mut part).map(|()| part));
        self.left.start = part.as_ref().map_or(self.left.end, |part| self.left.start + part.len());
        Some(part)
    }
}

impl Iterator for DataParts<'_, '_> {
    type Item = Result<DataPart, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_part(|_, _| Ok(()))
    }
}

impl FusedIterator for DataParts<'_, '_> {}

impl<'a> Reader<'a> {
    /// Returns the packed inode, which must hold `len` bytes from `off` on.
    pub(crate) fn packed_range(self, off: u64, len: u64) -> Result<&'a Inode, ReadError> {
        let packed = self.special.packed.as_ref();
        let packed = packed.ok_or_else(|| fragment_error(off, "a fragment without a packed inode"))?;
        match off.checked_add(len) {
            Some(end) if end <= packed.meta.size => Ok(packed),
            _ => Err(fragment_error(off, "a fragment behind the end of the packed inode")),
        }
    }
}

pub(crate) fn fragment_error(off: u64, reason: &'static str) -> ReadError {
    ReadError::corrupt("z_erofs_map_header", 0, "h_fragmentoff", off, reason)
}
