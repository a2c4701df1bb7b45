//! The objects of a store.

use crate::error::StoreError;
use crate::store::Store;
use kiln_digest::Digest;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Everything in a store.
pub(crate) struct Listing {
    /// Digests that names stand for, sorted.
    pub(crate) objects: Vec<Digest>,
    /// Paths of everything else, sorted, without hidden files: those are unfinished.
    pub(crate) others: Vec<PathBuf>,
}

impl Store {
    pub(crate) fn list(&self) -> Result<Listing, StoreError> {
        let mut listing = Listing { objects: Vec::new(), others: Vec::new() };
        for (path, name) in self.names(self.path().to_owned())? {
            let is_dir = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
            if !is_dir || name.len() != 2 || !is_hex(&name) {
                listing.others.push(path);
                continue;
            }
            for (path, rest) in self.names(path)? {
                let hex = [&name[..], &rest].concat();
                match Digest::from_hex(&hex).filter(|_| is_hex(&rest)) {
                    Some(digest) => listing.objects.push(digest),
                    None => listing.others.push(path),
                }
            }
        }
        Ok(listing)
    }

    /// Returns paths and names in a directory, sorted, without hidden ones.
    fn names(&self, dir: PathBuf) -> Result<Vec<(PathBuf, Vec<u8>)>, StoreError> {
        let read = |error| StoreError::file(&dir, "read")(error);
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::NotFound && dir != self.path() => return Ok(Vec::new()),
            entries => entries.map_err(read)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error: std::io::Error| StoreError::file(&dir, "read")(error))?;
            let name = entry.file_name().into_encoded_bytes();
            if !name.starts_with(b".") {
                names.push((entry.path(), name));
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Returns true for hexadecimal digits as objects have them.
fn is_hex(name: &[u8]) -> bool {
    name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
