//! Which files of the old image a patch uses the text of, in the order of first use, and where they begin in the old space.

use std::collections::HashMap;

use crate::format::header::{TEXTS_MAX, TextFile};
use crate::make::map::ImageMap;
use crate::make::region::{Place, RAW};

/// The files, and where they begin.
pub(crate) struct TextTable {
    starts: HashMap<u32, u64>,
    end: u64,
    pub files: Vec<TextFile>,
}

impl TextTable {
    /// Without files, behind an image of `old_len` bytes.
    pub(crate) fn new(old_len: u64) -> Self {
        Self { starts: HashMap::new(), end: old_len, files: Vec::new() }
    }

    /// The position of a place in the old space; none where a patch can name no more files.
    pub(crate) fn position(&mut self, place: Place, map: &ImageMap) -> Option<u64> {
        if place.source == RAW {
            return Some(place.off);
        }
        if self.files.len() as u64 >= TEXTS_MAX && !self.starts.contains_key(&place.source) {
            return None;
        }
        let start = *self.starts.entry(place.source).or_insert_with(|| {
            let inode = &map.files[place.source as usize].inode;
            self.files.push(TextFile { nid: inode.nid.0, len: inode.size() });
            let start = self.end;
            self.end += inode.size();
            start
        });
        Some(start + place.off)
    }
}
