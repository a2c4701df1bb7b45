//! From ranges of a file to bytes.
//!
//! Plain algorithm: look up the extent at the offset, read the wanted part of it, continue behind it. Bytes that are stored as they
//! are go from the device straight into the destination; encoded extents go through [`decode`](super::decode).

use crate::cache::access_pattern::AccessPattern;
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::inode_map::Map;
use crate::map::pcluster::{EncodedExtent, Pcluster};
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use crate::metadata::space::MetadataSpace;
use crate::read_policy::Readahead;
use kiln_format::inode::FileType;
use std::ops::Range;

/// The record's name for the bytes of a pcluster, in messages.
const PCLUSTER: &str = "pcluster";

/// Whether fragments may occur: not in the packed inode, which holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FragmentPolicy {
    Allowed,
    Refused,
}

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
        self.fill_by(&mut map, buf, off, FragmentPolicy::Allowed, pattern).map_err(|error| error.at_nid(inode.nid))
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

    /// [`Image::fill`] with the file's map and access pattern.
    pub(crate) fn fill_by(
        &self,
        map: &mut Map<'_>,
        buf: &mut [u8],
        off: u64,
        fragments: FragmentPolicy,
        pattern: AccessPattern,
    ) -> Result<(), ReadError> {
        let (mut buf, mut off) = (buf, off);
        let mut is_announced = self.core.policy.readahead == Readahead::System;
        while !buf.is_empty() {
            let mut extent = map.extent_at(off)?;
            let end = off + buf.len() as u64;
            if !is_announced && extent.end() < end {
                self.announce_pclusters(map, extent.end()..end)?;
                is_announced = true;
            }
            if extent.end() < end {
                join_raw(map, &mut extent, end)?;
            }
            let len = (extent.end() - off).min(buf.len() as u64) as usize;
            let (part, rest) = buf.split_at_mut(len);
            self.read_extent(&extent, part, off - extent.la, fragments, pattern)?;
            (buf, off) = (rest, off + len as u64);
        }
        Ok(())
    }

    /// Fill `buf` from byte `skip` of an extent on.
    pub(super) fn read_extent(
        &self,
        extent: &Extent,
        buf: &mut [u8],
        skip: u64,
        fragments: FragmentPolicy,
        pattern: AccessPattern,
    ) -> Result<(), ReadError> {
        match extent.kind {
            ExtentKind::Hole => buf.fill(0),
            ExtentKind::Raw { device, pa } => self.read_raw("data", device, pa, skip, buf)?,
            ExtentKind::Meta { pa, in_metabox } => {
                let space = if in_metabox { MetadataSpace::Metabox } else { MetadataSpace::Primary };
                self.read_meta("inline data", space, pa, skip, buf)?;
            }
            ExtentKind::Plain { device, pa, plen, interlaced: true, inline } => {
                self.read_interlaced(&Pcluster { device, inline, pa, plen }, extent.la, skip, buf)?;
            }
            ExtentKind::Plain { device, pa, plen, interlaced: false, inline } => {
                self.read_pcluster(&Pcluster { device, inline, pa, plen }, skip, buf)?;
            }
            ExtentKind::Encoded { .. } => self.read_encoded(&EncodedExtent::of(extent)?, buf, skip, pattern)?,
            ExtentKind::Fragment { off } => self.read_fragment(off, skip, buf, fragments)?,
        }
        Ok(())
    }

    fn read_raw(&self, record: &'static str, device: u16, pa: u64, skip: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let devices = &self.core.devices;
        let from = pa.saturating_add(skip);
        devices.check_range(record, device, from, buf.len() as u64)?;
        if self.core.policy.readahead == Readahead::System {
            return devices.read(device, buf, from);
        }
        let memory = self.core.state();
        if let Some(soon) = memory.readahead.step(device, from, buf.len() as u64) {
            devices.will_need(device, soon.start, soon.end - soon.start);
        }
        devices.read(device, buf, from)
    }

    fn read_meta(
        &self,
        record: &'static str,
        space: MetadataSpace,
        pa: u64,
        skip: u64,
        buf: &mut [u8],
    ) -> Result<(), ReadError> {
        MetadataReader::new(self, space).fill_contents(record, buf, pa.saturating_add(skip))
    }

    /// Fill `buf` with stored bytes from byte `skip` of a pcluster on.
    pub(super) fn read_pcluster(&self, pcluster: &Pcluster, skip: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        match pcluster.inline {
            Some(space) => self.read_meta(PCLUSTER, space, pcluster.pa, skip, buf),
            None => self.read_raw(PCLUSTER, pcluster.device, pcluster.pa, skip, buf),
        }
    }

    /// The bytes of a pcluster, where its source has them in memory.
    pub(super) fn borrow_pcluster(&self, pcluster: &Pcluster) -> Result<Option<&[u8]>, ReadError> {
        match pcluster.inline {
            Some(_) => Ok(None),
            None => self.borrow_raw(PCLUSTER, pcluster.device, pcluster.pa, 0, pcluster.plen as usize),
        }
    }

    /// `len` stored bytes from byte `skip` behind `pa` on, where their source has them in memory.
    pub(super) fn borrow_raw(
        &self,
        record: &'static str,
        device: u16,
        pa: u64,
        skip: u64,
        len: usize,
    ) -> Result<Option<&[u8]>, ReadError> {
        let devices = &self.core.devices;
        let from = pa.saturating_add(skip);
        devices.check_range(record, device, from, len as u64)?;
        Ok(devices.borrow(device, from, len))
    }

    /// Fill `buf` from byte `skip` of an extent in an interlaced pcluster on: its last bytes are the extent's first, up
    /// to the block boundary of the file; what follows starts at the front of the pcluster.
    fn read_interlaced(&self, pcluster: &Pcluster, la: u64, skip: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let block_bits = self.superblock().block_bits;
        let rotated = block_bits.len() - block_bits.within(la);
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
        if fragments == FragmentPolicy::Refused {
            return Err(fragment_error(off, "a fragment inside the packed inode"));
        }
        let from = off.saturating_add(skip);
        let packed = self.packed_range(from, buf.len() as u64)?;
        let (mut map, pattern) = self.map_for_read(packed, &(from..from + buf.len() as u64))?;
        self.fill_by(&mut map, buf, from, FragmentPolicy::Refused, pattern).map_err(|error| error.at_nid(packed.nid))
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

pub(crate) fn fragment_error(off: u64, reason: &'static str) -> ReadError {
    ReadError::corrupt("z_erofs_map_header", 0, "h_fragmentoff", off, reason)
}

/// Extend a raw extent by those that follow it in the file and on its device, up to byte `end` of the file: chunks are
/// often contiguous, and one large read is cheaper than many small ones.
fn join_raw(map: &mut Map<'_>, extent: &mut Extent, end: u64) -> Result<(), ReadError> {
    let ExtentKind::Raw { device, pa } = extent.kind else { return Ok(()) };
    while extent.end() < end {
        let next = map.extent_at(extent.end())?;
        let follows = ExtentKind::Raw { device, pa: pa.saturating_add(extent.llen) };
        if next.llen == 0 || next.kind != follows {
            break;
        }
        extent.llen += next.llen;
    }
    Ok(())
}
