//! Columns of an index: integers in memory, or in a mapped file.

use super::filter::IndexFilter;
use crate::memory::column;
use bytes::Bytes;
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Element of a column.
pub(crate) trait Number: FromBytes + IntoBytes + Immutable + KnownLayout + Copy + Send + 'static {}

impl Number for u32 {}
impl Number for u64 {}

/// Array of integers; clones share its memory.
#[derive(Clone)]
pub(crate) struct Numbers<T> {
    bytes: Bytes,
    of: PhantomData<T>,
}

impl<T: Number> Numbers<T> {
    pub(super) fn new(numbers: Vec<T>) -> Self {
        Numbers { bytes: column(numbers), of: PhantomData }
    }

    /// Returns an array over `bytes`, or `None` if they are misaligned or end within a number.
    pub(super) fn of_bytes(bytes: Bytes) -> Option<Self> {
        <[T]>::ref_from_bytes(&bytes).ok()?;
        Some(Numbers { bytes, of: PhantomData })
    }

    pub(crate) fn get(&self) -> &[T] {
        // Alignment and length were checked when the array was made.
        <[T]>::ref_from_bytes(&self.bytes).unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

/// Lengths of files, in 32 bits if all of them fit.
#[derive(Clone)]
pub(crate) enum Sizes {
    Short(Numbers<u32>),
    Long(Numbers<u64>),
}

impl Sizes {
    pub(super) fn of(sizes: impl ExactSizeIterator<Item = u64>) -> Sizes {
        let mut builder = SizesBuilder::with_capacity(sizes.len());
        sizes.for_each(|size| builder.push(size));
        builder.finish()
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

    /// Returns the bytes, and the format of the elements in the `struct` module.
    pub(super) fn bytes(&self) -> (Bytes, &'static str) {
        match self {
            Sizes::Short(sizes) => (sizes.bytes(), "I"),
            Sizes::Long(sizes) => (sizes.bytes(), "Q"),
        }
    }
}

/// Builder of [`Sizes`], which changes to 64 bits with the first length that needs them.
pub(super) enum SizesBuilder {
    Short(Vec<u32>),
    Long(Vec<u64>),
}

impl SizesBuilder {
    pub(super) fn with_capacity(count: usize) -> Self {
        SizesBuilder::Short(Vec::with_capacity(count))
    }

    pub(super) fn push(&mut self, size: u64) {
        match self {
            SizesBuilder::Long(sizes) => sizes.push(size),
            SizesBuilder::Short(sizes) => match u32::try_from(size) {
                Ok(size) => sizes.push(size),
                Err(_) => {
                    let long = sizes.iter().map(|&size| size.into()).chain([size]).collect();
                    *self = SizesBuilder::Long(long);
                }
            },
        }
    }

    pub(super) fn finish(self) -> Sizes {
        match self {
            SizesBuilder::Short(mut sizes) => {
                sizes.shrink_to_fit();
                Sizes::Short(Numbers::new(sizes))
            }
            SizesBuilder::Long(sizes) => Sizes::Long(Numbers::new(sizes)),
        }
    }
}

/// Directories of the files, in the order of the scan.
#[derive(Clone)]
pub(super) struct Directories {
    /// Inode numbers.
    pub nids: Numbers<u64>,
    /// First row of each directory: rows of one directory are adjacent.
    pub firsts: Numbers<u64>,
    /// End of the path of each directory in `paths`.
    pub path_ends: Numbers<u64>,
    /// Paths from the root of the image, without a leading slash.
    pub paths: Bytes,
}

impl Directories {
    pub(super) fn path(&self, idx: usize) -> &[u8] {
        let ends = self.path_ends.get();
        let start = idx.checked_sub(1).map_or(0, |before| ends[before]);
        self.paths.get(start as usize..ends[idx] as usize).unwrap_or_default()
    }
}

/// Index of files: one row for each file.
#[derive(Clone)]
pub(crate) struct Columns {
    /// UUID of the image.
    pub uuid: [u8; 16],
    /// Filter of the names that have rows.
    pub(super) filter: IndexFilter,
    pub nids: Numbers<u64>,
    pub sizes: Sizes,
    pub labels: Option<Numbers<u32>>,
    /// Names of the classes; a label is a position in this list.
    pub classes: Vec<Vec<u8>>,
    pub(super) directories: Directories,
    /// Row of the scan for each row, if rows were selected by `subset`.
    pub(super) scan_rows: Option<Numbers<u64>>,
}

impl Columns {
    pub(crate) fn len(&self) -> usize {
        self.nids.get().len()
    }

    /// Returns the index of `rows`, in this order. All of them exist.
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

    /// Returns the index with other labels.
    pub(super) fn labelled(&self, labels: Numbers<u32>, classes: Vec<Vec<u8>>) -> Columns {
        Columns { labels: Some(labels), classes, ..self.clone() }
    }
}
