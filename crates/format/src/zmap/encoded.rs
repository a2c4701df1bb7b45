//! Encoded extents: one byte-granular record for each extent (Linux 6.15).

use super::Advise;
use crate::FormatError;
use crate::compr_cfg::Algorithm;

/// Longest pcluster, in bytes.
pub const PLEN_MAX: u32 = 1 << 20;

const RECORD: &str = "z_erofs_extent";
const PARTIAL: u32 = 1 << 27;

/// Length of an encoded extent's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSize {
    /// 4 bytes, length only: extents of equal size, contiguous from a start address before the
    /// table.
    Four,
    /// 8 bytes, length and 32-bit address: extents of equal size.
    Eight,
    /// 16 bytes: length, address, 32-bit logical offset.
    Sixteen,
    /// 32 bytes: length, address, 64-bit logical offset.
    ThirtyTwo,
}

impl RecordSize {
    /// Returns the size that the advise bits of an extents header select.
    pub fn from_advise(advise: Advise) -> Self {
        match advise.bits() >> 1 & 3 {
            0 => RecordSize::Four,
            1 => RecordSize::Eight,
            2 => RecordSize::Sixteen,
            _ => RecordSize::ThirtyTwo,
        }
    }

    /// Returns the advise bits of an extents header with records of this size.
    pub fn advise(self) -> Advise {
        let bits = match self {
            RecordSize::Four => 0,
            RecordSize::Eight => 1,
            RecordSize::Sixteen => 2,
            RecordSize::ThirtyTwo => 3,
        };
        Advise::COMPACTED_2B_OR_EXTENTS | Advise::from_bits_retain(bits << 1)
    }

    /// Returns the length of a record in bytes, which is also the alignment of the table.
    pub fn len(self) -> u64 {
        match self {
            RecordSize::Four => 4,
            RecordSize::Eight => 8,
            RecordSize::Sixteen => 16,
            RecordSize::ThirtyTwo => 32,
        }
    }

    /// Returns true if records have no logical offset: all extents but the last have the length of
    /// an lcluster.
    pub fn has_fixed_extents(self) -> bool {
        matches!(self, RecordSize::Four | RecordSize::Eight)
    }

    /// Returns the number of bytes between the aligned end of the header and the first record: 8 if
    /// there is a start address, else 0.
    pub fn start_len(self) -> u64 {
        if self == RecordSize::Four { 8 } else { 0 }
    }
}

/// First word of a record: stored length, flags and algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlenWord(pub u32);

impl PlenWord {
    /// A hole.
    pub const HOLE: PlenWord = PlenWord(0);

    /// Returns the word of a pcluster of `plen` bytes whose text belongs to the extent as a whole.
    /// Without an algorithm the extent is plain.
    ///
    /// # Errors
    /// A length of 0 or over 1 MiB.
    pub fn new(plen: u32, algorithm: Option<Algorithm>) -> Result<Self, FormatError> {
        if plen == 0 || plen > PLEN_MAX {
            return Err(FormatError::does_not_fit(RECORD, "e_plen", plen.into()));
        }
        let number = algorithm.map_or(0, |algorithm| algorithm as u32 + 1);
        Ok(Self(plen | number << 28))
    }

    /// Returns the word for an extent whose stream decodes to more than the extent.
    pub fn used_in_part(self) -> Self {
        Self(self.0 | PARTIAL)
    }

    /// Returns the stored length in bytes; 0 for a hole.
    pub fn plen(self) -> u32 {
        self.0 & 0x1F_FFFF
    }

    /// Returns true if the stream decodes to more than the extent.
    pub fn partial(self) -> bool {
        self.0 & PARTIAL != 0
    }

    /// Returns the algorithm, or `None` for a plain extent.
    ///
    /// # Errors
    /// The number of an unknown algorithm.
    pub fn algorithm(self) -> Result<Option<Algorithm>, u8> {
        match (self.0 >> 28) as u8 {
            0 => Ok(None),
            number => Algorithm::from_number(number - 1).map(Some).ok_or(number),
        }
    }
}

/// Record of an encoded extent. Fields that records of its size lack are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRecord {
    /// First word of the record.
    pub plen: PlenWord,
    /// Byte address of the stored data; `None` in records of 4 bytes.
    pub pa: Option<u64>,
    /// Logical offset; `None` in records of 4 and 8 bytes.
    pub la: Option<u64>,
}

impl ExtentRecord {
    /// Decodes a record of exactly [`RecordSize::len`] bytes.
    pub fn decode(bytes: &[u8], size: RecordSize) -> Self {
        let word = |idx: usize| u32::from_le_bytes(bytes[4 * idx..4 * idx + 4].try_into().expect("4 bytes"));
        let wide = |lo, hi| u64::from(word(lo)) | u64::from(word(hi)) << 32;
        let (pa, la) = match size {
            RecordSize::Four => (None, None),
            RecordSize::Eight => (Some(word(1).into()), None),
            RecordSize::Sixteen => (Some(wide(1, 2)), Some(word(3).into())),
            RecordSize::ThirtyTwo => (Some(wide(1, 2)), Some(wide(3, 4))),
        };
        Self { plen: PlenWord(word(0)), pa, la }
    }

    /// Appends the record to `out` in the form of `size`, which must have the fields that are
    /// `Some`.
    ///
    /// # Errors
    /// An address or offset for which the form has no room.
    pub fn encode(&self, size: RecordSize, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let refuse = |field, value: Option<u64>| FormatError::does_not_fit(RECORD, field, value.unwrap_or(u64::MAX));
        let narrow = |field, value: Option<u64>| {
            value.and_then(|value| u32::try_from(value).ok()).ok_or_else(|| refuse(field, value))
        };
        out.extend_from_slice(&self.plen.0.to_le_bytes());
        match size {
            RecordSize::Four => {}
            RecordSize::Eight => out.extend_from_slice(&narrow("e_pstart_lo", self.pa)?.to_le_bytes()),
            RecordSize::Sixteen => {
                out.extend_from_slice(&self.pa.ok_or_else(|| refuse("e_pstart_lo", self.pa))?.to_le_bytes());
                out.extend_from_slice(&narrow("e_lstart_lo", self.la)?.to_le_bytes());
            }
            RecordSize::ThirtyTwo => {
                out.extend_from_slice(&self.pa.ok_or_else(|| refuse("e_pstart_lo", self.pa))?.to_le_bytes());
                out.extend_from_slice(&self.la.ok_or_else(|| refuse("e_lstart_lo", self.la))?.to_le_bytes());
                out.resize(out.len() + 12, 0);
            }
        }
        Ok(())
    }
}
