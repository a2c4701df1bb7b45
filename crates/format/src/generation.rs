//! Generations: older trees of an image that was updated in place.
//!
//! An update appends new data and metadata to an image, and then changes the superblock and its configuration records. So that the tree of before
//! can be found, what it appends begins with a [`GenerationRecord`] that holds what the superblock's sector was, and ends with a
//! [`GenerationEnd`] that says where the record is. Kernels see both as blocks that nothing refers to.

use crate::FormatError;
use crate::superblock::SUPERBLOCK_OFF;
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a record begins with.
pub const RECORD_MAGIC: [u8; 8] = *b"kilnGenR";
/// What the end of a generation begins with.
pub const END_MAGIC: [u8; 8] = *b"kilnGenE";
/// The version of both that this crate knows.
pub const VERSION: u32 = 1;
/// Bytes from [`SUPERBLOCK_OFF`] on that an update changes at most: one sector, which disks write as a whole. Superblock and configuration records
/// fit in.
pub const HEAD_LEN: usize = 512;
/// The most that a label takes, in bytes.
pub const LABEL_MAX_LEN: usize = 440;
/// A field of a record that names no generation.
pub const NO_GENERATION: u32 = u32::MAX;
/// The highest number of a generation.
pub const NUMBER_MAX: u32 = 65_535;

const RECORD: &str = "kiln_generation";
const END: &str = "kiln_generation_end";

/// What a generation begins with.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawGeneration {
    /// [`RECORD_MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// CRC-32C of the record, this field taken as zero.
    pub checksum: U32,

    /// Number of the generation, 1 or higher: the image as it was built is number 0.
    pub number: U32,
    /// Number of the generation whose tree this one shows again, or [`NO_GENERATION`].
    pub restored: U32,
    /// Byte of the image where this record lies.
    pub position: U64,

    /// Byte where the record of the generation before lies, 0 if that is number 0.
    pub previous: U64,
    /// When the update began, in seconds since 1970.
    pub time: I64,

    /// Bytes of the label.
    pub label_len: U32,
    /// Zero.
    pub reserved: [u8; 20],
    /// What made it, for people: UTF-8, then zeros.
    pub label: [u8; LABEL_MAX_LEN],

    /// The bytes from byte 1024 on as they were in the generation before.
    pub head: [u8; HEAD_LEN],
}

/// Length of a record.
pub const RECORD_LEN: usize = size_of::<RawGeneration>();

/// What a generation ends with: the last bytes of the blocks that the superblock counts.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawGenerationEnd {
    /// [`END_MAGIC`].
    pub magic: [u8; 8],
    /// Byte of the image where the record of the generation lies.
    pub position: U64,

    /// Byte behind this end.
    pub end: U64,
    /// Number of the generation.
    pub number: U32,
    /// CRC-32C of the bytes before.
    pub checksum: U32,
}

/// Length of the end.
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

/// What a generation begins with, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationRecord {
    /// Number of the generation, from 1 on.
    pub number: u32,
    /// The generation whose tree it shows again, if it does.
    pub restored: Option<u32>,
    /// Byte of the image where the record lies.
    pub position: u64,
    /// Byte where the record of the generation before lies; `None` if that is the image as it was built.
    pub previous: Option<u64>,
    /// When the update began, in seconds since 1970.
    pub time: i64,
    /// What made it, for people: at most [`LABEL_MAX_LEN`] bytes.
    pub label: String,
    /// The bytes from [`SUPERBLOCK_OFF`] on as they were in the generation before.
    pub head: [u8; HEAD_LEN],
}

impl GenerationRecord {
    /// Decode the record in `bytes`, which begin at byte `at` of the image.
    ///
    /// # Errors
    /// Bytes that are no such record, or a damaged one; a version that is not known; one that lies elsewhere than it says.
    pub fn decode(bytes: &[u8], at: u64) -> Result<Self, FormatError> {
        let corrupt = |field, value, reason| FormatError::corrupt(RECORD, at, field, value, reason);
        let whole = bytes.get(..RECORD_LEN).and_then(|bytes| RawGeneration::read_from_bytes(bytes).ok());
        let raw = whole.ok_or_else(|| corrupt("magic", 0, "cut off by the end of the image"))?;
        if raw.magic != RECORD_MAGIC {
            return Err(corrupt("magic", u64::from_le_bytes(raw.magic), "no record of a generation"));
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
            return Err(corrupt("position", raw.position.get(), "lies elsewhere"));
        }
        let (number, restored, previous) = (raw.number.get(), raw.restored.get(), raw.previous.get());
        if !(1..=NUMBER_MAX).contains(&number) {
            return Err(corrupt("number", number.into(), "generations that follow have the numbers 1 to 65535"));
        }
        if restored != NO_GENERATION && restored >= number {
            return Err(corrupt("restored", restored.into(), "no earlier generation"));
        }
        let is_first = number == 1;
        if previous >= at || is_first != (previous == 0) || !is_first && previous < SUPERBLOCK_OFF {
            return Err(corrupt("previous", previous, "does not lie before"));
        }
        let label = raw.label.get(..raw.label_len.get() as usize).and_then(|label| std::str::from_utf8(label).ok());
        let label = label.ok_or_else(|| corrupt("label_len", raw.label_len.get().into(), "no label of UTF-8"))?;
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

    /// The record's bytes.
    ///
    /// # Errors
    /// Fields that contradict each other, or do not fit.
    pub fn encode(&self) -> Result<[u8; RECORD_LEN], FormatError> {
        let mut label = [0; LABEL_MAX_LEN];
        let bytes = self.label.as_bytes();
        let place = label.get_mut(..bytes.len());
        place.ok_or_else(|| FormatError::does_not_fit(RECORD, "label_len", bytes.len() as u64))?.copy_from_slice(bytes);
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

/// What a generation ends with, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationEnd {
    /// Number of the generation.
    pub number: u32,
    /// Byte of the image where its record lies.
    pub position: u64,
    /// Byte of the image behind the generation: that of the superblock's last block.
    pub end: u64,
}

impl GenerationEnd {
    /// The end in `bytes`, behind which lies byte `end` of the image; `None`: the image was never updated.
    ///
    /// # Errors
    /// A damaged one.
    pub fn decode(bytes: &[u8; END_LEN], end: u64) -> Result<Option<Self>, FormatError> {
        let Ok(raw) = RawGenerationEnd::read_from_bytes(bytes) else { return Ok(None) };
        if raw.magic != END_MAGIC {
            return Ok(None);
        }
        let found = Self { number: raw.number.get(), position: raw.position.get(), end };
        if crc32c::crc32c(&bytes[..END_LEN - 4]) != raw.checksum.get() {
            return Err(found.corrupt("checksum", raw.checksum.get().into(), "does not match what it is the end of"));
        }
        // That of another image may be among the data.
        Ok((raw.end.get() == end).then_some(found))
    }

    /// Its bytes.
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

    /// An error about the record that it leads to.
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
            // Not even an end that has no room there.
            assert!(if bit < 64 { found == Ok(None) } else { GenerationEnd::decode(&bytes, 7).is_err() }, "{bit}");
        }
    }
}
