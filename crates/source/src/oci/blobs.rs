//! Files of a layout: in a directory, or in an archive.

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

/// The longest JSON document, in bytes. Registries take 4 MiB.
const DOCUMENT_MAX_LEN: u64 = 8 << 20;
/// Bytes of a blob that are hashed at once.
const PIECE_LEN: usize = 1 << 20;

/// Files of a layout.
pub(super) struct Blobs {
    path: PathBuf,
    place: Place,
    naming: Naming,
}

enum Place {
    Directory(OwnedFd),
    Archive(Box<TarIndex>),
}

/// Scheme by which blobs are placed and named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// Below `blobs/`, or where a list says.
    Layout,
    /// Beside `manifest.json`, which is that of one image, by their digests: what skopeo calls `dir:`.
    Flat,
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
        Ok(Self::new(path, Place::Directory(dir)))
    }

    /// Those in the tar archive that errors call `path`.
    pub(super) fn in_archive(path: &Path, index: TarIndex) -> Self {
        Self::new(path, Place::Archive(Box::new(index)))
    }

    fn new(path: &Path, place: Place) -> Self {
        let mut blobs = Self { path: path.to_owned(), place, naming: Naming::Layout };
        if blobs.is_flat().unwrap_or(false) {
            blobs.naming = Naming::Flat;
        }
        blobs
    }

    /// Tells if `manifest.json` is no list of images, but the manifest of one.
    fn is_flat(&self) -> Result<bool, SourceError> {
        let is_layout = self.file(INDEX_FILE)?.is_some();
        let Some(file) = self.file(DOCKER_FILE)?.filter(|_| !is_layout) else { return Ok(false) };
        let unreadable = |source| Unreadable { path: self.path.join(DOCKER_FILE), source };
        let mut head = [b' '; 64];
        let len = file.len().map_err(unreadable)?.min(head.len() as u64) as usize;
        file.read_exact_at(&mut head[..len], 0).map_err(unreadable)?;
        Ok(head.trim_ascii_start().starts_with(b"{"))
    }

    /// Returns the scheme by which blobs are placed and named.
    pub(super) fn naming(&self) -> Naming {
        self.naming
    }

    /// Names in the root of an archive; of a directory, none.
    pub(super) fn root_names(&self) -> impl Iterator<Item = &[u8]> {
        let tree = match &self.place {
            Place::Directory(_) => None,
            Place::Archive(index) => Some(&index.scan.tree),
        };
        tree.into_iter().flat_map(|tree| tree.entries(NodeId::ROOT)).map(|entry| entry.name)
    }

    /// Returns the scan of an archive, with what was left out, and what is to be known; `None`: it is a directory.
    pub(super) fn scan(&self) -> Option<&Scan> {
        match &self.place {
            Place::Directory(_) => None,
            Place::Archive(index) => Some(&index.scan),
        }
    }

    /// All members of an archive as they are.
    pub(super) fn into_scan(self) -> Option<Scan> {
        match self.place {
            Place::Directory(_) => None,
            Place::Archive(index) => Some(index.scan),
        }
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
            Place::Archive(index) => {
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
        let name = self.blob_name(descriptor)?;
        match self.file(&name)? {
            Some(file) => Ok(file),
            // So skopeo calls the manifests of an image for several platforms.
            None if self.naming == Naming::Flat => self.required(&format!("{name}.manifest.json")),
            None => self.required(&name),
        }
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
        let hex = hex.ok_or_else(refuse)?;
        Ok(match self.naming {
            Naming::Layout => format!("blobs/sha256/{hex}"),
            Naming::Flat => hex.to_owned(),
        })
    }

    /// That the file `name` of the layout is not what it should be.
    pub(super) fn wrong(&self, name: &str, reason: String) -> SourceError {
        SourceError::Malformed { path: self.path.join(name), offset: 0, reason }
    }
}

/// What is at a path of an archive; `docker save` makes links of layers that several images have.
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
