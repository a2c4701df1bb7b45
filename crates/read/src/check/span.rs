//! Overlaps: bytes of the image that belong to two records.
//!
//! Sharing is legal where it is deduplication: equal pclusters, and any stored plain data. It is
//! damage where a pcluster begins inside another one, or where data lies in metadata.

use super::problems::Problems;
use super::report::{Finding, Note};
use std::ops::Range;

/// A range that belongs to an extent or a record. It takes 16 bytes of memory, because there is one
/// for each extent of the image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    /// First byte.
    start: u64,
    /// Length in bytes; longer ranges are several spans.
    len: u32,
    /// Device number, or [`METABOX`], and [`SpanKind`].
    tag: u32,
}

const METABOX: u32 = 1 << 16;
/// Spans that are kept for even the smallest image.
const SPANS_MIN: usize = 1 << 16;
/// Bytes of an image for each span that is kept: half of the shortest inode, since half of the
/// memory is for duplicates.
const BYTES_PER_SPAN: u64 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum SpanKind {
    Data = 0,
    Pcluster = 1,
    Metadata = 2,
}

const KINDS: [(SpanKind, &str); 3] =
    [(SpanKind::Data, "plain data"), (SpanKind::Pcluster, "a pcluster"), (SpanKind::Metadata, "metadata")];

impl Span {
    fn space(&self) -> u32 {
        self.tag >> 2
    }

    fn kind(&self) -> usize {
        (self.tag & 3) as usize
    }

    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    fn describe(&self) -> (&'static str, u64, u64) {
        (KINDS[self.kind()].1, self.start, self.len.into())
    }
}

/// The spans of an image.
pub(super) struct Spans {
    list: Vec<Span>,
    /// Most spans that are kept.
    max: usize,
    is_full: bool,
}

impl Spans {
    /// Returns no spans of an image of `room` bytes: all devices, and the decoded metabox. No two
    /// inodes and no two blocks share their bytes, so this bounds how many there are. A hostile
    /// index that names more pclusters must not cost more memory.
    pub(super) fn new(room: u64) -> Self {
        let max = usize::try_from(room / BYTES_PER_SPAN).unwrap_or(usize::MAX).max(SPANS_MIN);
        Self { list: Vec::new(), max, is_full: false }
    }

    /// Adds bytes that are stored plain.
    pub(super) fn add_data(&mut self, device: u16, start: u64, len: u64) {
        self.add(device.into(), SpanKind::Data, start, len);
    }

    /// Adds an encoded pcluster.
    pub(super) fn add_pcluster(&mut self, device: u16, start: u64, len: u64) {
        self.add(device.into(), SpanKind::Pcluster, start, len);
    }

    /// Adds metadata on a device.
    pub(super) fn add_metadata(&mut self, device: u16, start: u64, len: u64) {
        self.add(device.into(), SpanKind::Metadata, start, len);
    }

    /// Adds metadata in the metabox.
    pub(super) fn add_in_metabox(&mut self, start: u64, len: u64) {
        self.add(METABOX, SpanKind::Metadata, start, len);
    }

    fn add(&mut self, space: u32, kind: SpanKind, start: u64, len: u64) {
        let tag = space << 2 | kind as u32;
        let (mut start, mut len) = (start, len);
        if let Some(last) = self.list.last_mut()
            && kind != SpanKind::Pcluster
            && (last.tag, last.end()) == (tag, start)
            && let Ok(joined) = u32::try_from(u64::from(last.len) + len)
        {
            // Chunks of a file are often contiguous, and so are the inodes of a directory.
            last.len = joined;
            return;
        }
        if !self.is_full && self.list.len() >= self.max {
            self.compact();
        }
        while len > 0 && !self.is_full {
            let part = len.min(u32::MAX.into());
            self.list.push(Span { start, len: part as u32, tag });
            (start, len) = (start.saturating_add(part), len - part);
        }
    }

    /// Drops duplicates. If that frees less than half of the memory, no more spans are added.
    fn compact(&mut self) {
        self.sort();
        self.is_full = self.list.len() > self.max / 2;
    }

    fn sort(&mut self) {
        self.list.sort_unstable_by_key(|span| (span.space(), span.start, span.len, span.tag));
        self.list.dedup();
    }

    /// Reports overlaps, in one pass over the sorted spans, with the span of each kind that reaches
    /// furthest so far. A note where there were too many to keep.
    pub(super) fn report_overlaps(&mut self, problems: &Problems) -> Option<Note> {
        self.sort();
        let note = self.is_full.then_some(Note::OverlapsUnknown { compared: self.list.len() });
        let mut furthest: [Option<Span>; KINDS.len()] = [None; KINDS.len()];
        for &span in &self.list {
            let conflicts = |other: &&Span| {
                let both_plain = span.kind() == SpanKind::Data as usize && other.kind() == SpanKind::Data as usize;
                other.space() == span.space() && span.start < other.end() && !both_plain
            };
            if let Some(other) = furthest.iter().flatten().find(conflicts) {
                let device = u16::try_from(span.space()).ok();
                let finding = Finding::Overlap { device, first: other.describe(), second: span.describe() };
                problems.add(b"", None, finding);
            }
            let kind = &mut furthest[span.kind()];
            if kind.is_none_or(|other| other.space() != span.space() || other.end() < span.end()) {
                *kind = Some(span);
            }
        }
        note
    }

    /// Returns the places of plain data: devices and ranges in rising order, each byte once,
    /// however many extents share it. The spans must be sorted, as [`Spans::report_overlaps`]
    /// leaves them.
    pub(super) fn plain_data(&self) -> impl Iterator<Item = (u16, Range<u64>)> {
        let mut known = (0, 0);
        self.list.iter().filter(|span| span.kind() == SpanKind::Data as usize).filter_map(move |span| {
            let device = u16::try_from(span.space()).ok()?;
            let start = if known.0 == device { span.start.max(known.1) } else { span.start };
            known = (device, span.end().max(start));
            (start < span.end()).then_some((device, start..span.end()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaps(fill: impl Fn(&mut Spans)) -> u64 {
        let (mut spans, problems) = (Spans::new(0), Problems::default());
        fill(&mut spans);
        spans.report_overlaps(&problems);
        problems.count()
    }

    /// Returns true if all spans of an image of `room` bytes were kept.
    fn is_complete(room: u64, fill: impl Fn(&mut Spans)) -> bool {
        let (mut spans, problems) = (Spans::new(room), Problems::default());
        fill(&mut spans);
        let note = spans.report_overlaps(&problems);
        assert_eq!(problems.count(), 0, "too many are no damage");
        note.is_none()
    }

    #[test]
    fn sharing_is_told_from_damage() {
        // Equal pclusters, and any overlap of plain data, are deduplication.
        assert_eq!(overlaps(|s| [4096, 8192, 4096].map(|at| s.add_pcluster(0, at, 4096)).into_iter().collect()), 0);
        assert_eq!(
            overlaps(|s| [(0, 100), (0, 50), (20, 100)].map(|(at, len)| s.add_data(1, at, len)).into_iter().collect()),
            0
        );
        // A pcluster in the middle of another one is not.
        assert_eq!(
            overlaps(|s| [(0, 8192), (4096, 4096)].map(|(at, len)| s.add_pcluster(0, at, len)).into_iter().collect()),
            1
        );
        assert_eq!(
            overlaps(|s| [(0, 8192), (0, 4096)].map(|(at, len)| s.add_pcluster(0, at, len)).into_iter().collect()),
            1
        );
        // Nor is data in metadata, on one device.
        let mixed = |device| {
            overlaps(|s| {
                s.add_metadata(0, 1000, 100);
                s.add_data(device, 1099, 5000);
            })
        };
        assert_eq!((mixed(0), mixed(1)), (1, 0));
        assert_eq!(overlaps(|s| [0, 10].map(|at| s.add_in_metabox(at, 10)).into_iter().collect()), 0);
        assert_eq!(overlaps(|s| [0, 9].map(|at| s.add_in_metabox(at, 10)).into_iter().collect()), 1);
    }

    #[test]
    fn duplicates_do_not_fill_the_memory_and_too_many_others_are_noted() {
        const MANY: u64 = 3 * SPANS_MIN as u64;
        assert!(is_complete(0, |s| (0..MANY).for_each(|i| s.add_pcluster(0, 4096 * (i % 100), 4096))));
        assert!(!is_complete(0, |s| (0..MANY).for_each(|i| s.add_pcluster(0, 4096 * i, 4096))));
    }

    #[test]
    fn plain_data_is_listed_once() {
        let mut spans = Spans::new(0);
        for (device, start, len) in
            [(0, 8192, 4096), (0, 0, 4096), (0, 8192, 4096), (0, 2048, 4096), (1, 0, 10), (0, 0, 100)]
        {
            spans.add_data(device, start, len);
        }
        spans.add_pcluster(0, 1 << 20, 4096);
        spans.add_metadata(1, 4096, 64);
        spans.report_overlaps(&Problems::default());
        let listed: Vec<_> = spans.plain_data().filter(|(_, range)| !range.is_empty()).collect();
        assert_eq!(listed, [(0, 0..100), (0, 100..4096), (0, 4096..6144), (0, 8192..12_288), (1, 0..10)]);
    }

    /// Returns the most that a sound image can hold: inodes of 32 bytes, found in no order.
    #[test]
    fn there_is_room_for_every_inode() {
        const COUNT: u64 = 3 * SPANS_MIN as u64 + 1;
        let scattered = |s: &mut Spans| (0..COUNT).for_each(|i| s.add_in_metabox(32 * (i * 5 % COUNT), 32));
        assert!(is_complete(32 * COUNT, scattered));
    }

    #[test]
    fn long_ranges_are_several_spans() {
        let far = 5 << 32;
        let count = overlaps(|s| {
            s.add_data(0, 0, far);
            s.add_metadata(0, far - 1, 1);
            s.add_metadata(0, far, 1);
        });
        assert_eq!(count, 1);
        assert_eq!(size_of::<Span>(), 16);
    }
}
