//! Records that are not yet fetched, in bounded memory.

use super::answer::ReadRecord;
use std::collections::VecDeque;

/// Largest number of records: 2 MiB of memory.
const RECORDS_MAX: usize = 64 << 10;

/// Records in order. Of more than [`RECORDS_MAX`], the latest are lost.
#[derive(Default)]
pub(super) struct Ring {
    records: VecDeque<ReadRecord>,
    lost: u64,
}

impl Ring {
    /// Adds a record. One that begins where the last one ends extends it: the kernel requests pages
    /// one by one.
    pub(super) fn push(&mut self, record: ReadRecord) {
        let is_full = self.records.len() >= RECORDS_MAX;
        match self.records.back_mut() {
            Some(last) if last.ino == record.ino && last.offset.checked_add(last.len) == Some(record.offset) => {
                last.len += record.len;
            }
            _ if is_full => self.lost += 1,
            _ => self.records.push_back(record),
        }
    }

    /// Removes and returns the oldest records, at most `count`.
    pub(super) fn pop(&mut self, count: usize) -> Vec<ReadRecord> {
        self.records.drain(..count.min(self.records.len())).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the number of records lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ino: u64, offset: u64, micros: u64) -> ReadRecord {
        ReadRecord { ino, offset, len: 4096, micros }
    }

    #[test]
    fn neighbours_are_one_record_with_the_time_of_the_first() {
        let mut ring = Ring::default();
        for (ino, offset, micros) in [(7, 0, 10), (7, 4096, 11), (8, 8192, 12), (7, 8192, 13), (7, 8192, 14)] {
            ring.push(record(ino, offset, micros));
        }
        let long = ReadRecord { len: 8192, ..record(7, 0, 10) };
        assert_eq!(ring.pop(2), [long, record(8, 8192, 12)]);
        assert_eq!(ring.pop(9), [record(7, 8192, 13), record(7, 8192, 14)]);
        assert!(ring.is_empty());
    }

    #[test]
    fn memory_is_bounded_and_what_is_lost_is_counted() {
        let mut ring = Ring::default();
        (0..RECORDS_MAX as u64 + 5).for_each(|ino| ring.push(record(ino, 0, ino)));
        assert_eq!((ring.records.len(), ring.lost()), (RECORDS_MAX, 5));
        // A record that extends another takes no more memory.
        ring.push(record(RECORDS_MAX as u64 - 1, 4096, 0));
        assert_eq!((ring.pop(1)[0].ino, ring.lost()), (0, 5));
        ring.push(record(1 << 40, 0, 0));
        assert_eq!((ring.records.len(), ring.lost()), (RECORDS_MAX, 5));
    }
}
