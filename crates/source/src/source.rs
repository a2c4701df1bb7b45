//! What every source can do.

use kiln_format::BlockBits;
use kiln_parallel::Threads;
use kiln_read::Escaped;
use kiln_tree::{ContentId, Tree};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use crate::dir::contents::Stamp;
use crate::dir::file_id::FileId;
use crate::error::{SourceError, Unreadable, settle};
use crate::filter::left_out_xattrs::LeftOutXattrs;
use crate::filter::select::select;
use crate::filter::selection::Filter;

/// A file may change again without a new time of its last change, where the system's clock for these has not gone on. So of what was changed
/// within so many seconds before it was looked at, times do not tell whether it is the same later.
pub(crate) const CLOCK_SECS: i64 = 2;

/// How to scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions<'a> {
    /// Threads, for sources that can use several. The tree does not depend on it.
    pub threads: Threads,
    /// Leave out what cannot be read, and list it.
    pub keep_going: bool,
    /// What is left out anyway.
    pub filter: &'a Filter,
    /// Files that are never part of the tree, whatever they are called: what is being written. They can only be met in a
    /// directory.
    pub outputs: &'a [FileId],
    /// Have the system write first what it has in memory of the filesystem of a directory. What programs write to mapped files later then changes the times
    /// of these; without it, a page that was written before the scan can be written again with the same times.
    pub sync: bool,
    /// Ends the scan early once set.
    pub stop: &'a AtomicBool,
}

impl<'a> ScanOptions<'a> {
    /// Everything, on all processors, until the first error.
    pub fn new(stop: &'a AtomicBool) -> Self {
        static EVERYTHING: LazyLock<Filter> = LazyLock::new(Filter::default);
        Self { threads: Threads::default(), keep_going: false, filter: &EVERYTHING, outputs: &[], sync: false, stop }
    }

    /// An error once the caller has asked to stop.
    ///
    /// # Errors
    /// [`SourceError::Interrupted`].
    pub fn check_stop(&self) -> Result<(), SourceError> {
        if self.stop.load(Ordering::Relaxed) { Err(SourceError::Interrupted) } else { Ok(()) }
    }
}

/// What a scan found.
pub struct Scan {
    /// The tree.
    pub tree: Tree,
    /// Entries left out, with `keep_going`.
    pub skipped: Vec<Unreadable>,
    /// Notes on the source: what else is to be known of it.
    pub notes: Vec<Note>,
    /// Entries of ACLs that no image can hold; see [`leave_out_unfit`](crate::filter::leave_out_unfit).
    pub left_out_xattrs: LeftOutXattrs,
    /// Paths of outputs that were met, relative to the root, sorted.
    pub outputs: Vec<Vec<u8>>,
    /// Stamps of regular files, where all of them are files of one directory.
    pub stamps: Option<FileStamps>,
}

/// Something to know of a source that is no damage: an archive without an end, for example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The source, or the part of it.
    pub path: PathBuf,
    /// Text that tells what there is to know.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Escaped::path(&self.path), self.text)
    }
}

/// What tells the regular files of a directory from what they were or will be.
#[derive(Clone, Debug, Default)]
pub struct FileStamps {
    /// By [`ContentId`].
    pub(crate) all: Arc<[Stamp]>,
    /// What may have changed after the scan without a new time of its last change, sorted.
    pub(crate) unsettled: Vec<ContentId>,
}

impl FileStamps {
    /// The stamp of contents of the tree, if these are what they were as long as they have it.
    pub(crate) fn of(&self, content: ContentId) -> Option<u128> {
        let is_unsettled = self.unsettled.binary_search_by_key(&content.0, |one| one.0).is_ok();
        self.all.get(content.0 as usize).filter(|_| !is_unsettled).map(Stamp::value)
    }
}

impl From<Tree> for Scan {
    fn from(tree: Tree) -> Self {
        let (skipped, notes, outputs) = (Vec::new(), Vec::new(), Vec::new());
        Self { tree, skipped, notes, left_out_xattrs: LeftOutXattrs::default(), outputs, stamps: None }
    }
}

/// What a source has read.
pub enum Scanned {
    /// All that is in it: the filter comes after.
    Everything(Scan),
    /// What the filter wants. A source that can spare itself the reading of what is left out has applied it.
    Selected(Scan),
}

/// Something that can be made a tree.
pub trait Source: Send + Sync {
    /// The path that it was opened by.
    fn path(&self) -> &Path;

    /// The block size of images that refer to what it has on devices, see [`SourceOptions::reference`](crate::SourceOptions::reference).
    fn block_bits(&self) -> Option<BlockBits> {
        None
    }

    /// Read names and metadata of all that is in it. Contents are opened when they are wanted. Callers want [`Source::scan`].
    ///
    /// # Errors
    /// A source that cannot be read or is no tree; [`SourceError::Interrupted`].
    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError>;

    /// The tree of what the filter wants.
    ///
    /// # Errors
    /// The first entry, in the order of paths, that cannot be read, unless such entries are to be skipped; a source that is no
    /// tree; [`SourceError::Interrupted`].
    fn scan(&self, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
        if FileId::of_path(self.path()).is_some_and(|id| options.outputs.contains(&id)) {
            return Err(SourceError::IsOutput { path: self.path().to_owned() });
        }
        match self.read(options)? {
            Scanned::Selected(scan) => Ok(scan),
            Scanned::Everything(scan) => select_found(scan, self.path(), options),
        }
    }
}

/// What the filter wants of all that is in the source at `path`.
///
/// # Errors
/// As [`Source::scan`].
pub(crate) fn select_found(found: Scan, path: &Path, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
    let Scan { tree, mut skipped, .. } = found;
    let (tree, errors) = select(tree, options.filter).map_err(SourceError::tree(path))?;
    skipped.extend(settle(errors, path, options.keep_going)?);
    Ok(Scan { tree, skipped, ..found })
}
