//! Cost of a part of an extent: blocks to fetch, bytes to decode.

use super::cold_history::ColdHistory;
use super::range_set::RangeSet;
use crate::data::plan::DecodePlan;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::{DataPart, DataPiece, PCLUSTER};
use crate::map::encoded_extent::EncodedExtent;
use crate::map::extent::Extent;
use crate::map::extent::Pcluster;
use crate::map::file_map::FileMap;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use crate::metadata::space::MetadataSpace;
use kiln_format::addr::align_up;
use std::ops::Range;

/// Cost of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Pieces, each from one extent.
    pub pieces: u64,
    /// Bytes that the reader gets.
    pub wanted: u64,
    /// Bytes in whole blocks that hold the stored data, each block once. Data beside an inode is
    /// part of this; for an inode in the metabox, that is the blocks of the metabox's own extents.
    pub fetched: u64,
    /// Bytes that come out of decoders, wanted or not.
    pub decoded: u64,
    /// Those of the wanted bytes that are stored encoded.
    pub wanted_encoded: u64,
    /// Bytes of inodes and of index entries that describe the extents; without those of a metabox,
    /// and without what a bisection looks at on its way. Readers fetch metadata in larger units,
    /// and mostly have it in memory.
    pub metadata: u64,
}

impl Cost {
    /// Returns the bytes fetched for each byte wanted; `None` where none is wanted.
    pub fn fetch_amplification(&self) -> Option<f64> {
        self.per_wanted(self.fetched)
    }

    /// Returns the bytes decoded for each byte wanted; `None` where none is wanted.
    pub fn decode_amplification(&self) -> Option<f64> {
        self.per_wanted(self.decoded)
    }

    /// Returns the bytes that are decoded and not wanted.
    pub fn wasted(&self) -> u64 {
        self.decoded.saturating_sub(self.wanted_encoded)
    }

    fn per_wanted(&self, bytes: u64) -> Option<f64> {
        (self.wanted > 0).then(|| bytes as f64 / self.wanted as f64)
    }
}

/// Way from stored bytes to wanted ones.
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
    /// Returns the decoding of the first `decoded` bytes of an extent, or of all of them.
    pub(super) fn of(decoded: u64, extent: &Extent) -> Self {
        if decoded == extent.llen { Decoding::Whole } else { Decoding::Prefix { len: decoded } }
    }
}

/// Cost of one part.
#[derive(Default)]
pub(crate) struct Charge {
    /// Bytes of blocks that no earlier piece has fetched.
    pub(crate) fetched: u64,
    /// Bytes that are decoded to get at the stored bytes of an extent, which may lie in a
    /// compressed metabox.
    pub(crate) decoded: u64,
}

impl Charge {
    fn add(&mut self, other: Self) {
        self.fetched += other.fetched;
        self.decoded += other.decoded;
    }
}

/// Meter of the blocks that reads fetch, each block once.
pub(crate) struct CostMeter<'a> {
    reader: Reader<'a>,
    blocks: RangeSet,
    metadata_unit: u64,
}

impl<'a> CostMeter<'a> {
    /// Returns a meter. Data counts in whole blocks. Files share blocks of metadata, so metadata
    /// counts in units of `metadata_unit` bytes.
    pub(crate) fn new(reader: Reader<'a>, metadata_unit: u64) -> Self {
        Self { reader, blocks: RangeSet::default(), metadata_unit }
    }

    /// Returns the cost of fetching the stored bytes of a part. The cost of decoding an encoded
    /// extent is not in it.
    pub(crate) fn charge(&mut self, part: &DataPart) -> Result<Charge, ReadError> {
        let mut sum = Charge::default();
        for piece in part.pieces(self.reader.volume.sb.block_bits)? {
            sum.add(match piece {
                DataPiece::Zeros { .. } => Charge::default(),
                // Another file, whose blocks nothing shares.
                DataPiece::Object { len, .. } => charge(len),
                DataPiece::Device { record, device, pa, len } => self.fetch_data(record, device, (pa, len))?,
                DataPiece::Metadata { space, pa, len, .. } => self.fetch_metadata(space, pa, len)?,
                DataPiece::Encoded { encoded: EncodedExtent { pcluster, .. }, .. } => match pcluster {
                    Pcluster { inline: Some(space), pa, plen, .. } => self.fetch_metadata(space, pa, plen.into())?,
                    Pcluster { device, pa, plen, .. } => self.fetch_data(PCLUSTER, device, (pa, plen.into()))?,
                },
            });
        }
        Ok(sum)
    }

    /// Returns the cost of `len` bytes at `pa` of a metadata space: of themselves, or of the
    /// metabox's own extents.
    pub(crate) fn fetch_metadata(&mut self, space: MetadataSpace, pa: u64, len: u64) -> Result<Charge, ReadError> {
        MetadataReader::new(self.reader, space).check_range("inline data", pa, len)?;
        match (space, &self.reader.special.metabox) {
            (MetadataSpace::Metabox, Some(metabox)) => self.charge_range(metabox, pa..pa + len),
            _ => Ok(charge(self.fetch("inline data", 0, (pa, len), self.metadata_unit)?)),
        }
    }

    /// Returns the cost of a range of a special inode.
    fn charge_range(&mut self, inode: &Inode, range: Range<u64>) -> Result<Charge, ReadError> {
        let mut sum = Charge::default();
        for part in FileMap::open(self.reader, inode)?.parts(range) {
            let part = part?;
            sum.add(self.charge(&part)?);
            sum.decoded += self.decoded_alone(&part)?;
        }
        Ok(sum)
    }

    /// Returns the number of bytes that a read of this part alone decodes.
    fn decoded_alone(&self, part: &DataPart) -> Result<u64, ReadError> {
        let Some(encoded) = part.encoded()? else { return Ok(0) };
        let wanted = part.skip()..part.skip() + part.len();
        match ColdHistory::new(self.reader).plan(&encoded, &wanted) {
            DecodePlan::Copy(()) => Ok(0),
            DecodePlan::Decode { target, .. } => Ok(target.decoded_len(&encoded, wanted.end)),
        }
    }

    fn fetch_data(&mut self, record: &'static str, device: u16, bytes: (u64, u64)) -> Result<Charge, ReadError> {
        Ok(charge(self.fetch(record, device, bytes, self.reader.volume.sb.block_bits.len())?))
    }

    /// Adds the units of `unit` bytes that hold the `len` bytes of a device from byte `pa` on.
    /// Returns the length of those that are new.
    fn fetch(&mut self, record: &'static str, device: u16, (pa, len): (u64, u64), unit: u64) -> Result<u64, ReadError> {
        self.reader.volume.devices.check_place(record, device, pa, len)?;
        let end = align_up(pa + len, unit).unwrap_or(u64::MAX);
        Ok(self.blocks.add(device, pa - pa % unit..end))
    }
}

fn charge(fetched: u64) -> Charge {
    Charge { fetched, decoded: 0 }
}
