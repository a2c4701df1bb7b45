//! Columns of an index: whole numbers in memory, or in a mapped file.

use super::scan::IndexFilter;
use crate::memory::column;
use bytes::Bytes;
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a column is made of.
pub(crate) trait Number: FromBytes + IntoBytes + Immutable + KnownLayout + Copy + Send + 'static {}

impl Number for u32 {}
impl Number for u64 {}

/// Numbers one behind the other; clones share them.
#[derive(Clone)]
pub(crate) struct Numbers<T> {
    bytes: Bytes,
    of: PhantomData<T>,
}

impl<T: Number> Numbers<T> {
    pub(super) fn new(numbers: Vec<T>) -> Self {
        Numbers { bytes: column(numbers), of: PhantomData }
    }

    /// Bytes as numbers, if they are aligned as such and whole.
    pub(super) fn of_bytes(bytes: Bytes) -> Option<Self> {
        <[T]>::ref_from_bytes(&bytes).ok()?;
        Some(Numbers { bytes, of: PhantomData })
    }

    pub(crate) fn get(&self) -> &[T] {
        // Alignment and length were looked at when it was made.
        <[T]>::ref_from_bytes(&self.bytes).unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

/// Lengths of files: in 32 bits, if all of them fit.
#[derive(Clone)]
pub(crate) enum Sizes {
    Short(Numbers<u32>),
    Long(Numbers<u64>),
}

impl Sizes {
    pub(super) fn of(sizes: impl ExactSizeIterator<Item = u64>) -> Sizes {
        let mut made = SizesInMaking::with_capacity(sizes.len());
        sizes.for_each(|size| made.push(size));
        made.finish()
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Sizes::Short(sizes) => sizes.get().len(),
            Sizes::Long(sizes) => sizes.get().len(),
        }
    }

    pub(crate) fn get(&self, row: usize) -> u64 {
        match self {
            Sizes::Short(sizes) => sizes.get()[row].into(),
            Sizes::Long(sizes) => sizes.get()[row],
        }
    }

    /// The bytes, and what the `struct` module calls the numbers.
    pub(super) fn bytes(&self) -> (Bytes, &'static str) {
        match self {
            Sizes::Short(sizes) => (sizes.bytes(), "I"),
            Sizes::Long(sizes) => (sizes.bytes(), "Q"),
        }
    }
}

/// Lengths in the making, in as few bits as those so far need.
pub(super) enum SizesInMaking {
    Short(Vec<u32>),
    Long(Vec<u64>),
}

impl SizesInMaking {
    pub(super) fn with_capacity(count: usize) -> Self {
        SizesInMaking::Short(Vec::with_capacity(count))
    }

    pub(super) fn push(&mut self, size: u64) {
        match self {
            SizesInMaking::Long(sizes) => sizes.push(size),
            SizesInMaking::Short(sizes) => match u32::try_from(size) {
                Ok(size) => sizes.push(size),
                Err(_) => {
                    let long = sizes.iter().map(|&size| size.into()).chain([size]).collect();
                    *self = SizesInMaking::Long(long);
                }
            },
        }
    }

    pub(super) fn finish(self) -> Sizes {
        match self {
            SizesInMaking::Short(mut sizes) => {
                sizes.shrink_to_fit();
                Sizes::Short(Numbers::new(sizes))
            }
            SizesInMaking::Long(sizes) => Sizes::Long(Numbers::new(sizes)),
        }
    }
}

/// The directories that files are in, in the order of the scan.
#[derive(Clone)]
pub(super) struct Directories {
    /// Numbers of their inodes.
    pub nids: Numbers<u64>,
    /// The first row of each: rows of a directory follow each other.
    pub firsts: Numbers<u64>,
    /// Where the path of each ends in `paths`.
    pub path_ends: Numbers<u64>,
    /// Their paths from the root of the image, without a slash in front.
    pub paths: Bytes,
}

impl Directories {
    pub(super) fn path(&self, idx: usize) -> &[u8] {
        let ends = self.path_ends.get();
        let start = idx.checked_sub(1).map_or(0, |before| ends[before]);
        self.paths.get(start as usize..ends[idx] as usize).unwrap_or_default()
    }
}

/// An index.
#[derive(Clone)]
pub(crate) struct Columns {
    /// The image's.
    pub uuid: [u8; 16],
    /// Which names have rows.
    pub(super) filter: IndexFilter,
    pub nids: Numbers<u64>,
    pub sizes: Sizes,
    pub labels: Option<Numbers<u32>>,
    /// Names of the labels.
    pub classes: Vec<Vec<u8>>,
    pub(super) directories: Directories,
    /// For each row the row of the scan that it was, where rows were picked.
    pub(super) scan_rows: Option<Numbers<u64>>,
}

impl Columns {
    pub(crate) fn len(&self) -> usize {
        self.nids.get().len()
    }

    /// These rows, which there are, in this order.
    pub(super) fn subset(&self, rows: &[u64]) -> Columns {
        let nids = self.nids.get();
        let of_scan = |row: u64| self.scan_rows.as_ref().map_or(row, |scan_rows| scan_rows.get()[row as usize]);
        let labels = self.labels.as_ref().map(|labels| {
            let labels = labels.get();
            Numbers::new(rows.iter().map(|&row| labels[row as usize]).collect())
        });
        Columns {
            nids: Numbers::new(rows.iter().map(|&row| nids[row as usize]).collect()),
            sizes: Sizes::of(rows.iter().map(|&row| self.sizes.get(row as usize))),
            labels,
            scan_rows: Some(Numbers::new(rows.iter().map(|&row| of_scan(row)).collect())),
            ..self.clone()
        }
    }

    /// The same rows with other labels.
    pub(super) fn labelled(&self, labels: Numbers<u32>, classes: Vec<Vec<u8>>) -> Columns {
        Columns { labels: Some(labels), classes, ..self.clone() }
    }
}
