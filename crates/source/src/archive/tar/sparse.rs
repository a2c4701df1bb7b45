//! Maps of sparse files, in all versions of GNU tar.

use super::header::{RECORD_LEN, Record};
use super::number::{decimal, number};
use crate::stored::StoredRun;

/// Maximum length in bytes of a number in a map, including its line feed.
const LINE_MAX_LEN: usize = 21;

/// Map of a file under construction. Runs are in ascending order in the file and adjacent in the
/// archive.
pub(super) struct SparseMap {
    /// Length of the file in bytes, including holes.
    real_len: u64,
    /// Runs of data; `pa` is relative to the first byte of data.
    runs: Vec<StoredRun>,
    /// Length in bytes of the data in the archive.
    stored_len: u64,
}

impl SparseMap {
    /// Creates the map of a file of `real_len` bytes that is one hole.
    pub(super) fn new(real_len: u64) -> Self {
        Self { real_len, runs: Vec::new(), stored_len: 0 }
    }

    /// Returns the length of the file in bytes, including holes.
    pub(super) fn real_len(&self) -> u64 {
        self.real_len
    }

    /// Adds data of `len` bytes at offset `off`; `len` may be 0.
    ///
    /// # Errors
    /// Data before the end of earlier data, or beyond the end of the file.
    pub(super) fn push(&mut self, off: u64, len: u64) -> Result<(), String> {
        let wrong = |what: &str| format!("invalid sparse map entry of {len} bytes at {off}: {what}");
        let front = self.runs.last().map_or(0, StoredRun::end);
        if off < front {
            return Err(wrong(&format!("it starts before byte {front}, the end of the previous entry")));
        }
        match off.checked_add(len) {
            Some(end) if end <= self.real_len => {}
            _ => return Err(wrong(&format!("the file is {} bytes long", self.real_len))),
        }
        match self.runs.last_mut() {
            _ if len == 0 => {}
            Some(last) if last.end() == off => last.len += len,
            _ => self.runs.push(StoredRun { la: off, pa: self.stored_len, len }),
        }
        // At most `real_len`.
        self.stored_len += len;
        Ok(())
    }

    /// Returns the length of the file and its runs, for an archive with its data at `pa`, in
    /// `stored_len` bytes.
    ///
    /// # Errors
    /// A `stored_len` that differs from the length in the map.
    pub(super) fn finish(mut self, pa: u64, stored_len: u64) -> Result<(u64, Vec<StoredRun>), String> {
        if self.stored_len != stored_len {
            return Err(format!(
                "a sparse map of {} bytes of data, where the archive has {stored_len}",
                self.stored_len
            ));
        }
        self.runs.iter_mut().for_each(|run| run.pa += pa);
        Ok((self.real_len, self.runs))
    }
}

/// Parses the map in a header of GNU tar's old format: up to four runs and the length of the file.
/// Returns true with the map if records with more runs follow.
///
/// # Errors
/// Fields that are not numbers; those of [`SparseMap::push`].
pub(super) fn of_header(record: &Record) -> Result<(SparseMap, bool), String> {
    let mut map = SparseMap::new(field("realsize", &record[483..495])?);
    push_pairs(&mut map, &record[386..482])?;
    Ok((map, record[482] != 0))
}

/// Adds the runs of a further record, up to 21. Returns true if another record follows.
///
/// # Errors
/// Those of [`of_header`].
pub(super) fn push_record(map: &mut SparseMap, record: &Record) -> Result<bool, String> {
    push_pairs(map, &record[..504])?;
    Ok(record[504] != 0)
}

fn push_pairs(map: &mut SparseMap, pairs: &[u8]) -> Result<(), String> {
    for pair in pairs.chunks_exact(24).take_while(|pair| pair[12] != 0) {
        map.push(field("offset", &pair[..12])?, field("numbytes", &pair[12..])?)?;
    }
    Ok(())
}

fn field(name: &str, bytes: &[u8]) -> Result<u64, String> {
    let value = number(bytes).and_then(|value| u64::try_from(value).ok());
    value.ok_or_else(|| format!("{name} = \"{}\" in a sparse map: not a number", bytes.escape_ascii()))
}

/// Parser of maps in version 1.0: decimal numbers, each followed by a line feed, before the data.
/// They are the number of runs, then offset and length of each run.
pub(super) struct MapText {
    map: SparseMap,
    /// Number of runs that are still missing, once their count has been read.
    rest: Option<u64>,
    offset: Option<u64>,
    /// Digits of a number that continues in the next record.
    digits: Vec<u8>,
}

impl MapText {
    /// Creates a parser for the map of a file of `real_len` bytes.
    pub(super) fn new(real_len: u64) -> Self {
        Self { map: SparseMap::new(real_len), rest: None, offset: None, digits: Vec::new() }
    }

    /// Returns true if the map has been read completely.
    pub(super) fn is_complete(&self) -> bool {
        self.rest == Some(0)
    }

    /// Parses the next record.
    ///
    /// # Errors
    /// Text that is not a number; those of [`SparseMap::push`].
    pub(super) fn push_record(&mut self, record: &[u8; RECORD_LEN]) -> Result<(), String> {
        for &byte in record {
            if self.is_complete() {
                break;
            }
            match byte {
                b'\n' => self.push_number()?,
                _ if self.digits.len() < LINE_MAX_LEN => self.digits.push(byte),
                _ => return Err(self.not_a_number()),
            }
        }
        Ok(())
    }

    fn push_number(&mut self) -> Result<(), String> {
        let number = decimal(&self.digits).ok_or_else(|| self.not_a_number())?;
        self.digits.clear();
        match (self.rest, self.offset.take()) {
            (None, _) => self.rest = Some(number),
            (Some(_), None) => self.offset = Some(number),
            (Some(rest), Some(offset)) => {
                self.map.push(offset, number)?;
                self.rest = Some(rest - 1);
            }
        }
        Ok(())
    }

    fn not_a_number(&self) -> String {
        format!("\"{}\" in a sparse map: not a number", self.digits.escape_ascii())
    }

    /// Returns the parsed map.
    pub(super) fn into_map(self) -> SparseMap {
        self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_go_forward_within_the_file() {
        let mut map = SparseMap::new(100);
        for (off, len) in [(0, 0), (10, 5), (15, 5), (15, 0), (90, 10), (100, 0)] {
            // An empty run must not be before the end of others.
            assert_eq!(map.push(off, len).is_ok(), (off, len) != (15, 0), "{off} {len}");
        }
        for (off, len) in [(99, 1), (5, 1), (100, 1), (101, 0), (u64::MAX, 1), (100, u64::MAX)] {
            assert!(map.push(off, len).is_err(), "{off} {len}");
        }
        let runs = vec![StoredRun { la: 10, pa: 1000, len: 10 }, StoredRun { la: 90, pa: 1010, len: 10 }];
        assert_eq!(map.finish(1000, 20).unwrap(), (100, runs));
        assert!(SparseMap::new(5).finish(0, 1).is_err());
    }

    #[test]
    fn a_text_may_go_on_in_the_next_record() {
        let mut text = b"70\n".to_vec();
        (0..70_u64).for_each(|run| text.extend(format!("{}\n10\n", run * 1000).bytes()));
        text.resize(text.len().next_multiple_of(RECORD_LEN), 0);
        let (mut map, mut records) = (MapText::new(70_000), text.as_chunks().0.iter());
        while !map.is_complete() {
            map.push_record(records.next().unwrap()).unwrap();
        }
        assert!(records.next().is_none() && text.len() > RECORD_LEN);
        assert_eq!(map.into_map().finish(0, 700).unwrap().1.len(), 70);
        for text in ["\n", "1\n-1\n1\n", "1\nx\n", "99999999999999999999999999\n", "x", "1\n1\n1000\n"] {
            let mut record = [b'0'; RECORD_LEN];
            record[..text.len()].copy_from_slice(text.as_bytes());
            assert!(MapText::new(100).push_record(&record).is_err(), "{text}");
        }
    }
}
