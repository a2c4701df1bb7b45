//! Files of the old image whose text a patch uses, in the order of first use, and their offsets in
//! the old space.

use std::collections::HashMap;

use crate::format::header::{TEXTS_MAX, TextFile};
use crate::make::map::ImageMap;
use crate::make::region::{RAW, TextPlace};

/// Files and their offsets in the old space.
pub(crate) struct TextTable {
    starts: HashMap<u32, u64>,
    end: u64,
    pub files: Vec<TextFile>,
}

impl TextTable {
    /// Creates a table without files after an image of `old_len` bytes.
    pub(crate) fn new(old_len: u64) -> Self {
        Self { starts: HashMap::new(), end: old_len, files: Vec::new() }
    }

    /// Returns the position of a place in the old space; `None` if the patch cannot refer to more
    /// files.
    pub(crate) fn position(&mut self, place: TextPlace, map: &ImageMap) -> Option<u64> {
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
