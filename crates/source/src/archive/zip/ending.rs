//! End of central directory record, which identifies a zip archive regardless of its first bytes.

use kiln_read::ReadAt;
use std::io;

const MAGIC: &[u8; 4] = b"PK\x05\x06";
/// Length of the record without its comment, in bytes.
const RECORD_LEN: usize = 22;
/// Maximum length in bytes of a comment.
const COMMENT_MAX_LEN: u64 = u16::MAX as u64;
/// Value of a field that is stored in the ZIP64 record.
const ELSEWHERE: u16 = u16::MAX;
/// Magic number of a central directory record.
const DIRECTORY_MAGIC: &[u8; 4] = b"PK\x01\x02";

/// The end of central directory record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// Number of this part of a split archive, from 0.
    pub part: u16,
    /// True if the central directory is directly before the record.
    pub has_directory: bool,
}

impl Ending {
    /// Finds the record at the end of `bytes`. Returns `None` if there is none.
    ///
    /// # Errors
    /// Read errors.
    pub(super) fn find(bytes: &dyn ReadAt) -> io::Result<Option<Self>> {
        let len = bytes.len()?;
        let mut tail = vec![0; len.min(COMMENT_MAX_LEN + RECORD_LEN as u64) as usize];
        let tail_off = len - tail.len() as u64;
        bytes.read_exact_at(&mut tail, tail_off)?;
        let is_record = |at: usize| {
            let comment_len = u16::from_le_bytes([tail[at + 20], tail[at + 21]]);
            tail[at..].starts_with(MAGIC) && at + RECORD_LEN + usize::from(comment_len) == tail.len()
        };
        let Some(at) =
            (0..=tail.len().saturating_sub(RECORD_LEN)).rev().find(|&at| tail.len() >= RECORD_LEN && is_record(at))
        else {
            return Ok(None);
        };
        let u16_at = |field: usize| u16::from_le_bytes([tail[at + field], tail[at + field + 1]]);
        let directory_len = u64::from(u16_at(12)) | u64::from(u16_at(14)) << 16;
        let (part, count) = (u16_at(4), u16_at(10));
        let mut magic = [0; 4];
        let directory = (tail_off + at as u64).checked_sub(directory_len);
        let has_directory = match directory.filter(|_| count > 0) {
            Some(directory) => bytes.read_exact_at(&mut magic, directory).is_ok() && magic == *DIRECTORY_MAGIC,
            None => false,
        };
        Ok(Some(Self { part: if part == ELSEWHERE { 0 } else { part }, has_directory }))
    }
}
