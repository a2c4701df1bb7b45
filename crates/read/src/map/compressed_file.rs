//! Common part of lookups in lcluster indexes and in encoded extents: the inode, and the resolution
//! of an entry to an extent's kind.

use super::extent::ExtentKind;
use super::extent::Pcluster;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use crate::source::devices::PhysicalRange;
use kiln_format::BlockBits;
use kiln_format::compr_cfg::Algorithm;
use kiln_format::inode::DataLayout;
use kiln_format::zmap::{Advise, HeadKind, MapHeader};

pub(super) const HEADER: &str = "z_erofs_map_header";
pub(super) const INDEX: &str = "z_erofs_lcluster_index";

/// Reader of the index of a compressed file, for all kinds of maps.
pub(super) struct CompressedFile<'a> {
    pub reader: Reader<'a>,
    pub inode: Inode,
    /// Byte offset of the map header in the metadata space.
    pub header_off: u64,
    pub meta: MetadataReader<'a>,
}

/// An extent as an lcluster index gives it, before its kind is resolved.
pub(super) struct IndexEntry {
    pub la: u64,
    pub end: u64,
    /// End of the extent by the index alone: for the last extent, it may be behind the end of the
    /// file.
    pub end_mark: u64,
    pub kind: HeadKind,
    /// Block address; the high half of the offset for a fragment.
    pub blkaddr: u64,
    pub blocks: u32,
    pub partial: bool,
}

impl CompressedFile<'_> {
    pub(super) fn block_bits(&self) -> BlockBits {
        self.reader.superblock().block_bits
    }

    /// Resolves the place of an extent of an lcluster index. The index ends at byte `index_end` of
    /// the metadata space.
    pub(super) fn resolve(
        &self,
        header: &MapHeader,
        index_end: u64,
        found: &IndexEntry,
    ) -> Result<ExtentKind, ReadError> {
        let is_last = found.end == self.inode.meta.size;
        if is_last && header.advise.contains(Advise::FRAGMENT_PCLUSTER) {
            if found.kind == HeadKind::Plain {
                return Err(self.corrupt("di_advise", 0, "a fragment with the type of a plain extent"));
            }
            let high = if self.inode.meta.layout() == DataLayout::CompressedFull { found.blkaddr << 32 } else { 0 };
            return Ok(ExtentKind::Fragment { off: high | u64::from(header.fragment_off) });
        }
        let (device, pa, plen, inline) = match inline_len(header) {
            Some(len) if is_last => {
                let pa = index_end;
                if self.block_bits().within(pa) + u64::from(len) > self.block_bits().len() {
                    return Err(self.corrupt("h_idata_size", len.into(), "inline pcluster crosses a block"));
                }
                (0, pa, len.into(), Some(self.meta.space()))
            }
            _ => {
                let plen = u64::from(found.blocks) << self.block_bits().bits();
                let (device, pa) = self.stored_at(found.blkaddr << self.block_bits().bits(), plen)?;
                (device, pa, plen as u32, None)
            }
        };
        match self.algorithm(header, found.kind)? {
            None => {
                let interlaced = header.advise.contains(Advise::INTERLACED_PCLUSTER);
                // If no entry marks the end of the file, kernels expect the whole last lcluster in
                // the pcluster.
                let end = if inline.is_some() { found.end } else { found.end_mark };
                self.plain(end - found.la, Pcluster { device, inline, pa, plen }, interlaced)
            }
            Some(algorithm) => Ok(ExtentKind::Encoded { algorithm, device, pa, plen, partial: found.partial, inline }),
        }
    }

    /// Returns the device and address of `plen` bytes at `addr` of the flat space.
    pub(super) fn stored_at(&self, addr: u64, plen: u64) -> Result<(u16, u64), ReadError> {
        let PhysicalRange { device, pa, run } = self.reader.volume.devices.in_flat_space(addr);
        match run >= plen {
            true => Ok((device, pa)),
            false => Err(self.corrupt("blkaddr", addr, "pcluster crosses a border of devices")),
        }
    }

    /// Returns the kind of an extent of `llen` bytes that are stored plain in a pcluster.
    pub(super) fn plain(&self, llen: u64, pcluster: Pcluster, interlaced: bool) -> Result<ExtentKind, ReadError> {
        let Pcluster { device, inline, pa, plen } = pcluster;
        if llen > plen.into() {
            return Err(self.corrupt("plen", plen.into(), "plain extent longer than its pcluster"));
        }
        if interlaced && inline.is_some() {
            // Kernels read wrong bytes here without an error.
            return Err(self.corrupt("h_advise", pa, "inline plain pcluster of an interlaced file"));
        }
        Ok(ExtentKind::Plain { device, pa, plen, interlaced, inline })
    }

    fn algorithm(&self, header: &MapHeader, kind: HeadKind) -> Result<Option<Algorithm>, ReadError> {
        let number = match kind {
            HeadKind::Plain => return Ok(None),
            HeadKind::Head1 => header.algorithms[0],
            HeadKind::Head2 => header.algorithms[1],
        };
        let unknown =
            || ReadError::unsupported(HEADER, self.header_off, "h_algorithmtype", number.into(), "unknown algorithm");
        self.announced(Algorithm::from_number(number).ok_or_else(unknown)?).map(Some)
    }

    /// Returns the algorithm, if the superblock allows it.
    pub(super) fn announced(&self, algorithm: Algorithm) -> Result<Algorithm, ReadError> {
        match self.reader.volume.cfgs.has(algorithm) {
            true => Ok(algorithm),
            false => {
                let reason = "algorithm that the superblock does not announce";
                Err(ReadError::corrupt(HEADER, self.header_off, "h_algorithmtype", algorithm as u64, reason))
            }
        }
    }

    pub(super) fn corrupt(&self, field: &'static str, value: u64, reason: &'static str) -> ReadError {
        ReadError::corrupt(INDEX, self.header_off, field, value, reason)
    }
}

/// Returns the length of the inline pcluster in bytes, if the file has one.
pub(super) fn inline_len(header: &MapHeader) -> Option<u16> {
    let fragment = header.advise.contains(Advise::FRAGMENT_PCLUSTER);
    let inline = header.advise.contains(Advise::INLINE_PCLUSTER);
    (inline && !fragment && header.idata_len != 0).then_some(header.idata_len)
}
