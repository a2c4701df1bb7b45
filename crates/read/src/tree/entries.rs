//! The entries of a directory as an iterator that owns what it needs.

use super::dir::{DirEntry, is_dot};
use super::resolve::FollowLast;
use crate::error::ReadError;
use crate::image::Image;
use crate::metadata::inode::Inode;
use std::iter::FusedIterator;
use std::ops::ControlFlow;

/// Entries that the iterator holds at a time.
const BATCH: usize = 256;

/// The entries of a directory in stored order, without "." and "..", see [`Image::entries`].
#[derive(Clone, Debug)]
pub struct DirEntries {
    image: Image,
    dir: Inode,
    /// Where the next batch starts; `None` behind the last.
    next: Option<u64>,
    /// Entries to come, the next one last.
    batch: Vec<DirEntry>,
    /// What ended the listing behind the entries in the batch.
    error: Option<ReadError>,
}

impl Image {
    /// The entries of a directory, in stored order (sorted by bytes), without "." and "..". The iterator owns a clone of the image and
    /// holds at most 256 entries. An error ends it; entries before the damage come first.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let root = image.inode(image.root_nid())?;
    /// let names: Vec<_> = image.entries(&root).map(|entry| Ok(entry?.name)).collect::<Result<_, kiln_read::ReadError>>()?;
    /// assert!(names.is_sorted() && names.contains(&b"big".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the items: not a directory, a damaged one, a failing source.
    pub fn entries(&self, dir: &Inode) -> DirEntries {
        DirEntries { image: self.clone(), dir: *dir, next: Some(0), batch: Vec::new(), error: None }
    }

    /// [`Image::entries`] of the directory at `path`, with or without a leading slash. Symbolic links are followed within the image.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// for entry in image.open_dir("/big")? {
    ///     let entry = entry?;
    ///     println!("{} has {} bytes", entry.name.escape_ascii(), image.inode(entry.nid)?.size());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Image::resolve`]; [`ReadError::NotADirectory`].
    pub fn open_dir(&self, path: impl AsRef<[u8]>) -> Result<DirEntries, ReadError> {
        let path = path.as_ref();
        let dir = self.resolve(path, FollowLast::Follow)?;
        match dir.is_dir() {
            true => Ok(self.entries(&dir)),
            false => Err(ReadError::NotADirectory { path: path.to_vec() }),
        }
    }
}

impl DirEntries {
    /// The directory.
    pub fn dir(&self) -> &Inode {
        &self.dir
    }

    /// Read the entries from position `from` on.
    fn read_batch(&mut self, from: u64) {
        let DirEntries { image, dir, next, batch, error } = self;
        let result = image.read_dir(dir, from, &mut |entry, behind| {
            if !is_dot(&entry.name) {
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
