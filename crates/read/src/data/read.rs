//! From ranges of a file to bytes.
//!
//! A read looks up the extent at its first byte. If that extent has all bytes that are wanted, it
//! is read alone: plain bytes go from the device straight into the destination, encoded extents go
//! through [`decode`](super::decode). Reads of several extents go through
//! [`gather`](super::gather), which fetches for all of them at once.

use super::file_read::FileRead;
use crate::cache::access_pattern::AccessPattern;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::{DataPart, DataPiece, PCLUSTER};
use crate::map::extent::Pcluster;
use crate::map::file_map::FileMap;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use crate::metadata::space::MetadataSpace;
use kiln_format::inode::FileType;
use std::ops::Range;

impl<'a> Reader<'a> {
    /// Implements `Image::read_at`.
    pub(crate) fn read_at(self, inode: &Inode, buf: &mut [u8], off: u64) -> Result<usize, ReadError> {
        let len = readable(inode, buf.len(), off)?;
        self.volume.counters.read(len);
        self.fill(inode, &mut buf[..len], off)?;
        Ok(len)
    }

    /// Fills `buf` with contents from byte `off` on; the range must be in the file.
    pub(crate) fn fill(self, inode: &Inode, buf: &mut [u8], off: u64) -> Result<(), ReadError> {
        if buf.is_empty() {
            return Ok(());
        }
        let (mut map, pattern) = self.map_for_read(inode, &(off..off + buf.len() as u64))?;
        self.fill_by(&mut map, buf, off, pattern).map_err(|error| error.at_nid(inode.nid))
    }

    /// Opens the map of `inode` for a read of bytes `wanted`. Returns it with the access pattern
    /// that this read is part of.
    pub(super) fn map_for_read(
        self,
        inode: &Inode,
        wanted: &Range<u64>,
    ) -> Result<(FileMap<'a>, AccessPattern), ReadError> {
        let mut map = FileMap::open(self, inode)?;
        let pattern = self.step_pattern(map.file(), wanted);
        Ok((map, pattern))
    }

    /// Fills `buf` from byte `off` on of the file that has this map.
    pub(crate) fn fill_by(
        self,
        map: &mut FileMap<'a>,
        buf: &mut [u8],
        off: u64,
        pattern: AccessPattern,
    ) -> Result<(), ReadError> {
        FileRead::new(self, map, off..off + buf.len() as u64, pattern).fill(buf)
    }

    /// Fills `buf` with a part of an extent, which is as long.
    pub(super) fn read_part(self, part: &DataPart, buf: &mut [u8], pattern: AccessPattern) -> Result<(), ReadError> {
        let mut rest = buf;
        for piece in part.pieces(self.volume.sb.block_bits)? {
            let (dst, behind) = rest.split_at_mut(piece.len() as usize);
            rest = behind;
            self.read_piece(piece, dst, pattern).map_err(|error| error.at_nid(part.nid))?;
        }
        Ok(())
    }

    fn read_piece(self, piece: DataPiece, dst: &mut [u8], pattern: AccessPattern) -> Result<(), ReadError> {
        match piece {
            DataPiece::Zeros { .. } => {
                dst.fill(0);
                Ok(())
            }
            DataPiece::Device { record, device, pa, .. } => self.read_raw(record, device, pa, dst),
            DataPiece::Metadata { record, space, pa, .. } => self.read_meta(record, space, pa, dst),
            DataPiece::Encoded { encoded, wanted } => self.read_encoded(&encoded, dst, wanted.start, pattern),
            DataPiece::Object { nid, off, .. } => self.read_object(nid, dst, off),
        }
    }

    fn read_raw(self, record: &'static str, device: u16, pa: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let devices = &self.volume.devices;
        devices.check_range(record, device, pa, buf.len() as u64)?;
        if self.read_staged(device, buf, pa) {
            return Ok(());
        }
        self.step_readahead(device, pa, buf.len() as u64);
        devices.read(device, buf, pa)
    }

    fn read_meta(self, record: &'static str, space: MetadataSpace, pa: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        MetadataReader::new(self, space).fill_contents(record, buf, pa)
    }

    /// Fills `buf` with stored bytes from byte `skip` of a pcluster on.
    pub(super) fn read_pcluster(self, pcluster: &Pcluster, skip: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let pa = pcluster.pa.saturating_add(skip);
        match pcluster.inline {
            Some(space) => self.read_meta(PCLUSTER, space, pa, buf),
            None => self.read_raw(PCLUSTER, pcluster.device, pa, buf),
        }
    }

    /// Returns the bytes of a pcluster if its source has them in memory.
    pub(super) fn borrow_pcluster(self, pcluster: &Pcluster) -> Result<Option<&'a [u8]>, ReadError> {
        match pcluster.inline {
            Some(_) => Ok(None),
            None => self.borrow_raw(PCLUSTER, pcluster.device, pcluster.pa, pcluster.plen as usize),
        }
    }

    /// Returns `len` stored bytes from byte `pa` of a device on if their source has them in memory.
    pub(super) fn borrow_raw(
        self,
        record: &'static str,
        device: u16,
        pa: u64,
        len: usize,
    ) -> Result<Option<&'a [u8]>, ReadError> {
        let devices = &self.volume.devices;
        devices.check_range(record, device, pa, len as u64)?;
        Ok(devices.borrow(device, pa, len))
    }
}

/// Returns the number of bytes, of `len` from `off` on, that the file has.
pub(crate) fn readable(inode: &Inode, len: usize, off: u64) -> Result<usize, ReadError> {
    if inode.meta.file_type == FileType::Directory {
        return Err(ReadError::IsADirectory { path: Vec::new() });
    }
    if !inode.has_contents() {
        return Err(ReadError::NoContents { nid: inode.nid });
    }
    Ok(inode.meta.size.saturating_sub(off).min(len as u64) as usize)
}
