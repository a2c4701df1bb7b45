//! All files below a directory in columns: what a program keeps that works on millions of files.

use crate::data::position::FilePosition;
use crate::error::ReadError;
use crate::image::Image;
use kiln_format::Nid;
use kiln_parallel::locks::{into_inner, lock};
use kiln_parallel::{Threads, unordered};
use std::sync::Mutex;

/// Files whose positions a thread looks up in one go.
const BATCH: usize = 1024;

/// The files that [`Image::scan`] found, one row for each name, in flat columns: no allocation for
/// each file, and nothing that has to be copied to hand a column on. Directory by directory, each
/// before those below it; names of a directory in stored order.
///
/// About 50 bytes and the name for each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileTable {
    /// Numbers of the inodes.
    pub nids: Vec<u64>,
    /// Lengths of the contents in bytes.
    pub sizes: Vec<u64>,
    /// Types and permissions, as `st_mode` has them.
    pub modes: Vec<u16>,
    /// Owners.
    pub uids: Vec<u32>,
    /// Groups.
    pub gids: Vec<u32>,
    /// Modification times in seconds since 1970.
    pub mtimes: Vec<i64>,
    /// Nanoseconds of the modification times.
    pub mtime_nsecs: Vec<u32>,
    /// Rows of `directories` that the files are in.
    pub parents: Vec<u32>,
    /// Names without slash.
    pub names: Names,
    /// All directories that were met, whether they hold files or not.
    pub directories: DirectoryTable,
}

/// The directories of a [`FileTable`]. The first one is the root of the scan; its name is empty,
/// and it is its own parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectoryTable {
    /// Numbers of the inodes.
    pub nids: Vec<u64>,
    /// Rows of the directories that hold these.
    pub parents: Vec<u32>,
    /// Names without slash.
    pub names: Names,
}

/// Byte strings one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Names {
    /// All strings, without anything between them.
    pub bytes: Vec<u8>,
    /// Start of each string in `bytes`, and last the end of the last one: one offset more than
    /// there are strings.
    pub offsets: Vec<u64>,
}

impl Default for Names {
    fn default() -> Self {
        Names { bytes: Vec::new(), offsets: vec![0] }
    }
}

impl Names {
    /// Returns the name in row `idx`.
    ///
    /// # Panics
    /// There is no such row.
    pub fn get(&self, idx: usize) -> &[u8] {
        &self.bytes[self.offsets[idx] as usize..self.offsets[idx + 1] as usize]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.offsets.truncate(1);
    }

    pub(super) fn push(&mut self, name: &[u8]) {
        self.bytes.extend_from_slice(name);
        self.offsets.push(self.bytes.len() as u64);
    }
}

impl DirectoryTable {
    /// Returns the number of directories.
    pub fn len(&self) -> usize {
        self.nids.len()
    }

    /// Returns the path of directory `idx` from the root of the scan, without a slash in front;
    /// empty for that root.
    ///
    /// # Panics
    /// There is no such row.
    pub fn path(&self, idx: usize) -> Vec<u8> {
        let (mut parts, mut at) = (Vec::new(), idx);
        while at != 0 {
            parts.push(self.names.get(at));
            at = self.parents[at] as usize;
        }
        parts.reverse();
        parts.join(&b'/')
    }

    pub(super) fn push(&mut self, nid: Nid, parent: u32, name: &[u8]) {
        self.nids.push(nid.0);
        self.parents.push(parent);
        self.names.push(name);
    }
}

impl FileTable {
    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.nids.len()
    }

    /// Returns true if there are no files.
    pub fn is_empty(&self) -> bool {
        self.nids.is_empty()
    }

    /// Returns the name of file `idx`.
    ///
    /// # Panics
    /// There is no such row.
    pub fn name(&self, idx: usize) -> &[u8] {
        self.names.get(idx)
    }

    /// Returns the path of file `idx` from the root of the scan, without a slash in front.
    ///
    /// # Panics
    /// There is no such row.
    pub fn path(&self, idx: usize) -> Vec<u8> {
        let mut path = self.directories.path(self.parents[idx] as usize);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(self.name(idx));
        path
    }

    /// Forgets all files, but not the directories.
    pub(super) fn clear_rows(&mut self) {
        let Self { nids, sizes, modes, uids, gids, mtimes, mtime_nsecs, parents, names, directories: _ } = self;
        nids.clear();
        sizes.clear();
        modes.clear();
        uids.clear();
        gids.clear();
        mtimes.clear();
        mtime_nsecs.clear();
        parents.clear();
        names.clear();
    }

    /// Returns the positions of the files' contents in stored order, for sorting reads. Rows
    /// without contents (devices, FIFOs, sockets) have the default position.
    ///
    /// # Errors
    /// The first row's whose map is damaged or cannot be read.
    pub fn positions(&self, image: &Image, threads: Threads) -> Result<Vec<FilePosition>, ReadError> {
        let mut positions = vec![FilePosition::default(); self.len()];
        let errors = Mutex::new(Vec::new());
        let batches = self.nids.chunks(BATCH).zip(positions.chunks_mut(BATCH)).enumerate().collect();
        unordered::run(threads, batches, || {
            |(nth, (nids, positions)): (usize, (&[u64], &mut [FilePosition]))| {
                if let Err(error) = fill_positions(image, nids, positions) {
                    lock(&errors).push((nth, error));
                }
            }
        });
        let errors = into_inner(errors);
        match errors.into_iter().min_by_key(|&(nth, _)| nth) {
            Some((_, error)) => Err(error),
            None => Ok(positions),
        }
    }
}

fn fill_positions(image: &Image, nids: &[u64], positions: &mut [FilePosition]) -> Result<(), ReadError> {
    for (&nid, position) in nids.iter().zip(positions) {
        let inode = image.inode(Nid(nid))?;
        if inode.has_contents() {
            *position = image.position(&inode)?;
        }
    }
    Ok(())
}
