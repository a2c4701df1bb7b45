//! Files of a layout: in a directory, or in an archive.

use kiln_builder::tree::{Kind, NodeId, Tree};
use kiln_read::{FileSource, ReadAt};
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::records::Descriptor;
use crate::dir::contents::open_beneath;
use crate::error::{SourceError, Unreadable};
use crate::input::part::PartSource;
use crate::source::{Note, Scan, ScanOptions};
use crate::stored::StoredFiles;

/// The longest JSON document, in bytes. Registries take 4 MiB.
const DOCUMENT_MAX_LEN: u64 = 8 << 20;
/// Bytes of a blob that are hashed at once.
const PIECE_LEN: usize = 1 << 20;

/// Files of a layout.
pub(super) struct Blobs {
    path: PathBuf,
    place: Place,
    notes: Vec<Note>,
}

enum Place {
    Directory(OwnedFd),
    Archive { tree: Tree, files: Arc<StoredFiles>, archive: Arc<dyn ReadAt> },
}

impl Blobs {
    /// Those in the directory at `path`.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn in_directory(path: &Path) -> Result<Self, SourceError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, path, flags, Mode::empty());
        let dir = dir.map_err(|error| Unreadable { path: path.to_owned(), source: error.into() })?;
        Ok(Self { path: path.to_owned(), place: Place::Directory(dir), notes: Vec::new() })
    }

    /// Those in the tar archive that errors call `path`.
    pub(super) fn in_archive(path: &Path, scan: Scan, files: Arc<StoredFiles>, archive: Arc<dyn ReadAt>) -> Self {
        let Scan { tree, notes, .. } = scan;
        Self { path: path.to_owned(), place: Place::Archive { tree, files, archive }, notes }
    }

    /// What there is to know of the archive.
    pub(super) fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// What errors call the layout.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file at `name`; `None`: there is none.
    pub(super) fn file(&self, name: &str) -> Result<Option<Arc<dyn ReadAt>>, SourceError> {
        let unreadable = |source| Unreadable { path: self.path.join(name), source };
        match &self.place {
            Place::Directory(dir) => {
                match open_beneath(dir.as_fd(), name.as_bytes(), OFlags::RDONLY | OFlags::NONBLOCK) {
                    Ok(file) => Ok(Some(Arc::new(FileSource::from_file(File::from(file)).map_err(unreadable)?))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(unreadable(error).into()),
                }
            }
            Place::Archive { tree, files, archive } => {
                let Some(id) = find(tree, name, 8) else { return Ok(None) };
                let Kind::File { content, len, .. } = tree.node(id).kind else { return Ok(None) };
                let range = match *files.runs(content) {
                    [] if len == 0 => 0..0,
                    [run] if run.la == 0 && run.len == len => run.pa..run.pa + run.len,
                    _ => return Err(unreadable(io::Error::other("a blob with holes")).into()),
                };
                Ok(Some(Arc::new(PartSource::new(Arc::clone(archive), range))))
            }
        }
    }

    /// The file at `name`, which must be there.
    pub(super) fn required(&self, name: &str) -> Result<Arc<dyn ReadAt>, SourceError> {
        let missing = || Unreadable { path: self.path.join(name), source: io::ErrorKind::NotFound.into() };
        self.file(name)?.ok_or_else(|| missing().into())
    }

    /// The blob of a descriptor, whose digest is right.
    pub(super) fn blob(
        &self,
        descriptor: &Descriptor,
        options: &ScanOptions<'_>,
    ) -> Result<Arc<dyn ReadAt>, SourceError> {
        let blob = self.unchecked(descriptor)?;
        self.check(descriptor, &*blob, options).map(|()| blob)
    }

    /// The blob of a descriptor, whatever is in it.
    pub(super) fn unchecked(&self, descriptor: &Descriptor) -> Result<Arc<dyn ReadAt>, SourceError> {
        self.required(&self.blob_name(descriptor)?)
    }

    /// That a blob has the length and digest of its descriptor.
    pub(super) fn check(
        &self,
        descriptor: &Descriptor,
        blob: &dyn ReadAt,
        options: &ScanOptions<'_>,
    ) -> Result<(), SourceError> {
        let name = self.blob_name(descriptor)?;
        let len = blob.len().map_err(|source| Unreadable { path: self.path.join(&name), source })?;
        if len != descriptor.size {
            return Err(self.wrong(&name, format!("size = {}, but the blob has {len} bytes", descriptor.size)));
        }
        let found = self.digest(&name, blob, options)?;
        match descriptor.digest == found {
            true => Ok(()),
            false => Err(self.wrong(&name, format!("digest = {}, but the blob has {found}", descriptor.digest))),
        }
    }

    /// The digest of what is at `name`, `sha256:...`.
    pub(super) fn digest(
        &self,
        name: &str,
        file: &dyn ReadAt,
        options: &ScanOptions<'_>,
    ) -> Result<String, SourceError> {
        let unreadable = |source| Unreadable { path: self.path.join(name), source };
        let len = file.len().map_err(unreadable)?;
        let (mut hasher, mut off, mut piece) = (Sha256::new(), 0, vec![0; PIECE_LEN.min(len as usize)]);
        while off < len {
            options.check_stop()?;
            let part = &mut piece[..(len - off).min(PIECE_LEN as u64) as usize];
            file.read_exact_at(part, off).map_err(unreadable)?;
            hasher.update(&*part);
            off += part.len() as u64;
        }
        Ok(hex_digest(hasher))
    }

    /// The JSON document of a descriptor.
    pub(super) fn document<T: DeserializeOwned>(
        &self,
        descriptor: &Descriptor,
        options: &ScanOptions<'_>,
    ) -> Result<(T, Vec<u8>), SourceError> {
        let name = self.blob_name(descriptor)?;
        if descriptor.size > DOCUMENT_MAX_LEN {
            return Err(
                self.wrong(&name, format!("size = {} of a document: more than {DOCUMENT_MAX_LEN}", descriptor.size))
            );
        }
        let blob = self.blob(descriptor, options)?;
        self.json_of(&name, &*blob)
    }

    /// The JSON document at `name`, and its bytes.
    pub(super) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<(T, Vec<u8>), SourceError> {
        self.json_of(name, &*self.required(name)?)
    }

    fn json_of<T: DeserializeOwned>(&self, name: &str, file: &dyn ReadAt) -> Result<(T, Vec<u8>), SourceError> {
        let unreadable = |source| Unreadable { path: self.path.join(name), source };
        let len = file.len().map_err(unreadable)?;
        if len > DOCUMENT_MAX_LEN {
            return Err(self.wrong(name, format!("a document of {len} bytes: more than {DOCUMENT_MAX_LEN}")));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0).map_err(unreadable)?;
        let parsed = serde_json::from_slice(&bytes).map_err(|error| self.wrong(name, error.to_string()))?;
        Ok((parsed, bytes))
    }

    /// The file of a blob.
    ///
    /// # Errors
    /// A digest that is not `sha256:` and 64 hexadecimal digits.
    pub(super) fn blob_name(&self, descriptor: &Descriptor) -> Result<String, SourceError> {
        let hex = descriptor.digest.strip_prefix("sha256:");
        let hex = hex.filter(|hex| hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
        let refuse = || SourceError::Unsupported {
            path: self.path.clone(),
            reason: format!("digest = {:?}: only sha256 is known", descriptor.digest),
        };
        hex.map(|hex| format!("blobs/sha256/{hex}")).ok_or_else(refuse)
    }

    /// That the file `name` of the layout is not what it should be.
    pub(super) fn wrong(&self, name: &str, reason: String) -> SourceError {
        SourceError::Malformed { path: self.path.join(name), offset: 0, reason }
    }
}

/// A digest as descriptors have it.
fn hex_digest(hasher: Sha256) -> String {
    let hex = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("sha256:{hex}")
}

/// What is at a path of an archive; `docker save` makes links of layers that several images have.
fn find(tree: &Tree, name: &str, links: u32) -> Option<NodeId> {
    let id = tree.find(name.split('/').filter(|name| !name.is_empty()).map(str::as_bytes))?;
    let Kind::Symlink(target) = &tree.node(id).kind else { return Some(id) };
    let (target, dir) = (str::from_utf8(target).ok()?, name.rsplit_once('/').map_or("", |(dir, _)| dir));
    let mut names: Vec<&str> = dir.split('/').filter(|name| !name.is_empty()).collect();
    for step in target.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    find(tree, &names.join("/"), links.checked_sub(1)?)
}
