//! Builder of an archive's tree, shared by all archive formats.

use kiln_read::ReadAt;
use kiln_tree::{
    Builder, ContentId, Contents, Implied, Incoming, Intake, IntakeError, Kind, Node, NodeId, TreeError, Xattr,
};
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::archive::left_out::LeftOut;
use crate::archive::passed::PassedContents;
use crate::error::{SourceError, Unreadable};
use crate::input::place::TapeMap;
use crate::input::spool_error::{is_of_spool, spool_failed};
use crate::input::stream::is_stopped;
use crate::input::tee::Tee;
use crate::limit::MemoryLimit;
use crate::source::{Note, Scan, ScanOptions};
use crate::stored::{ArchiveDevice, StoredFiles, StoredRun};

/// Approximate memory cost in bytes of a node. Directories implied by a member's path are charged
/// too.
const NODE_COST: usize = size_of::<Node>() + 32;

/// Tree of an archive under construction, with the positions of its files' data.
///
/// A member that does not fit into a tree (a path with `..`, a path below a file, a hard link to a
/// directory) ends the scan with an error. If the scan keeps going, the member is listed and left
/// out.
pub(crate) struct Members<'a> {
    path: &'a Path,
    options: &'a ScanOptions<'a>,
    pub(crate) builder: Builder,
    pub(crate) files: StoredFiles,
    memory: MemoryLimit,
    left_out: LeftOut<'a>,
    notes: Vec<Note>,
    /// Takes contents as they come, if anything does.
    intake: Option<&'a mut dyn Intake>,
    /// Contents that it has taken.
    passed: PassedContents,
    /// Maps offsets on the tape to positions in the file.
    pub(crate) place: TapeMap,
}

/// Result of scanning an archive.
pub(crate) struct Archived {
    pub(crate) found: Scan,
    /// Positions of each file's data in `bytes`.
    pub(crate) files: Arc<StoredFiles>,
    pub(crate) bytes: Arc<dyn ReadAt>,
}

impl<'a> Members<'a> {
    /// Creates an empty tree for the archive at `path`. Directories that only occur in paths get
    /// the metadata `implied`.
    pub(crate) fn new(path: &'a Path, options: &'a ScanOptions<'a>, implied: Implied) -> Self {
        let (builder, files, memory) = (Builder::new(implied), StoredFiles::default(), MemoryLimit::new(0));
        let (left_out, notes) = (LeftOut::new(path, options), Vec::new());
        let (intake, passed, place) = (None, PassedContents::default(), TapeMap::default());
        Self { path, options, builder, files, memory, left_out, notes, intake, passed, place }
    }

    /// Lets `intake` take contents as they come.
    pub(crate) fn with_intake(self, intake: &'a mut dyn Intake) -> Self {
        Self { intake: Some(intake), ..self }
    }

    /// Returns true if contents are to be taken as they come.
    pub(crate) fn has_intake(&self) -> bool {
        self.intake.is_some()
    }

    /// Lets the contents of the member `name` be taken from `text`. Returns their id.
    ///
    /// # Errors
    /// Those of the intake.
    pub(crate) fn take(
        &mut self,
        name: &[u8],
        file: Incoming<'_>,
        text: &mut dyn Read,
    ) -> Result<ContentId, IntakeError> {
        let intake = self.intake.as_mut().ok_or(IntakeError::Closed)?;
        if !self.passed.keeps(name, file.len) {
            return intake.take(file, text);
        }
        let mut bytes = Vec::new();
        let id = intake.take(file, &mut Tee { from: text, copy: &mut bytes })?;
        self.passed.keep(id, bytes);
        Ok(id)
    }

    /// Returns the tree, with contents that were taken as they came.
    ///
    /// # Errors
    /// Those of [`Members::finish`].
    pub(crate) fn finish_taken(mut self) -> Result<Scan, SourceError> {
        let passed = std::mem::take(&mut self.passed);
        self.finish_with(Box::new(passed))
    }

    /// Starts the next member, at byte `offset` of the archive: checks for a request to stop.
    ///
    /// # Errors
    /// [`SourceError::Interrupted`].
    pub(crate) fn begin(&mut self, offset: u64) -> Result<(), SourceError> {
        self.memory.grow(offset);
        self.options.check_stop()
    }

    /// Returns the error for malformed data at byte `offset`.
    pub(crate) fn malformed(&self, offset: u64, reason: impl Into<String>) -> SourceError {
        let (offset, there) = self.place.of(offset);
        SourceError::Malformed { path: self.path.to_owned(), offset, reason: there + &reason.into() }
    }

    /// Returns the error for a failed read at byte `offset`.
    pub(crate) fn unreadable(&self, offset: u64, error: &io::Error) -> SourceError {
        let reason = match error.kind() {
            _ if is_stopped(error) => return SourceError::Interrupted,
            kind if is_of_spool(error) => {
                let source = spool_failed(kind, format!("at byte {offset}: {error}"));
                return Unreadable { path: self.path.to_owned(), source }.into();
            }
            io::ErrorKind::UnexpectedEof => "the archive ends within a member".into(),
            _ => error.to_string(),
        };
        self.malformed(offset, reason)
    }

    /// Inserts `node` at `name`, for the member at byte `offset`. Returns `None` if it was left
    /// out.
    ///
    /// # Errors
    /// A member that does not fit into the tree, unless the scan keeps going;
    /// [`SourceError::TooLarge`].
    pub(crate) fn insert(&mut self, offset: u64, name: &[u8], node: Node) -> Result<Option<NodeId>, SourceError> {
        let xattrs: usize = node.xattrs.iter().map(|x| size_of::<Xattr>() + x.name.len() + x.value.len()).sum();
        let target = if let Kind::Symlink(target) = &node.kind { target.len() } else { 0 };
        self.charge(name, xattrs + target)?;
        let inserted = self.builder.insert(name, node);
        self.settle(offset, name, inserted)
    }

    /// Makes `name` another name of the node at `target`, which may be inserted later.
    ///
    /// # Errors
    /// Those of [`Members::insert`].
    pub(crate) fn hard_link(&mut self, offset: u64, name: &[u8], target: &[u8]) -> Result<(), SourceError> {
        self.charge(name, target.len())?;
        let linked = self.builder.hard_link(name, target);
        self.settle(offset, name, linked).map(drop)
    }

    /// Returns a regular file whose data are the bytes `stored` of the archive.
    pub(crate) fn whole_file(&mut self, stored: Range<u64>) -> Kind {
        let len = stored.end - stored.start;
        Kind::File { len, content: self.files.whole(stored), sparse: false }
    }

    /// Returns a regular file of `len` bytes with holes between `runs`, which must be sorted and
    /// disjoint.
    pub(crate) fn sparse_file(&mut self, len: u64, runs: Vec<StoredRun>) -> Kind {
        Kind::File { len, content: self.files.sparse(runs), sparse: true }
    }

    /// Charges the memory limit for a member with this name, plus `more` bytes.
    ///
    /// # Errors
    /// [`SourceError::TooLarge`].
    pub(crate) fn charge(&mut self, name: &[u8], more: usize) -> Result<(), SourceError> {
        let depth = 1 + name.iter().filter(|&&b| b == b'/').count();
        self.memory.charge(depth * NODE_COST + name.len() + more, self.path)
    }

    /// Lists the member `name` at byte `offset` as unreadable.
    ///
    /// # Errors
    /// `error`, unless the scan keeps going.
    pub(crate) fn leave_out(&mut self, offset: u64, name: &[u8], error: io::Error) -> Result<(), SourceError> {
        self.charge(name, 0)?;
        let error = self.malformed(offset, error.to_string());
        self.left_out.add(name, error)
    }

    /// Returns the value read for the member `name`, or `None` if it was left out.
    ///
    /// # Errors
    /// Those of [`LeftOut::add`].
    pub(crate) fn survive<T>(&mut self, name: &[u8], read: Result<T, SourceError>) -> Result<Option<T>, SourceError> {
        if read.is_err() {
            self.charge(name, 0)?;
        }
        self.left_out.survive(name, read)
    }

    /// Lists an unnamed part of the archive as unreadable.
    ///
    /// # Errors
    /// Those of [`LeftOut::add`].
    pub(crate) fn leave_out_part(&mut self, error: SourceError) -> Result<(), SourceError> {
        self.charge(b"", 0)?;
        self.left_out.add(b"", error)
    }

    /// Adds a note about the archive that is not an error.
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

    /// Returns the tree, with contents in `bytes`. Images refer to the device `placed`, if there is
    /// one, instead of storing the data.
    ///
    /// # Errors
    /// Dangling hard links, unless the scan keeps going; an invalid tree.
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

    /// Returns the tree, with contents of the archive format's own.
    ///
    /// # Errors
    /// Those of [`Members::finish`].
    pub(crate) fn finish_with(self, contents: Box<dyn Contents>) -> Result<Scan, SourceError> {
        let (path, mut left_out, notes, keep_going) = (self.path, self.left_out, self.notes, self.options.keep_going);
        let mut on_lost = |error: TreeError| match keep_going {
            true => {
                let name = error.path.clone();
                // With `keep_going`, `add` returns no error for errors of a tree.
                let _ = left_out.add(&name, SourceError::tree(path)(error));
                Ok(())
            }
            false => Err(error),
        };
        let tree = self.builder.finish_with(contents, &mut on_lost).map_err(SourceError::tree(path))?;
        Ok(Scan { skipped: left_out.into_list(), notes, ..Scan::from(tree) })
    }
}
