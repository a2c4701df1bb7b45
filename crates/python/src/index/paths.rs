//! Names of rows, which an index does not hold: they are read again from the directory that a row is in.

use super::columns::Columns;
use super::scan::{join, target};
use kiln_parallel::locks::lock;
use kiln_read::{FileType, FollowLast, Image, Nid, ReadError};
use std::sync::Mutex;

/// The names of one directory that have rows.
#[derive(Default)]
pub(super) struct DirectoryNames {
    /// Which directory of the index, if any.
    idx: Option<usize>,
    names: Vec<Vec<u8>>,
}

impl Columns {
    /// The row of the scan that a row was.
    fn scan_row(&self, row: usize) -> u64 {
        self.scan_rows.as_ref().map_or(row as u64, |scan_rows| scan_rows.get()[row])
    }

    /// The path of a row from the root of the image.
    pub(super) fn path(&self, image: &Image, row: usize, cache: &Mutex<DirectoryNames>) -> Result<Vec<u8>, ReadError> {
        let row = self.scan_row(row);
        let firsts = self.directories.firsts.get();
        let idx = firsts.partition_point(|&first| first <= row).saturating_sub(1);
        let place = firsts.get(idx).and_then(|&first| usize::try_from(row - first).ok());
        let mut cache = lock(cache);
        if cache.idx != Some(idx) {
            *cache = DirectoryNames { idx: Some(idx), names: self.names(image, idx)? };
        }
        match place.and_then(|place| cache.names.get(place)) {
            Some(name) => Ok(join(self.directories.path(idx), name)),
            None => Err(ReadError::Internal { what: format!("row {row} of the index is no file of the image") }),
        }
    }

    /// The names of directory `idx` that have rows, in the order of their rows.
    fn names(&self, image: &Image, idx: usize) -> Result<Vec<Vec<u8>>, ReadError> {
        let Some(&nid) = self.directories.nids.get().get(idx) else { return Ok(Vec::new()) };
        let path = self.directories.path(idx);
        let dir = image.inode(Nid(nid))?;
        let mut names = Vec::new();
        for entry in image.read_dir_all(&dir)? {
            if entry.is_dot() || !self.filter.takes(path, &entry.name) {
                continue;
            }
            let is_file = entry.file_type == FileType::Regular.dirent_number()
                || entry.file_type != FileType::Directory.dirent_number()
                    && target(image, &join(path, &entry.name))?.is_some();
            if is_file {
                names.push(entry.name);
            }
        }
        Ok(names)
    }

    /// The row of a path, if it has one.
    pub(super) fn find(&self, image: &Image, path: &[u8]) -> Result<Option<usize>, ReadError> {
        let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&path[..0], path),
        };
        let dir = match image.resolve(dir, FollowLast::Follow) {
            Ok(dir) => dir.nid.0,
            Err(ReadError::NotFound { .. } | ReadError::NotADirectory { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(idx) = self.directories.nids.get().iter().position(|&nid| nid == dir) else { return Ok(None) };
        let Some(place) = self.names(image, idx)?.iter().position(|entry| entry == name) else { return Ok(None) };
        let row = self.directories.firsts.get()[idx] + place as u64;
        match &self.scan_rows {
            None => Ok(usize::try_from(row).ok().filter(|&row| row < self.len())),
            Some(scan_rows) => Ok(scan_rows.get().iter().position(|&scan_row| scan_row == row)),
        }
    }
}
