//! Iterator over the entries of a directory that owns what it needs.

use super::dir::DirEntry;
use crate::error::ReadError;
use crate::image::Image;
use crate::metadata::inode::Inode;
use std::iter::FusedIterator;
use std::ops::ControlFlow;

/// Number of entries that the iterator holds at a time.
const BATCH: usize = 256;

/// Iterator over the entries of a directory in stored order (sorted by bytes), without "." and
/// "..".
///
/// It owns a clone of the image and holds at most 256 entries. An error ends it: an inode that is
/// no directory, a damaged directory, a failing source. Entries before the damage come first.
#[derive(Clone, Debug)]
pub struct DirEntries {
    image: Image,
    dir: Inode,
    /// Position of the next batch; `None` behind the last batch.
    next: Option<u64>,
    /// Entries to come, the next one last.
    batch: Vec<DirEntry>,
    /// Error that ended the listing behind the entries in the batch.
    error: Option<ReadError>,
    has_dots: bool,
}

impl DirEntries {
    /// Lists the directory `dir`.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use kiln_read::{DirEntries, ReadError};
    ///
    /// let root = image.inode(image.root_nid())?;
    /// let names = DirEntries::new(&image, &root).map(|entry| Ok(entry?.name)).collect::<Result<Vec<_>, ReadError>>()?;
    /// assert!(names.is_sorted() && names.contains(&b"big".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(image: &Image, dir: &Inode) -> Self {
        let image = image.clone();
        Self { image, dir: *dir, next: Some(0), batch: Vec::new(), error: None, has_dots: false }
    }

    /// Returns the same entries with "." and "..". A "." that is not stored comes last.
    pub fn with_dots(self) -> Self {
        Self { has_dots: true, ..self }
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Inode {
        &self.dir
    }

    /// Reads the entries from position `from` on.
    fn read_batch(&mut self, from: u64) {
        let Self { image, dir, next, batch, error, has_dots } = self;
        let result = image.reader().read_dir(dir, from, &mut |entry, behind| {
            if *has_dots || !entry.is_dot() {
                batch.push(entry);
            }
            match batch.len() < BATCH {
                true => ControlFlow::Continue(()),
                false => {
                    *next = Some(behind);
                    ControlFlow::Break(())
                }
            }
        });
        *error = result.err();
        batch.reverse();
    }
}

impl Iterator for DirEntries {
    type Item = Result<DirEntry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.batch.pop() {
                return Some(Ok(entry));
            }
            if let Some(error) = self.error.take() {
                return Some(Err(error));
            }
            let from = self.next.take()?;
            self.read_batch(from);
        }
    }
}

impl FusedIterator for DirEntries {}
