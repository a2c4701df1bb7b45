//! What a part of an extent costs: blocks to fetch, bytes to decode.

use super::cold_history::ColdHistory;
use super::range_set::RangeSet;
use crate::data::pieces::{FragmentPolicy, fragment_error};
use crate::data::plan::DecodePlan;
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
#[non_exhaustive]
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

    /// Bytes that are decoded and not wanted.
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

/// The cost of one piece.
pub(crate) struct Charge {
    /// Bytes of blocks that no earlier piece has fetched.
    pub(crate) fetched: u64,
    /// Bytes that are decoded to get at the stored bytes of an extent, which may lie in a compressed metabox.
    pub(crate) decoded: u64,
}

/// Counts what reads fetch, each block once.
pub(crate) struct CostMeter<'a> {
    image: &'a Image,
    blocks: RangeSet,
    metadata_unit: u64,
}

impl<'a> CostMeter<'a> {
    /// Data counts in whole blocks. Files share blocks of metadata, so metadata counts in units of `metadata_unit` bytes.
    pub(crate) fn new(image: &'a Image, metadata_unit: u64) -> Self {
        Self { image, blocks: RangeSet::default(), metadata_unit }
    }

    /// The cost of getting at the stored bytes for bytes `part` of the file, which this extent of it holds. What decoding an encoded
    /// extent itself costs is not part of it.
    pub(crate) fn charge(
        &mut self,
        extent: &Extent,
        part: Range<u64>,
        fragments: FragmentPolicy,
    ) -> Result<Charge, ReadError> {
        let (skip, len) = (part.start - extent.la, part.end - part.start);
        match extent.kind {
            ExtentKind::Hole => Ok(charge(0)),
            ExtentKind::Raw { device, pa } => {
                let fetched = self.fetch("data", device, (pa.saturating_add(skip), len), self.block_len())?;
                Ok(charge(fetched))
            }
            ExtentKind::Meta { pa, in_metabox } => {
                let space = if in_metabox { MetadataSpace::Metabox } else { MetadataSpace::Primary };
                self.fetch_metadata(space, pa.saturating_add(skip), len)
            }
            ExtentKind::Plain { device, pa, plen, interlaced, inline } => {
                let pcluster = Pcluster { device, inline, pa, plen };
                match interlaced {
                    false => self.fetch_pcluster(&pcluster, skip, len),
                    true => self.fetch_interlaced(&pcluster, extent.la, skip, len),
                }
            }
            ExtentKind::Encoded { plen, .. } => {
                self.fetch_pcluster(&EncodedExtent::of(extent)?.pcluster, 0, plen.into())
            }
            ExtentKind::Fragment { off } if fragments == FragmentPolicy::Refused => {
                Err(fragment_error(off, "a fragment inside the packed inode"))
            }
            ExtentKind::Fragment { off } => {
                let from = off.saturating_add(skip);
                let packed = self.image.packed_range(from, len)?;
                self.charge_range(packed, from..from + len, FragmentPolicy::Refused)
            }
        }
    }

    /// The cost of `len` bytes at `pa` of a metadata space: of themselves, or of the metabox's own extents.
    pub(crate) fn fetch_metadata(&mut self, space: MetadataSpace, pa: u64, len: u64) -> Result<Charge, ReadError> {
        MetadataReader::new(self.image, space).check_range("inline data", pa, len)?;
        match (space, &self.image.core.metabox) {
            (MetadataSpace::Metabox, Some(metabox)) => {
                self.charge_range(metabox, pa..pa + len, FragmentPolicy::Allowed)
            }
            _ => Ok(charge(self.fetch("inline data", 0, (pa, len), self.metadata_unit)?)),
        }
    }

    /// The cost of a range of a special inode.
    fn charge_range(
        &mut self,
        inode: &Inode,
        range: Range<u64>,
        fragments: FragmentPolicy,
    ) -> Result<Charge, ReadError> {
        let mut map = Map::open(self.image, inode)?;
        let mut sum = charge(0);
        let mut off = range.start;
        while off < range.end {
            let extent = extent_over(&mut map, inode, off)?;
            let end = extent.end().min(range.end);
            let part = self.charge(&extent, off..end, fragments)?;
            sum.fetched += part.fetched;
            sum.decoded += part.decoded + self.decoded_alone(&extent, off..end)?;
            off = end;
        }
        Ok(sum)
    }

    /// Bytes that are decoded for bytes `part` of an extent by a read that wants nothing else.
    fn decoded_alone(&self, extent: &Extent, part: Range<u64>) -> Result<u64, ReadError> {
        if !matches!(extent.kind, ExtentKind::Encoded { .. }) {
            return Ok(0);
        }
        let encoded = EncodedExtent::of(extent)?;
        let wanted = part.start - extent.la..part.end - extent.la;
        match ColdHistory::new(self.image).plan(&encoded, &wanted) {
            DecodePlan::Copy(()) => Ok(0),
            DecodePlan::Decode { target, .. } => Ok(target.decoded_len(&encoded, wanted.end)),
        }
    }

    fn fetch_pcluster(&mut self, pcluster: &Pcluster, skip: u64, len: u64) -> Result<Charge, ReadError> {
        let pa = pcluster.pa.saturating_add(skip);
        match pcluster.inline {
            Some(space) => self.fetch_metadata(space, pa, len),
            None => Ok(charge(self.fetch("pcluster", pcluster.device, (pa, len), self.block_len())?)),
        }
    }

    /// The same rotation as that of `Image::read_interlaced`.
    fn fetch_interlaced(&mut self, pcluster: &Pcluster, la: u64, skip: u64, len: u64) -> Result<Charge, ReadError> {
        let block_bits = self.image.superblock().block_bits;
        let rotated = block_bits.len() - block_bits.within(la);
        let first = rotated.saturating_sub(skip).min(len);
        let mut sum = charge(0);
        if first > 0 {
            let skip = u64::from(pcluster.plen) - rotated + skip;
            sum.fetched += self.fetch_pcluster(pcluster, skip, first)?.fetched;
        }
        if first < len {
            let skip = skip + first - rotated;
            sum.fetched += self.fetch_pcluster(pcluster, skip, len - first)?.fetched;
        }
        Ok(sum)
    }

    /// The units of `unit` bytes that hold the `len` bytes of a device from byte `pa` on. Returns the length of those that are new.
    fn fetch(&mut self, record: &'static str, device: u16, (pa, len): (u64, u64), unit: u64) -> Result<u64, ReadError> {
        self.image.core.devices.check_place(record, device, pa, len)?;
        let end = align_up(pa + len, unit).unwrap_or(u64::MAX);
        Ok(self.blocks.add(device, pa - pa % unit..end))
    }

    fn block_len(&self) -> u64 {
        self.image.superblock().block_bits.len()
    }
}

fn charge(fetched: u64) -> Charge {
    Charge { fetched, decoded: 0 }
}
