//! Maps of compressed files: the header, lcluster indexes (full and compact), encoded extents.
//!
//! A compressed file is a sequence of extents, each stored in one pcluster. An lcluster index has
//! one entry for each logical cluster: a head if an extent starts in it, else a nonhead.

mod compact;
mod encoded;

pub use compact::{CompactLayout, Pack};
pub use encoded::{ExtentRecord, PLEN_MAX, PlenWord, RecordSize};

use crate::inode::IndexKind;
use crate::{Blkaddr, BlockBits, FormatError};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of the map header in bytes. It lies at the next multiple of 8 after the inode's body.
pub const MAP_HEADER_LEN: u64 = 8;
/// Length of an entry of the full index in bytes.
pub const FULL_ENTRY_LEN: u64 = 8;
/// Offset in bytes from the header's start to the full index.
pub const FULL_INDEX_OFF: u64 = 16;
/// Offset in bytes from the header's start to the compact index.
pub const COMPACT_INDEX_OFF: u64 = 8;
/// Largest distance in lclusters that an index entry holds; longer ones are clipped.
pub const DELTA_MAX: u32 = 2047;
/// Largest number of blocks that an index entry holds.
pub const CBLKCNT_MAX: u32 = 2047;

/// `Z_EROFS_LI_D0_CBLKCNT`: the field holds a number of blocks instead of a distance.
const D0_CBLKCNT: u16 = 0x800;
/// `Z_EROFS_LI_PARTIAL_REF`.
const PARTIAL_REF: u16 = 0x8000;
const RECORD: &str = "z_erofs_map_header";

bitflags::bitflags! {
    /// `h_advise`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Advise: u16 {
        /// Compact index: packs of 16 entries in use. Full index: encoded extents.
        const COMPACTED_2B_OR_EXTENTS = 0x01;
        /// HEAD1 pclusters may have several blocks.
        const BIG_PCLUSTER_1 = 0x02;
        /// HEAD2 and plain pclusters may have several blocks.
        const BIG_PCLUSTER_2 = 0x04;
        /// The last extent is stored beside the inode.
        const INLINE_PCLUSTER = 0x08;
        /// Plain extents are rotated to keep page offsets.
        const INTERLACED_PCLUSTER = 0x10;
        /// The last extent is a fragment.
        const FRAGMENT_PCLUSTER = 0x20;
        /// Other bits are preserved; kernels ignore them.
        const _ = !0;
    }
}

/// `struct z_erofs_map_header`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawMapHeader {
    /// `h_fragmentoff`; its upper half is `h_idata_size`; or the low half of the number of encoded
    /// extents.
    pub h_fragmentoff: U32,
    /// [`Advise`].
    pub h_advise: U16,
    /// Algorithms of HEAD1 (low half) and HEAD2.
    pub h_algorithmtype: u8,
    /// log2 of the blocks in an lcluster; bit 7: the whole file is a fragment.
    pub h_clusterbits: u8,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawMapHeader>() == MAP_HEADER_LEN as usize);
    assert!(offset_of!(RawMapHeader, h_fragmentoff) == 0);
    assert!(offset_of!(RawMapHeader, h_advise) == 4);
    assert!(offset_of!(RawMapHeader, h_algorithmtype) == 6);
    assert!(offset_of!(RawMapHeader, h_clusterbits) == 7);
};

/// Contents of the map header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZmapHeader {
    /// The whole file lies at this byte offset of the packed inode.
    Fragment(u64),
    /// The file has a map.
    Map(MapHeader),
}

/// Header of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapHeader {
    /// Flags.
    pub advise: Advise,
    /// Algorithm numbers of HEAD1 and HEAD2 extents.
    pub algorithms: [u8; 2],
    /// log2 of the lcluster size.
    pub lcluster_bits: u8,
    /// Low half of the offset in the packed inode, with [`Advise::FRAGMENT_PCLUSTER`].
    pub fragment_off: u32,
    /// Length in bytes of the inline pcluster, with [`Advise::INLINE_PCLUSTER`].
    pub idata_len: u16,
    /// Number of encoded extents (for record sizes of 16 and 32 bytes).
    pub extent_count: u64,
}

impl ZmapHeader {
    /// Decodes the header `bytes` at byte `at`, which precedes an index of kind `index`.
    ///
    /// # Errors
    /// Logical clusters of more than 2^30 bytes, or reserved bits.
    pub fn decode(bytes: &[u8; 8], at: u64, block_bits: BlockBits, index: IndexKind) -> Result<Self, FormatError> {
        let raw = RawMapHeader::ref_from_bytes(bytes).expect("exact length");
        if raw.h_clusterbits & 0x80 != 0 {
            return Ok(Self::Fragment(u64::from_le_bytes(*bytes) & (u64::MAX >> 1)));
        }
        let corrupt = |reason| FormatError::corrupt(RECORD, at, "h_clusterbits", raw.h_clusterbits.into(), reason);
        if raw.h_clusterbits & 0x70 != 0 {
            return Err(corrupt("reserved bits set"));
        }
        let lcluster_bits = block_bits.bits() + (raw.h_clusterbits & 0xF);
        if lcluster_bits > 30 {
            return Err(corrupt("logical clusters over 1 GiB"));
        }
        let advise = Advise::from_bits_retain(raw.h_advise.get());
        let low = raw.h_fragmentoff.get();
        let encoded = index == IndexKind::Full && advise.contains(Advise::COMPACTED_2B_OR_EXTENTS);
        Ok(Self::Map(MapHeader {
            advise,
            algorithms: [raw.h_algorithmtype & 0xF, raw.h_algorithmtype >> 4],
            lcluster_bits,
            fragment_off: low,
            idata_len: (low >> 16) as u16,
            extent_count: if encoded {
                u64::from(low) | u64::from(u16::from_le_bytes([bytes[6], bytes[7]])) << 32
            } else {
                0
            },
        }))
    }
}

impl ZmapHeader {
    /// Returns the header of a file that lies at byte `off` of the packed inode.
    ///
    /// # Errors
    /// An offset over 63 bits.
    pub fn encode_fragment(off: u64) -> Result<[u8; 8], FormatError> {
        match off >> 63 {
            0 => Ok((off | 1 << 63).to_le_bytes()),
            _ => Err(FormatError::does_not_fit(RECORD, "fragment offset", off)),
        }
    }
}

impl MapHeader {
    /// Returns the header of an lcluster index.
    ///
    /// # Errors
    /// Algorithm numbers over 4 bits, lclusters smaller than a block or over 1 GiB.
    pub fn encode(&self, block_bits: BlockBits) -> Result<[u8; 8], FormatError> {
        let refuse = |field, value: u8| Err(FormatError::does_not_fit(RECORD, field, value.into()));
        if let Some(&number) = self.algorithms.iter().find(|&&number| number > 0xF) {
            return refuse("h_algorithmtype", number);
        }
        if self.lcluster_bits < block_bits.bits() || self.lcluster_bits > (block_bits.bits() + 0xF).min(30) {
            return refuse("h_clusterbits", self.lcluster_bits);
        }
        let inline = self.advise.contains(Advise::INLINE_PCLUSTER);
        let low = if inline { u32::from(self.idata_len) << 16 } else { self.fragment_off };
        let raw = RawMapHeader {
            h_fragmentoff: low.into(),
            h_advise: self.advise.bits().into(),
            h_algorithmtype: self.algorithms[0] | self.algorithms[1] << 4,
            h_clusterbits: self.lcluster_bits - block_bits.bits(),
        };
        Ok(raw.as_bytes().try_into().expect("8 bytes"))
    }

    /// Returns the header of encoded extents with records of `size`, which determines some of the
    /// advise bits.
    ///
    /// # Errors
    /// Same as [`MapHeader::encode`]; more than 2^44 extents, for which the header has no room.
    pub fn encode_extents(&self, size: RecordSize, block_bits: BlockBits) -> Result<[u8; 8], FormatError> {
        let advise = self.advise | size.advise();
        if size.has_fixed_extents() {
            return Self { advise, algorithms: [0; 2], fragment_off: 0, ..*self }.encode(block_bits);
        }
        if self.extent_count >> 44 != 0 {
            return Err(FormatError::does_not_fit(RECORD, "h_extents", self.extent_count));
        }
        let count = self.extent_count.to_le_bytes();
        let advise = advise.bits().to_le_bytes();
        Ok([count[0], count[1], count[2], count[3], advise[0], advise[1], count[4], count[5]])
    }

    /// Returns true if pclusters of this kind may have several blocks.
    pub fn is_big(&self, kind: HeadKind) -> bool {
        self.advise.contains(match kind {
            HeadKind::Head1 => Advise::BIG_PCLUSTER_1,
            HeadKind::Plain | HeadKind::Head2 => Advise::BIG_PCLUSTER_2,
        })
    }
}

/// Way in which the extent of a head is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadKind {
    /// Not encoded.
    Plain,
    /// Encoded with the first algorithm.
    Head1,
    /// Encoded with the second algorithm.
    Head2,
}

const TYPE_NONHEAD: u16 = 2;

impl HeadKind {
    fn from_type(number: u16) -> Option<Self> {
        match number & 3 {
            0 => Some(HeadKind::Plain),
            1 => Some(HeadKind::Head1),
            3 => Some(HeadKind::Head2),
            _ => None,
        }
    }

    fn type_number(self) -> u16 {
        match self {
            HeadKind::Plain => 0,
            HeadKind::Head1 => 1,
            HeadKind::Head2 => 3,
        }
    }
}

/// Entry of an lcluster index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lcluster {
    /// An extent starts `clusterofs` bytes into this lcluster.
    Head {
        /// Way in which the extent is stored.
        kind: HeadKind,
        /// Offset of the extent's start in the lcluster, in bytes.
        clusterofs: u32,
        /// First block of the pcluster; for a fragment, the high half of its offset.
        blkaddr: Blkaddr,
        /// True if the stream decodes to more than the extent.
        partial: bool,
    },
    /// No extent starts here.
    Nonhead {
        /// Distance in lclusters back to the head, clipped to [`DELTA_MAX`]. An entry with a
        /// `cblkcnt` does not store it: it is 1.
        back: u32,
        /// Distance in lclusters forward to the next head or the end, clipped; 0 if unknown.
        forward: u32,
        /// Number of blocks of the pcluster, in the entry right after its head.
        cblkcnt: Option<u32>,
    },
}

/// `struct z_erofs_lcluster_index`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawLclusterIndex {
    /// Type and flags.
    pub di_advise: U16,
    /// Offset of the extent's start in the lcluster.
    pub di_clusterofs: U16,
    /// `blkaddr`, or two distances.
    pub di_u: U32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawLclusterIndex>() == FULL_ENTRY_LEN as usize);
    assert!(offset_of!(RawLclusterIndex, di_advise) == 0);
    assert!(offset_of!(RawLclusterIndex, di_clusterofs) == 2);
    assert!(offset_of!(RawLclusterIndex, di_u) == 4);
};

impl Lcluster {
    /// Decodes an entry of the full index.
    pub fn decode_full(bytes: &[u8; 8]) -> Self {
        let raw = RawLclusterIndex::ref_from_bytes(bytes).expect("exact length");
        let (advise, value) = (raw.di_advise.get(), raw.di_u.get());
        match HeadKind::from_type(advise) {
            Some(kind) => Lcluster::Head {
                kind,
                clusterofs: raw.di_clusterofs.get().into(),
                blkaddr: Blkaddr(value.into()),
                partial: advise & PARTIAL_REF != 0,
            },
            None => {
                let (delta0, delta1) = (value as u16, value >> 16);
                let cblkcnt = (delta0 & D0_CBLKCNT != 0).then_some(u32::from(delta0 & !D0_CBLKCNT));
                let back = if cblkcnt.is_some() { 1 } else { delta0.into() };
                Lcluster::Nonhead { back, forward: delta1, cblkcnt }
            }
        }
    }

    /// Returns the entry for the full index.
    ///
    /// # Errors
    /// An address over 32 bits, an offset over 16 bits, or a number of blocks over 11 bits.
    pub fn encode_full(&self) -> Result<[u8; 8], FormatError> {
        let refuse = |field, value: u64| FormatError::does_not_fit("z_erofs_lcluster_index", field, value);
        let raw = match *self {
            Lcluster::Head { kind, clusterofs, blkaddr, partial } => RawLclusterIndex {
                di_advise: (kind.type_number() | if partial { PARTIAL_REF } else { 0 }).into(),
                di_clusterofs: u16::try_from(clusterofs)
                    .map_err(|_| refuse("di_clusterofs", clusterofs.into()))?
                    .into(),
                di_u: u32::try_from(blkaddr.0).map_err(|_| refuse("di_u.blkaddr", blkaddr.0))?.into(),
            },
            Lcluster::Nonhead { back, forward, cblkcnt } => {
                let delta0 = match cblkcnt {
                    Some(blocks @ 1..=CBLKCNT_MAX) => u32::from(D0_CBLKCNT) | blocks,
                    Some(blocks) => return Err(refuse("di_u.delta[0] (CBLKCNT)", blocks.into())),
                    None => back.min(DELTA_MAX),
                };
                RawLclusterIndex {
                    di_advise: TYPE_NONHEAD.into(),
                    di_clusterofs: U16::ZERO,
                    di_u: (delta0 | forward.min(DELTA_MAX) << 16).into(),
                }
            }
        };
        Ok(raw.as_bytes().try_into().expect("8 bytes"))
    }
}
