//! Encoded extents: one byte-granular record for each extent (Linux 6.15).

use super::Advise;
use crate::FormatError;
use crate::compr_cfg::Algorithm;

/// Longest pcluster, in bytes.
pub const PLEN_MAX: u32 = 1 << 20;

const RECORD: &str = "z_erofs_extent";
const PARTIAL: u32 = 1 << 27;

/// Length of a record in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSize {
    /// Length only: equal extents, one behind the other from a start address before the table.
    Four,
    /// Length and 32-bit address: equal extents.
    Eight,
    /// Length, address, 32-bit logical offset.
    Sixteen,
    /// Length, address, 64-bit logical offset.
    ThirtyTwo,
}

impl RecordSize {
    /// The size that the advise bits of an extents header name.
    pub fn from_advise(advise: Advise) -> Self {
        match advise.bits() >> 1 & 3 {
            0 => RecordSize::Four,
            1 => RecordSize::Eight,
            2 => RecordSize::Sixteen,
            _ => RecordSize::ThirtyTwo,
        }
    }

    /// The advise bits of an extents header with records of this size.
    pub fn advise(self) -> Advise {
        let bits = match self {
            RecordSize::Four => 0,
            RecordSize::Eight => 1,
            RecordSize::Sixteen => 2,
            RecordSize::ThirtyTwo => 3,
        };
        Advise::COMPACTED_2B_OR_EXTENTS | Advise::from_bits_retain(bits << 1)
    }

    /// Length of a record in bytes, also the alignment of the table.
    pub fn len(self) -> u64 {
        match self {
            RecordSize::Four => 4,
            RecordSize::Eight => 8,
            RecordSize::Sixteen => 16,
            RecordSize::ThirtyTwo => 32,
        }
    }

    /// Whether all extents but the last have the length of an lcluster, and records no logical offset.
    pub fn has_fixed_extents(self) -> bool {
        matches!(self, RecordSize::Four | RecordSize::Eight)
    }

    /// Bytes between the aligned end of the header and the first record: the start address, if there is one.
    pub fn start_len(self) -> u64 {
        if self == RecordSize::Four { 8 } else { 0 }
    }
}

/// The first word of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlenWord(pub u32);

impl PlenWord {
    /// A hole.
    pub const HOLE: PlenWord = PlenWord(0);

    /// The word of a pcluster of `plen` bytes, all of whose text belongs to the extent; `None`: plain.
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

    /// The same of an extent whose stream decodes to more.
    pub fn used_in_part(self) -> Self {
        Self(self.0 | PARTIAL)
    }

    /// Stored length in bytes; 0: a hole.
    pub fn plen(self) -> u32 {
        self.0 & 0x1F_FFFF
    }

    /// The stream decodes to more than the extent.
    pub fn partial(self) -> bool {
        self.0 & PARTIAL != 0
    }

    /// `Ok(None)` for a plain extent; the unknown number as an error.
    pub fn algorithm(self) -> Result<Option<Algorithm>, u8> {
        match (self.0 >> 28) as u8 {
            0 => Ok(None),
            number => Algorithm::from_number(number - 1).map(Some).ok_or(number),
        }
    }
}

/// A record, as far as its size has the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRecord {
    /// First word.
    pub plen: PlenWord,
    /// Byte address of the stored data; `None` in records of 4 bytes.
    pub pa: Option<u64>,
    /// Logical offset; `None` in records of 4 and 8 bytes.
    pub la: Option<u64>,
}

impl ExtentRecord {
    /// Decode a record of exactly [`RecordSize::len`] bytes.
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

    /// Append the record to `out`, in the form of `size`, which must have the fields that are `Some`.
    ///
    /// # Errors
    /// An address or offset that the form has no room for.
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
