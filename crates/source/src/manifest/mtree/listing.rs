//! Parser that converts the lines of a manifest to a tree.

use kiln_format::inode::FileType;
use kiln_tree::{Builder, Kind, Metadata, Node, ThinSlice};
use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::contents::{ListedFile, ListedFiles};
use super::escapes::unescape;
use super::keywords::Keywords;
use crate::dir::contents::{Stamp, open_beneath};
use crate::error::{SourceError, Unreadable};
use crate::input::tape::Tape;
use crate::limit::MemoryLimit;
use crate::manifest::fields::words;
use crate::manifest::lines::{Line, Lines, ListError};
use crate::source::ScanOptions;
use kiln_tree::path::join;
use kiln_tree::{FileError, SyntaxError};

/// Memory cost in bytes of a name, in addition to its length, and of each directory that a path
/// implies.
const NODE_COST: usize = size_of::<Node>() + 32;

/// A manifest that is being read.
pub(super) struct Listing<'a> {
    path: &'a Path,
    options: &'a ScanOptions<'a>,
    /// Directory with the contents.
    root: Option<&'a OwnedFd>,
    /// Defaults set by `/set` for all following files.
    defaults: Keywords,
    /// Directory for names without a slash.
    dir: Vec<u8>,
    builder: Builder,
    files: ListedFiles,
    /// First paths of files with several names.
    linked: HashMap<(Vec<u8>, u64), Vec<u8>>,
    memory: MemoryLimit,
    skipped: Vec<Unreadable>,
}

/// Result of looking up a file's contents.
enum Found {
    File {
        len: u64,
        file: ListedFile,
    },
    /// The file is missing, and optional.
    Optional,
    Lost(io::Error),
}

impl<'a> Listing<'a> {
    pub(super) fn new(path: &'a Path, options: &'a ScanOptions<'a>, root: Option<&'a OwnedFd>) -> Self {
        Self {
            path,
            options,
            root,
            defaults: Keywords::default(),
            dir: Vec::new(),
            builder: Builder::new(Metadata { permissions: 0o755, ..Metadata::default() }),
            files: ListedFiles::default(),
            linked: HashMap::new(),
            memory: MemoryLimit::new(0),
            skipped: Vec::new(),
        }
    }

    /// Reads the manifest. Returns the tree, the contents of its files, and the files that were
    /// left out.
    ///
    /// # Errors
    /// The first invalid line; missing files, unless the scan keeps going.
    pub(super) fn read(mut self, tape: Tape) -> Result<(Builder, ListedFiles, Vec<Unreadable>), SourceError> {
        let mut lines = Lines::new(tape, self.path);
        while let Some(line) = lines.next_joined().map_err(of_list)? {
            self.options.check_stop()?;
            self.memory.grow(lines.offset());
            self.line(&line)?;
        }
        Ok((self.builder, self.files, self.skipped))
    }

    fn line(&mut self, line: &Line) -> Result<(), SourceError> {
        let words = words(&line.text);
        let Some((first, words)) = words.split_first() else { return Ok(()) };
        let refuse = |error: SyntaxError| SourceError::from(self.at(line, error));
        match *first {
            [b'#', ..] => Ok(()),
            b"/set" => {
                let mut defaults = self.defaults.clone();
                words.iter().try_for_each(|word| defaults.set(word)).map_err(refuse)?;
                self.memory.charge(line.text.len(), self.path)?;
                self.defaults = defaults;
                Ok(())
            }
            b"/unset" => {
                let unset = words.iter().try_for_each(|word| self.defaults.unset(word));
                unset.map_err(|error| self.at(line, error).into())
            }
            [b'/', ..] => Err(refuse(SyntaxError::new("command", first, "neither /set nor /unset"))),
            b".." => {
                let end = self.dir.iter().rposition(|&b| b == b'/');
                match self.dir.is_empty() {
                    true => return Err(refuse(SyntaxError::new("path", first, "it leads out of the tree"))),
                    false => self.dir.truncate(end.unwrap_or(0)),
                }
                Ok(())
            }
            name => {
                let mut keywords = self.defaults.clone();
                words.iter().try_for_each(|word| keywords.set(word)).map_err(refuse)?;
                self.entry(line, name, keywords)
            }
        }
    }

    fn entry(&mut self, line: &Line, name: &[u8], keywords: Keywords) -> Result<(), SourceError> {
        let refuse = |reason: &str| self.at(line, SyntaxError::new("path", name, reason));
        let plain = unescape(name).ok_or_else(|| refuse("unknown escape"))?;
        // An escaped slash separates as well: no name can contain one.
        let path = match plain.contains(&b'/') {
            true => normal(&plain),
            false => normal(&join(&self.dir, &plain)),
        };
        let file_type = match (keywords.file_type, &keywords.link) {
            (Some(file_type), _) => file_type,
            (None, Some(_)) => FileType::Symlink,
            (None, None) => return Err(refuse("it has no type").into()),
        };
        let depth = 1 + path.iter().filter(|&&b| b == b'/').count();
        let target = keywords.link.as_ref().map_or(0, Vec::len);
        self.memory.charge(depth * NODE_COST + path.len() + target, self.path)?;
        self.dir = match file_type {
            FileType::Directory => path.clone(),
            // A full path sets the current directory, as in NetBSD.
            _ if plain.contains(&b'/') => parent(&path).to_vec(),
            _ => std::mem::take(&mut self.dir),
        };
        let identity = keywords.identity().filter(|_| file_type != FileType::Directory);
        if let Some(first) = identity.as_ref().and_then(|identity| self.linked.get(identity)) {
            return self.builder.hard_link(&path, first).map_err(SourceError::tree(self.path));
        }
        let meta = keywords.meta(file_type).map_err(|error| self.at(line, error))?;
        let Some(kind) = self.kind(line, &path, file_type, &keywords)? else { return Ok(()) };
        let node = Node { meta, xattrs: ThinSlice::default(), kind };
        self.builder
            .insert(&path, node)
            .map_err(|error| self.at(line, SyntaxError::new("path", name, error.problem)))?;
        if let Some(identity) = identity {
            self.memory.charge(identity.0.len() + path.len() + NODE_COST, self.path)?;
            self.linked.insert(identity, path);
        }
        Ok(())
    }

    /// Returns the kind of a file, or `None` if it is left out.
    fn kind(
        &mut self,
        line: &Line,
        path: &[u8],
        file_type: FileType,
        keywords: &Keywords,
    ) -> Result<Option<Kind>, SourceError> {
        let missing = |keyword| self.at(line, SyntaxError::new(keyword, b"", "missing"));
        Ok(Some(match file_type {
            FileType::Directory => Kind::Directory(Box::default()),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::Symlink => Kind::Symlink(keywords.link.as_deref().ok_or_else(|| missing("link"))?.into()),
            FileType::CharDevice => Kind::CharDevice(keywords.device.ok_or_else(|| missing("device"))?),
            FileType::BlockDevice => Kind::BlockDevice(keywords.device.ok_or_else(|| missing("device"))?),
            FileType::Regular => match self.find(path, keywords) {
                Found::File { len, file } => {
                    self.memory
                        .charge(size_of::<ListedFile>() + keywords.contents.as_ref().map_or(0, Vec::len), self.path)?;
                    Kind::File { len, content: self.files.push(file), sparse: false }
                }
                Found::Optional => return Ok(None),
                Found::Lost(source) => {
                    let number = line.idx + 1;
                    let source = io::Error::new(source.kind(), format!("line {number}: {source}"));
                    let error = Unreadable { path: self.path.join(OsStr::from_bytes(path)), source };
                    if !self.options.keep_going {
                        return Err(error.into());
                    }
                    self.skipped.push(error);
                    return Ok(None);
                }
            },
        }))
    }

    /// Looks up the contents of the file at `path`.
    fn find(&self, path: &[u8], keywords: &Keywords) -> Found {
        let Keywords { size, contents, sha256, .. } = keywords;
        let Some(root) = self.root else {
            return match size {
                Some(0) => Found::File { len: 0, file: ListedFile::empty() },
                _ => Found::Lost(io::Error::other(
                    "its contents are not in the manifest; name the directory with the contents by --root DIR",
                )),
            };
        };
        let below = contents.as_ref().map(|contents| normal(contents));
        let place = below.as_deref().unwrap_or(path);
        let opened = open_beneath(root.as_fd(), place, OFlags::PATH);
        let stat = opened.and_then(|file| {
            Ok(statx(&file, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, StatxFlags::BASIC_STATS)?)
        });
        let place = || place.escape_ascii();
        let stat = match stat {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound && keywords.optional => return Found::Optional,
            Err(error) => {
                return Found::Lost(io::Error::new(error.kind(), format!("{} below the root: {error}", place())));
            }
        };
        let is_file = rustix::fs::FileType::from_raw_mode(stat.stx_mode.into()) == rustix::fs::FileType::RegularFile;
        let wrong = match size {
            _ if !is_file => "not a regular file".to_owned(),
            Some(size) if *size != stat.stx_size => {
                format!("its size is {}, but the manifest has {size}", stat.stx_size)
            }
            _ => {
                let file = ListedFile::below(Stamp::new(&stat), stat.stx_size, below, *sha256);
                return Found::File { len: stat.stx_size, file };
            }
        };
        Found::Lost(io::Error::other(format!("{} below the root: {wrong}", place())))
    }

    fn at(&self, line: &Line, error: SyntaxError) -> FileError {
        error.at(&self.path.to_string_lossy(), line.idx)
    }
}

fn of_list(error: ListError) -> SourceError {
    match error {
        ListError::Line(error) => error.into(),
        ListError::Unreadable(error) => error.into(),
    }
}

/// Removes empty names and `.` from a path.
fn normal(path: &[u8]) -> Vec<u8> {
    let names: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|name| !matches!(name, [] | [b'.'])).collect();
    names.join(&b'/')
}

/// Returns the directory of a path.
fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&b| b == b'/').map_or(b"", |at| &path[..at])
}
