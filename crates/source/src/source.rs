//! The trait of sources, and the results of a scan.

use kiln_format::{BlockBits, Escaped};
use kiln_parallel::Threads;
use kiln_tree::filter::{Filter, select};
use kiln_tree::merge::LostLinks;
use kiln_tree::{ContentId, Contents, Intake, Tree};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use crate::dir::contents::Stamp;
use crate::dir::file_id::FileId;
use crate::error::{SourceError, Unreadable, settle};
use crate::places::ArchivePlaces;
use crate::xattrs::left_out::LeftOutXattrs;

/// Length in seconds of the period before the scan in which times are not conclusive: within the
/// resolution of the filesystem's clock, a file may change again without a new time.
pub const CLOCK_SECS: i64 = 2;

/// Options of a scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions<'a> {
    /// Number of threads, for sources that use several. The tree does not depend on it.
    pub threads: Threads,
    /// True to leave out unreadable entries and list them.
    pub keep_going: bool,
    /// Filter that selects entries.
    pub filter: &'a Filter,
    /// Files that are never part of the tree: the outputs being written. They can only occur in a
    /// directory.
    pub outputs: &'a [FileId],
    /// True to write the cached data of a directory's filesystem to disk before the scan. Later
    /// writes to memory-mapped files then change their times; otherwise a page written before the
    /// scan could be written again without a change of times.
    pub sync: bool,
    /// Flag that ends the scan early when set.
    pub stop: &'a AtomicBool,
}

impl<'a> ScanOptions<'a> {
    /// Creates options for scanning everything, on all processors, until the first error.
    pub fn new(stop: &'a AtomicBool) -> Self {
        static EVERYTHING: LazyLock<Filter> = LazyLock::new(Filter::default);
        Self { threads: Threads::default(), keep_going: false, filter: &EVERYTHING, outputs: &[], sync: false, stop }
    }

    /// Returns an error if the caller has asked to stop.
    ///
    /// # Errors
    /// [`SourceError::Interrupted`].
    pub fn check_stop(&self) -> Result<(), SourceError> {
        if self.stop.load(Ordering::Relaxed) { Err(SourceError::Interrupted) } else { Ok(()) }
    }
}

/// Result of a scan.
pub struct Scan {
    /// Tree of the selected entries.
    pub tree: Tree,
    /// Entries left out with `keep_going`.
    pub skipped: Vec<Unreadable>,
    /// Notes on the source that are not errors.
    pub notes: Vec<Note>,
    /// Left-out attributes and ACL entries; see
    /// [`leave_out_unfit`](crate::leave_out_unfit).
    pub left_out_xattrs: LeftOutXattrs,
    /// Paths of outputs that occurred in the source, relative to the root, sorted.
    pub outputs: Vec<Vec<u8>>,
    /// Stamps of regular files, if all of them are files of one directory.
    pub stamps: Option<FileStamps>,
    /// True if the tree is the root filesystem of a container image: its layers over each other.
    pub is_container: bool,
}

/// A note on a source that is not an error: for example, an archive without an end mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Path of the source, or of the part that the note is about.
    pub path: PathBuf,
    /// Text of the note.
    pub text: String,
}

impl Note {
    /// Returns the notes about the links that the tree of the source at `path` replaces.
    pub fn of_links(links: LostLinks, path: &Path) -> impl Iterator<Item = Note> {
        links.into_texts().map(|text| Note { path: path.to_owned(), text })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Escaped::path(&self.path), self.text)
    }
}

/// Stamps of the regular files of a directory, which show later if they have changed.
#[derive(Clone, Debug, Default)]
pub struct FileStamps {
    /// Stamps by [`ContentId`].
    pub(crate) all: Arc<[Stamp]>,
    /// Contents that may have changed after the scan without a new time, sorted.
    pub(crate) unsettled: Vec<ContentId>,
}

impl FileStamps {
    /// Returns the stamp of contents, if an equal stamp proves that they are unchanged.
    pub fn of(&self, content: ContentId) -> Option<u128> {
        let is_unsettled = self.unsettled.binary_search_by_key(&content.0, |one| one.0).is_ok();
        self.all.get(content.0 as usize).filter(|_| !is_unsettled).map(Stamp::value)
    }
}

impl From<Tree> for Scan {
    fn from(tree: Tree) -> Self {
        let (skipped, notes, outputs) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            tree,
            skipped,
            notes,
            left_out_xattrs: LeftOutXattrs::default(),
            outputs,
            stamps: None,
            is_container: false,
        }
    }
}

/// Entries that a source has read.
pub enum SourceEntries {
    /// All entries; the filter is applied afterwards.
    Everything(Scan),
    /// Entries selected by the filter, applied by a source that does not read excluded ones.
    Selected(Scan),
}

/// A source of a tree.
pub trait Source: Send + Sync {
    /// Returns the path of the source.
    fn path(&self) -> &Path;

    /// Returns the block size of images that refer to its data on devices, see
    /// [`SourceOptions::reference`](crate::SourceOptions::reference).
    fn block_bits(&self) -> Option<BlockBits> {
        None
    }

    /// Reads names and metadata of all entries. Contents are opened on demand. Callers should use
    /// [`Source::scan`].
    ///
    /// # Errors
    /// A source that cannot be read or is not a tree; [`SourceError::Interrupted`].
    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError>;

    /// Scans the source as [`Source::scan`] does, and returns the places of its contents, if it is an archive whose
    /// contents can be opened by their places.
    ///
    /// # Errors
    /// Those of [`Source::scan`].
    fn scan_places(&self, options: &ScanOptions<'_>) -> Result<(Scan, Option<ArchivePlaces>), SourceError> {
        Ok((self.scan(options)?, None))
    }

    /// Returns the contents at places that [`Source::scan_places`] found in the same archive, without a scan. Of a
    /// compressed archive, what is before the last byte that is read is decompressed then.
    ///
    /// # Errors
    /// An archive of another format; errors of the system.
    fn contents_at(&self, places: ArchivePlaces) -> Result<Box<dyn Contents>, SourceError> {
        Err(places.not_of(self.path()))
    }

    /// Returns true if contents come only once, while the source is scanned: [`Source::scan`] keeps them in a spool.
    fn is_stream(&self) -> bool {
        false
    }

    /// Scans the source as [`Source::scan`] does. The contents of a [stream](Source::is_stream) go to `intake` as they
    /// come, instead of a spool, and cannot be opened afterwards. The filter must select everything: a hard link may
    /// name a file that a filter excludes.
    ///
    /// # Errors
    /// Those of [`Source::scan`].
    fn scan_into(&self, options: &ScanOptions<'_>, _intake: &mut dyn Intake) -> Result<Scan, SourceError> {
        self.scan(options)
    }

    /// Scans the source and returns the tree of the selected entries.
    ///
    /// # Errors
    /// The first unreadable entry by path, unless the scan keeps going; a source that is not a
    /// tree; [`SourceError::Interrupted`].
    fn scan(&self, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
        refuse_output(self.path(), options)?;
        match self.read(options)? {
            SourceEntries::Selected(scan) => Ok(scan),
            SourceEntries::Everything(scan) => select_found(scan, self.path(), options),
        }
    }
}

/// Returns an error if the source at `path` is an output.
pub(crate) fn refuse_output(path: &Path, options: &ScanOptions<'_>) -> Result<(), SourceError> {
    match FileId::of_path(path).is_some_and(|id| options.outputs.contains(&id)) {
        true => Err(SourceError::IsOutput { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Applies the filter to the scan of all entries of the source at `path`.
///
/// # Errors
/// Those of [`Source::scan`].
pub(crate) fn select_found(found: Scan, path: &Path, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
    let Scan { tree, mut skipped, .. } = found;
    let (tree, errors) = select(tree, options.filter).map_err(SourceError::tree(path))?;
    skipped.extend(settle(errors, path, options.keep_going)?);
    Ok(Scan { tree, skipped, ..found })
}
