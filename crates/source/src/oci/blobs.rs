//! Files of a layout in a directory or an archive.

use kiln_read::{FileSource, ReadAt};
use kiln_tree::{Kind, NodeId, Tree};
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::digest::Hasher;
use super::records::{DOCKER_FILE, Descriptor, INDEX_FILE};
use crate::archive::tar::source::TarIndex;
use crate::dir::contents::open_beneath;
use crate::error::{SourceError, Unreadable};
use crate::input::part::PartSource;
use crate::source::{Scan, ScanOptions};

/// Maximum length in bytes of a JSON document. Registries allow 4 MiB.
const DOCUMENT_MAX_LEN: u64 = 8 << 20;
/// Length in bytes of the pieces of a blob that are hashed.
const PIECE_LEN: usize = 1 << 20;

/// Files of a layout.
pub(super) struct Blobs {
    path: PathBuf,
    place: LayoutPlace,
    naming: Naming,
}

enum LayoutPlace {
    Directory(OwnedFd),
    Archive(Box<TarIndex>),
}

/// Location and naming scheme of blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// In `blobs/`, or at the paths of a list.
    Layout,
    /// Beside `manifest.json`, which is the manifest of one image, named by digest: the `dir:`
    /// format of skopeo.
    Flat,
}

impl Blobs {
    /// Opens the layout in the directory at `path`.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn in_directory(path: &Path) -> Result<Self, SourceError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, path, flags, Mode::empty());
        let dir = dir.map_err(|error| Unreadable { path: path.to_owned(), source: error.into() })?;
        Ok(Self::new(path, LayoutPlace::Directory(dir)))
    }

    /// Opens the layout in a tar archive, which error messages call `path`.
    pub(super) fn in_archive(path: &Path, index: TarIndex) -> Self {
        Self::new(path, LayoutPlace::Archive(Box::new(index)))
    }

    fn new(path: &Path, place: LayoutPlace) -> Self {
        let mut blobs = Self { path: path.to_owned(), place, naming: Naming::Layout };
        if blobs.is_flat().unwrap_or(false) {
            blobs.naming = Naming::Flat;
        }
        blobs
    }

    /// Returns true if `manifest.json` is the manifest of an image, and not a list of images.
    fn is_flat(&self) -> Result<bool, SourceError> {
        let is_layout = self.file(INDEX_FILE)?.is_some();
        let Some(file) = self.file(DOCKER_FILE)?.filter(|_| !is_layout) else { return Ok(false) };
        let unreadable = |source| Unreadable { path: self.path.join(DOCKER_FILE), source };
        let mut head = [b' '; 64];
        let len = file.len().map_err(unreadable)?.min(head.len() as u64) as usize;
        file.read_exact_at(&mut head[..len], 0).map_err(unreadable)?;
        Ok(head.trim_ascii_start().starts_with(b"{"))
    }

    /// Returns the location and naming scheme of blobs.
    pub(super) fn naming(&self) -> Naming {
        self.naming
    }

    /// Returns the names in the root of an archive; none for a directory.
    pub(super) fn root_names(&self) -> impl Iterator<Item = &[u8]> {
        let tree = match &self.place {
            LayoutPlace::Directory(_) => None,
            LayoutPlace::Archive(index) => Some(&index.scan.tree),
        };
        tree.into_iter().flat_map(|tree| tree.entries(NodeId::ROOT)).map(|entry| entry.name)
    }

    /// Returns the scan of an archive, or `None` for a directory.
    pub(super) fn scan(&self) -> Option<&Scan> {
        match &self.place {
            LayoutPlace::Directory(_) => None,
            LayoutPlace::Archive(index) => Some(&index.scan),
        }
    }

    /// Returns the members of an archive, or `None` for a directory.
    pub(super) fn into_index(self) -> Option<TarIndex> {
        match self.place {
            LayoutPlace::Directory(_) => None,
            LayoutPlace::Archive(index) => Some(*index),
        }
    }

    /// Returns the name of the layout in error messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file `name`. Returns `None` if it does not exist.
    pub(super) fn file(&self, name: &str) -> Result<Option<Arc<dyn ReadAt>>, SourceError> {
        let unreadable = |source| Unreadable { path: self.path.join(name), source };
        match &self.place {
            LayoutPlace::Directory(dir) => {
                match open_beneath(dir.as_fd(), name.as_bytes(), OFlags::RDONLY | OFlags::NONBLOCK) {
                    Ok(file) => Ok(Some(Arc::new(FileSource::from_file(File::from(file)).map_err(unreadable)?))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(unreadable(error).into()),
                }
            }
            LayoutPlace::Archive(index) => {
                let TarIndex { scan: Scan { tree, .. }, files, archive } = &**index;
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

    /// Opens the file `name`, which must exist.
    pub(super) fn required(&self, name: &str) -> Result<Arc<dyn ReadAt>, SourceError> {
        let missing = || Unreadable { path: self.path.join(name), source: io::ErrorKind::NotFound.into() };
        self.file(name)?.ok_or_else(|| missing().into())
    }

    /// Opens the blob of a descriptor and checks its digest.
    pub(super) fn blob(
        &self,
        descriptor: &Descriptor,
        options: &ScanOptions<'_>,
    ) -> Result<Arc<dyn ReadAt>, SourceError> {
        let blob = self.unchecked(descriptor)?;
        self.check(descriptor, &*blob, options).map(|()| blob)
    }

    /// Opens the blob of a descriptor without checking it.
    pub(super) fn unchecked(&self, descriptor: &Descriptor) -> Result<Arc<dyn ReadAt>, SourceError> {
        let name = self.blob_name(descriptor)?;
        match self.file(&name)? {
            Some(file) => Ok(file),
            // skopeo uses this name for the manifests of a multi-platform image.
            None if self.naming == Naming::Flat => self.required(&format!("{name}.manifest.json")),
            None => self.required(&name),
        }
    }

    /// Checks length and digest of a blob.
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

    /// Returns the digest of the file `name`, as `sha256:...`.
    pub(super) fn digest(
        &self,
        name: &str,
        file: &dyn ReadAt,
        options: &ScanOptions<'_>,
    ) -> Result<String, SourceError> {
        let unreadable = |source| Unreadable { path: self.path.join(name), source };
        let len = file.len().map_err(unreadable)?;
        let (mut hasher, mut off, mut piece) = (Hasher::sha256(), 0, vec![0; PIECE_LEN.min(len as usize)]);
        while off < len {
            options.check_stop()?;
            let part = &mut piece[..(len - off).min(PIECE_LEN as u64) as usize];
            file.read_exact_at(part, off).map_err(unreadable)?;
            hasher.update(part);
            off += part.len() as u64;
        }
        Ok(hasher.finish())
    }

    /// Reads and checks the JSON document of a descriptor.
    pub(super) fn document<T: DeserializeOwned>(
        &self,
        descriptor: &Descriptor,
        options: &ScanOptions<'_>,
    ) -> Result<(T, Vec<u8>), SourceError> {
        let name = self.blob_name(descriptor)?;
        if descriptor.size > DOCUMENT_MAX_LEN {
            return Err(
                self.wrong(&name, format!("size = {} of a document, more than {DOCUMENT_MAX_LEN}", descriptor.size))
            );
        }
        let blob = self.blob(descriptor, options)?;
        self.json_of(&name, &*blob)
    }

    /// Reads the JSON document `name`, and returns its bytes, too.
    pub(super) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<(T, Vec<u8>), SourceError> {
        self.json_of(name, &*self.required(name)?)
    }

    fn json_of<T: DeserializeOwned>(&self, name: &str, file: &dyn ReadAt) -> Result<(T, Vec<u8>), SourceError> {
        let unreadable = |source| Unreadable { path: self.path.join(name), source };
        let len = file.len().map_err(unreadable)?;
        if len > DOCUMENT_MAX_LEN {
            return Err(self.wrong(name, format!("a document of {len} bytes, more than {DOCUMENT_MAX_LEN}")));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0).map_err(unreadable)?;
        let parsed = serde_json::from_slice(&bytes).map_err(|error| self.wrong(name, error.to_string()))?;
        Ok((parsed, bytes))
    }

    /// Returns the file name of a blob.
    ///
    /// # Errors
    /// A digest that is not `sha256:` and 64 hexadecimal digits.
    pub(super) fn blob_name(&self, descriptor: &Descriptor) -> Result<String, SourceError> {
        let hex = descriptor.digest.strip_prefix("sha256:");
        let hex = hex.filter(|hex| hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
        let refuse = || SourceError::Unsupported {
            path: self.path.clone(),
            reason: format!("digest = {:?}: only sha256 is supported", descriptor.digest),
        };
        let hex = hex.ok_or_else(refuse)?;
        Ok(match self.naming {
            Naming::Layout => format!("blobs/sha256/{hex}"),
            Naming::Flat => hex.to_owned(),
        })
    }

    /// Returns an error for the invalid file `name` of the layout.
    pub(super) fn wrong(&self, name: &str, reason: String) -> SourceError {
        SourceError::Malformed { path: self.path.join(name), offset: 0, reason }
    }
}

/// Returns the node at a path of an archive. Follows links: `docker save` writes links for layers
/// shared by several images.
fn find(tree: &Tree, name: &str, links: u32) -> Option<NodeId> {
    let id = tree.find(name.split('/').filter(|name| !matches!(*name, "" | ".")).map(str::as_bytes))?;
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
