//! What a part of an extent costs: blocks to fetch, bytes to decode.

use super::range_set::RangeSet;
use crate::cache::admission::Access;
use crate::data::plan::DecodeMode;
use crate::data::read::{FragmentPolicy, fragment_error};
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::extents::extent_over;
use crate::map::inode_map::Map;
use crate::map::pcluster::{EncodedExtent, Pcluster};
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use crate::metadata::space::MetadataSpace;
use kiln_format::addr::align_up;
use std::ops::Range;

/// What a read costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Pieces, each from one extent.
    pub pieces: u64,
    /// Bytes that the reader gets.
    pub wanted: u64,
    /// Bytes in whole blocks that hold the stored data, each block once. Data beside an inode is part of this; for an
    /// inode in the metabox, that is the blocks of the metabox's own extents.
    pub fetched: u64,
    /// Bytes that come out of decoders, wanted or not.
    pub decoded: u64,
    /// Those of the wanted bytes that are stored encoded.
    pub wanted_encoded: u64,
    /// Bytes of inodes and of index entries that describe the extents; without those of a metabox, and without what a
    /// bisection looks at on its way. Readers fetch metadata in larger units, and mostly have it in memory.
    pub metadata: u64,
}

impl Cost {
    /// Bytes fetched for each byte wanted; `None` where none is wanted.
    pub fn fetch_amplification(&self) -> Option<f64> {
        self.per_wanted(self.fetched)
    }

    /// Bytes decoded for each byte wanted; `None` where none is wanted.
    pub fn decode_amplification(&self) -> Option<f64> {
        self.per_wanted(self.decoded)
    }

    /// Bytes that are decoded and that nobody wants.
    pub fn wasted(&self) -> u64 {
        self.decoded.saturating_sub(self.wanted_encoded)
    }

    fn per_wanted(&self, bytes: u64) -> Option<f64> {
        (self.wanted > 0).then(|| bytes as f64 / self.wanted as f64)
    }
}

/// How stored bytes become wanted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoding {
    /// A hole: there are no stored bytes.
    Zeros,
    /// Copied from where they are.
    Copy,
    /// Copied out of a plain pcluster.
    Plain,
    /// The whole extent is decoded.
    Whole,
    /// The front of the extent is decoded.
    Prefix {
        /// Its length in bytes.
        len: u64,
    },
    /// An earlier piece of the same read has decoded the extent.
    Cached,
}

impl Decoding {
    /// The first bytes of an extent, or all of them.
    pub(super) fn of(decoded: u64, extent: &Extent) -> Self {
        if decoded == extent.llen { Decoding::Whole } else { Decoding::Prefix { len: decoded } }
    }
}

/// How bytes `part` of an extent are decoded, and how many bytes are for them; `None` if it is not encoded.
pub(super) fn way(
    image: &Image,
    extent: &Extent,
    part: &Range<u64>,
    access: Access,
) -> Result<Option<(DecodeMode, u64)>, ReadError> {
    if !matches!(extent.kind, ExtentKind::Encoded { .. }) {
        return Ok(None);
    }
    let stored = EncodedExtent::of(extent)?;
    let wanted = part.start - extent.la..part.end - extent.la;
    let way = DecodeMode::of(&stored, image.fits_cache(&stored), &wanted, access);
    Ok(Some((way, way.decoded_len(&stored, wanted.end))))
}

/// The cost of one piece.
pub(crate) struct Charge {
    pub fetched: u64,
    pub decoded: u64,
    pub decoding: Decoding,
}

/// Counts what reads fetch, each block once.
pub(crate) struct CostMeter<'a> {
    image: &'a Image,
    blocks: RangeSet,
    metadata_unit: u64,
}

impl<'a> CostMeter<'a> {
    /// Data counts in whole blocks; metadata, which files share blocks of, in units of so many bytes.
    pub(crate) fn new(image: &'a Image, metadata_unit: u64) -> Self {
        Self { image, blocks: RangeSet::default(), metadata_unit }
    }

    /// The cost of bytes `part` of the file from this extent of it, which holds them.
    pub(crate) fn charge(
        &mut self,
        extent: &Extent,
        part: Range<u64>,
        fragments: FragmentPolicy,
    ) -> Result<Charge, ReadError> {
        let (skip, len) = (part.start - extent.la, part.end - part.start);
        match extent.kind {
            ExtentKind::Hole => Ok(charge(0, Decoding::Zeros)),
            ExtentKind::Raw { device, pa } => {
                let fetched = self.fetch("data", device, pa.saturating_add(skip), len, self.block_len())?;
                Ok(charge(fetched, Decoding::Copy))
            }
            ExtentKind::Meta { pa, in_metabox } => {
                let space = if in_metabox { MetadataSpace::Metabox } else { MetadataSpace::Primary };
                self.fetch_metadata(space, pa.saturating_add(skip), len, Decoding::Copy)
            }
            ExtentKind::Plain { device, pa, plen, interlaced, inline } => {
                let pcluster = Pcluster { device, inline, pa, plen };
                match interlaced {
                    false => self.fetch_pcluster(&pcluster, skip, len, Decoding::Plain),
                    true => self.fetch_interlaced(&pcluster, extent.la, skip, len),
                }
            }
            ExtentKind::Encoded { device, pa, plen, inline, .. } => {
                let decoded = way(self.image, extent, &part, Access::First)?.map_or(0, |(_, decoded)| decoded);
                let decoding = Decoding::of(decoded, extent);
                let pcluster = Pcluster { device, inline, pa, plen };
                let mut charge = self.fetch_pcluster(&pcluster, 0, plen.into(), decoding)?;
                charge.decoded += decoded;
                Ok(charge)
            }
            ExtentKind::Fragment { off } if fragments == FragmentPolicy::Refused => {
                Err(fragment_error(off, "a fragment inside the packed inode"))
            }
            ExtentKind::Fragment { off } => {
                let from = off.saturating_add(skip);
                let packed = self.image.packed_range(from, len)?;
                self.charge_range(packed, from..from + len, Decoding::Copy, FragmentPolicy::Refused)
            }
        }
    }

    /// The cost of `len` bytes at `pa` of a metadata space: of themselves, or of the metabox's own extents.
    pub(crate) fn fetch_metadata(
        &mut self,
        space: MetadataSpace,
        pa: u64,
        len: u64,
        decoding: Decoding,
    ) -> Result<Charge, ReadError> {
        MetadataReader::new(self.image, space).check_range("inline data", pa, len)?;
        match (space, &self.image.core.metabox) {
            (MetadataSpace::Metabox, Some(metabox)) => {
                self.charge_range(metabox, pa..pa + len, decoding, FragmentPolicy::Allowed)
            }
            _ => Ok(charge(self.fetch("inline data", 0, pa, len, self.metadata_unit)?, decoding)),
        }
    }

    /// The cost of a range of a special inode.
    fn charge_range(
        &mut self,
        inode: &Inode,
        range: Range<u64>,
        decoding: Decoding,
        fragments: FragmentPolicy,
    ) -> Result<Charge, ReadError> {
        let mut map = Map::open(self.image, inode)?;
        let mut sum = charge(0, decoding);
        let mut off = range.start;
        while off < range.end {
            let extent = extent_over(&mut map, inode, off)?;
            let end = extent.end().min(range.end);
            let part = self.charge(&extent, off..end, fragments)?;
            sum.fetched += part.fetched;
            sum.decoded += part.decoded;
            off = end;
        }
        Ok(sum)
    }

    fn fetch_pcluster(
        &mut self,
        pcluster: &Pcluster,
        skip: u64,
        len: u64,
        decoding: Decoding,
    ) -> Result<Charge, ReadError> {
        let pa = pcluster.pa.saturating_add(skip);
        match pcluster.inline {
            Some(space) => self.fetch_metadata(space, pa, len, decoding),
            None => Ok(charge(self.fetch("pcluster", pcluster.device, pa, len, self.block_len())?, decoding)),
        }
    }

    /// The same rotation as that of `Image::read_interlaced`.
    fn fetch_interlaced(&mut self, pcluster: &Pcluster, la: u64, skip: u64, len: u64) -> Result<Charge, ReadError> {
        let block_bits = self.image.superblock().block_bits;
        let rotated = block_bits.len() - block_bits.within(la);
        let first = rotated.saturating_sub(skip).min(len);
        let mut sum = charge(0, Decoding::Plain);
        if first > 0 {
            let skip = u64::from(pcluster.plen) - rotated + skip;
            sum.fetched += self.fetch_pcluster(pcluster, skip, first, Decoding::Plain)?.fetched;
        }
        if first < len {
            let skip = skip + first - rotated;
            sum.fetched += self.fetch_pcluster(pcluster, skip, len - first, Decoding::Plain)?.fetched;
        }
        Ok(sum)
    }

    /// The units that hold bytes of a device. Returns the length of those that are new.
    fn fetch(&mut self, record: &'static str, device: u16, pa: u64, len: u64, unit: u64) -> Result<u64, ReadError> {
        self.image.core.devices.check_place(record, device, pa, len)?;
        let end = align_up(pa + len, unit).unwrap_or(u64::MAX);
        Ok(self.blocks.add(device, pa - pa % unit..end))
    }

    fn block_len(&self) -> u64 {
        self.image.superblock().block_bits.len()
    }
}

fn charge(fetched: u64, decoding: Decoding) -> Charge {
    Charge { fetched, decoded: 0, decoding }
}
