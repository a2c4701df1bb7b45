//! Names of rows, which an index does not hold: they are read again from the directory that a row is in.

use super::columns::Columns;
use super::scan::{join, target};
use kiln_read::{DirEntries, FileType, FollowLast, Image, Nid, ReadError};

/// The names of one directory that have rows.
#[derive(Default)]
pub(super) struct DirectoryNames {
    /// Which directory of the index, if any.
    idx: Option<usize>,
    names: Vec<Vec<u8>>,
}

impl DirectoryNames {
    /// The names of directory `idx` of an index.
    pub(super) fn new(idx: usize, names: Vec<Vec<u8>>) -> Self {
        DirectoryNames { idx: Some(idx), names }
    }

    /// A name, if they are those of directory `idx`: `None` inside where it has no such file.
    pub(super) fn get(&self, place: Place) -> Option<Option<Vec<u8>>> {
        (self.idx == Some(place.idx)).then(|| self.names.get(place.nth).cloned())
    }
}

/// Where a row's name is: which directory of the index, and which of its files.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub idx: usize,
    pub nth: usize,
}

impl Columns {
    /// The row of the scan that a row was.
    fn scan_row(&self, row: usize) -> u64 {
        self.scan_rows.as_ref().map_or(row as u64, |scan_rows| scan_rows.get()[row])
    }

    /// Where the name of a row is.
    pub(super) fn place(&self, row: usize) -> Place {
        let row = self.scan_row(row);
        let firsts = self.directories.firsts.get();
        let idx = firsts.partition_point(|&first| first <= row).saturating_sub(1);
        let nth = firsts.get(idx).and_then(|&first| usize::try_from(row - first).ok());
        Place { idx, nth: nth.unwrap_or(usize::MAX) }
    }

    /// The path from the root of the image of the file with this name.
    pub(super) fn path(&self, place: Place, name: Option<Vec<u8>>) -> Result<Vec<u8>, ReadError> {
        let no_file = || ReadError::Internal { what: "a row of the index is no file of the image".into() };
        Ok(join(self.directories.path(place.idx), &name.ok_or_else(no_file)?))
    }

    /// The names of directory `idx` that have rows, in the order of their rows.
    pub(super) fn names(&self, image: &Image, idx: usize) -> Result<Vec<Vec<u8>>, ReadError> {
        let Some(&nid) = self.directories.nids.get().get(idx) else { return Ok(Vec::new()) };
        let path = self.directories.path(idx);
        let dir = image.inode(Nid(nid))?;
        let (endings, below) = (self.filter.endings(), self.filter.below(path));
        let mut names = Vec::new();
        for entry in DirEntries::new(image, &dir) {
            let entry = entry?;
            if !endings.takes_name(&entry.name) || !self.filter.takes_path(below, &entry.name) {
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

    /// The first row of a path, if it has one.
    pub(super) fn find(&self, image: &Image, path: &[u8]) -> Result<Option<usize>, ReadError> {
        let Some(row) = self.find_scan_row(image, path)? else { return Ok(None) };
        match &self.scan_rows {
            None => Ok(usize::try_from(row).ok().filter(|&row| row < self.len())),
            Some(scan_rows) => Ok(scan_rows.get().iter().position(|&scan_row| scan_row == row)),
        }
    }

    /// All rows of a path, in their order.
    pub(super) fn find_all(&self, image: &Image, path: &[u8]) -> Result<Vec<usize>, ReadError> {
        let Some(row) = self.find(image, path)? else { return Ok(Vec::new()) };
        let Some(scan_rows) = &self.scan_rows else { return Ok(vec![row]) };
        let of_scan = scan_rows.get()[row];
        Ok((row..self.len()).filter(|&row| scan_rows.get()[row] == of_scan).collect())
    }

    /// The row of the scan that a path was, if it was one.
    fn find_scan_row(&self, image: &Image, path: &[u8]) -> Result<Option<u64>, ReadError> {
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
        Ok(Some(self.directories.firsts.get()[idx] + place as u64))
    }
}
