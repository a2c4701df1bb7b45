//! The tree of an archive in the making: what archives of all formats do with their members.

use kiln_read::ReadAt;
use kiln_tree::{Builder, Contents, Implied, Kind, Node, NodeId, TreeError, Xattr};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::archive::left_out::LeftOut;
use crate::error::{SourceError, Unreadable};
use crate::input::place::Place;
use crate::input::spool_error::{is_of_spool, spool_failed};
use crate::input::stream::is_stopped;
use crate::limit::MemoryLimit;
use crate::source::{Note, Scan, ScanOptions};
use crate::stored::{ArchiveDevice, Run, StoredFiles};

/// Directories that a member's path implies take memory, too: about as much each.
const NODE_COST: usize = size_of::<Node>() + 32;

/// The tree of an archive in the making, and where its files lie.
///
/// A member that no tree can hold (a path with `..`, below a file, a hard link to a directory) ends the scan with an error, or, if the scan
/// keeps going, is listed and left out.
pub(crate) struct Members<'a> {
    path: &'a Path,
    options: &'a ScanOptions<'a>,
    pub(crate) builder: Builder,
    pub(crate) files: StoredFiles,
    memory: MemoryLimit,
    left_out: LeftOut<'a>,
    notes: Vec<Note>,
    /// Positions in the file of offsets of the tape.
    pub(crate) place: Place,
}

/// What is in an archive, and where it has the data.
pub(crate) struct Archived {
    pub(crate) found: Scan,
    /// Where in `bytes` the data of each file lie.
    pub(crate) files: Arc<StoredFiles>,
    pub(crate) bytes: Arc<dyn ReadAt>,
}

impl<'a> Members<'a> {
    /// No members, of the archive at `path`. Directories that paths imply have the metadata `implied`.
    pub(crate) fn new(path: &'a Path, options: &'a ScanOptions<'a>, implied: Implied) -> Self {
        let (builder, files, memory) = (Builder::new(implied), StoredFiles::default(), MemoryLimit::new(0));
        let (left_out, notes) = (LeftOut::new(path, options), Vec::new());
        Self { path, options, builder, files, memory, left_out, notes, place: Place::default() }
    }

    /// Called before each member, which begins at byte `offset` of the archive: whether the caller asked to stop.
    ///
    /// # Errors
    /// [`SourceError::Interrupted`].
    pub(crate) fn begin(&mut self, offset: u64) -> Result<(), SourceError> {
        self.memory.grow(offset);
        self.options.check_stop()
    }

    /// That the archive is not what its format wants, at byte `offset`.
    pub(crate) fn malformed(&self, offset: u64, reason: impl Into<String>) -> SourceError {
        let (offset, there) = self.place.of(offset);
        SourceError::Malformed { path: self.path.to_owned(), offset, reason: there + &reason.into() }
    }

    /// That reading at byte `offset` failed.
    pub(crate) fn unreadable(&self, offset: u64, error: &io::Error) -> SourceError {
        let reason = match error.kind() {
            _ if is_stopped(error) => return SourceError::Interrupted,
            kind if is_of_spool(error) => {
                let source = spool_failed(kind, format!("at byte {offset}: {error}"));
                return Unreadable { path: self.path.to_owned(), source }.into();
            }
            io::ErrorKind::UnexpectedEof => "the archive ends in the middle of a member".into(),
            _ => error.to_string(),
        };
        self.malformed(offset, reason)
    }

    /// Put `node` at `name`, the member at byte `offset`; `None`: it was left out.
    ///
    /// # Errors
    /// A member that no tree can hold, unless the scan keeps going; [`SourceError::TooLarge`].
    pub(crate) fn insert(&mut self, offset: u64, name: &[u8], node: Node) -> Result<Option<NodeId>, SourceError> {
        let xattrs: usize = node.xattrs.iter().map(|x| size_of::<Xattr>() + x.name.len() + x.value.len()).sum();
        let target = if let Kind::Symlink(target) = &node.kind { target.len() } else { 0 };
        self.charge(name, xattrs + target)?;
        let inserted = self.builder.insert(name, node);
        self.settle(offset, name, inserted)
    }

    /// Make `name` a further name of what is at `target`, now or at the end.
    ///
    /// # Errors
    /// As [`Members::insert`].
    pub(crate) fn hard_link(&mut self, offset: u64, name: &[u8], target: &[u8]) -> Result<(), SourceError> {
        self.charge(name, target.len())?;
        let linked = self.builder.hard_link(name, target);
        self.settle(offset, name, linked).map(drop)
    }

    /// A regular file whose data lie in `stored` of the archive.
    pub(crate) fn whole_file(&mut self, stored: Range<u64>) -> Kind {
        let len = stored.end - stored.start;
        Kind::File { len, content: self.files.whole(stored), sparse: false }
    }

    /// A regular file of `len` bytes with holes between `runs`, which are sorted and do not overlap.
    pub(crate) fn sparse_file(&mut self, len: u64, runs: Vec<Run>) -> Kind {
        Kind::File { len, content: self.files.sparse(runs), sparse: true }
    }

    /// Charge the limit of memory for a member of this name, and `more` bytes beside.
    ///
    /// # Errors
    /// [`SourceError::TooLarge`].
    pub(crate) fn charge(&mut self, name: &[u8], more: usize) -> Result<(), SourceError> {
        let depth = 1 + name.iter().filter(|&&b| b == b'/').count();
        self.memory.charge(depth * NODE_COST + name.len() + more, self.path)
    }

    /// The member `name` at byte `offset` could not be read: an error, or, if the scan keeps going, one to list.
    ///
    /// # Errors
    /// `error`, unless the scan keeps going.
    pub(crate) fn leave_out(&mut self, offset: u64, name: &[u8], error: io::Error) -> Result<(), SourceError> {
        self.charge(name, 0)?;
        let error = self.malformed(offset, error.to_string());
        self.left_out.add(name, error)
    }

    /// What was read of the member `name`; `None`: it is left out.
    ///
    /// # Errors
    /// As [`LeftOut::add`].
    pub(crate) fn survive<T>(&mut self, name: &[u8], read: Result<T, SourceError>) -> Result<Option<T>, SourceError> {
        if read.is_err() {
            self.charge(name, 0)?;
        }
        self.left_out.survive(name, read)
    }

    /// A part of the archive that has no name could not be read.
    ///
    /// # Errors
    /// As [`LeftOut::add`].
    pub(crate) fn leave_out_part(&mut self, error: SourceError) -> Result<(), SourceError> {
        self.charge(b"", 0)?;
        self.left_out.add(b"", error)
    }

    /// Say something of the archive that is no damage.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(Note { path: self.path.to_owned(), text: text.into() });
    }

    fn settle<T>(&mut self, offset: u64, name: &[u8], done: Result<T, TreeError>) -> Result<Option<T>, SourceError> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if self.options.keep_going => {
                self.leave_out(offset, name, io::Error::other(error.problem)).map(|()| None)
            }
            Err(error) => Err(self.malformed(offset, error.to_string())),
        }
    }

    /// The tree, with contents in `bytes`; `placed` is what images refer to instead of storing them.
    ///
    /// # Errors
    /// Hard links to nothing, unless the scan keeps going; what is no tree.
    pub(crate) fn finish(
        mut self,
        bytes: Arc<dyn ReadAt>,
        placed: Option<ArchiveDevice>,
    ) -> Result<Archived, SourceError> {
        let files = Arc::new(std::mem::take(&mut self.files));
        let contents = files.in_archive(Arc::clone(&bytes)).with_device(placed);
        let found = self.finish_with(Box::new(contents))?;
        Ok(Archived { found, files, bytes })
    }

    /// The tree, with contents of the format's own.
    ///
    /// # Errors
    /// As [`Members::finish`].
    pub(crate) fn finish_with(self, contents: Box<dyn Contents>) -> Result<Scan, SourceError> {
        let (path, mut left_out, notes, keep_going) = (self.path, self.left_out, self.notes, self.options.keep_going);
        let mut on_lost = |error: TreeError| match keep_going {
            true => {
                let name = error.path.clone();
                // With `keep_going`, errors of a tree end no scan.
                let _ = left_out.add(&name, SourceError::tree(path)(error));
                Ok(())
            }
            false => Err(error),
        };
        let tree = self.builder.finish_with(contents, &mut on_lost).map_err(SourceError::tree(path))?;
        Ok(Scan { skipped: left_out.into_list(), notes, ..Scan::from(tree) })
    }
}
