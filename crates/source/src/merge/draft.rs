//! A tree that a program makes, entry by entry, out of bytes, files and whole sources.

mod contents;
mod spooled;

use kiln_tree::{Builder, ContentId, Kind, Metadata, Node, ThinSlice, Tree, TreeError, TreeProblem, Xattr};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Whiteouts;
use super::contents::{MergedContents, content_count};
use super::overlay::Overlay;
use crate::dir::entry::What;
use crate::error::{SourceError, Unreadable};
use crate::filter::left_out_xattrs::LeftOutXattrs;
use crate::filter::unfit::first_unfit;
use crate::filter::xattrs::set;
use crate::input::candidate::SourceOptions;
use crate::source::{Note, Scan, ScanOptions, Source};
use contents::{DraftContents, HostFiles, look_at};
use spooled::SpooledFiles;

/// A tree in the making.
///
/// What comes later lies over what came earlier, as members of an archive do: a directory over a directory keeps what is in that one, and
/// anything else replaces what has the path. Directories that only paths tell of have the permissions 0755, belong to root, and are of the
/// beginning of 1970, and so is the root. Slashes in front, behind and doubled, and `.`, change nothing in a path; `..` is refused.
///
/// Bytes that are added go to a nameless file: what a draft takes in memory grows with the number of its files, not with their lengths.
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
    /// What errors call it.
    name: PathBuf,
    builder: Builder,
    contents: MergedContents,
    spooled: SpooledFiles,
    host: HostFiles,
    /// Paths at which contents were added whose files have got further names since, by the number of the contents.
    moved: HashMap<u32, Box<[u8]>>,
    notes: Vec<Note>,
    left_out_xattrs: LeftOutXattrs,
}

impl Draft {
    /// An empty directory, which errors call `name`. Of `options`, those count that say where spools are, and how much they may hold.
    pub fn new(name: impl Into<PathBuf>, options: &SourceOptions) -> Self {
        Self {
            name: name.into(),
            builder: Builder::default(),
            contents: MergedContents::default(),
            spooled: SpooledFiles::new(options.spool_place()),
            host: HostFiles::default(),
            moved: HashMap::new(),
            notes: Vec::new(),
            left_out_xattrs: LeftOutXattrs::default(),
        }
    }

    /// A regular file that holds `bytes`.
    ///
    /// # Errors
    /// A path that no tree can have; a nameless file that cannot be written.
    pub fn add_bytes(&mut self, path: &[u8], meta: Metadata, bytes: &[u8]) -> Result<(), SourceError> {
        self.flush_host();
        self.spooled.add(bytes).map_err(|source| self.unreadable(source))?;
        let content = self.take_number()?;
        let kind = Kind::File { len: bytes.len() as u64, content, sparse: false };
        self.insert(path, Node { meta, xattrs: ThinSlice::default(), kind })
    }

    /// What is at `host` on this system, symbolic links followed: a regular file, which is read when the image is built, or a special file.
    /// It has its own metadata and attributes.
    ///
    /// # Errors
    /// A file that cannot be looked at, a directory; a path that no tree can have.
    pub fn add_file(&mut self, path: &[u8], host: &Path) -> Result<(), SourceError> {
        let unreadable = |source| SourceError::from(Unreadable { path: host.to_owned(), source });
        let found = look_at(host).map_err(unreadable)?;
        let kind = match found.entry.what {
            What::Directory => return Err(unreadable(io::ErrorKind::IsADirectory.into())),
            What::File { len, stamp, sparse, .. } => {
                self.flush_spooled();
                self.host.add(found.path, stamp).map_err(unreadable)?;
                Kind::File { len, content: self.take_number()?, sparse }
            }
            What::Symlink(target) => Kind::Symlink(target),
            What::CharDevice(rdev) => Kind::CharDevice(rdev),
            What::BlockDevice(rdev) => Kind::BlockDevice(rdev),
            What::Fifo => Kind::Fifo,
            What::Socket => Kind::Socket,
        };
        self.insert(path, Node { meta: found.entry.meta, xattrs: found.entry.xattrs, kind })
    }

    /// A directory, or new metadata for the one that is there.
    ///
    /// # Errors
    /// A path that no tree can have.
    pub fn add_dir(&mut self, path: &[u8], meta: Metadata) -> Result<(), SourceError> {
        self.insert(path, Node { meta, xattrs: ThinSlice::default(), kind: Kind::Directory(Box::default()) })
    }

    /// A symbolic link.
    ///
    /// # Errors
    /// A path that no tree can have.
    pub fn add_symlink(&mut self, path: &[u8], meta: Metadata, target: &[u8]) -> Result<(), SourceError> {
        self.insert(path, Node { meta, xattrs: ThinSlice::default(), kind: Kind::Symlink(target.into()) })
    }

    /// A further name of what is at `existing`, which is no directory.
    ///
    /// # Errors
    /// Nothing is there, or a directory; a path that no tree can have.
    pub fn link(&mut self, path: &[u8], existing: &[u8]) -> Result<(), SourceError> {
        let found = self.builder.find(existing).map_err(|error| self.of_tree(error))?;
        let dangling = || TreeError { path: path.to_owned(), problem: TreeProblem::DanglingLink(existing.to_owned()) };
        let id = found.ok_or_else(|| self.of_tree(dangling()))?;
        self.builder.hard_link(path, existing).map_err(|error| self.of_tree(error))?;
        if let Kind::File { content, .. } = self.builder.nodes()[id.idx()].kind {
            // A source that opens its files by their paths knows this one by that alone.
            self.moved.entry(content.0).or_insert_with(|| without_empty_names(existing).into());
        }
        Ok(())
    }

    /// Give what is at `path` an extended attribute, instead of one of that name that it has. What sources have and EROFS cannot hold is left out;
    /// what is asked for by name is not.
    ///
    /// # Errors
    /// Nothing is there; an attribute that EROFS cannot hold, beside the others of the file.
    pub fn set_xattr(&mut self, path: &[u8], xattr: Xattr) -> Result<(), SourceError> {
        let found = self.builder.find(path).map_err(|error| self.of_tree(error))?;
        let nothing = || TreeError { path: path.to_owned(), problem: TreeProblem::NoSuchNode };
        let id = found.ok_or_else(|| self.of_tree(nothing()))?;
        let xattrs = self.builder.xattrs_mut(id);
        let mut list = xattrs.to_vec();
        set(&mut list, xattr);
        if let Some((xattr, reason)) = first_unfit(&list) {
            let reason = format!("extended attribute {}: {reason}", xattr.name.escape_ascii());
            return Err(SourceError::Unsupported { path: OsStr::from_bytes(path).into(), reason });
        }
        *xattrs = list.into();
        Ok(())
    }

    /// Lay all of a source over what lies at `at`, as [`Merged`](super::Merged) does. Whiteouts take away what lies below them. Returns what
    /// could not be read and was left out, if `options` say that the scan keeps going.
    ///
    /// # Errors
    /// Those of [`Source::scan`]; a path that no tree can have.
    pub fn add_source(
        &mut self,
        source: &dyn Source,
        at: &[u8],
        options: &ScanOptions<'_>,
    ) -> Result<Vec<Unreadable>, SourceError> {
        let Scan { tree, skipped, notes, left_out_xattrs, .. } = source.scan(options)?;
        let at = without_empty_names(at);
        self.notes.extend(notes);
        self.left_out_xattrs.extend(left_out_xattrs, |path| without_empty_names(&[&at, path].join(&b'/')));
        self.flush_host();
        self.flush_spooled();
        let lost = SourceError::tree(source.path());
        let first_content = self.contents.take(content_count(&tree)).map_err(&lost)?;
        let mut overlay = Overlay { builder: &mut self.builder, whiteouts: Whiteouts::Apply, first_content };
        let put = overlay.put(&tree, &at).map_err(lost).map(|links| self.notes.extend(links.notes(source.path())));
        // What was put before an error refers to them.
        self.contents.add(first_content, tree, &at);
        put.map(|()| skipped)
    }

    /// What errors call it.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// The tree.
    ///
    /// # Errors
    /// A nameless file that cannot be written; what is no tree.
    pub fn finish(self) -> Result<Tree, SourceError> {
        self.finish_scan().map(|scan| scan.tree)
    }

    /// The tree, and what there is to know of the sources that were added.
    pub(super) fn finish_scan(mut self) -> Result<Scan, SourceError> {
        self.flush_host();
        self.flush_spooled();
        self.spooled.write_out().map_err(|source| self.unreadable(source))?;
        let contents = DraftContents { base: self.contents, moved: self.moved };
        let tree = self.builder.finish(Box::new(contents)).map_err(SourceError::tree(&self.name))?;
        Ok(Scan { notes: self.notes, left_out_xattrs: self.left_out_xattrs, ..Scan::from(tree) })
    }

    fn insert(&mut self, path: &[u8], node: Node) -> Result<(), SourceError> {
        self.builder.insert(path, node).map(drop).map_err(|error| self.of_tree(error))
    }

    /// The number of the contents that were just added.
    fn take_number(&mut self) -> Result<ContentId, SourceError> {
        self.contents.take(1).map(ContentId).map_err(|error| self.of_tree(error))
    }

    /// Files of this system that were added one behind the other become a part of the contents.
    fn flush_host(&mut self) {
        let (count, files) = self.host.take();
        self.contents.add_last(count, files);
    }

    /// The same of spooled files.
    fn flush_spooled(&mut self) {
        let (count, files) = self.spooled.take();
        self.contents.add_last(count, files);
    }

    fn of_tree(&self, error: TreeError) -> SourceError {
        SourceError::tree(&self.name)(error)
    }

    fn unreadable(&self, source: io::Error) -> SourceError {
        Unreadable { path: self.name.clone(), source }.into()
    }
}

/// A path as sources tell it: names with a slash between them.
fn without_empty_names(path: &[u8]) -> Vec<u8> {
    let names: Vec<_> = path.split(|&b| b == b'/').filter(|name| !matches!(name, [] | [b'.'])).collect();
    names.join(&b'/')
}
