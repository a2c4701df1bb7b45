//! Classes of files: the directories that they are in.

use super::columns::Numbers;
use std::collections::BTreeMap;

/// How many directories below the root of an index its classes are: 1 for `class/file` and `class/more/file`.
#[derive(Clone, Copy)]
pub(crate) struct LabelDepth(pub usize);

impl LabelDepth {
    /// The class of files in the directory `path` below the root, if it is so deep: its path down to this depth.
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

/// Classes of directories, in the order of their names.
pub(super) struct Classes {
    pub names: Vec<Vec<u8>>,
    numbers: BTreeMap<Vec<u8>, u32>,
}

impl Classes {
    /// The classes that have files.
    pub(super) fn of<'p>(classes: impl Iterator<Item = &'p [u8]>) -> Self {
        let mut numbers: BTreeMap<Vec<u8>, u32> = classes.map(|class| (class.to_vec(), 0)).collect();
        numbers.values_mut().zip(0..).for_each(|(number, nth)| *number = nth);
        Classes { names: numbers.keys().cloned().collect(), numbers }
    }

    pub(super) fn number(&self, class: &[u8]) -> u32 {
        self.numbers.get(class).copied().unwrap_or_default()
    }
}

/// Labels of rows, of which each directory has so many.
pub(super) fn labels(classes: &Classes, of_directories: impl Iterator<Item = (Vec<u8>, usize)>) -> Numbers<u32> {
    let mut labels = Vec::new();
    for (class, count) in of_directories {
        labels.resize(labels.len() + count, classes.number(&class));
    }
    Numbers::new(labels)
}
