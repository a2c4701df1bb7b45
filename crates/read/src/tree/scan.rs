//! From a tree to a [`FileTable`].
//!
//! Plain algorithm, in two passes. One thread lists the directories, each before those below it,
//! and notes names and numbers. What an entry says about its type is only a hint, so inodes of
//! everything that may be a directory are read on the way. Then threads share the rows out and fill
//! in what inodes say; there a regular file that is none after all is an error.

use super::dir::{DirReader, is_dot};
use super::file_table::FileTable;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::metadata::inode::Inode;
use crate::metadata::inode_table::InodeReader;
use crate::metadata::space::MetadataSpace;
use kiln_format::Nid;
use kiln_format::dirent::{Dirent, PATH_MAX_LEN};
use kiln_format::inode::FileType;
use kiln_parallel::locks::{into_inner, lock};
use kiln_parallel::{Threads, unordered};
use std::collections::HashSet;
use std::sync::Mutex;

/// Rows after which a part of a table is given.
const PART_LEN: usize = 1 << 16;
/// Rows that a thread fills in one go.
const BATCH: usize = 4096;
/// Names compress at most so well: compressed directories may be so many times as long as the
/// image, others as long as the image.
const NAMES_RATIO_MAX: u64 = 16;

/// Filter of the names that [`Image::scan`](crate::Image::scan) makes rows for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanFilter {
    file_type: Option<FileType>,
    endings: Vec<Vec<u8>>,
}

impl ScanFilter {
    /// Returns a filter that takes names of all types, directories too.
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns a filter that takes names of regular files.
    pub fn regular_files() -> Self {
        Self { file_type: Some(FileType::Regular), ..Self::default() }
    }

    /// Restricts the filter to names that end in one of `endings`, such as `.jpg`, regardless of
    /// the case of ASCII letters.
    pub fn ending_in(mut self, endings: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        self.endings = endings.into_iter().map(|ending| ending.as_ref().to_vec()).collect();
        self
    }

    /// Returns true if a name ends in one of the endings, if there are any.
    pub fn takes_name(&self, name: &[u8]) -> bool {
        let ends_in = |ending: &Vec<u8>| {
            name.len().checked_sub(ending.len()).is_some_and(|start| name[start..].eq_ignore_ascii_case(ending))
        };
        self.endings.is_empty() || self.endings.iter().any(ends_in)
    }

    fn takes(&self, file_type: FileType, name: &[u8]) -> bool {
        self.file_type.is_none_or(|wanted| wanted == file_type) && self.takes_name(name)
    }
}

/// Scan of a tree that has not started, see [`Image::scan`](crate::Image::scan).
pub struct TreeScan<'a> {
    reader: Reader<'a>,
    root: Inode,
    filter: &'a ScanFilter,
    threads: Threads,
}

impl<'a> TreeScan<'a> {
    pub(crate) fn new(reader: Reader<'a>, root: &Inode, filter: &'a ScanFilter, threads: Threads) -> Self {
        Self { reader, root: *root, filter, threads }
    }

    /// Returns all files as one table.
    ///
    /// # Errors
    /// The first damage found; a failing source. A directory that is met twice, so that cycles end,
    /// paths of more than 64 KiB, and directories that together claim more bytes than the image can
    /// hold, so that memory is bounded by the image.
    pub fn table(self) -> Result<FileTable, ReadError> {
        let mut table = FileTable::default();
        TreeLister::new(self.reader, self.filter, &mut table).list_all(&self.root, &mut |_| Ok(()))?;
        fill_rows(self.reader, &mut table, self.threads)?;
        Ok(table)
    }

    /// Passes the same table to `each` in parts of at least 65,536 rows, but for the last one, in
    /// their order: for programs that keep less of each file than the table has. Parts have all
    /// directories that were met so far.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// use kiln_read::{ScanFilter, Threads};
    ///
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let (root, filter) = (image.inode(image.root_nid())?, ScanFilter::regular_files());
    /// let mut bytes = 0;
    /// image.scan(&root, &filter, Threads::PROCESSORS).each_part(&mut |part| {
    ///     bytes += part.sizes.iter().sum::<u64>();
    ///     Ok(())
    /// })?;
    /// # assert_eq!(bytes, image.scan(&root, &filter, Threads::ONE).table()?.sizes.iter().sum::<u64>());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TreeScan::table`], and the errors of `each`.
    pub fn each_part(self, each: &mut dyn FnMut(&FileTable) -> Result<(), ReadError>) -> Result<(), ReadError> {
        let mut table = FileTable::default();
        let mut give = |table: &mut FileTable| {
            fill_rows(self.reader, table, self.threads)?;
            each(table)?;
            table.clear_rows();
            Ok(())
        };
        TreeLister::new(self.reader, self.filter, &mut table).list_all(&self.root, &mut |table| {
            if table.len() < PART_LEN { Ok(()) } else { give(table) }
        })?;
        give(&mut table)
    }
}

/// Callback that gets the table after each block of a directory.
type AfterBlock<'a> = dyn FnMut(&mut FileTable) -> Result<(), ReadError> + 'a;

/// The first pass.
struct TreeLister<'a> {
    reader: Reader<'a>,
    filter: &'a ScanFilter,
    table: &'a mut FileTable,
    inodes: InodeReader<'a>,
    /// Directories still to be listed, the next one last, with their rows.
    pending: Vec<(Inode, u32)>,
    /// Directories that were met.
    seen: HashSet<Nid>,
    /// Lengths of the directories' paths.
    path_lens: Vec<u32>,
    /// Bytes that directories may still have.
    room: u64,
}

impl<'a> TreeLister<'a> {
    fn new(reader: Reader<'a>, filter: &'a ScanFilter, table: &'a mut FileTable) -> Self {
        let room = reader.volume.devices.total_len().saturating_add(reader.space_len(MetadataSpace::Metabox));
        let (pending, seen, path_lens) = (Vec::new(), HashSet::new(), Vec::new());
        Self { reader, filter, table, inodes: InodeReader::new(reader), pending, seen, path_lens, room }
    }

    fn list_all(&mut self, root: &Inode, after: &mut AfterBlock<'_>) -> Result<(), ReadError> {
        self.enter(root, 0, b"")?;
        while let Some((dir, row)) = self.pending.pop() {
            let before = self.pending.len();
            let listed = self.list(&dir, row, after);
            listed.map_err(|error| error.at_nid(dir.nid).at_path(&self.path(row)))?;
            // The first directory below this one is the next.
            self.pending[before..].reverse();
        }
        Ok(())
    }

    /// Returns the path of a directory for messages.
    fn path(&self, row: u32) -> Vec<u8> {
        match row {
            0 => b".".to_vec(),
            _ => self.table.directories.path(row as usize),
        }
    }

    /// Returns a directory that was met, with the row of the one that it is in.
    fn enter(&mut self, dir: &Inode, parent: u32, name: &[u8]) -> Result<(), ReadError> {
        let corrupt = |field, value, reason| Err(ReadError::corrupt("erofs_dirent", 0, field, value, reason));
        if !self.seen.insert(dir.nid) {
            return corrupt("nid", dir.nid.0, "a directory with several names");
        }
        let above = self.path_lens.get(parent as usize).map_or(0, |len| len + 1);
        let path_len = above + name.len() as u32;
        if path_len as usize > PATH_MAX_LEN {
            return Err(ReadError::unsupported("erofs_dirent", 0, "path length", path_len.into(), "over 64 KiB"));
        }
        let Ok(row) = u32::try_from(self.table.directories.len()) else {
            return Err(ReadError::unsupported("erofs_dirent", 0, "nid", dir.nid.0, "over 2^32 directories"));
        };
        let cost = if dir.meta.layout().is_compressed() { dir.size() / NAMES_RATIO_MAX } else { dir.size() };
        match self.room.checked_sub(cost) {
            Some(room) => self.room = room,
            None => return corrupt("i_size", dir.size(), "directories are longer than the image"),
        }
        self.table.directories.push(dir.nid, parent, name);
        self.path_lens.push(path_len);
        self.pending.push((*dir, row));
        Ok(())
    }

    fn list(&mut self, dir: &Inode, row: u32, after: &mut AfterBlock<'_>) -> Result<(), ReadError> {
        let mut reader = DirReader::open(self.reader, dir)?;
        for idx in 0..reader.blocks() {
            let bytes = reader.block(idx)?;
            let block = bytes.parse(idx * reader.block_len())?;
            for nth in 0..block.len() {
                let entry = block.entry(nth)?;
                if !is_dot(entry.name) && !self.reader.hides_entry(entry.nid, entry.file_type)? {
                    self.add(&entry, row)?;
                }
            }
            after(self.table)?;
        }
        Ok(())
    }

    fn add(&mut self, entry: &Dirent<'_>, dir: u32) -> Result<(), ReadError> {
        let name = entry.name;
        if entry.file_type == FileType::Regular.dirent_number() {
            if self.filter.takes(FileType::Regular, name) {
                self.table.push_unread(entry.nid, dir, name);
            }
            return Ok(());
        }
        let inode = self.inodes.read(entry.nid)?;
        if self.filter.takes(inode.file_type(), name) {
            self.table.push_unread(entry.nid, dir, name);
            // An inode that was read is checked already.
            self.table.fill_last(&inode);
        }
        if inode.is_dir() { self.enter(&inode, dir, name) } else { Ok(()) }
    }
}

/// Columns of some rows that are filled from inodes.
struct RowBatch<'t> {
    nids: &'t [u64],
    sizes: &'t mut [u64],
    modes: &'t mut [u16],
    owners: (&'t mut [u32], &'t mut [u32]),
    mtimes: (&'t mut [i64], &'t mut [u32]),
}

/// Returns the second pass.
fn fill_rows(reader: Reader<'_>, table: &mut FileTable, threads: Threads) -> Result<(), ReadError> {
    let owners = table.uids.chunks_mut(BATCH).zip(table.gids.chunks_mut(BATCH));
    let mtimes = table.mtimes.chunks_mut(BATCH).zip(table.mtime_nsecs.chunks_mut(BATCH));
    let facts = table.sizes.chunks_mut(BATCH).zip(table.modes.chunks_mut(BATCH)).zip(owners.zip(mtimes));
    let batches = table.nids.chunks(BATCH).zip(facts).enumerate();
    let batches = batches.map(|(nth, (nids, ((sizes, modes), (owners, mtimes))))| {
        (nth, RowBatch { nids, sizes, modes, owners, mtimes })
    });
    let errors = Mutex::new(Vec::new());
    unordered::run(threads, batches.collect(), || {
        let (mut inodes, errors) = (InodeReader::new(reader), &errors);
        move |(nth, batch): (usize, RowBatch<'_>)| {
            if let Err((row, error)) = batch.fill(&mut inodes) {
                lock(errors).push((nth * BATCH + row, error));
            }
        }
    });
    let errors = into_inner(errors);
    match errors.into_iter().min_by_key(|&(row, _)| row) {
        Some((row, error)) => Err(error.at_path(&table.path(row))),
        None => Ok(()),
    }
}

impl RowBatch<'_> {
    /// Fills in what the inodes of regular files say; rows with a mode have it already. An error
    /// comes with its row.
    fn fill(self, inodes: &mut InodeReader<'_>) -> Result<(), (usize, ReadError)> {
        for row in 0..self.nids.len() {
            if self.modes[row] != 0 {
                continue;
            }
            let nid = Nid(self.nids[row]);
            let inode = inodes.read(nid).map_err(|error| (row, error))?;
            if !inode.is_file() {
                let (value, reason) = (FileType::Regular.dirent_number().into(), "the inode is no regular file");
                let error = ReadError::corrupt("erofs_dirent", 0, "file_type", value, reason);
                return Err((row, error.at_nid(nid)));
            }
            self.sizes[row] = inode.size();
            self.modes[row] = inode.mode();
            (self.owners.0[row], self.owners.1[row]) = (inode.uid(), inode.gid());
            (self.mtimes.0[row], self.mtimes.1[row]) = (inode.mtime(), inode.mtime_nsec());
        }
        Ok(())
    }
}

impl FileTable {
    /// Returns a row of which only the name and the number are known.
    fn push_unread(&mut self, nid: Nid, dir: u32, name: &[u8]) {
        self.nids.push(nid.0);
        self.sizes.push(0);
        // No inode has this mode: it has no type.
        self.modes.push(0);
        self.uids.push(0);
        self.gids.push(0);
        self.mtimes.push(0);
        self.mtime_nsecs.push(0);
        self.parents.push(dir);
        self.names.push(name);
    }

    /// Fills in the last row from its inode.
    fn fill_last(&mut self, inode: &Inode) {
        let row = self.len() - 1;
        self.sizes[row] = inode.size();
        self.modes[row] = inode.mode();
        (self.uids[row], self.gids[row]) = (inode.uid(), inode.gid());
        (self.mtimes[row], self.mtime_nsecs[row]) = (inode.mtime(), inode.mtime_nsec());
    }
}
