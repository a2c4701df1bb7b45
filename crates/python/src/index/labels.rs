//! Classes of files, named after the directories that they are in.

use super::columns::Numbers;
use std::collections::BTreeMap;

/// Depth of the classes below the root of an index: 1 for `class/file` and `class/more/file`.
#[derive(Clone, Copy)]
pub(crate) struct LabelDepth(pub usize);

impl LabelDepth {
    /// Returns the class of the files in the directory `path` below the root: its path down to this
    /// depth, or `None` if it is not that deep.
    pub(super) fn class_of(self, path: &[u8]) -> Option<&[u8]> {
        let LabelDepth(depth) = self;
        if depth == 0 {
            return Some(b"");
        }
        if path.is_empty() {
            return None;
        }
        let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| at);
        let mut ends = slashes.chain([path.len()]);
        ends.nth(depth - 1).map(|end| &path[..end])
    }
}

/// Classes of directories, sorted by name.
pub(super) struct Classes {
    pub names: Vec<Vec<u8>>,
    numbers: BTreeMap<Vec<u8>, u32>,
}

impl Classes {
    /// Makes the sorted list of `classes`.
    pub(super) fn of<'p>(classes: impl Iterator<Item = &'p [u8]>) -> Self {
        let mut numbers: BTreeMap<Vec<u8>, u32> = classes.map(|class| (class.to_vec(), 0)).collect();
        numbers.values_mut().zip(0..).for_each(|(number, nth)| *number = nth);
        Classes { names: numbers.keys().cloned().collect(), numbers }
    }

    pub(super) fn number(&self, class: &[u8]) -> u32 {
        self.numbers.get(class).copied().unwrap_or_default()
    }
}

/// Returns the labels of all rows, from the class and the number of rows of each directory.
pub(super) fn labels(classes: &Classes, of_directories: impl Iterator<Item = (Vec<u8>, usize)>) -> Numbers<u32> {
    let mut labels = Vec::new();
    for (class, count) in of_directories {
        labels.resize(labels.len() + count, classes.number(&class));
    }
    Numbers::new(labels)
}
