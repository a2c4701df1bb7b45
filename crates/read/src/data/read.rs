//! From ranges of a file to bytes.
//!
//! Plain algorithm: look up the extent at the offset. If it has all bytes that are wanted, read them: bytes that are stored as they are go
//! from the device straight into the destination; encoded extents go through [`decode`](super::decode). Reads of several extents go
//! through [`gather`](super::gather), which fetches for all of them at once.

use super::gather::Gather;
use super::pieces::{
    FileAccess, FileRead, FragmentPolicy, PCLUSTER, fragment_error, fragment_off, join_raw, rotated_len,
};
use crate::cache::access_pattern::AccessPattern;
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::inode_map::Map;
use crate::map::pcluster::{EncodedExtent, Pcluster};
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use crate::metadata::space::MetadataSpace;
use kiln_format::inode::FileType;
use std::ops::Range;

impl Image {
    /// Read contents from byte `off` on into `buf`. Returns how many bytes: fewer than `buf` has only at the end of the
    /// file.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use kiln_read::FollowLast;
    ///
    /// let text = image.resolve(b"/big/text", FollowLast::Follow)?;
    /// let mut page = [0; 4096];
    /// let len = image.read_at(&text, &mut page, 8192)?;
    /// assert_eq!(len, 4096);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A directory, a file type without contents, a damaged image, a failing source. The bytes of `buf` are then unspecified.
    pub fn read_at(&self, inode: &Inode, buf: &mut [u8], off: u64) -> Result<usize, ReadError> {
        let len = readable(inode, buf.len(), off)?;
        self.core.counters.read(len);
        self.fill(inode, &mut buf[..len], off)?;
        Ok(len)
    }

    /// Fill `buf` with contents from byte `off` on; the range must be in the file.
    pub(crate) fn fill(&self, inode: &Inode, buf: &mut [u8], off: u64) -> Result<(), ReadError> {
        if buf.is_empty() {
            return Ok(());
        }
        let wanted = off..off + buf.len() as u64;
        let (mut map, pattern) = self.map_for_read(inode, &wanted)?;
        let access = FileAccess { fragments: FragmentPolicy::Allowed, pattern };
        self.fill_by(&mut map, buf, off, access).map_err(|error| error.at_nid(inode.nid))
    }

    /// The map of `inode` for a read of bytes `wanted`, and the access pattern that this read is part of. A file that does not fit
    /// into the cache counts as read sequentially: its extents leave the cache before a random read comes back to them.
    pub(super) fn map_for_read(
        &self,
        inode: &Inode,
        wanted: &Range<u64>,
    ) -> Result<(Map<'_>, AccessPattern), ReadError> {
        let (map, size, memory) = (Map::open(self, inode)?, inode.meta.size, self.core.state());
        let pattern = match map.is_compressed() && size <= memory.decoded.capacity() {
            true => memory.access_patterns.step(inode.nid.0, wanted, size),
            false => AccessPattern::default(),
        };
        Ok((map, pattern))
    }

    /// [`Image::fill`] with the file's map.
    pub(crate) fn fill_by(
        &self,
        map: &mut Map<'_>,
        buf: &mut [u8],
        off: u64,
        access: FileAccess,
    ) -> Result<(), ReadError> {
        if buf.is_empty() {
            return Ok(());
        }
        let end = off + buf.len() as u64;
        let mut extent = map.extent_at(off)?;
        join_raw(map, &mut extent, end)?;
        if extent.end() >= end {
            return self.read_extent(&extent, buf, off - extent.la, access);
        }
        let mut gather = Gather::new(self);
        let added = gather.add_range(FileRead { map, first: extent, access }, buf, off);
        gather.finish()?;
        added
    }

    /// Fill `buf` from byte `skip` of an extent on.
    pub(super) fn read_extent(
        &self,
        extent: &Extent,
        buf: &mut [u8],
        skip: u64,
        access: FileAccess,
    ) -> Result<(), ReadError> {
        match extent.kind {
            ExtentKind::Hole => buf.fill(0),
            ExtentKind::Raw { device, pa } => self.read_raw("data", device, pa.saturating_add(skip), buf)?,
            ExtentKind::Meta { pa, in_metabox } => {
                let space = if in_metabox { MetadataSpace::Metabox } else { MetadataSpace::Primary };
                self.read_meta("inline data", space, pa.saturating_add(skip), buf)?;
            }
            ExtentKind::Plain { device, pa, plen, interlaced: true, inline } => {
                self.read_interlaced(&Pcluster { device, inline, pa, plen }, extent.la, skip, buf)?;
            }
            ExtentKind::Plain { device, pa, plen, interlaced: false, inline } => {
                self.read_pcluster(&Pcluster { device, inline, pa, plen }, skip, buf)?;
            }
            ExtentKind::Encoded { .. } => self.read_encoded(&EncodedExtent::of(extent)?, buf, skip, access.pattern)?,
            ExtentKind::Fragment { off } => self.read_fragment(off, skip, buf, access.fragments)?,
        }
        Ok(())
    }

    fn read_raw(&self, record: &'static str, device: u16, pa: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let devices = &self.core.devices;
        devices.check_range(record, device, pa, buf.len() as u64)?;
        if self.read_staged(device, buf, pa) {
            return Ok(());
        }
        self.step_readahead(device, pa, buf.len() as u64);
        devices.read(device, buf, pa)
    }

    fn read_meta(&self, record: &'static str, space: MetadataSpace, pa: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        MetadataReader::new(self, space).fill_contents(record, buf, pa)
    }

    /// Fill `buf` with stored bytes from byte `skip` of a pcluster on.
    pub(super) fn read_pcluster(&self, pcluster: &Pcluster, skip: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let pa = pcluster.pa.saturating_add(skip);
        match pcluster.inline {
            Some(space) => self.read_meta(PCLUSTER, space, pa, buf),
            None => self.read_raw(PCLUSTER, pcluster.device, pa, buf),
        }
    }

    /// The bytes of a pcluster, where its source has them in memory.
    pub(super) fn borrow_pcluster(&self, pcluster: &Pcluster) -> Result<Option<&[u8]>, ReadError> {
        match pcluster.inline {
            Some(_) => Ok(None),
            None => self.borrow_raw(PCLUSTER, pcluster.device, pcluster.pa, pcluster.plen as usize),
        }
    }

    /// `len` stored bytes from byte `pa` of a device on, where their source has them in memory.
    pub(super) fn borrow_raw(
        &self,
        record: &'static str,
        device: u16,
        pa: u64,
        len: usize,
    ) -> Result<Option<&[u8]>, ReadError> {
        let devices = &self.core.devices;
        devices.check_range(record, device, pa, len as u64)?;
        Ok(devices.borrow(device, pa, len))
    }

    /// Fill `buf` from byte `skip` of an extent in an interlaced pcluster on: its last bytes are the extent's first, up
    /// to the block boundary of the file; what follows starts at the front of the pcluster.
    fn read_interlaced(&self, pcluster: &Pcluster, la: u64, skip: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let rotated = rotated_len(self, la);
        let in_rotated = rotated.saturating_sub(skip).min(buf.len() as u64) as usize;
        let (first, rest) = buf.split_at_mut(in_rotated);
        if !first.is_empty() {
            self.read_pcluster(pcluster, u64::from(pcluster.plen) - rotated + skip, first)?;
        }
        if !rest.is_empty() {
            self.read_pcluster(pcluster, (skip + in_rotated as u64) - rotated, rest)?;
        }
        Ok(())
    }

    fn read_fragment(&self, off: u64, skip: u64, buf: &mut [u8], fragments: FragmentPolicy) -> Result<(), ReadError> {
        let from = fragment_off(off, skip, fragments)?;
        let packed = self.packed_range(from, buf.len() as u64)?;
        let (mut map, pattern) = self.map_for_read(packed, &(from..from + buf.len() as u64))?;
        let access = FileAccess { fragments: FragmentPolicy::Refused, pattern };
        self.fill_by(&mut map, buf, from, access).map_err(|error| error.at_nid(packed.nid))
    }

    /// The packed inode, which must hold the range.
    pub(crate) fn packed_range(&self, off: u64, len: u64) -> Result<&Inode, ReadError> {
        let packed =
            self.core.packed.as_ref().ok_or_else(|| fragment_error(off, "a fragment without a packed inode"))?;
        match off.checked_add(len) {
            Some(end) if end <= packed.meta.size => Ok(packed),
            _ => Err(fragment_error(off, "a fragment behind the end of the packed inode")),
        }
    }
}

/// How many of `len` bytes from `off` on the file has.
pub(crate) fn readable(inode: &Inode, len: usize, off: u64) -> Result<usize, ReadError> {
    if inode.meta.file_type == FileType::Directory {
        return Err(ReadError::IsADirectory { path: Vec::new() });
    }
    if !inode.has_contents() {
        return Err(ReadError::NoContents { nid: inode.nid });
    }
    Ok(inode.meta.size.saturating_sub(off).min(len as u64) as usize)
}
