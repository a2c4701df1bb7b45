//! Names of files, which an index does not store: they are read from the directories of the image.

use super::columns::Columns;
use super::filter::join;
use super::scan::target;
use kiln_read::{DirEntries, FileType, FollowLast, Image, Nid, ReadError};

/// Names of the files of one directory that have rows.
#[derive(Default)]
pub(super) struct DirectoryNames {
    /// Position of the directory in the index; `None` before the first is read.
    idx: Option<usize>,
    names: Vec<Vec<u8>>,
}

impl DirectoryNames {
    /// Makes the names of directory `idx` of an index.
    pub(super) fn new(idx: usize, names: Vec<Vec<u8>>) -> Self {
        DirectoryNames { idx: Some(idx), names }
    }

    /// Returns a name if these names are those of its directory; `Some(None)` if the directory has
    /// no such file.
    pub(super) fn get(&self, at: NamePosition) -> Option<Option<Vec<u8>>> {
        (self.idx == Some(at.idx)).then(|| self.names.get(at.nth).cloned())
    }
}

/// Position of a row's name: the directory in the index, and the file in the directory.
#[derive(Clone, Copy)]
pub(super) struct NamePosition {
    pub idx: usize,
    pub nth: usize,
}

impl Columns {
    /// Returns the row of the scan of a row.
    fn scan_row(&self, row: usize) -> u64 {
        self.scan_rows.as_ref().map_or(row as u64, |scan_rows| scan_rows.get()[row])
    }

    /// Returns the position of a row's name.
    pub(super) fn name_position(&self, row: usize) -> NamePosition {
        let row = self.scan_row(row);
        let firsts = self.directories.firsts.get();
        let idx = firsts.partition_point(|&first| first <= row).saturating_sub(1);
        let nth = firsts.get(idx).and_then(|&first| usize::try_from(row - first).ok());
        NamePosition { idx, nth: nth.unwrap_or(usize::MAX) }
    }

    /// Returns the path from the root of the image of the file with this name.
    ///
    /// # Errors
    /// `Internal` if there is no name.
    pub(super) fn path(&self, at: NamePosition, name: Option<Vec<u8>>) -> Result<Vec<u8>, ReadError> {
        let no_file = || ReadError::Internal { what: "a row of the index is not a file of the image".into() };
        Ok(join(self.directories.path(at.idx), &name.ok_or_else(no_file)?))
    }

    /// Reads the names of directory `idx` that have rows, in the order of their rows.
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

    /// Returns the first row of a path, if it has one.
    pub(super) fn find(&self, image: &Image, path: &[u8]) -> Result<Option<usize>, ReadError> {
        let Some(row) = self.find_scan_row(image, path)? else { return Ok(None) };
        match &self.scan_rows {
            None => Ok(usize::try_from(row).ok().filter(|&row| row < self.len())),
            Some(scan_rows) => Ok(scan_rows.get().iter().position(|&scan_row| scan_row == row)),
        }
    }

    /// Returns all rows of a path, in their order.
    pub(super) fn find_all(&self, image: &Image, path: &[u8]) -> Result<Vec<usize>, ReadError> {
        let Some(row) = self.find(image, path)? else { return Ok(Vec::new()) };
        let Some(scan_rows) = &self.scan_rows else { return Ok(vec![row]) };
        let of_scan = scan_rows.get()[row];
        Ok((row..self.len()).filter(|&row| scan_rows.get()[row] == of_scan).collect())
    }

    /// Returns the row of the scan of a path, if it has one.
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
