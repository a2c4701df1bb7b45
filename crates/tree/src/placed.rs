//! Data that are on devices already: an image refers to them instead of storing them.

use std::path::PathBuf;

/// A device beside the image that has data of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Path of its file, if it has one.
    pub path: Option<PathBuf>,
    /// Name in the image's device table, padded with zeros.
    pub tag: [u8; 64],
    /// Length in bytes. An image counts whole blocks of it.
    pub len: u64,
}

/// A run of a file's data on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedRun {
    /// Offset in the file in bytes.
    pub la: u64,
    /// Index of the device among those of the tree.
    pub device: u16,
    /// Offset on the device in bytes.
    pub pa: u64,
    /// Length in bytes, not 0.
    pub len: u64,
}

impl PlacedRun {
    /// Returns the end offset in the file in bytes.
    pub fn end(&self) -> u64 {
        self.la.saturating_add(self.len)
    }

    /// Returns the end offset on the device in bytes.
    pub fn device_end(&self) -> u64 {
        self.pa.saturating_add(self.len)
    }

    /// Returns true if the run continues `before`, both in the file and on the device.
    fn follows(&self, before: &Self) -> bool {
        self.la == before.end() && self.device == before.device && self.pa == before.device_end()
    }
}

/// Joins each run with the previous one if it continues it.
pub fn joined(runs: impl IntoIterator<Item = PlacedRun>) -> Vec<PlacedRun> {
    let mut joined = Vec::<PlacedRun>::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if run.follows(last) => last.len += run.len,
            _ => joined.push(run),
        }
    }
    joined
}

/// Returns log2 of the largest unit that can describe a file of `len` bytes: each unit of the file is
/// a hole or part of one run. `runs` are sorted and do not overlap, with holes between them.
pub fn unit_bits(len: u64, runs: &[PlacedRun]) -> u8 {
    let cuts = runs.iter().flat_map(|run| [run.la, run.end()]).filter(|&cut| cut != len);
    cuts.map(|cut| cut.trailing_zeros() as u8).min().unwrap_or(u64::BITS as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(la: u64, pa: u64, len: u64) -> PlacedRun {
        PlacedRun { la, device: 0, pa, len }
    }

    #[test]
    fn units_lie_between_cuts() {
        for (len, runs, bits) in [
            (5, &[][..], 64),
            (100_000, &[run(0, 512, 100_000)], 64),
            (100_000, &[run(0, 512, 4096), run(65536, 4608, 34464)], 12),
            // Only the file's end may be anywhere.
            (100_000, &[run(65536, 4608, 34464)], 16),
            (100_000, &[run(65536, 4608, 30000)], 4),
            (100_000, &[run(101, 512, 4096)], 0),
        ] {
            assert_eq!(unit_bits(len, runs), bits, "{len} {runs:?}");
        }
    }

    #[test]
    fn runs_that_go_on_are_one() {
        let other = PlacedRun { device: 1, ..run(300, 700, 50) };
        let runs = [run(0, 512, 100), run(100, 612, 100), run(200, 600, 100), other, run(350, 750, 1)];
        let expected = [run(0, 512, 200), run(200, 600, 100), other, run(350, 750, 1)];
        assert_eq!(joined(runs), expected);
        assert_eq!(joined([]), []);
    }
}
