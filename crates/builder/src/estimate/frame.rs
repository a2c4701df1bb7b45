//! The sampling frame: the jobs of a plan in strata, and the way a sample of each is drawn.
//!
//! * Files that are stored uncompressed: their size is known, their time is sampled.
//! * Compressed files of up to 512 KiB, by powers of two of their length. Whole files are packed: every n-th of a
//!   stratum, in plan order. Their stored length and their time are about proportional to their length.
//! * Longer files and the packed stream. *Pieces* are packed, from places at equal distances in all text of the
//!   stratum. Only extents that start in the first 512 KiB of a piece count; more text follows so that the last of
//!   them can end freely. At many more places there is an *LZ4 sample*: the ratio that LZ4 reaches on 64 KiB. The
//!   stored length of pieces is nearly linear in that, so the mean of the LZ4 samples corrects that of the few
//!   pieces.
//!
//! A stratum that is no longer than its share of the sample is packed as a whole.

use kiln_codec::{Method, Spec};

use super::drawn::{Draw, DrawnFile, PIECE_LEN};
use super::interval::Interval;
use super::observed::{Observed, Sample};
use crate::format::Format;
use crate::pack::jobs::{PackJob, Task};
use crate::plan::text::TextSource;

/// Longest file that is packed whole, in bytes.
const WHOLE_MAX_LEN: u64 = 512 << 10;
/// Text behind the front of a piece, for the last extent that starts there, in pcluster lengths: few extents are
/// longer.
const PIECE_RATIO: u64 = 3;
/// Text of an LZ4 sample in bytes.
const LZ4_SAMPLE_LEN: u64 = 64 << 10;
/// Most LZ4 samples of a stratum.
const LZ4_SAMPLES: u64 = 3000;
/// Fewest files or pieces of a stratum that has so many: with fewer, the errors are too uncertain themselves.
const COUNT_MIN: u64 = 12;
/// Bytes of uncompressed files that are copied to measure the time.
const COPIED_LEN: u64 = 32 << 20;

/// All jobs, in strata.
pub(super) struct Frame {
    /// The jobs.
    pub parts: Vec<PackJob>,
    /// The strata, none of them empty.
    pub strata: Vec<Stratum>,
}

/// Way of sampling the jobs of a stratum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    /// Whole jobs that are copied.
    Copied,
    /// Whole jobs of at most 2 to this power bytes.
    Whole(u32),
    /// Pieces of files.
    Pieces,
    /// Pieces of the packed stream.
    FragmentPieces,
}

/// Jobs of one kind.
pub(super) struct Stratum {
    kind: Kind,
    /// Indexes in [`Frame::parts`].
    members: Vec<u32>,
    /// Bytes of text up to the end of each.
    ends: Vec<u64>,
    /// Text to be packed for the estimate, in bytes.
    budget: u64,
    /// Most text of a piece, in bytes.
    piece_len: u64,
}

impl Frame {
    /// Sorts jobs into strata.
    pub(super) fn of(parts: Vec<PackJob>, format: &Format) -> Self {
        let mut strata = std::collections::BTreeMap::<Kind, Stratum>::new();
        for (idx, part) in (0..).zip(&parts) {
            let kind = Kind::of(part);
            strata.entry(kind).or_insert_with(|| Stratum::new(kind, format)).push(idx, part);
        }
        let mut strata: Vec<_> = strata.into_values().filter(|stratum| stratum.text() > 0).collect();
        let compressed: u64 = strata.iter().filter(|stratum| stratum.kind != Kind::Copied).map(Stratum::text).sum();
        for stratum in &mut strata {
            stratum.budget = match stratum.kind {
                Kind::Copied => COPIED_LEN,
                _ => (sample_len(format) as f64 * stratum.text() as f64 / compressed as f64) as u64,
            };
        }
        Self { parts, strata }
    }
}

/// Returns the bytes of text that are packed for an estimate: at most a few seconds' work. It must not depend on the
/// machine, or the sample would.
pub(super) fn sample_len(format: &Format) -> u64 {
    format.compression.spec.map_or(COPIED_LEN, compressed_sample_len)
}

fn compressed_sample_len(spec: Spec) -> u64 {
    let mib = match (spec.method, spec.level) {
        (Method::Lz4, _) => 96,
        (Method::Zstd, ..=4) => 64,
        (Method::Lz4hc | Method::Deflate, _) | (Method::Zstd, ..=9) | (Method::Lzma, _) => 32,
        (Method::Zstd, ..=15) => 16,
        (Method::Zstd, _) => 12,
    };
    mib << 20
}

impl Kind {
    fn of(part: &PackJob) -> Self {
        let len = part.range.end - part.range.start;
        match (&part.task, part.stream) {
            (Task::Copy | Task::Tail | Task::Chunks(_) | Task::Whole { compress: false, .. }, _) => Kind::Copied,
            (Task::Whole { compress: true, .. }, _) if len <= WHOLE_MAX_LEN => {
                Kind::Whole(len.next_power_of_two().ilog2().max(12))
            }
            (_, TextSource::File(_)) => Kind::Pieces,
            (_, TextSource::Fragments) => Kind::FragmentPieces,
        }
    }
}

impl Stratum {
    fn new(kind: Kind, format: &Format) -> Self {
        let spec = if kind == Kind::FragmentPieces { format.packing.spec } else { format.compression.spec };
        let pcluster_len = spec.map_or(0, |spec| u64::from(spec.pcluster_len));
        // Encoded extents are cut from text at known places.
        let piece_len = match format.compression.encoded_extents {
            true => PIECE_LEN.next_multiple_of(pcluster_len.max(1)),
            false => PIECE_LEN + PIECE_RATIO * pcluster_len,
        };
        Self { kind, members: Vec::new(), ends: Vec::new(), budget: 0, piece_len }
    }

    fn push(&mut self, idx: u32, part: &PackJob) {
        self.ends.push(self.text() + part.range.end - part.range.start);
        self.members.push(idx);
    }

    /// Returns its jobs as indexes in [`Frame::parts`].
    pub(super) fn members(&self) -> &[u32] {
        &self.members
    }

    /// Returns the bytes of text.
    pub(super) fn text(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns whether pieces are packed if the stratum is not packed as a whole.
    pub(super) fn is_in_pieces(&self) -> bool {
        matches!(self.kind, Kind::Pieces | Kind::FragmentPieces)
    }

    /// Returns whether all of it is packed.
    pub(super) fn is_whole(&self) -> bool {
        self.text() <= self.budget
    }

    /// Draws the text to be packed and the text of LZ4 samples.
    pub(super) fn draw(&self, parts: &[PackJob]) -> Draw {
        let whole = |&member: &u32| DrawnFile { member: Some(member), job: parts[member as usize].clone() };
        if self.is_whole() {
            return Draw { files: self.members.iter().map(whole).collect(), lz4_samples: Vec::new() };
        }
        if !self.is_in_pieces() {
            let count = self.members.len() as u64;
            let wanted = (self.budget * count / self.text()).max(COUNT_MIN).min(count);
            let files = places(count, wanted).map(|place| whole(&self.members[place as usize])).collect();
            return Draw { files, lz4_samples: Vec::new() };
        }
        let pieces = (self.budget / self.piece_len).max(COUNT_MIN);
        let lz4_samples = LZ4_SAMPLES.min(self.text() / LZ4_SAMPLE_LEN).max(1);
        let text_at = |least, most| move |at| self.text_at(at, least, most, parts);
        let pieces = places(self.text(), pieces).map(text_at(PIECE_LEN, self.piece_len));
        let lz4_samples = places(self.text(), lz4_samples).map(text_at(LZ4_SAMPLE_LEN, LZ4_SAMPLE_LEN));
        let files = pieces.map(|job| DrawnFile { member: None, job }).collect();
        Draw { files, lz4_samples: lz4_samples.collect() }
    }

    /// Returns at most `most` bytes of text from byte `at` of the stratum on, within a job; starts earlier if there
    /// would be less than `least`.
    fn text_at(&self, at: u64, least: u64, most: u64, parts: &[PackJob]) -> PackJob {
        let place = self.ends.partition_point(|&end| end <= at);
        let part = &parts[self.members[place] as usize];
        let from_end = self.ends[place] - at;
        let start = part.range.end.saturating_sub(from_end.max(least)).max(part.range.start);
        let range = start..part.range.end.min(start + most);
        PackJob { range, task: Task::Segment, ..part.clone() }
    }

    /// Returns the sum over all jobs of the number that `of` reads off an observation.
    pub(super) fn interval(&self, sample: &Sample, of: impl Fn(&Observed) -> f64) -> Interval {
        let Sample { observed, lz4_samples, .. } = sample;
        if self.is_whole() {
            return Interval::exact(observed.iter().map(of).sum());
        }
        if !self.is_in_pieces() {
            let pairs: Vec<_> = observed.iter().map(|one| (one.text as f64, of(one))).collect();
            return Interval::ratio(&pairs, self.text() as f64, self.members.len());
        }
        let pairs: Vec<_> = observed.iter().map(|one| (one.lz4, of(one) / one.text as f64)).collect();
        let seen = (lz4_samples.len() as u64 * LZ4_SAMPLE_LEN) as f64 / self.text() as f64;
        Interval::regression(&pairs, lz4_samples, seen).times(self.text() as f64)
    }

    /// Returns the CPU time of packing all jobs. It is as uncertain as their stored length.
    pub(super) fn pack_secs(&self, sample: &Sample) -> Interval {
        let stored = self.interval(sample, |one| (one.blocks + one.inline) as f64);
        let share = if stored.value > 0.0 { stored.error / stored.value } else { 0.0 };
        let secs = sample.secs * self.text() as f64 / sample.text.max(1) as f64;
        Interval::exact(secs).with_error(share)
    }
}

/// Returns `count` places at equal distances below `len`.
fn places(len: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |n| ((2 * u128::from(n) + 1) * u128::from(len) / (2 * u128::from(count))) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::BuildOptions;
    use crate::pack::jobs::JobText;

    #[test]
    fn places_are_spread_evenly() {
        assert_eq!(places(10, 5).collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
        assert_eq!(places(3, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(places(u64::MAX, 7).all(|place| place < u64::MAX));
    }

    #[test]
    fn pieces_stay_within_their_jobs() {
        let compression = Spec::parse("zstd", 65536).unwrap().into();
        let format = Format::decide(&BuildOptions { compression, ..BuildOptions::default() }, None);
        let lens = [9 << 20, 600 << 10, 3 << 20];
        let part =
            |(file, &len): (u32, &u64)| PackJob::segment(TextSource::File(file), 0..len, None, JobText::default());
        let parts: Vec<PackJob> = (0..).zip(&lens).map(part).collect();
        let mut stratum = Stratum::new(Kind::Pieces, &format);
        for (idx, part) in (0..).zip(&parts) {
            stratum.push(idx, part);
        }
        assert_eq!(stratum.text(), lens.iter().sum());
        for at in (0..stratum.text()).step_by(10_007) {
            let piece = stratum.text_at(at, PIECE_LEN, 1 << 20, &parts);
            let TextSource::File(file) = piece.stream else { panic!() };
            assert!(piece.range.end <= lens[file as usize]);
            assert!((PIECE_LEN..=1 << 20).contains(&(piece.range.end - piece.range.start)));
        }
    }
}
