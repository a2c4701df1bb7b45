//! Tree that a program builds from bytes, files and whole sources.

mod contents;
mod spooled;

use kiln_tree::merge::{MergeBuilder, Whiteouts};
use kiln_tree::path::normal;
use kiln_tree::policy::set_xattr;
use kiln_tree::{Builder, ContentId, Kind, Metadata, Node, ThinSlice, Tree, TreeError, TreeProblem, Xattr};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::dir::entry::EntryKind;
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::SourceOptions;
use crate::source::{Note, Scan, ScanOptions, Source};
use crate::xattrs::left_out::LeftOutXattrs;
use crate::xattrs::unfit::first_unfit;
use contents::{HostFiles, look_at};
use spooled::SpooledFiles;

/// A tree under construction.
///
/// Later additions are merged over earlier ones, like the members of an archive: a directory over a
/// directory keeps its entries, and anything else replaces the file at its path. The root, and
/// directories that are only implied by paths, have the permissions 0755, belong to root, and have
/// the time 0 (the start of 1970). In paths, leading, trailing and repeated slashes and `.` are
/// ignored; `..` is refused.
///
/// Bytes that are added go to an unnamed file, so the memory of a draft grows with the number of
/// files and not with their lengths.
///
/// ```
/// use kiln_tree::Metadata;
/// use kiln_source::merge::Draft;
/// use kiln_source::SourceOptions;
///
/// let mut draft = Draft::new("draft", &SourceOptions::default());
/// draft.add_bytes(b"train/0001.txt", Metadata { permissions: 0o644, ..Metadata::default() }, b"text")?;
/// let tree = draft.finish()?;
/// assert!(tree.find([&b"train"[..], b"0001.txt"]).is_some());
/// # Ok::<(), kiln_source::SourceError>(())
/// ```
pub struct Draft {
    /// Name in error messages.
    name: PathBuf,
    merged: MergeBuilder,
    spooled: SpooledFiles,
    host: HostFiles,
    notes: Vec<Note>,
    left_out_xattrs: LeftOutXattrs,
}

impl Draft {
    /// Creates an empty directory, which error messages call `name`. Of `options`, only those for
    /// spools are used.
    pub fn new(name: impl Into<PathBuf>, options: &SourceOptions) -> Self {
        Self {
            name: name.into(),
            merged: MergeBuilder::new(Builder::default(), Whiteouts::Apply),
            spooled: SpooledFiles::new(options.spool_place()),
            host: HostFiles::default(),
            notes: Vec::new(),
            left_out_xattrs: LeftOutXattrs::default(),
        }
    }

    /// Adds a regular file with the contents `bytes`.
    ///
    /// # Errors
    /// An invalid path; a spool that cannot be written.
    pub fn add_bytes(&mut self, path: &[u8], meta: Metadata, bytes: &[u8]) -> Result<(), SourceError> {
        self.flush_host();
        self.spooled.add(bytes).map_err(|source| self.unreadable(source))?;
        let content = self.take_number()?;
        let kind = Kind::File { len: bytes.len() as u64, content, sparse: false };
        self.insert(path, Node { meta, xattrs: ThinSlice::default(), kind })
    }

    /// Adds the file `host` of the host, following symbolic links: a regular file, which is read
    /// when the image is built, or a special file. It keeps its metadata and attributes.
    ///
    /// # Errors
    /// A file that cannot be read; a directory; an invalid path.
    pub fn add_file(&mut self, path: &[u8], host: &Path) -> Result<(), SourceError> {
        let unreadable = |source| SourceError::from(Unreadable { path: host.to_owned(), source });
        let found = look_at(host).map_err(unreadable)?;
        let kind = match found.entry.what {
            EntryKind::Directory => return Err(unreadable(io::ErrorKind::IsADirectory.into())),
            EntryKind::File { len, stamp, sparse, .. } => {
                self.flush_spooled();
                self.host.add(found.path, stamp).map_err(unreadable)?;
                Kind::File { len, content: self.take_number()?, sparse }
            }
            EntryKind::Symlink(target) => Kind::Symlink(target),
            EntryKind::CharDevice(rdev) => Kind::CharDevice(rdev),
            EntryKind::BlockDevice(rdev) => Kind::BlockDevice(rdev),
            EntryKind::Fifo => Kind::Fifo,
            EntryKind::Socket => Kind::Socket,
        };
        self.insert(path, Node { meta: found.entry.meta, xattrs: found.entry.xattrs, kind })
    }

    /// Adds a directory, or changes the metadata of an existing one.
    ///
    /// # Errors
    /// An invalid path.
    pub fn add_dir(&mut self, path: &[u8], meta: Metadata) -> Result<(), SourceError> {
        self.insert(path, Node { meta, xattrs: ThinSlice::default(), kind: Kind::Directory(Box::default()) })
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// An invalid path.
    pub fn add_symlink(&mut self, path: &[u8], meta: Metadata, target: &[u8]) -> Result<(), SourceError> {
        self.insert(path, Node { meta, xattrs: ThinSlice::default(), kind: Kind::Symlink(target.into()) })
    }

    /// Adds another name for the file at `existing`, which must not be a directory.
    ///
    /// # Errors
    /// A missing file, or a directory; an invalid path.
    pub fn link(&mut self, path: &[u8], existing: &[u8]) -> Result<(), SourceError> {
        self.merged.link(path, existing).map_err(|error| self.of_tree(error))
    }

    /// Sets an extended attribute of the file at `path`, replacing one of the same name. Unlike
    /// attributes of sources, an attribute that EROFS cannot hold is an error here.
    ///
    /// # Errors
    /// A missing file; an attribute that EROFS cannot hold together with the others of the file.
    pub fn set_xattr(&mut self, path: &[u8], xattr: Xattr) -> Result<(), SourceError> {
        let found = self.merged.entries_mut().find(path).map_err(|error| self.of_tree(error))?;
        let nothing = || TreeError { path: path.to_owned(), problem: TreeProblem::NoSuchNode };
        let id = found.ok_or_else(|| self.of_tree(nothing()))?;
        let xattrs = self.merged.entries_mut().xattrs_mut(id);
        let mut list = xattrs.to_vec();
        set_xattr(&mut list, xattr);
        if let Some((xattr, reason)) = first_unfit(&list) {
            let reason = format!("extended attribute {}: {reason}", xattr.name.escape_ascii());
            return Err(SourceError::Unsupported { path: OsStr::from_bytes(path).into(), reason });
        }
        *xattrs = list.into();
        Ok(())
    }

    /// Merges a source over the tree at `at`, as [`Merged`](super::Merged) does. Whiteouts hide
    /// entries below them. Returns unreadable entries that were left out, if `options` say that the
    /// scan keeps going.
    ///
    /// # Errors
    /// Those of [`Source::scan`]; an invalid path.
    pub fn add_source(
        &mut self,
        source: &dyn Source,
        at: &[u8],
        options: &ScanOptions<'_>,
    ) -> Result<Vec<Unreadable>, SourceError> {
        let Scan { tree, skipped, notes, left_out_xattrs, .. } = source.scan(options)?;
        let at = normal(at);
        self.notes.extend(notes);
        self.left_out_xattrs.extend(left_out_xattrs, |path| normal(&[&at, path].join(&b'/')));
        self.flush_host();
        self.flush_spooled();
        let links = self.merged.put(tree, &at).map_err(SourceError::tree(source.path()))?;
        self.notes.extend(Note::of_links(links, source.path()));
        Ok(skipped)
    }

    /// Returns the name in error messages.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Returns the tree.
    ///
    /// # Errors
    /// A spool that cannot be written; an invalid tree.
    pub fn finish(self) -> Result<Tree, SourceError> {
        self.finish_scan().map(|scan| scan.tree)
    }

    /// Returns the tree, with the notes of the added sources.
    pub(super) fn finish_scan(mut self) -> Result<Scan, SourceError> {
        self.flush_host();
        self.flush_spooled();
        self.spooled.write_out().map_err(|source| self.unreadable(source))?;
        let tree = self.merged.finish().map_err(SourceError::tree(&self.name))?;
        Ok(Scan { notes: self.notes, left_out_xattrs: self.left_out_xattrs, ..Scan::from(tree) })
    }

    fn insert(&mut self, path: &[u8], node: Node) -> Result<(), SourceError> {
        self.merged.insert(path, node).map_err(|error| self.of_tree(error))
    }

    /// Returns the id for the next content.
    fn take_number(&mut self) -> Result<ContentId, SourceError> {
        self.merged.next_content().map_err(|error| self.of_tree(error))
    }

    /// Adds the pending files of the host to the contents.
    fn flush_host(&mut self) {
        let (count, files) = self.host.take();
        self.merged.add_contents(count, files);
    }

    /// Adds the pending spooled files to the contents.
    fn flush_spooled(&mut self) {
        let (count, files) = self.spooled.take();
        self.merged.add_contents(count, files);
    }

    fn of_tree(&self, error: TreeError) -> SourceError {
        SourceError::tree(&self.name)(error)
    }

    fn unreadable(&self, source: io::Error) -> SourceError {
        Unreadable { path: self.name.clone(), source }.into()
    }
}
