//! Scan of the files below a directory, which makes an index.

use super::columns::{Columns, Directories, Numbers, SizesBuilder};
use super::filter::{IndexFilter, join, normal};
use super::labels::{Classes, LabelDepth, labels};
use crate::arguments::FileRef;
use kiln_parallel::Threads;
use kiln_read::{FileTable, FileType, FollowLast, Image, Inode, ReadError};

/// Length in bytes of the shortest inode.
const INODE_LEN_MIN: u64 = 32;

/// Returns the index of the regular files below `root`, and of symbolic links to regular files.
/// With a depth, it has classes, and leaves out files above that depth.
pub(super) fn scan(
    image: &Image,
    file: &FileRef,
    root: &Inode,
    filter: &IndexFilter,
    depth: Option<LabelDepth>,
    threads: Threads,
) -> Result<Columns, ReadError> {
    if !root.is_dir() {
        return Err(ReadError::NotADirectory { path: file.path().unwrap_or_default().to_vec() });
    }
    let filter = IndexFilter { root: file.path().map(normal).unwrap_or_default(), ..filter.clone() };
    let mut rows = Rows::new(image);
    image
        .scan(root, &filter.endings(), threads)
        .each_part(&mut |table| (0..table.len()).try_for_each(|row| rows.add(image, table, row, &filter, depth)))?;
    Ok(rows.finish(image, filter, depth))
}

/// Rows found so far.
struct Rows {
    nids: Vec<u64>,
    sizes: SizesBuilder,
    dirs: Vec<DirectoryRows>,
}

/// Rows of one directory.
struct DirectoryRows {
    /// Row of the directory in the table of the scan.
    scan_row: u32,
    nid: u64,
    /// Path of the directory below the root of the index.
    below: Vec<u8>,
    /// First row of its files.
    first: u64,
}

impl Rows {
    fn new(image: &Image) -> Self {
        // Room for the largest possible number: memory that is not used is never touched. The count
        // in the superblock is only a claim, which the length of the image bounds.
        let most = image.superblock().inos.min(image.source_len() / INODE_LEN_MIN);
        let most = usize::try_from(most).unwrap_or(0);
        Rows { nids: Vec::with_capacity(most), sizes: SizesBuilder::with_capacity(most), dirs: Vec::new() }
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
        // Rows of one directory are adjacent.
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

/// Returns the numbers without spare capacity.
fn shrunk(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.shrink_to_fit();
    numbers
}

/// Returns nid and size of the regular file that a symbolic link leads to, if it leads to one.
pub(super) fn target(image: &Image, path: &[u8]) -> Result<Option<(u64, u64)>, ReadError> {
    match image.resolve(path, FollowLast::Follow) {
        Ok(inode) => Ok(inode.is_file().then(|| (inode.nid.0, inode.size()))),
        Err(ReadError::NotFound { .. } | ReadError::TooManySymlinks { .. } | ReadError::NotADirectory { .. }) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
