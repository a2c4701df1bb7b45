//! Regions of the old image that may resemble a part of the new one.

use std::ops::Range;

use crate::make::chunks::{ChunkIndex, chunks};
use crate::make::map::{ImageMap, Span, Tail};
use crate::make::region::{RAW, Region, merged};

/// Number of bytes of text to read around the same offset in a file.
const AROUND: u64 = 2 << 20;
/// The same for files in the packed inode.
const PACKED_AROUND: u64 = 4 << 10;
/// The same for encoded bytes that the patch stores.
const CARRIED_AROUND: u64 = 256 << 10;
/// Number of bytes of text to read around a chunk that both images have.
const CHUNK_AROUND: u64 = 8 << 10;
/// Maximum number of bytes of metadata to compare with.
const METADATA_MAX_LEN: u64 = 16 << 20;
/// Maximum gap in bytes, for example ends of files, that is read together with the metadata around
/// it.
const METADATA_GAP: u64 = 64 << 10;
/// Minimum length in bytes of metadata for which to find similar regions.
const MIN_LEN: u64 = 64;

/// Regions of the old image that may resemble a part of the new one.
#[derive(Default)]
pub(crate) struct Likely {
    /// Regions with the same file name and offset.
    pub near: Vec<Region>,
    /// Regions with the same chunks.
    pub chunks: Vec<Region>,
    /// Range of the image whose metadata may be similar.
    pub metadata: Option<Range<u64>>,
}

/// Finder of similar regions.
pub(crate) struct Neighbours<'a> {
    old: &'a ImageMap,
    new: &'a ImageMap,
    chunks: ChunkIndex,
    /// Number of bytes of metadata in the old image.
    metadata_len: u64,
    /// For each file of both images, the smallest range that contains its stored bytes.
    reaches: [Vec<Range<u64>>; 2],
}

/// Returns the ranges of an image that belong to no file. Ranges that are close together are
/// merged, and short ones are left out.
pub(crate) fn metadata(map: &ImageMap) -> Vec<Range<u64>> {
    let gaps = map.gaps().into_iter().filter(|range| range.end - range.start >= MIN_LEN);
    let regions = merged(gaps.map(|range| Region { source: RAW, range }).collect(), METADATA_GAP);
    regions.into_iter().map(|region| region.range).collect()
}

impl<'a> Neighbours<'a> {
    pub(crate) fn new(old: &'a ImageMap, new: &'a ImageMap, chunks: ChunkIndex, metadata: &[Range<u64>]) -> Self {
        let metadata_len = metadata.iter().map(|range| range.end - range.start).sum();
        Self { old, new, chunks, metadata_len, reaches: [old.reaches(), new.reaches()] }
    }

    /// Returns regions like metadata at `at`: all metadata, or that at about the same distance from
    /// the end. Images end with their metadata.
    pub(crate) fn of_metadata(&self, at: u64, len: u64) -> Likely {
        if len < MIN_LEN {
            return Likely::default();
        }
        let middle = self.old.len.saturating_sub(self.new.len - at) + len / 2;
        let reach = match self.metadata_len <= METADATA_MAX_LEN {
            true => 0..self.old.len,
            false => middle.saturating_sub(METADATA_MAX_LEN / 2)..middle + METADATA_MAX_LEN / 2,
        };
        Likely { metadata: Some(reach), ..Likely::default() }
    }

    /// Returns regions like the text of a file: those of the same file, and those with the same
    /// chunks.
    pub(crate) fn of_text(&self, file: u32, range: Range<u64>, text: &[u8]) -> Likely {
        let mut near = Vec::new();
        if self.new.packed == Some(file) {
            let fragments = &self.new.fragments;
            let first = fragments.partition_point(|fragment| fragment.off < range.start).saturating_sub(1);
            let here = fragments[first..].iter().take_while(|fragment| fragment.off < range.end);
            for fragment in here {
                let from = range.start.saturating_sub(fragment.off).min(fragment.len);
                let to = (range.end - fragment.off.min(range.end)).min(fragment.len);
                if from < to {
                    let part = fragment.la + from..fragment.la + to;
                    near.extend(self.same_file(fragment.file, part, PACKED_AROUND));
                }
            }
        } else {
            near.extend(self.same_file(file, range, AROUND));
        }
        let chunks = chunks(text).filter_map(|chunk| {
            let place = self.chunks.find(&text[chunk.clone()])?;
            let start = place.off.saturating_sub(CHUNK_AROUND);
            let size = self.old.files[place.source as usize].inode.size();
            let end = (place.off + chunk.len() as u64 + CHUNK_AROUND).min(size);
            Some(Region { source: place.source, range: start..end })
        });
        Likely { chunks: chunks.collect(), near, metadata: None }
    }

    /// Returns the number of bytes of `text`, which begins at byte `la` of a file, that a build
    /// over the old image would have reused: chunks at the same offset of the same file, or chunks
    /// of any file that is packed together with others.
    pub(crate) fn reused_len(&self, file: u32, la: u64, text: &[u8]) -> u64 {
        let is_packed = self.new.packed == Some(file);
        let there = self.old.counterpart(&self.new.files[file as usize]);
        let is_reused = |chunk: &Range<usize>| {
            let place = self.chunks.find(&text[chunk.clone()]);
            place.is_some_and(|place| is_packed || Some(place.source) == there && place.off == la + chunk.start as u64)
        };
        chunks(text).filter(is_reused).map(|chunk| chunk.len() as u64).sum()
    }

    /// Returns regions like encoded bytes that the patch stores: those of the same file at about
    /// the same distance from its start.
    pub(crate) fn of_carried(&self, span: &Span) -> Likely {
        let Some(there) = self.old.counterpart(&self.new.files[span.file as usize]) else { return Likely::default() };
        let [reach, here] = [&self.reaches[0][there as usize], &self.reaches[1][span.file as usize]];
        let at = reach.start.saturating_add(span.pa - here.start);
        let start = at.saturating_sub(CARRIED_AROUND).max(reach.start);
        let end = at.saturating_add(span.plen + CARRIED_AROUND).min(reach.end);
        let region = (start < end).then_some(Region { source: RAW, range: start..end });
        Likely { near: region.into_iter().collect(), ..Likely::default() }
    }

    /// Returns the region of the same file in the old image, with the bytes around it.
    fn same_file(&self, file: u32, range: Range<u64>, around: u64) -> Option<Region> {
        let idx = self.old.counterpart(&self.new.files[file as usize])?;
        let there = &self.old.files[idx as usize];
        let size = there.inode.size();
        let (start, end) = (range.start.saturating_sub(around).min(size), range.end.saturating_add(around).min(size));
        let (source, start, end) = match (there.tail, self.old.packed) {
            // Read the packed inode, together with the neighbours in it.
            (Tail::Fragment(off), Some(packed)) if there.in_spans == 0 => (packed, off + start, off + end),
            _ => (idx, start, end),
        };
        (start < end).then_some(Region { source, range: start..end })
    }
}
