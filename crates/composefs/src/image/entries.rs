//! Entries of directories, with `.` and `..`, and their distribution to blocks.

use super::prepare::{Item, Prepared};
use kiln_digest::fsverity::BLOCK_LEN;
use kiln_format::dirent;
use std::ops::Range;

/// Entry of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a [u8],
    /// Item whose inode it names.
    pub(super) target: Item,
}

/// Returns the entries of a directory, sorted by the bytes of their names.
pub(super) fn entries<'a>(prepared: &'a Prepared<'_>, dir: Item) -> impl Iterator<Item = Entry<'a>> {
    let children = prepared.children(dir);
    let entry = |&child: &Item| Entry { name: prepared.name(child), target: prepared.target(child) };
    let place = |name: &[u8]| children.partition_point(|&child| prepared.name(child) < name);
    let (dot, dots) = (place(b"."), place(b".."));
    let of = |range: Range<usize>| children[range].iter().map(entry);
    let dot_entry = Entry { name: b".", target: dir };
    let dots_entry = Entry { name: b"..", target: prepared.parent(dir) };
    of(0..dot).chain([dot_entry]).chain(of(dot..dots)).chain([dots_entry]).chain(of(dots..children.len()))
}

/// Distribution of entries to blocks: each takes as many as fit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filling {
    /// Bytes in the block that is being filled.
    used: usize,
    /// Number of whole blocks.
    blocks: u32,
}

impl Filling {
    /// Adds an entry, and returns true if it begins another block than the entry before it.
    pub(super) fn add(&mut self, name: &[u8]) -> bool {
        let len = dirent::entry_len(name.len());
        let is_full = self.used + len > BLOCK_LEN;
        if is_full {
            self.blocks += 1;
            self.used = 0;
        }
        self.used += len;
        is_full
    }

    /// Returns the number of whole blocks, and the length of the entries behind them.
    pub(super) fn finish(self) -> (u32, usize) {
        (self.blocks, self.used)
    }
}
