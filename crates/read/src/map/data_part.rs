//! Parts of extents, and the places of their bytes.

use super::encoded_extent::EncodedExtent;
use super::extent::Pcluster;
use super::extent::{Extent, ExtentKind};
use crate::error::ReadError;
use crate::metadata::space::MetadataSpace;
use kiln_format::{BlockBits, Nid};
use std::array;
use std::iter::Flatten;
use std::ops::Range;

/// Name of the bytes of a pcluster in errors.
pub(crate) const PCLUSTER: &str = "pcluster";

/// Bytes of a device.
pub(crate) type StoredRange = (u16, Range<u64>);

/// A part of a range of a file, stored in one extent.
///
/// A fragment leads into the packed inode: `extent` is then one of the packed inode, and never a
/// fragment itself.
#[derive(Clone, Debug)]
pub(crate) struct DataPart {
    /// Extent that holds the bytes.
    pub(crate) extent: Extent,
    /// Bytes of the inode that has the extent.
    pub(crate) wanted: Range<u64>,
    /// Inode that has the extent, named in errors.
    pub(crate) nid: Nid,
    /// True if the part is in a fragment.
    pub(crate) is_fragment: bool,
}

/// Bytes of a part that lie in one place.
#[derive(Clone, Debug)]
pub(crate) enum DataPiece {
    /// Zeros, which are not stored.
    Zeros {
        /// Length in bytes.
        len: u64,
    },
    /// Plain bytes on a device.
    Device {
        /// Name in errors.
        record: &'static str,
        /// Device number.
        device: u16,
        /// First byte on the device.
        pa: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Plain bytes in a metadata space.
    Metadata {
        /// Name in errors.
        record: &'static str,
        /// Metadata space.
        space: MetadataSpace,
        /// First byte in the space.
        pa: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Bytes of an encoded extent.
    Encoded {
        /// Extent.
        encoded: EncodedExtent,
        /// Bytes of the decoded extent.
        wanted: Range<u64>,
    },
    /// Bytes of the object that has the contents of a file.
    Object {
        /// The file.
        nid: Nid,
        /// First byte in the object.
        off: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// The pieces of a part in order: one, or two if its pcluster is interlaced.
pub(crate) type DataPieces = Flatten<array::IntoIter<Option<DataPiece>, 2>>;

impl DataPiece {
    pub(crate) fn len(&self) -> u64 {
        match self {
            DataPiece::Zeros { len }
            | DataPiece::Device { len, .. }
            | DataPiece::Metadata { len, .. }
            | DataPiece::Object { len, .. } => *len,
            DataPiece::Encoded { wanted, .. } => wanted.end - wanted.start,
        }
    }
}

impl DataPart {
    /// Returns all of an extent that is no fragment.
    pub(crate) fn whole(extent: &Extent, nid: Nid) -> Self {
        Self { extent: *extent, wanted: extent.la..extent.end(), nid, is_fragment: false }
    }

    /// Returns the number of bytes of the extent in front of the part.
    pub(crate) fn skip(&self) -> u64 {
        self.wanted.start - self.extent.la
    }

    pub(crate) fn len(&self) -> u64 {
        self.wanted.end - self.wanted.start
    }

    pub(crate) fn is_encoded(&self) -> bool {
        matches!(self.extent.kind, ExtentKind::Encoded { .. })
    }

    /// Returns the encoded extent that the part is in, if it is in one.
    pub(crate) fn encoded(&self) -> Result<Option<EncodedExtent>, ReadError> {
        self.is_encoded().then(|| EncodedExtent::of(&self.extent)).transpose()
    }

    /// Returns the pieces of the part in order.
    ///
    /// The last bytes of an interlaced pcluster are the first ones of its extent, up to a block
    /// boundary of the file; the bytes behind them start at the front of the pcluster. So they keep
    /// their offset within blocks.
    pub(crate) fn pieces(&self, block_bits: BlockBits) -> Result<DataPieces, ReadError> {
        let (skip, len) = (self.skip(), self.len());
        let [first, rest] = match self.extent.kind {
            ExtentKind::Hole => [Some(DataPiece::Zeros { len }), None],
            ExtentKind::Raw { device, pa } => {
                [Some(DataPiece::Device { record: "data", device, pa: pa.saturating_add(skip), len }), None]
            }
            ExtentKind::Meta { pa, in_metabox } => {
                let (space, pa) = (MetadataSpace::of(in_metabox), pa.saturating_add(skip));
                [Some(DataPiece::Metadata { record: "inline data", space, pa, len }), None]
            }
            ExtentKind::Plain { interlaced, device, pa, plen, inline } => {
                let pcluster = Pcluster { device, inline, pa, plen };
                if interlaced {
                    let rotated = block_bits.len() - block_bits.within(self.extent.la);
                    let first = rotated.saturating_sub(skip).min(len);
                    let front = u64::from(plen).saturating_sub(rotated).saturating_add(skip);
                    let behind = (skip + first).saturating_sub(rotated);
                    [pcluster.piece(front, first), pcluster.piece(behind, len - first)]
                } else {
                    [pcluster.piece(skip, len), None]
                }
            }
            ExtentKind::Encoded { .. } => {
                [Some(DataPiece::Encoded { encoded: EncodedExtent::of(&self.extent)?, wanted: skip..skip + len }), None]
            }
            ExtentKind::Object => [Some(DataPiece::Object { nid: self.nid, off: self.wanted.start, len }), None],
            ExtentKind::Fragment { .. } => {
                return Err(ReadError::Internal { what: "a fragment that is not resolved".into() });
            }
        };
        Ok([first, rest].into_iter().flatten())
    }

    /// Returns the pcluster that holds the part, if it is in one.
    pub(crate) fn pcluster(&self) -> Option<Pcluster> {
        self.extent.kind.pcluster()
    }

    /// Returns the bytes of a device that reading the part takes: of a pcluster all of them. `None`
    /// for zeros and metadata.
    pub(crate) fn stored(&self) -> Option<StoredRange> {
        match (self.pcluster(), self.extent.kind) {
            (Some(Pcluster { device, inline: None, pa, plen }), _) => {
                Some((device, pa..pa.saturating_add(plen.into())))
            }
            (None, ExtentKind::Raw { device, pa }) => {
                let start = pa.saturating_add(self.skip());
                Some((device, start..start.saturating_add(self.len())))
            }
            _ => None,
        }
    }

    /// Returns the device and the byte address of the first stored byte: of an encoded extent that
    /// of its pcluster. Metadata counts as bytes of the primary device. `None` for zeros.
    pub(crate) fn address(&self) -> Option<(u16, u64)> {
        let skip = if self.is_encoded() { 0 } else { self.skip() };
        let (device, pa) = match (self.pcluster(), self.extent.kind) {
            (Some(Pcluster { device, inline, pa, .. }), _) => (if inline.is_some() { 0 } else { device }, pa),
            (None, ExtentKind::Raw { device, pa }) => (device, pa),
            (None, ExtentKind::Meta { pa, .. }) => (0, pa),
            _ => return None,
        };
        Some((device, pa.saturating_add(skip)))
    }
}

impl Pcluster {
    /// Returns `len` plain bytes from byte `skip` of the pcluster on, unless there are none.
    fn piece(&self, skip: u64, len: u64) -> Option<DataPiece> {
        let &Pcluster { device, inline, pa, .. } = self;
        let (record, pa) = (PCLUSTER, pa.saturating_add(skip));
        (len > 0).then_some(match inline {
            Some(space) => DataPiece::Metadata { record, space, pa, len },
            None => DataPiece::Device { record, device, pa, len },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interlaced_pclusters_are_rotated() {
        let kind = ExtentKind::Plain { device: 1, pa: 8192, plen: 8192, interlaced: true, inline: None };
        // The extent begins 1096 bytes before a block boundary of the file.
        let extent = Extent { la: 3000, llen: 6000, kind };
        let places = |wanted: Range<u64>| -> Vec<(u64, u64)> {
            let part = DataPart { extent, wanted, nid: Nid(0), is_fragment: false };
            let pieces = part.pieces(BlockBits::DEFAULT).unwrap();
            pieces
                .map(|piece| match piece {
                    DataPiece::Device { device: 1, pa, len, record: PCLUSTER } => (pa - 8192, len),
                    piece => panic!("{piece:?}"),
                })
                .collect()
        };
        assert_eq!(places(3000..9000), [(8192 - 1096, 1096), (0, 4904)]);
        assert_eq!(places(3000..3500), [(8192 - 1096, 500)]);
        assert_eq!(places(4000..5000), [(8192 - 96, 96), (0, 904)]);
        assert_eq!(places(5000..6000), [(904, 1000)]);
    }

    #[test]
    fn pieces_of_a_part_have_its_length() {
        let nid = Nid(7);
        let kinds = [
            ExtentKind::Hole,
            ExtentKind::Raw { device: 0, pa: 100 },
            ExtentKind::Meta { pa: 100, in_metabox: true },
            ExtentKind::Plain { device: 0, pa: 0, plen: 4096, interlaced: false, inline: Some(MetadataSpace::Primary) },
        ];
        for kind in kinds {
            let part = DataPart { wanted: 10..30, ..DataPart::whole(&Extent { la: 0, llen: 50, kind }, nid) };
            let lens: Vec<u64> = part.pieces(BlockBits::DEFAULT).unwrap().map(|piece| piece.len()).collect();
            assert_eq!(lens, [20], "{kind:?}");
        }
    }
}
