//! The cost of a read: the extents it touches, the blocks it fetches, the bytes it decodes.
//!
//! The read is a cold one: a single call of [`Image::read_at`] with nothing in memory but metadata.
//! Explaining it reads metadata only.

mod cold_history;
mod index;
pub(crate) mod meter;
pub(crate) mod range_set;

use crate::data::plan::DecodePlan;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::DataPart;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::file_map::FileMap;
use crate::metadata::inode::Inode;
use cold_history::ColdHistory;
use index::DescribedExtents;
use meter::{Charge, Cost, CostMeter, Decoding};
use std::iter::FusedIterator;
use std::ops::Range;

/// The part of a read that comes from one extent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadPiece {
    /// Bytes of the file.
    pub wanted: Range<u64>,
    /// Extent that holds them: one of the file, or of the packed inode for a fragment.
    pub extent: Extent,
    /// For a fragment: the offset of the wanted bytes in the packed inode's contents.
    pub fragment: Option<u64>,
    /// Way from stored bytes to the wanted ones.
    pub decoding: Decoding,
    /// Bytes in whole blocks that are fetched for this piece and were not for an earlier one: whole
    /// pclusters. Of an LZ4 pcluster whose front is decoded, [`Image`] fetches less, if less is
    /// enough.
    pub fetched: u64,
    /// Bytes that are decoded for this piece.
    pub decoded: u64,
}

/// Iterator over the pieces of a read in the order of the file, see
/// [`Image::explain`](crate::Image::explain).
///
/// Memory is bounded by the number of runs of adjacent blocks that were fetched so far: about 40
/// bytes each, at most one for every two blocks of the image.
pub struct Explanation<'a> {
    reader: Reader<'a>,
    map: FileMap<'a>,
    left: Range<u64>,
    meter: CostMeter<'a>,
    history: ColdHistory<'a>,
    /// Extents of the file so far.
    file: DescribedExtents,
    /// First byte of the fragment that is being explained, and the extents of the packed inode that
    /// hold it.
    fragment: Option<(u64, DescribedExtents)>,
    cost: Cost,
    is_done: bool,
}

impl<'a> Explanation<'a> {
    pub(crate) fn new(reader: Reader<'a>, inode: &Inode, range: Range<u64>) -> Result<Self, ReadError> {
        let end = range.end.min(inode.meta.size);
        Ok(Self {
            reader,
            map: FileMap::open(reader, inode)?,
            left: range.start.min(end)..end,
            meter: CostMeter::new(reader, reader.volume.sb.block_bits.len()),
            history: ColdHistory::new(reader),
            file: DescribedExtents::new(inode),
            fragment: None,
            cost: Cost::default(),
            is_done: false,
        })
    }
}

impl Explanation<'_> {
    /// Returns the cost of the pieces so far.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the cost of the whole read.
    ///
    /// # Errors
    /// The error of the first piece that has one.
    pub fn total(mut self) -> Result<Cost, ReadError> {
        self.by_ref().try_for_each(|piece| piece.map(drop))?;
        Ok(self.cost)
    }

    fn advance(&mut self) -> Result<Option<ReadPiece>, ReadError> {
        let part = self.map.parts(self.left.clone()).next().transpose()?;
        self.describe(part.as_ref())?;
        let Some(part) = part else { return Ok(None) };
        let la = self.left.start;
        self.left.start += part.len();
        self.piece(part, la).map(Some)
    }

    /// Notes the extents of the next part, or that there are no more parts. The cost of the
    /// metadata that describes extents is that of all extents of one inode together.
    fn describe(&mut self, part: Option<&DataPart>) -> Result<(), ReadError> {
        let listed = part.and_then(|_| self.map.listed());
        if let Some(listed) = listed {
            self.file.extend(listed);
        }
        let fragment = listed.filter(|_| part.is_some_and(|part| part.is_fragment)).map(|listed| listed.la);
        if let Some((la, described)) = self.fragment.take() {
            match fragment == Some(la) {
                true => self.fragment = Some((la, described)),
                false => self.cost.metadata += described.len(self.reader)?,
            }
        }
        if let (Some(la), Some(part), Some(packed)) = (fragment, part, &self.reader.special.packed) {
            let (_, described) = self.fragment.get_or_insert_with(|| (la, DescribedExtents::new(packed)));
            described.extend(&part.extent);
        }
        if part.is_none() {
            self.cost.metadata += self.file.len(self.reader)?;
        }
        Ok(())
    }

    /// Returns the piece that a part is. The part begins at byte `la` of the file.
    fn piece(&mut self, part: DataPart, la: u64) -> Result<ReadPiece, ReadError> {
        let Charge { fetched, mut decoded } = self.meter.charge(&part)?;
        let len = part.len();
        let decoding = match (part.encoded()?, part.extent.kind) {
            (Some(encoded), _) => {
                self.cost.wanted_encoded += len;
                let wanted = part.skip()..part.skip() + len;
                match self.history.plan(&encoded, &wanted) {
                    DecodePlan::Copy(()) => Decoding::Cached,
                    DecodePlan::Decode { target, .. } => {
                        let decoded_len = target.decoded_len(&encoded, wanted.end);
                        decoded += decoded_len;
                        Decoding::of(decoded_len, &part.extent)
                    }
                }
            }
            (None, ExtentKind::Hole) => Decoding::Zeros,
            (None, ExtentKind::Plain { .. }) => Decoding::Plain,
            (None, _) => Decoding::Copy,
        };
        self.cost.pieces += 1;
        self.cost.wanted += len;
        self.cost.fetched += fetched;
        self.cost.decoded += decoded;
        let fragment = part.is_fragment.then_some(part.wanted.start);
        Ok(ReadPiece { wanted: la..la + len, extent: part.extent, fragment, decoding, fetched, decoded })
    }
}

impl Iterator for Explanation<'_> {
    type Item = Result<ReadPiece, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let nid = self.map.file().nid();
        let next = self.advance().map_err(|error| error.at_nid(nid)).transpose();
        self.is_done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl FusedIterator for Explanation<'_> {}
