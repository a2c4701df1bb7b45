//! From a tree to an index.

use super::columns::{Columns, Directories, Numbers, SizesInMaking};
use super::labels::{Classes, LabelDepth, labels};
use crate::arguments::What;
use globset::{GlobBuilder, GlobMatcher};
use kiln_parallel::Threads;
use kiln_read::{FileTable, FileType, FollowLast, Image, Inode, ReadError, ScanFilter};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// No inode is shorter, in bytes.
const INODE_LEN_MIN: u64 = 32;

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

    /// The part of the filter that a scan applies itself: the ends of names.
    pub(super) fn endings(&self) -> ScanFilter {
        ScanFilter::all().ending_in(&self.endings)
    }

    /// Whether the glob, if there is one, matches a name of the directory `below` the root.
    pub(super) fn takes_path(&self, below: &[u8], name: &[u8]) -> bool {
        let Some(matcher) = &self.matcher else { return true };
        matcher.is_match(Path::new(OsStr::from_bytes(&join(below, name))))
    }

    /// The part of a path below the root.
    pub(super) fn below<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let below = path.strip_prefix(self.root.as_slice()).unwrap_or(path);
        below.strip_prefix(b"/").unwrap_or(below)
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
    let filter = IndexFilter { root: what.path().map(normal).unwrap_or_default(), ..filter.clone() };
    let mut rows = Rows::new(image);
    image
        .scan(root, &filter.endings(), threads)
        .each_part(&mut |table| (0..table.len()).try_for_each(|row| rows.add(image, table, row, &filter, depth)))?;
    Ok(rows.finish(image, filter, depth))
}

/// A path without slashes in front, behind, and twice.
pub(super) fn normal(path: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    parts.join(&b'/')
}

/// Rows in the making.
struct Rows {
    nids: Vec<u64>,
    sizes: SizesInMaking,
    dirs: Vec<DirectoryRows>,
}

/// A directory with files.
struct DirectoryRows {
    /// Its row in the table of the scan.
    scan_row: u32,
    nid: u64,
    /// Its path below the root of the index.
    below: Vec<u8>,
    /// The first of its files.
    first: u64,
}

impl Rows {
    fn new(image: &Image) -> Self {
        // As many as there can be at most: what is not used of this memory is never touched. The count is a claim, which the image's
        // length bounds.
        let most = image.superblock().inos.min(image.source_len() / INODE_LEN_MIN);
        let most = usize::try_from(most).unwrap_or(0);
        Rows { nids: Vec::with_capacity(most), sizes: SizesInMaking::with_capacity(most), dirs: Vec::new() }
    }

    fn add(
        &mut self,
        image: &Image,
        table: &FileTable,
        row: usize,
        filter: &IndexFilter,
        depth: Option<LabelDepth>,
    ) -> Result<(), ReadError> {
        let dir = table.parents[row];
        // Rows of a directory follow each other.
        let known = self.dirs.last().filter(|last| last.scan_row == dir);
        let path = known.map_or_else(|| table.directories.path(dir as usize), |_| Vec::new());
        let below = known.map_or(&path, |known| &known.below);
        let name = table.name(row);
        if depth.is_some_and(|depth| depth.class_of(below).is_none()) || !filter.takes_path(below, name) {
            return Ok(());
        }
        let found = match FileType::from_mode(table.modes[row]) {
            Some(FileType::Regular) => Some((table.nids[row], table.sizes[row])),
            Some(FileType::Symlink) => target(image, &join(&join(&filter.root, below), name))?,
            _ => None,
        };
        let Some((nid, size)) = found else { return Ok(()) };
        if known.is_none() {
            let (nid, first) = (table.directories.nids[dir as usize], self.nids.len() as u64);
            self.dirs.push(DirectoryRows { scan_row: dir, nid, below: path, first });
        }
        self.nids.push(nid);
        self.sizes.push(size);
        Ok(())
    }

    fn finish(self, image: &Image, filter: IndexFilter, depth: Option<LabelDepth>) -> Columns {
        let Rows { nids, sizes, dirs } = self;
        let ends = dirs.iter().skip(1).map(|dir| dir.first).chain([nids.len() as u64]);
        let counts: Vec<usize> = dirs.iter().zip(ends).map(|(dir, end)| (end - dir.first) as usize).collect();
        let (classes, labels) = match depth {
            Some(depth) => {
                let class = |dir: &DirectoryRows| depth.class_of(&dir.below).unwrap_or_default().to_vec();
                let classes = Classes::of(dirs.iter().filter_map(|dir| depth.class_of(&dir.below)));
                let of_directories = dirs.iter().zip(counts).map(|(dir, count)| (class(dir), count));
                let labels = labels(&classes, of_directories);
                (classes.names, Some(labels))
            }
            None => (Vec::new(), None),
        };
        let (mut paths, mut path_ends) = (Vec::new(), Vec::with_capacity(dirs.len()));
        for dir in &dirs {
            paths.extend(join(&filter.root, &dir.below));
            path_ends.push(paths.len() as u64);
        }
        let directories = Directories {
            nids: Numbers::new(dirs.iter().map(|dir| dir.nid).collect()),
            firsts: Numbers::new(dirs.iter().map(|dir| dir.first).collect()),
            path_ends: Numbers::new(path_ends),
            paths: paths.into(),
        };
        let (nids, sizes) = (Numbers::new(shrunk(nids)), sizes.finish());
        let uuid = image.superblock().uuid;
        Columns { uuid, filter, nids, sizes, labels, classes, directories, scan_rows: None }
    }
}

/// The same numbers without room for more.
fn shrunk(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.shrink_to_fit();
    numbers
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
