//! List of the paths to scan.

use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;

use crate::path::join;
use crate::syntax::{FileError, SyntaxError};

/// Paths relative to the root of the source. Only they and their parent directories are scanned;
/// the entries of a listed directory must be listed themselves.
#[derive(Clone, Debug, Default)]
pub struct PathList {
    /// Listed names, by directory.
    by_dir: HashMap<Vec<u8>, BTreeSet<CString>>,
}

impl PathList {
    /// Parses the list in a file called `name`: one path per line, or, if the text contains a zero
    /// byte, paths that end with zero bytes (`find -print0`). Leading slashes and `.` are ignored.
    ///
    /// # Errors
    /// A path with `..`.
    pub fn parse(text: &[u8], name: &str) -> Result<Self, FileError> {
        let mut list = Self::default();
        for (idx, path) in paths(text).enumerate() {
            list.add(path).map_err(|error| error.at(name, idx))?;
        }
        Ok(list)
    }

    fn add(&mut self, path: &[u8]) -> Result<(), SyntaxError> {
        let mut dir = Vec::new();
        for component in components(path)? {
            let name = CString::new(component).map_err(|_| SyntaxError::new("path", path, "a zero byte"))?;
            match self.by_dir.get_mut(&dir) {
                Some(names) => drop(names.insert(name)),
                None => drop(self.by_dir.insert(dir.clone(), BTreeSet::from([name]))),
            }
            dir = join(&dir, component);
        }
        Ok(())
    }

    /// Returns the listed names in the directory `dir`, if any.
    pub fn names_in(&self, dir: &[u8]) -> Option<&BTreeSet<CString>> {
        self.by_dir.get(dir)
    }
}

/// Returns the paths in a file: one per line, or, if it contains a zero byte, paths that end with
/// zero bytes.
pub(crate) fn paths(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = if text.contains(&0) { 0 } else { b'\n' };
    text.split(move |&b| b == end)
}

/// Returns the components of a path relative to the root of the source; none for an empty path.
///
/// # Errors
/// A path with `..`.
pub(crate) fn components(path: &[u8]) -> Result<Vec<&[u8]>, SyntaxError> {
    let names: Vec<_> = path.split(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    match names.contains(&&b".."[..]) {
        true => Err(SyntaxError::new("path", path, "`..` is not allowed")),
        false => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &PathList, dir: &str) -> Vec<String> {
        let names = list.names_in(dir.as_bytes()).into_iter().flatten();
        names.map(|name| name.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn parents_belong_to_it() {
        let list = PathList::parse(b"./a/b/c\n/a//d/\n\n.\na/b\n", "list").unwrap();
        assert_eq!(names(&list, ""), ["a"]);
        assert_eq!(names(&list, "a"), ["b", "d"]);
        assert_eq!(names(&list, "a/b"), ["c"]);
        assert!(list.names_in(b"a/d").is_none());
    }

    #[test]
    fn zero_bytes_may_end_paths() {
        let list = PathList::parse(b"a\nb\0c\0", "list").unwrap();
        assert_eq!(names(&list, ""), ["a\nb", "c"]);
    }

    #[test]
    fn paths_that_lead_up_are_refused() {
        let error = PathList::parse(b"a\nb/../../c", "list").unwrap_err();
        assert_eq!(error.to_string(), "list, line 2: path `b/../../c`: `..` is not allowed");
    }
}
