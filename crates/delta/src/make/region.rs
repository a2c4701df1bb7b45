//! Regions of the old space that may resemble a text, side by side in memory for the matcher.

use kiln_read::{Image, ReadAt};
use std::ops::Range;

use crate::error::{DeltaError, Side};
use crate::make::map::ImageMap;

/// Source number of the image's bytes, as opposed to a file.
pub(crate) const RAW: u32 = u32::MAX;

/// A byte of a source: of a file in the map, or of the image itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextPlace {
    pub source: u32,
    pub off: u64,
}

/// A range of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub source: u32,
    pub range: Range<u64>,
}

/// Regions in memory.
#[derive(Default)]
pub(crate) struct Haystack {
    pub bytes: Vec<u8>,
    /// Regions and their offsets in `bytes`, in ascending order.
    pub regions: Vec<(usize, Region)>,
}

impl Haystack {
    /// Returns the range of `bytes` that is in the same region as the byte at `at`.
    pub(crate) fn region_of(&self, at: usize) -> Range<usize> {
        let idx = self.regions.partition_point(|(start, _)| *start <= at) - 1;
        let end = self.regions.get(idx + 1).map_or(self.bytes.len(), |(start, _)| *start);
        self.regions[idx].0..end
    }

    /// Returns the place of the byte at `at`.
    pub(crate) fn place(&self, at: usize) -> TextPlace {
        let (start, region) = &self.regions[self.regions.partition_point(|(start, _)| *start <= at) - 1];
        TextPlace { source: region.source, off: region.range.start + (at - start) as u64 }
    }
}

/// Sorts regions by source and offset, and merges those that overlap or are at most `gap` bytes
/// apart.
pub(crate) fn merged(mut regions: Vec<Region>, gap: u64) -> Vec<Region> {
    regions.sort_by_key(|region| (region.source, region.range.start));
    let mut merged: Vec<Region> = Vec::new();
    for region in regions {
        match merged.last_mut() {
            Some(last) if last.source == region.source && region.range.start <= last.range.end + gap => {
                last.range.end = last.range.end.max(region.range.end);
            }
            _ => merged.push(region),
        }
    }
    merged
}

/// Returns the first regions, `max_len` bytes at most, and their total length.
pub(crate) fn first_of(regions: Vec<Region>, max_len: u64) -> (Vec<Region>, u64) {
    let (mut taken, mut len) = (Vec::new(), 0);
    for Region { source, range } in regions {
        let end = range.end.min(range.start + (max_len - len));
        if range.start < end {
            len += end - range.start;
            taken.push(Region { source, range: range.start..end });
        }
    }
    (taken, len)
}

/// Source of the old image's regions.
pub(crate) struct OldText<'a> {
    pub source: &'a dyn ReadAt,
    pub image: &'a Image,
    pub map: &'a ImageMap,
    /// Byte ranges of the image that belong to no file, in order, with gaps between them.
    pub metadata: Vec<Range<u64>>,
}

impl OldText<'_> {
    /// Returns the metadata within a range of the image.
    pub(crate) fn metadata_in(&self, Range { start, end }: Range<u64>) -> impl Iterator<Item = Region> {
        let first = self.metadata.partition_point(|one| one.end <= start);
        let there = self.metadata[first..].iter().take_while(move |one| one.start < end);
        there.map(move |one| Region { source: RAW, range: one.start.max(start)..one.end.min(end) })
    }

    /// Reads regions into memory.
    pub(crate) fn load(&self, regions: Vec<Region>, hay: &mut Haystack) -> Result<(), DeltaError> {
        hay.bytes.clear();
        hay.regions.clear();
        for region in regions {
            let start = hay.bytes.len();
            let len = (region.range.end - region.range.start) as usize;
            hay.bytes.resize(start + len, 0);
            let (off, buf) = (region.range.start, &mut hay.bytes[start..]);
            match region.source {
                RAW => {
                    let failed = |source| DeltaError::ImageBytes { side: Side::Old, off, len: len as u64, source };
                    self.source.read_exact_at(buf, off).map_err(failed)?;
                }
                file => {
                    let inode = &self.map.files[file as usize].inode;
                    let read = self.image.read_at(inode, buf, off).map_err(DeltaError::image(Side::Old))?;
                    hay.bytes.truncate(start + read);
                }
            }
            if hay.bytes.len() > start {
                hay.regions.push((start, region));
            }
        }
        Ok(())
    }
}
