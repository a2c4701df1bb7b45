//! Answers of a recorder, as bytes: a head, and records of one length, all in little-endian numbers of 64 bits.
//!
//! The server need not be trusted: root may record a mount of any user.

use crate::fuse::ask::ANSWER_LEN;

/// The first number of each answer, with the version of the form.
const MAGIC: u64 = u64::from_le_bytes(*b"kilnrec1");
const NUMBER_LEN: usize = size_of::<u64>();
const HEAD_NUMBERS: usize = 4;
const RECORD_NUMBERS: usize = 4;
/// Most records of one answer.
pub(crate) const RECORDS_MAX: usize = (ANSWER_LEN / NUMBER_LEN - HEAD_NUMBERS) / RECORD_NUMBERS;
/// No file is longer: offsets of the system are signed.
const FILE_LEN_MAX: u64 = i64::MAX as u64;

/// Bytes of a file that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRecord {
    /// The number of the inode, as stat(2) shows it.
    pub(crate) ino: u64,
    /// First byte.
    pub(crate) offset: u64,
    /// How many bytes.
    pub(crate) len: u64,
    /// Microseconds from the start of the recording on.
    pub(crate) micros: u64,
}

/// What a recorder answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) records: Vec<ReadRecord>,
    /// Records that were lost since the start, as there was no room for them.
    pub(crate) lost: u64,
    /// Bytes that the kernel reads ahead while it is recorded.
    pub(crate) read_ahead: u64,
}

impl Answer {
    /// The bytes of an answer of at most [`RECORDS_MAX`] records.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let head = [MAGIC, self.records.len() as u64, self.lost, self.read_ahead];
        let records = self.records.iter().flat_map(|record| [record.ino, record.offset, record.len, record.micros]);
        head.into_iter().chain(records).flat_map(u64::to_le_bytes).collect()
    }

    /// The answer in these bytes; `None` if they are none. Records of ranges that no file has are left out.
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
    fn what_is_no_answer_is_refused() {
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
