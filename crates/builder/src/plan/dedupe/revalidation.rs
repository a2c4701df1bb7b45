//! Checks of text that several files share, so that the second pass stores the text that the first one saw.
//!
//! Text that is stored once for several files was compared when the plan was made, and is read again when it is
//! stored. A file that changed in between would change its neighbours too, and not every change shows in timestamps.
//! So the text of such files is hashed again, in the *cells* of the first pass: chunks, or the steps of a
//! comparison.

use std::collections::HashSet;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_128;

use kiln_tree::{Content, ContentError};

/// Consecutive bytes of a file. There is one for each chunk, so it is small; 32 bits of a hash tell a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckedRange {
    len: u32,
    check: u32,
}

impl CheckedRange {
    /// Returns a cell of `len` bytes with this XXH3-128, or its lowest bits.
    pub(crate) fn new(len: u32, hash: u32) -> Self {
        Self { len, check: hash }
    }

    /// Returns the cell of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::new(bytes.len() as u32, xxh3_128(bytes) as u32)
    }
}

/// Consecutive cells.
struct Window {
    file: u32,
    /// Its first byte in the file.
    start: u64,
    /// Its first cell.
    first: usize,
    count: u32,
}

/// The cells of files.
#[derive(Default)]
pub(crate) struct ContentChecks {
    windows: Vec<Window>,
    cells: Vec<CheckedRange>,
}

impl ContentChecks {
    /// Adds contiguous cells of `file`, from byte `start` on.
    pub(crate) fn push(&mut self, file: u32, start: u64, cells: impl IntoIterator<Item = CheckedRange>) {
        let first = self.cells.len();
        self.cells.extend(cells);
        let count = (self.cells.len() - first) as u32;
        self.windows.push(Window { file, start, first, count });
    }

    /// Returns the cells of these files only, in order.
    pub(crate) fn of_files(mut self, files: &HashSet<u32>) -> Self {
        self.windows.retain(|window| files.contains(&window.file));
        self.windows.sort_unstable_by_key(|window| (window.file, window.start));
        let mut kept = Self::default();
        for window in &self.windows {
            kept.push(window.file, window.start, self.cells_of(window).iter().copied());
        }
        kept
    }

    /// Returns whether there are cells of `file`. The windows must be in order.
    pub(crate) fn has(&self, file: u32) -> bool {
        self.windows.binary_search_by_key(&file, |window| window.file).is_ok()
    }

    fn cells_of(&self, window: &Window) -> &[CheckedRange] {
        &self.cells[window.first..][..window.count as usize]
    }

    /// Checks that `text`, the bytes of `file` from `off` on, is unchanged. The rest of its first and last cell is
    /// read. The windows must be in order.
    ///
    /// # Errors
    /// [`ContentError::Changed`] if it is not; read errors.
    pub(crate) fn verify(
        &self,
        content: &mut dyn Content,
        file: u32,
        off: u64,
        text: &[u8],
    ) -> Result<(), ContentError> {
        let range = off..off + text.len() as u64;
        // The last window that starts at or before the text, and those behind it.
        let first = self.windows.partition_point(|window| (window.file, window.start) <= (file, off)).saturating_sub(1);
        let windows = self.windows[first..].iter().skip_while(|window| window.file < file);
        let mut whole = Vec::new();
        for window in windows.take_while(|window| window.file == file && window.start < range.end) {
            let mut start = window.start;
            for &cell in self.cells_of(window) {
                let bytes = start..start + u64::from(cell.len);
                start = bytes.end;
                if bytes.end <= range.start || bytes.start >= range.end {
                    continue;
                }
                let is_same = match range.start <= bytes.start && bytes.end <= range.end {
                    true => CheckedRange::of(&text[(bytes.start - off) as usize..][..cell.len as usize]) == cell,
                    false => {
                        complete(content, off, text, bytes, &mut whole)?;
                        CheckedRange::of(&whole) == cell
                    }
                };
                if !is_same {
                    return Err(ContentError::Changed("its contents"));
                }
            }
        }
        Ok(())
    }
}

/// Makes `whole` the bytes of `cell`, taken from `text` at `off` as far as that has them.
fn complete(
    content: &mut dyn Content,
    off: u64,
    text: &[u8],
    cell: Range<u64>,
    whole: &mut Vec<u8>,
) -> Result<(), ContentError> {
    let known = cell.start.max(off)..cell.end.min(off + text.len() as u64);
    whole.clear();
    whole.resize((known.start - cell.start) as usize, 0);
    content.read_exact_at(whole, cell.start)?;
    whole.extend_from_slice(&text[(known.start - off) as usize..(known.end - off) as usize]);
    let before = whole.len();
    whole.resize((cell.end - cell.start) as usize, 0);
    content.read_exact_at(&mut whole[before..], known.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Content for Bytes {
        fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
            buf.copy_from_slice(&self.0[off as usize..][..buf.len()]);
            Ok(())
        }

        fn next_data(&mut self, _: u64) -> Result<Option<Range<u64>>, ContentError> {
            unreachable!("not asked for")
        }

        fn verify_unchanged(&mut self) -> Result<(), ContentError> {
            Ok(())
        }
    }

    /// Returns checks: file 5 has cells of 10 bytes in 0..30 and 50..70; files 4 and 6 have others.
    fn checks(bytes: &[u8]) -> ContentChecks {
        let mut checks = ContentChecks::default();
        checks.push(6, 0, [CheckedRange::new(100, 0)]);
        checks.push(5, 50, bytes[50..70].chunks(10).map(CheckedRange::of));
        checks.push(5, 0, bytes[..30].chunks(10).map(CheckedRange::of));
        checks.push(4, 0, [CheckedRange::new(100, 0)]);
        checks.push(3, 0, [CheckedRange::new(100, 0)]);
        checks.of_files(&HashSet::from([4, 5, 6]))
    }

    #[test]
    fn every_change_of_a_cell_is_found_wherever_text_begins_and_ends() {
        let bytes: Vec<u8> = (0..100).collect();
        let checks = checks(&bytes);
        assert_eq!((checks.windows.len(), checks.cells.len()), (4, 7));
        assert_eq!([3, 4, 5, 6, 7].map(|file| checks.has(file)), [false, true, true, true, false]);
        for changed in 0..100 {
            let mut now = Bytes(bytes.clone());
            now.0[changed] ^= 1;
            let in_cells = |cells: Range<usize>| cells.contains(&changed);
            for start in 0..100 {
                for end in start + 1..=100 {
                    let text = now.0[start..end].to_vec();
                    let verified = checks.verify(&mut now, 5, start as u64, &text);
                    // All cells that the text touches.
                    let touched = |cells: Range<usize>| {
                        let (first, last) = (start.max(cells.start), end.min(cells.end));
                        first < last && in_cells(first / 10 * 10..last.next_multiple_of(10))
                    };
                    assert_eq!(verified.is_err(), touched(0..30) || touched(50..70), "{changed} {start}..{end}");
                    assert!(checks.verify(&mut now, 7, start as u64, &text).is_ok());
                }
            }
        }
    }
}
