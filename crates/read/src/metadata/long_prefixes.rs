//! The table of long name prefixes of extended attributes.

use crate::error::ReadError;

/// Name of the table's records in errors.
pub(super) const RECORD: &str = "erofs_xattr_long_prefix";
/// Longest record in bytes: base index and infix.
const RECORD_MAX_LEN: u64 = 256;

/// The table of long name prefixes.
#[derive(Debug, Default)]
pub(crate) struct LongPrefixes {
    list: Vec<LongPrefix>,
    /// Byte range of the table, if it is in the image itself.
    pub in_image: Option<(u64, u64)>,
}

/// One prefix.
#[derive(Debug)]
pub(super) struct LongPrefix {
    /// Number of the short prefix that it begins with.
    pub base: u8,
    /// The bytes that follow the short prefix.
    pub infix: Vec<u8>,
}

impl LongPrefixes {
    /// Decodes `count` records from byte `start` on of the place that `fill` reads from. Returns
    /// the table and the byte behind it.
    pub(super) fn read(
        count: usize,
        start: u64,
        mut fill: impl FnMut(&mut [u8], u64) -> Result<(), ReadError>,
    ) -> Result<(Self, u64), ReadError> {
        let mut off = start;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            let mut len = [0; 2];
            fill(&mut len, off)?;
            let len = u64::from(u16::from_le_bytes(len));
            if !(1..=RECORD_MAX_LEN).contains(&len) {
                return Err(ReadError::corrupt(RECORD, off, "size", len, "must be 1 to 256"));
            }
            let mut record = [0; RECORD_MAX_LEN as usize];
            let record = &mut record[..len as usize];
            fill(record, off + 2)?;
            list.push(LongPrefix { base: record[0], infix: record[1..].to_vec() });
            off = (off + 2 + len).next_multiple_of(4);
        }
        Ok((Self { list, in_image: None }, off))
    }

    /// Returns all prefixes, by their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LongPrefix> {
        self.list.iter()
    }

    /// Returns the prefix with number `idx`.
    pub(super) fn get(&self, idx: u8) -> Option<&LongPrefix> {
        self.list.get(usize::from(idx))
    }
}
