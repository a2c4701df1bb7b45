//! Answers of a recorder, as bytes: a head and records of one length, all in little-endian numbers
//! of 64 bits.
//!
//! The server need not be trusted: root may record a mount of any user.

use crate::fuse::ask::ANSWER_LEN;

/// First number of each answer, with the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"kilnrec1");
const NUMBER_LEN: usize = size_of::<u64>();
const HEAD_NUMBERS: usize = 4;
const RECORD_NUMBERS: usize = 4;
/// Largest number of records in one answer.
pub(crate) const RECORDS_MAX: usize = (ANSWER_LEN / NUMBER_LEN - HEAD_NUMBERS) / RECORD_NUMBERS;
/// Length of the longest file in bytes: offsets of the system are signed.
const FILE_LEN_MAX: u64 = i64::MAX as u64;

/// Bytes of a file that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRecord {
    /// Number of the inode, as stat(2) shows it.
    pub(crate) ino: u64,
    /// First byte.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) len: u64,
    /// Microseconds since the start of the recording.
    pub(crate) micros: u64,
}

/// Answer of a recorder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) records: Vec<ReadRecord>,
    /// Number of records that were lost since the start for lack of room.
    pub(crate) lost: u64,
    /// Bytes that the kernel reads ahead during the recording.
    pub(crate) read_ahead: u64,
}

impl Answer {
    /// Returns the bytes of an answer of at most [`RECORDS_MAX`] records.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let head = [MAGIC, self.records.len() as u64, self.lost, self.read_ahead];
        let records = self.records.iter().flat_map(|record| [record.ino, record.offset, record.len, record.micros]);
        head.into_iter().chain(records).flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes an answer; returns `None` if the bytes are none. Records of ranges that no file can
    /// have are dropped.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut numbers = bytes.chunks_exact(NUMBER_LEN).map(|chunk| chunk.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || numbers.next();
        let (magic, count, lost, read_ahead) = (next()?, next()?, next()?, next()?);
        if magic != MAGIC || count > RECORDS_MAX as u64 {
            return None;
        }
        let mut records = Vec::new();
        for _ in 0..count {
            let record = ReadRecord { ino: next()?, offset: next()?, len: next()?, micros: next()? };
            let end = record.offset.checked_add(record.len);
            records.extend(end.is_some_and(|end| end <= FILE_LEN_MAX).then_some(record));
        }
        Some(Self { records, lost, read_ahead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let record = |ino| ReadRecord { ino, offset: ino << 20, len: 4096, micros: ino + 1 };
        for count in [0, 1, RECORDS_MAX as u64] {
            let answer = Answer { records: (0..count).map(record).collect(), lost: 3, read_ahead: 131_072 };
            let mut bytes = answer.encode();
            assert!(bytes.len() <= ANSWER_LEN);
            bytes.resize(ANSWER_LEN, 0);
            assert_eq!(Answer::decode(&bytes), Some(answer));
        }
    }

    #[test]
    fn invalid_answers_are_rejected() {
        let one = ReadRecord { ino: 1, offset: u64::MAX, len: 2, micros: 0 };
        let two = ReadRecord { ino: 1, offset: 1 << 62, len: 1 << 62, micros: 0 };
        let answer = Answer { records: vec![one, two], lost: 0, read_ahead: 0 };
        let bytes = answer.encode();
        assert_eq!(Answer::decode(&bytes).unwrap().records, []);
        assert_eq!((Answer::decode(&bytes[..bytes.len() - 1]), Answer::decode(&[])), (None, None));
        let mut many = bytes.clone();
        many[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!((Answer::decode(&many), Answer::decode(&[0; ANSWER_LEN])), (None, None));
    }
}
