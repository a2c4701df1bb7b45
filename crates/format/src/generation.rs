//! Generations: the older trees of an image that was updated in place.
//!
//! An update appends data and metadata to an image, and then changes the superblock and its
//! configuration records. To keep the previous tree reachable, the appended part begins with a
//! [`GenerationRecord`], which holds the previous contents of the superblock's sector, and ends
//! with a [`GenerationEnd`], which points to the record. To kernels both are blocks without
//! references.
//!
//! The sector may hold the root inode, too, behind the configuration records. So each generation
//! has a root of its own in the same place.

use crate::FormatError;
use crate::superblock::SUPERBLOCK_OFF;
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Magic number of a generation record.
pub const RECORD_MAGIC: [u8; 8] = *b"kilnGenR";
/// Magic number of the end of a generation.
pub const END_MAGIC: [u8; 8] = *b"kilnGenE";
/// Version of both records that this crate reads and writes.
pub const VERSION: u32 = 1;
/// Number of bytes from [`SUPERBLOCK_OFF`] on that an update may change: one sector, which disks
/// write as a whole. The superblock and the configuration records fit in it.
pub const HEAD_LEN: usize = 512;
/// Longest label in bytes.
pub const LABEL_MAX_LEN: usize = 440;
/// Value of a field that names no generation.
pub const NO_GENERATION: u32 = u32::MAX;
/// Highest number of a generation.
pub const NUMBER_MAX: u32 = 65_535;

const RECORD: &str = "kiln_generation";
const END: &str = "kiln_generation_end";

/// Record at the start of a generation.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawGeneration {
    /// [`RECORD_MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// CRC-32C of the record, this field taken as zero.
    pub checksum: U32,

    /// Number of the generation, from 1 on. The image as first built is number 0.
    pub number: U32,
    /// Number of the generation whose tree this one restores, or [`NO_GENERATION`].
    pub restored: U32,
    /// Byte offset of this record in the image.
    pub position: U64,

    /// Byte offset of the previous generation's record; 0 if that is number 0.
    pub previous: U64,
    /// Start of the update, in seconds since 1970.
    pub time: I64,

    /// Length of the label in bytes.
    pub label_len: U32,
    /// Zero.
    pub reserved: [u8; 20],
    /// Description of the update for users: UTF-8, padded with zeros.
    pub label: [u8; LABEL_MAX_LEN],

    /// Bytes from byte 1024 on as they were in the previous generation.
    pub head: [u8; HEAD_LEN],
}

/// Length of a generation record in bytes.
pub const RECORD_LEN: usize = size_of::<RawGeneration>();

/// Record at the end of a generation: the last bytes of the last block that the superblock counts.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawGenerationEnd {
    /// [`END_MAGIC`].
    pub magic: [u8; 8],
    /// Byte offset of the generation's record in the image.
    pub position: U64,

    /// Byte offset of the first byte after this record.
    pub end: U64,
    /// Number of the generation.
    pub number: U32,
    /// CRC-32C of the bytes before this field.
    pub checksum: U32,
}

/// Length of the record at the end of a generation, in bytes.
pub const END_LEN: usize = size_of::<RawGenerationEnd>();

const _: () = {
    use std::mem::offset_of;
    assert!(RECORD_LEN == 1024);
    assert!(offset_of!(RawGeneration, checksum) == 12);
    assert!(offset_of!(RawGeneration, number) == 16);
    assert!(offset_of!(RawGeneration, restored) == 20);
    assert!(offset_of!(RawGeneration, position) == 24);
    assert!(offset_of!(RawGeneration, previous) == 32);
    assert!(offset_of!(RawGeneration, time) == 40);
    assert!(offset_of!(RawGeneration, label_len) == 48);
    assert!(offset_of!(RawGeneration, label) == 72);
    assert!(offset_of!(RawGeneration, head) == 512);
    assert!(END_LEN == 32);
    assert!(offset_of!(RawGenerationEnd, position) == 8);
    assert!(offset_of!(RawGenerationEnd, end) == 16);
    assert!(offset_of!(RawGenerationEnd, number) == 24);
    assert!(offset_of!(RawGenerationEnd, checksum) == 28);
};

/// Checked form of a generation record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationRecord {
    /// Number of the generation, from 1 on.
    pub number: u32,
    /// Number of the generation whose tree this one restores, if any.
    pub restored: Option<u32>,
    /// Byte offset of the record in the image.
    pub position: u64,
    /// Byte offset of the previous generation's record; `None` if that is the image as first built.
    pub previous: Option<u64>,
    /// Start of the update, in seconds since 1970.
    pub time: i64,
    /// Description of the update for users: at most [`LABEL_MAX_LEN`] bytes.
    pub label: String,
    /// Bytes from [`SUPERBLOCK_OFF`] on as they were in the previous generation.
    pub head: [u8; HEAD_LEN],
}

impl GenerationRecord {
    /// Decodes the record in `bytes`, which begins at byte `at` of the image.
    ///
    /// # Errors
    /// Bytes that are not a generation record, a damaged record, an unknown version, or a record
    /// whose position is not `at`.
    pub fn decode(bytes: &[u8], at: u64) -> Result<Self, FormatError> {
        let corrupt = |field, value, reason| FormatError::corrupt(RECORD, at, field, value, reason);
        let whole = bytes.get(..RECORD_LEN).and_then(|bytes| RawGeneration::read_from_bytes(bytes).ok());
        let raw = whole.ok_or_else(|| corrupt("magic", 0, "cut off by the end of the image"))?;
        if raw.magic != RECORD_MAGIC {
            return Err(corrupt("magic", u64::from_le_bytes(raw.magic), "not a generation record"));
        }
        if raw.version.get() != VERSION {
            let value = raw.version.get().into();
            return Err(FormatError::unsupported(RECORD, at, "version", value, "made by a later version"));
        }
        let zeroed = RawGeneration { checksum: U32::ZERO, ..raw };
        if crc32c::crc32c(zeroed.as_bytes()) != raw.checksum.get() {
            return Err(corrupt("checksum", raw.checksum.get().into(), "does not match the record"));
        }
        if raw.position.get() != at {
            return Err(corrupt("position", raw.position.get(), "does not match where the record lies"));
        }
        let (number, restored, previous) = (raw.number.get(), raw.restored.get(), raw.previous.get());
        if !(1..=NUMBER_MAX).contains(&number) {
            return Err(corrupt("number", number.into(), "must be 1 to 65535"));
        }
        if restored != NO_GENERATION && restored >= number {
            return Err(corrupt("restored", restored.into(), "must be an earlier generation"));
        }
        let is_first = number == 1;
        if previous >= at || is_first != (previous == 0) || !is_first && previous < SUPERBLOCK_OFF {
            return Err(corrupt("previous", previous, "must lie before this record"));
        }
        let label = raw.label.get(..raw.label_len.get() as usize).and_then(|label| std::str::from_utf8(label).ok());
        let label =
            label.ok_or_else(|| corrupt("label_len", raw.label_len.get().into(), "label too long or not UTF-8"))?;
        Ok(Self {
            number,
            restored: (restored != NO_GENERATION).then_some(restored),
            position: at,
            previous: (previous != 0).then_some(previous),
            time: raw.time.get(),
            label: label.to_owned(),
            head: raw.head,
        })
    }

    /// Returns the record's bytes.
    ///
    /// # Errors
    /// Fields that contradict each other or do not fit.
    pub fn encode(&self) -> Result<[u8; RECORD_LEN], FormatError> {
        let mut label = [0; LABEL_MAX_LEN];
        let bytes = self.label.as_bytes();
        let room = label.get_mut(..bytes.len());
        room.ok_or_else(|| FormatError::does_not_fit(RECORD, "label_len", bytes.len() as u64))?.copy_from_slice(bytes);
        let mut raw = RawGeneration {
            magic: RECORD_MAGIC,
            version: VERSION.into(),
            checksum: U32::ZERO,
            number: self.number.into(),
            restored: self.restored.unwrap_or(NO_GENERATION).into(),
            position: self.position.into(),
            previous: self.previous.unwrap_or(0).into(),
            time: self.time.into(),
            label_len: (bytes.len() as u32).into(),
            reserved: [0; 20],
            label,
            head: self.head,
        };
        raw.checksum = crc32c::crc32c(raw.as_bytes()).into();
        let mut out = [0; RECORD_LEN];
        out.copy_from_slice(raw.as_bytes());
        match Self::decode(&out, self.position) {
            Ok(decoded) if decoded == *self => Ok(out),
            Ok(_) => Err(FormatError::does_not_fit(RECORD, "restored", self.restored.unwrap_or(0).into())),
            Err(error) => Err(FormatError { problem: crate::Problem::DoesNotFit, ..error }),
        }
    }
}

/// Checked form of the record at the end of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationEnd {
    /// Number of the generation.
    pub number: u32,
    /// Byte offset of the generation's record in the image.
    pub position: u64,
    /// Byte offset of the end of the generation: the end of the superblock's last block.
    pub end: u64,
}

impl GenerationEnd {
    /// Decodes the record in `bytes`, which end at byte `end` of the image. Returns `None` if the
    /// image was never updated.
    ///
    /// # Errors
    /// A checksum that does not match.
    pub fn decode(bytes: &[u8; END_LEN], end: u64) -> Result<Option<Self>, FormatError> {
        let Ok(raw) = RawGenerationEnd::read_from_bytes(bytes) else { return Ok(None) };
        if raw.magic != END_MAGIC {
            return Ok(None);
        }
        let found = Self { number: raw.number.get(), position: raw.position.get(), end };
        if crc32c::crc32c(&bytes[..END_LEN - 4]) != raw.checksum.get() {
            return Err(found.corrupt("checksum", raw.checksum.get().into(), "does not match the record"));
        }
        // The data may contain the end of another image.
        Ok((raw.end.get() == end).then_some(found))
    }

    /// Returns the record's bytes.
    pub fn encode(&self) -> [u8; END_LEN] {
        let mut raw = RawGenerationEnd {
            magic: END_MAGIC,
            position: self.position.into(),
            end: self.end.into(),
            number: self.number.into(),
            checksum: U32::ZERO,
        };
        raw.checksum = crc32c::crc32c(&raw.as_bytes()[..END_LEN - 4]).into();
        let mut out = [0; END_LEN];
        out.copy_from_slice(raw.as_bytes());
        out
    }

    /// Returns an error about the generation record to which this one points.
    pub fn corrupt(&self, field: &'static str, value: u64, reason: &'static str) -> FormatError {
        FormatError::corrupt(END, self.end.saturating_sub(END_LEN as u64), field, value, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> GenerationRecord {
        GenerationRecord {
            number: 2,
            restored: Some(1),
            position: 1 << 20,
            previous: Some(4096),
            time: 1_700_000_000,
            label: "update /srv".to_owned(),
            head: std::array::from_fn(|at| at as u8),
        }
    }

    #[test]
    fn records_round_trip() {
        let first = GenerationRecord { number: 1, restored: None, previous: None, ..record() };
        let longest = GenerationRecord { label: "x".repeat(LABEL_MAX_LEN), ..record() };
        for record in [record(), first, longest] {
            let bytes = record.encode().unwrap();
            assert_eq!(GenerationRecord::decode(&bytes, record.position), Ok(record.clone()));
            assert!(GenerationRecord::decode(&bytes, record.position + 512).is_err(), "elsewhere");
            assert!(GenerationRecord::decode(&bytes[..RECORD_LEN - 1], record.position).is_err(), "cut");
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let bytes = record().encode().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(GenerationRecord::decode(&bytes, 1 << 20).is_err(), "{bit}");
        }
    }

    #[test]
    fn a_chain_only_goes_back() {
        for bad in [
            GenerationRecord { number: 0, ..record() },
            GenerationRecord { number: NUMBER_MAX + 1, ..record() },
            GenerationRecord { restored: Some(2), ..record() },
            GenerationRecord { previous: Some(1 << 20), ..record() },
            GenerationRecord { previous: None, ..record() },
            GenerationRecord { number: 1, restored: None, ..record() },
            GenerationRecord { label: "x".repeat(LABEL_MAX_LEN + 1), ..record() },
        ] {
            assert!(bad.encode().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ends_are_found_where_they_lie() {
        let end = GenerationEnd { number: 7, position: 8192, end: 65536 };
        let bytes = end.encode();
        assert_eq!(GenerationEnd::decode(&bytes, 65536), Ok(Some(end)));
        assert_eq!(GenerationEnd::decode(&bytes, 65537), Ok(None));
        assert_eq!(GenerationEnd::decode(&[0; END_LEN], 65536), Ok(None));
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = GenerationEnd::decode(&bytes, 65536);
            assert!(if bit < 64 { found == Ok(None) } else { found.is_err() }, "{bit}");
            // Nor is an end accepted where it has no room.
            assert!(if bit < 64 { found == Ok(None) } else { GenerationEnd::decode(&bytes, 7).is_err() }, "{bit}");
        }
    }
}
