//! Reads of ranges of a file: its parts, and the access pattern that each part is read in.

use crate::cache::access_pattern::AccessPattern;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::DataPart;
use crate::map::file_map::{DataParts, FileMap};
use crate::map::inode_map::Map;
use std::ops::Range;

/// A read of a range of a file.
pub(super) struct FileRead<'m, 'a> {
    pub(super) reader: Reader<'a>,
    pub(super) parts: DataParts<'m, 'a>,
    /// Pattern in which the file is read.
    pub(super) pattern: AccessPattern,
    /// First byte of the fragment that the read is in, and the pattern in which the packed inode is
    /// read.
    pub(super) fragment: Option<(u64, AccessPattern)>,
}

impl<'m, 'a> FileRead<'m, 'a> {
    pub(super) fn new(reader: Reader<'a>, map: &'m mut FileMap<'a>, range: Range<u64>, pattern: AccessPattern) -> Self {
        Self { reader, parts: map.parts(range), pattern, fragment: None }
    }

    /// Returns the next part with the pattern that it is read in.
    pub(super) fn next(&mut self) -> Result<Option<(DataPart, AccessPattern)>, ReadError> {
        let left = self.parts.left();
        let Some(part) = self.parts.next_joined().transpose()? else { return Ok(None) };
        let pattern = if part.is_fragment { self.fragment_pattern(&part, &left) } else { self.pattern };
        Ok(Some((part, pattern)))
    }

    /// Returns the pattern of the packed inode, which a read of a fragment is one step of. `left`
    /// are the bytes of the file from the part on.
    fn fragment_pattern(&mut self, part: &DataPart, left: &Range<u64>) -> AccessPattern {
        let map = self.parts.file_map();
        let (Some(fragment), Some(packed)) = (map.listed(), map.packed()) else { return self.pattern };
        match self.fragment {
            Some((la, pattern)) if la == fragment.la => pattern,
            _ => {
                let len = fragment.end().min(left.end) - left.start;
                let pattern = self.reader.step_pattern(packed, &(part.wanted.start..part.wanted.start + len));
                self.fragment = Some((fragment.la, pattern));
                pattern
            }
        }
    }

    /// Announces the stored bytes of the next fetches, from `part`, the last one that was returned,
    /// on.
    pub(super) fn announce_rest(&mut self, part: &DataPart) -> Result<(), ReadError> {
        let left = self.parts.left();
        self.reader.announce_rest(self.parts.file_map(), left.start - part.len()..left.end)
    }
}

impl<'a> Reader<'a> {
    /// Returns the access pattern that a read of bytes `wanted` is part of. A file that does not
    /// fit into the cache counts as read sequentially: its extents leave the cache before a random
    /// read comes back to them.
    pub(super) fn step_pattern(self, map: &Map<'_>, wanted: &Range<u64>) -> AccessPattern {
        let (size, state) = (map.size(), self.volume.state());
        match map.is_compressed() && size <= state.decoded.capacity() {
            true => state.access_patterns.step(map.nid().0, wanted, size),
            false => AccessPattern::default(),
        }
    }
}
