//! What a read costs: the extents it touches, the blocks it fetches, the bytes it decodes.
//!
//! The read is a cold one: a single call of [`Image::read_at`] with nothing in memory but metadata. Explaining it reads
//! metadata only.

mod cold_history;
mod index;
pub(crate) mod meter;
pub(crate) mod range_set;

use crate::data::pieces::FragmentPolicy;
use crate::data::plan::DecodePlan;
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::extents::extent_over;
use crate::map::inode_map::Map;
use crate::map::pcluster::EncodedExtent;
use crate::metadata::inode::Inode;
use cold_history::ColdHistory;
use index::Described;
use meter::Charge;
use meter::{Cost, CostMeter, Decoding};
use std::iter::FusedIterator;
use std::ops::Range;

/// The part of a read that comes from one extent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// Bytes of the file.
    pub wanted: Range<u64>,
    /// Where they come from: an extent of the file, or of the packed inode for a fragment.
    pub extent: Extent,
    /// For a fragment: the offset of the wanted bytes in the packed inode's contents.
    pub fragment: Option<u64>,
    /// How stored bytes become the wanted ones.
    pub decoding: Decoding,
    /// Bytes in whole blocks that are fetched for this piece and were not for an earlier one: whole pclusters. Of an LZ4 pcluster
    /// whose front is decoded, [`Image`] fetches less, if less is enough.
    pub fetched: u64,
    /// Bytes that are decoded for this piece.
    pub decoded: u64,
}

/// The pieces of a read in the order of the file, see [`Image::explain`].
///
/// Memory is bounded by the count of runs of adjacent blocks that were fetched so far: about 40 bytes each, at most one
/// for every two blocks of the image.
pub struct Explanation<'a> {
    image: &'a Image,
    meter: CostMeter<'a>,
    file: RangeCursor<'a>,
    /// The fragment that is being explained.
    packed: Option<FragmentCursor<'a>>,
    history: ColdHistory<'a>,
    cost: Cost,
    is_done: bool,
}

/// What is left of a range of a file.
struct RangeCursor<'a> {
    inode: Inode,
    map: Map<'a>,
    left: Range<u64>,
    described: Option<Described>,
}

/// What is left of a fragment: a range of the packed inode.
struct FragmentCursor<'a> {
    cursor: RangeCursor<'a>,
    /// Byte of the file that the start of the range is.
    la: u64,
    /// The same byte in the packed inode.
    off: u64,
}

impl Image {
    /// What a cold read of bytes `range` of the inode's contents costs. The range is cut at the end of the file. What a
    /// directory's contents cost can be asked, too.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let file = image.open_file("/big/text")?;
    /// let cost = image.explain(file.inode(), 0..4096)?.total()?;
    /// println!("4096 bytes: {} fetched, {} decoded", cost.fetched, cost.decoded);
    /// # assert!(cost.wanted == 4096 && cost.fetched > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Something without contents, a damaged map, a failing source. The pieces have errors of their own.
    pub fn explain(&self, inode: &Inode, range: Range<u64>) -> Result<Explanation<'_>, ReadError> {
        let end = range.end.min(inode.meta.size);
        let file = RangeCursor::open(self, inode, range.start.min(end)..end)?;
        let (meter, cost) = (CostMeter::new(self, self.superblock().block_bits.len()), Cost::default());
        Ok(Explanation {
            image: self,
            meter,
            file,
            packed: None,
            history: ColdHistory::new(self),
            cost,
            is_done: false,
        })
    }
}

impl Explanation<'_> {
    /// The cost of the pieces so far.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The cost of the whole read.
    ///
    /// # Errors
    /// That of the first piece that has one.
    pub fn total(mut self) -> Result<Cost, ReadError> {
        self.by_ref().try_for_each(|piece| piece.map(drop))?;
        Ok(self.cost)
    }

    fn advance(&mut self) -> Result<Option<Piece>, ReadError> {
        loop {
            if let Some(fragment) = &mut self.packed {
                if let Some((extent, part)) = fragment.cursor.step()? {
                    let (la, off) = (fragment.la, fragment.off);
                    return self.piece(extent, part, Some((la, off))).map(Some);
                }
                self.cost.metadata += fragment.cursor.metadata(self.image)?;
                self.packed = None;
            }
            let Some((extent, part)) = self.file.step()? else {
                self.cost.metadata += self.file.metadata(self.image)?;
                return Ok(None);
            };
            let ExtentKind::Fragment { off } = extent.kind else { return self.piece(extent, part, None).map(Some) };
            let off = off.saturating_add(part.start - extent.la);
            let len = part.end - part.start;
            let packed = self.image.packed_range(off, len)?;
            let cursor = RangeCursor::open(self.image, packed, off..off + len)?;
            self.packed = Some(FragmentCursor { cursor, la: part.start, off });
        }
    }

    /// The piece that bytes `part` of an extent are. `fragment`: of the packed inode, with a byte of the file and the same
    /// byte there.
    fn piece(&mut self, extent: Extent, part: Range<u64>, fragment: Option<(u64, u64)>) -> Result<Piece, ReadError> {
        let Charge { fetched, mut decoded } = self.meter.charge(&extent, part.clone(), FragmentPolicy::Refused)?;
        let len = part.end - part.start;
        let decoding = match extent.kind {
            ExtentKind::Hole => Decoding::Zeros,
            ExtentKind::Raw { .. } | ExtentKind::Meta { .. } | ExtentKind::Fragment { .. } => Decoding::Copy,
            ExtentKind::Plain { .. } => Decoding::Plain,
            ExtentKind::Encoded { .. } => {
                self.cost.wanted_encoded += len;
                let encoded = EncodedExtent::of(&extent)?;
                let wanted = part.start - extent.la..part.end - extent.la;
                match self.history.plan(&encoded, &wanted) {
                    DecodePlan::Copy(()) => Decoding::Cached,
                    DecodePlan::Decode { target, .. } => {
                        let decoded_len = target.decoded_len(&encoded, wanted.end);
                        decoded += decoded_len;
                        Decoding::of(decoded_len, &extent)
                    }
                }
            }
        };
        self.cost.pieces += 1;
        self.cost.wanted += len;
        self.cost.fetched += fetched;
        self.cost.decoded += decoded;
        let (wanted, fragment) = match fragment {
            None => (part, None),
            Some((la, off)) => (la + (part.start - off)..la + (part.end - off), Some(part.start)),
        };
        Ok(Piece { wanted, extent, fragment, decoding, fetched, decoded })
    }
}

impl Iterator for Explanation<'_> {
    type Item = Result<Piece, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let next = self.advance().map_err(|error| error.at_nid(self.file.inode.nid)).transpose();
        self.is_done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl FusedIterator for Explanation<'_> {}

impl<'a> RangeCursor<'a> {
    fn open(image: &'a Image, inode: &Inode, left: Range<u64>) -> Result<Self, ReadError> {
        Ok(Self { inode: *inode, map: Map::open(image, inode)?, left, described: None })
    }

    /// The next extent, and the bytes that are wanted of it.
    fn step(&mut self) -> Result<Option<(Extent, Range<u64>)>, ReadError> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let extent = extent_over(&mut self.map, &self.inode, self.left.start)?;
        let part = self.left.start..extent.end().min(self.left.end);
        self.left.start = part.end;
        self.described.get_or_insert(Described::new(&extent)).extend(&extent);
        Ok(Some((extent, part)))
    }

    /// Bytes of metadata that say where the extents so far are: the inode, and entries of its index.
    fn metadata(&self, image: &Image) -> Result<u64, ReadError> {
        let index = self.described.as_ref().map_or(Ok(0), |described| described.index_len(image, &self.inode))?;
        Ok(self.inode.meta.form.len() as u64 + index)
    }
}
