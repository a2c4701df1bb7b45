//! Contents stored uncompressed in an archive, as a whole or as runs between holes.

use kiln_format::BlockBits;
use kiln_read::ReadAt;
use kiln_tree::placed::{joined, unit_bits};
use kiln_tree::{Content, ContentError, ContentId, Contents, Device, PlacedRun, Stored, StoredDigest, Stores, Version};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A run of a file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredRun {
    /// Offset in the file in bytes.
    pub la: u64,
    /// Offset in the archive in bytes.
    pub pa: u64,
    /// Length in bytes, not 0.
    pub len: u64,
}

impl StoredRun {
    /// Returns the end offset in the file in bytes.
    pub fn end(&self) -> u64 {
        self.la + self.len
    }
}

/// Value of a length whose runs are in `others`.
const ELSEWHERE: u32 = u32::MAX;

/// Positions of the data of all files of an archive. Archives may have millions of files; a file
/// that is a single run takes 12 bytes.
#[derive(Debug, Default)]
pub struct StoredFiles {
    /// Offset of the only run of each file in the archive, in bytes.
    starts: Vec<u64>,
    /// Length of that run in bytes, or [`ELSEWHERE`].
    lens: Vec<u32>,
    /// Runs of files with holes and of long files, by content id: sorted and disjoint.
    others: HashMap<u32, Box<[StoredRun]>>,
}

impl StoredFiles {
    /// Adds a file whose data are the bytes `stored` of the archive.
    pub(crate) fn whole(&mut self, stored: Range<u64>) -> ContentId {
        let len = stored.end - stored.start;
        match u32::try_from(len) {
            Ok(len) if len != ELSEWHERE => self.add(stored.start, len),
            _ => self.sparse(vec![StoredRun { la: 0, pa: stored.start, len }]),
        }
    }

    /// Adds a file with holes. `runs` must be sorted and disjoint.
    pub(crate) fn sparse(&mut self, runs: Vec<StoredRun>) -> ContentId {
        let id = self.add(0, ELSEWHERE);
        self.others.insert(id.0, runs.into());
        id
    }

    fn add(&mut self, start: u64, len: u32) -> ContentId {
        self.starts.push(start);
        self.lens.push(len);
        ContentId(self.starts.len() as u32 - 1)
    }

    /// Returns the runs of the file `id`: sorted and disjoint, with holes between them.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn runs(&self, id: ContentId) -> Box<[StoredRun]> {
        match self.lens[id.0 as usize] {
            ELSEWHERE => self.others[&id.0].clone(),
            0 => Box::default(),
            len => Box::new([StoredRun { la: 0, pa: self.starts[id.0 as usize], len: len.into() }]),
        }
    }

    /// Returns the number of files: content ids are smaller.
    pub(crate) fn count(&self) -> usize {
        self.starts.len()
    }

    /// Returns the start of each file's only run.
    pub(crate) fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// Returns the length of each file's only run, or [`ELSEWHERE`].
    pub(crate) fn lens(&self) -> &[u32] {
        &self.lens
    }

    /// Returns the runs of files with holes and of long files.
    pub(crate) fn others(&self) -> &HashMap<u32, Box<[StoredRun]>> {
        &self.others
    }

    /// Returns the files with these starts and lengths, and runs of `others`, which must be sorted
    /// and disjoint. Returns `None` if these are not just the files whose length is [`ELSEWHERE`],
    /// or if a file ends behind the last byte that an archive can have.
    pub(crate) fn of_parts(starts: Vec<u64>, lens: Vec<u32>, others: Vec<(u32, Box<[StoredRun]>)>) -> Option<Self> {
        let is_elsewhere = |id: &u32| lens.get(*id as usize) == Some(&ELSEWHERE);
        let count = lens.iter().filter(|len| **len == ELSEWHERE).count();
        let are_those = others.len() == count && others.iter().all(|(id, _)| is_elsewhere(id));
        let fit = starts.iter().zip(&lens).all(|(start, len)| start.checked_add((*len).into()).is_some());
        let others: HashMap<_, _> = others.into_iter().collect();
        (are_those && fit && others.len() == count).then_some(Self { starts, lens, others })
    }

    /// Returns the contents, given the bytes of the archive.
    pub(crate) fn in_archive(self: &Arc<Self>, bytes: Arc<dyn ReadAt>) -> StoredContents {
        StoredContents { bytes, files: Arc::clone(self), placed: None }
    }
}

/// Length in bytes of an entry in an image's list of chunks.
const LIST_ENTRY_LEN: u64 = 8;

/// An archive as a device to which images refer.
pub(crate) struct ArchiveDevice {
    /// The device; `None` if the data are nowhere and all files are holes.
    pub device: Option<Device>,
    /// Block size to which all data are aligned.
    pub block_bits: BlockBits,
}

impl ArchiveDevice {
    /// Returns the position of a file of `len` bytes on the device. Returns `None` if its data are
    /// not whole blocks, or are so fragmented that the list of chunks would be longer than the
    /// data.
    fn place(&self, len: u64, runs: &[StoredRun]) -> Option<Vec<PlacedRun>> {
        let placed = |run: &StoredRun| PlacedRun { la: run.la, device: 0, pa: run.pa, len: run.len };
        let placed = joined(runs.iter().map(placed));
        let (bits, block_len) = (unit_bits(len, &placed), self.block_bits.len());
        let list_len = len.checked_shr(bits.into()).unwrap_or(0).saturating_mul(LIST_ENTRY_LEN);
        let data_len = placed.iter().map(|run| run.len).sum();
        let device_len = self.device.as_ref().map_or(0, |device| self.block_bits.floor(device.len));
        let is_there = |run: &PlacedRun| run.pa.is_multiple_of(block_len) && run.device_end() <= device_len;
        let is_short = list_len <= block_len.max(data_len);
        (bits >= self.block_bits.bits() && placed.iter().all(is_there) && is_short).then_some(placed)
    }
}

/// Contents in an archive.
pub(crate) struct StoredContents {
    bytes: Arc<dyn ReadAt>,
    files: Arc<StoredFiles>,
    /// Device for images that refer to the archive instead of storing its data.
    placed: Option<ArchiveDevice>,
}

impl StoredContents {
    /// Returns the contents with a device, to which images refer instead of storing the data.
    pub(crate) fn with_device(self, placed: Option<ArchiveDevice>) -> Self {
        Self { placed, ..self }
    }
}

impl Contents for StoredContents {
    fn open(&self, id: ContentId, _: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        Ok(Box::new(StoredContent { bytes: Arc::clone(&self.bytes), runs: self.files.runs(id) }))
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        let runs = self.placed.as_ref().and_then(|placed| placed.place(len, &self.files.runs(id)));
        Ok(runs.map_or(Stored::ToRead, Stored::Elsewhere))
    }

    fn stored_digest(&self, _: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        Ok(None)
    }

    fn stores(&self) -> Stores {
        let Some(placed) = &self.placed else { return Stores::default() };
        let devices: Vec<Device> = placed.device.clone().into_iter().collect();
        Stores { headers_only: devices.is_empty(), devices, ..Stores::default() }
    }
}

struct StoredContent {
    bytes: Arc<dyn ReadAt>,
    runs: Box<[StoredRun]>,
}

impl StoredContent {
    /// Returns the index of the first run that ends after `off`.
    fn run_at(&self, off: u64) -> usize {
        self.runs.partition_point(|run| run.end() <= off)
    }
}

impl Content for StoredContent {
    fn read_exact_at(&mut self, mut buf: &mut [u8], mut off: u64) -> Result<(), ContentError> {
        let mut idx = self.run_at(off);
        while !buf.is_empty() {
            let Some(run) = self.runs.get(idx) else {
                buf.fill(0);
                break;
            };
            let hole = usize::try_from(run.la.saturating_sub(off)).unwrap_or(usize::MAX).min(buf.len());
            let (zeros, rest) = buf.split_at_mut(hole);
            zeros.fill(0);
            (buf, off) = (rest, off + hole as u64);
            let part = buf.len().min(usize::try_from(run.end() - off).unwrap_or(usize::MAX));
            if part > 0 {
                let (data, rest) = buf.split_at_mut(part);
                self.bytes.read_exact_at(data, run.pa + (off - run.la)).map_err(in_archive)?;
                (buf, off) = (rest, off + part as u64);
            }
            idx += 1;
        }
        Ok(())
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        Ok(self.runs.get(self.run_at(off)).map(|run| run.la.max(off)..run.end()))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}

fn in_archive(error: io::Error) -> ContentError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ContentError::Resized("the archive has become shorter"),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_read::MemorySource;

    #[test]
    fn archives_are_referred_to_where_records_allow() {
        let device = Device { path: None, tag: [0; 64], len: 10_100 };
        let archive = ArchiveDevice { device: Some(device), block_bits: BlockBits::SECTOR };
        let run = |la, pa, len| StoredRun { la, pa, len };
        let is_placed = |len, runs: &[StoredRun]| archive.place(len, runs).is_some();
        assert!(is_placed(1000, &[run(0, 512, 1000)]) && is_placed(9216, &[run(0, 512, 9216)]));
        assert!(is_placed(5000, &[run(512, 512, 512), run(4096, 1024, 904)]) && is_placed(1 << 40, &[]));
        // The last record of the archive is incomplete.
        assert!(!is_placed(9500, &[run(0, 512, 9500)]));
        // Data that begin or end within records.
        assert!(!is_placed(5000, &[run(100, 512, 4900)]) && !is_placed(5000, &[run(0, 700, 5000)]));
        assert!(!is_placed(5000, &[run(0, 512, 100), run(4096, 612, 904)]));
        // A list of 2^21 chunks for two that have data.
        assert!(!is_placed(1 << 30, &[run(512, 512, 512), run(1 << 20, 1024, 512)]));
    }

    #[test]
    fn files_are_read_whole_and_between_holes() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut stored = StoredFiles::default();
        let whole = stored.whole(10..20);
        let empty = stored.whole(7..7);
        let long = stored.whole(3..3 + (1 << 40));
        let runs = vec![
            StoredRun { la: 5, pa: 100, len: 5 },
            StoredRun { la: 10, pa: 50, len: 2 },
            StoredRun { la: 20, pa: 60, len: 3 },
        ];
        let sparse = stored.sparse(runs);
        assert_eq!(*stored.runs(long), [StoredRun { la: 0, pa: 3, len: 1 << 40 }]);
        assert_eq!(*stored.runs(whole), [StoredRun { la: 0, pa: 10, len: 10 }]);
        let contents = Arc::new(stored).in_archive(Arc::new(MemorySource::new(bytes)));
        let cases = [
            (whole, (10..20).collect(), &[(0, 10)][..]),
            (empty, vec![], &[]),
            (
                sparse,
                [&[0; 5][..], &[100, 101, 102, 103, 104, 50, 51], &[0; 8], &[60, 61, 62], &[0; 7]].concat(),
                &[(5, 10), (10, 12), (20, 23)],
            ),
        ];
        for (id, plain, data) in cases {
            let mut content = contents.open(id, b"", Version::Scanned).unwrap();
            for start in 0..plain.len() {
                for end in start..=plain.len() {
                    let mut buf = vec![0xA5; end - start];
                    content.read_exact_at(&mut buf, start as u64).unwrap();
                    assert_eq!(buf, plain[start..end], "{start}..{end}");
                }
            }
            let (mut off, mut found) = (0, Vec::new());
            while let Some(run) = content.next_data(off).unwrap() {
                off = run.end;
                found.push((run.start, run.end));
            }
            assert_eq!(found, data);
            content.verify_unchanged().unwrap();
        }
    }
}
