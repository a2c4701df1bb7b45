//! From a tree to an index.

use super::columns::{Columns, Directories, Numbers, Sizes};
use super::labels::{Classes, LabelDepth, labels};
use crate::arguments::What;
use globset::{GlobBuilder, GlobMatcher};
use kiln_parallel::Threads;
use kiln_read::{FileTable, FileType, FollowLast, Image, Inode, ReadError, ScanFilter};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Which files an index has.
#[derive(Clone, Default)]
pub(crate) struct IndexFilter {
    /// Ends of names, such as `.jpg`; upper and lower case of ASCII letters are the same.
    pub(super) endings: Vec<Vec<u8>>,
    /// A glob for paths below the root.
    pub(super) glob: Option<Vec<u8>>,
    pub(super) matcher: Option<GlobMatcher>,
    /// The root's path from the root of the image, without slashes around it.
    pub(super) root: Vec<u8>,
}

impl IndexFilter {
    pub(crate) fn new(endings: Vec<Vec<u8>>, glob: Option<Vec<u8>>) -> PyResult<Self> {
        let filter = IndexFilter { endings, ..IndexFilter::default() };
        filter.with_glob(glob).map_err(PyValueError::new_err)
    }

    /// The filter with a glob; what is wrong with it.
    pub(super) fn with_glob(mut self, glob: Option<Vec<u8>>) -> Result<Self, String> {
        if let Some(glob) = &glob {
            let text = std::str::from_utf8(glob).map_err(|_| format!("glob '{}': not UTF-8", glob.escape_ascii()))?;
            let built = GlobBuilder::new(text).literal_separator(true).build();
            self.matcher = Some(built.map_err(|error| format!("glob {text:?}: {}", error.kind()))?.compile_matcher());
        }
        self.glob = glob;
        Ok(self)
    }

    /// Whether a name of the directory `dir`, whose path is from the root of the image, has a row.
    pub(super) fn takes(&self, dir: &[u8], name: &[u8]) -> bool {
        let ends_in = |ending: &Vec<u8>| {
            name.len().checked_sub(ending.len()).is_some_and(|at| name[at..].eq_ignore_ascii_case(ending))
        };
        if !self.endings.is_empty() && !self.endings.iter().any(ends_in) {
            return false;
        }
        let Some(matcher) = &self.matcher else { return true };
        let below = dir.strip_prefix(self.root.as_slice()).unwrap_or(dir);
        let path = join(below.strip_prefix(b"/").unwrap_or(below), name);
        matcher.is_match(std::path::Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&path)))
    }
}

/// A path of two parts, of which the first one may be empty.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        ([], name) => name.to_vec(),
        (dir, []) => dir.to_vec(),
        (dir, name) => [dir, b"/", name].concat(),
    }
}

/// The regular files below `root`, and symbolic links to such; with classes, if they have a depth, and then without files above them.
pub(crate) fn scan(
    image: &Image,
    what: &What,
    root: &Inode,
    filter: &IndexFilter,
    depth: Option<LabelDepth>,
    threads: Threads,
) -> Result<Columns, ReadError> {
    if !root.is_dir() {
        return Err(ReadError::NotADirectory { path: what.path().unwrap_or_default().to_vec() });
    }
    let root_path = what.path().map(normal).unwrap_or_default();
    let filter = IndexFilter { root: root_path.clone(), ..filter.clone() };
    let table = image.scan(root, &ScanFilter::all().ending_in(&filter.endings), threads)?;
    let mut rows = Rows::new(&table, root_path);
    for row in 0..table.len() {
        rows.add(image, row, &filter, depth)?;
    }
    Ok(rows.finish(image, filter, depth))
}

/// A path without slashes in front, behind, and twice.
fn normal(path: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    parts.join(&b'/')
}

/// Rows in the making.
struct Rows<'t> {
    table: &'t FileTable,
    root: Vec<u8>,
    nids: Vec<u64>,
    sizes: Vec<u64>,
    /// Directories with files: their rows in the table, paths below the root, and first rows.
    dirs: Vec<(u32, Vec<u8>, u64)>,
}

impl<'t> Rows<'t> {
    fn new(table: &'t FileTable, root: Vec<u8>) -> Self {
        let (nids, sizes) = (Vec::with_capacity(table.len()), Vec::with_capacity(table.len()));
        Rows { table, root, nids, sizes, dirs: Vec::new() }
    }

    fn add(
        &mut self,
        image: &Image,
        row: usize,
        filter: &IndexFilter,
        depth: Option<LabelDepth>,
    ) -> Result<(), ReadError> {
        let table = self.table;
        let dir = table.parents[row];
        let is_new = self.dirs.last().is_none_or(|&(last, ..)| last != dir);
        let path = if is_new { table.directories.path(dir as usize) } else { Vec::new() };
        let (.., below, _) = match (is_new, self.dirs.last()) {
            (false, Some(last)) => last,
            _ => &(dir, path, 0),
        };
        if depth.is_some_and(|depth| depth.class_of(below).is_none())
            || !filter.takes(&join(&self.root, below), table.name(row))
        {
            return Ok(());
        }
        let found = match file_type(table.modes[row]) {
            Some(FileType::Regular) => Some((table.nids[row], table.sizes[row])),
            Some(FileType::Symlink) => target(image, &join(&join(&self.root, below), table.name(row)))?,
            _ => None,
        };
        let Some((nid, size)) = found else { return Ok(()) };
        if is_new {
            let first = self.nids.len() as u64;
            self.dirs.push((dir, below.clone(), first));
        }
        self.nids.push(nid);
        self.sizes.push(size);
        Ok(())
    }

    fn finish(self, image: &Image, filter: IndexFilter, depth: Option<LabelDepth>) -> Columns {
        let Rows { table, root, nids, sizes, dirs } = self;
        let ends = dirs.iter().skip(1).map(|&(.., first)| first).chain([nids.len() as u64]);
        let counts: Vec<usize> = dirs.iter().zip(ends).map(|(&(.., first), end)| (end - first) as usize).collect();
        let (classes, labels) = match depth {
            Some(depth) => {
                let class = |below: &[u8]| depth.class_of(below).unwrap_or_default().to_vec();
                let classes = Classes::of(dirs.iter().filter_map(|(_, below, _)| depth.class_of(below)));
                let of_directories = dirs.iter().zip(counts).map(|((_, below, _), count)| (class(below), count));
                let labels = labels(&classes, of_directories);
                (classes.names, Some(labels))
            }
            None => (Vec::new(), None),
        };
        let (mut paths, mut path_ends) = (Vec::new(), Vec::with_capacity(dirs.len()));
        for (_, below, _) in &dirs {
            paths.extend(join(&root, below));
            path_ends.push(paths.len() as u64);
        }
        let directories = Directories {
            nids: Numbers::new(dirs.iter().map(|&(dir, ..)| table.directories.nids[dir as usize]).collect()),
            firsts: Numbers::new(dirs.iter().map(|&(.., first)| first).collect()),
            path_ends: Numbers::new(path_ends),
            paths: paths.into(),
        };
        let (nids, sizes) = (Numbers::new(nids), Sizes::new(sizes));
        let uuid = image.superblock().uuid;
        Columns { uuid, filter, nids, sizes, labels, classes, directories, scan_rows: None }
    }
}

fn file_type(mode: u16) -> Option<FileType> {
    FileType::from_mode(mode)
}

/// The regular file that a symbolic link leads to, if it leads to one.
pub(super) fn target(image: &Image, path: &[u8]) -> Result<Option<(u64, u64)>, ReadError> {
    match image.resolve(path, FollowLast::Follow) {
        Ok(inode) => Ok(inode.is_file().then(|| (inode.nid.0, inode.size()))),
        Err(ReadError::NotFound { .. } | ReadError::TooManySymlinks { .. } | ReadError::NotADirectory { .. }) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
