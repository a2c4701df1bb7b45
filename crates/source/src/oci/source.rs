//! A layout as a source.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::blobs::Blobs;
use super::choice::Listed;
use super::image::{OciImage, choose, list};
use super::records::{INDEX_FILE, LAYOUT_FILE};
use crate::archive::tar::source::{TarIndex, TarOptions, TarSource, is_archive as is_tar};
use crate::error::SourceError;
use crate::input::candidate::{Candidate, SourceOptions};
use crate::kind::SourceKind;
use crate::merge::{Merged, Part, Whiteouts};
use crate::source::{ScanOptions, Scanned, Source};

/// Images of containers as a kind of source. A directory is one only if it is asked for: as a rule, a directory is meant as it is.
pub(crate) const KIND: SourceKind = SourceKind {
    name: "oci",
    title: "an image of a container",
    is: |candidate| !candidate.is_dir() && is_archive(candidate.plain_head()),
    open: |candidate| Ok(Box::new(OciSource::of(candidate)?)),
};

/// Whether these are the first bytes of an archive whose first member is one that `docker save`, skopeo and others begin with.
fn is_archive(head: &[u8]) -> bool {
    let name = head.get(..100).and_then(|name| name.split(|&b| b == 0).next()).unwrap_or_default();
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let first = name.split(|&b| b == b'/').next().unwrap_or_default();
    let is_hex = |bytes: &[u8]| bytes.len() == 64 && bytes.iter().all(u8::is_ascii_hexdigit);
    let is_one = match first {
        b"blobs" => name.starts_with(b"blobs/") && (name.len() == 6 || name.starts_with(b"blobs/sha256")),
        b"index.json" | b"oci-layout" | b"manifest.json" | b"repositories" => true,
        first => is_hex(first) || first.strip_suffix(b".json").is_some_and(is_hex),
    };
    is_one && is_tar(head)
}

/// Whether the directory at `path` looks like an OCI layout.
pub fn looks_like_layout(path: &Path) -> bool {
    path.join(LAYOUT_FILE).is_file() && path.join(INDEX_FILE).is_file()
}

/// A layout: a directory or an archive. As a tree, it is what a container of its only or chosen image would see.
pub struct OciSource {
    path: PathBuf,
    options: SourceOptions,
    layout: Layout,
}

enum Layout {
    Directory,
    Archive { tar: TarSource, blobs: Mutex<Option<Arc<Blobs>>> },
}

impl OciSource {
    /// The layout at `path`; `-` is standard input.
    ///
    /// # Errors
    /// Nothing is there, or it cannot be read. What it holds shows when it is scanned.
    pub fn open(path: &Path, options: &SourceOptions) -> Result<Self, SourceError> {
        Self::of(Candidate::new(path, options)?)
    }

    fn of(candidate: Candidate<'_>) -> Result<Self, SourceError> {
        let (path, options) = (candidate.path().to_owned(), candidate.options().clone());
        let layout = match candidate.is_dir() {
            true => Layout::Directory,
            false => Layout::Archive { tar: TarSource::of(candidate, TarOptions::default())?, blobs: Mutex::default() },
        };
        Ok(Self { path, options, layout })
    }

    fn blobs(&self, options: &ScanOptions<'_>) -> Result<Arc<Blobs>, SourceError> {
        let Layout::Archive { tar, blobs } = &self.layout else {
            return Ok(Arc::new(Blobs::in_directory(&self.path)?));
        };
        let mut known = blobs.lock();
        if let Some(known) = &*known {
            return Ok(Arc::clone(known));
        }
        // A filter is about the files of the image, and not about those of the layout.
        let whole = ScanOptions { keep_going: options.keep_going, ..ScanOptions::new(options.stop) };
        let TarIndex { scan, files, archive } = tar.index(&whole)?;
        let found = Arc::new(Blobs::in_archive(&self.path, scan.tree, files, archive));
        Ok(Arc::clone(known.insert(found)))
    }

    /// All images.
    ///
    /// # Errors
    /// No layout; documents that cannot be read or have another digest.
    pub fn images(&self, options: &ScanOptions<'_>) -> Result<Vec<Listed>, SourceError> {
        let blobs = self.blobs(options)?;
        Ok(list(&blobs, options)?.into_iter().map(|entry| entry.listed).collect())
    }

    /// The only image, or the one that [`SourceOptions::image`] chooses.
    ///
    /// # Errors
    /// As [`OciSource::images`]; [`SourceError::Choice`].
    pub fn image(&self, options: &ScanOptions<'_>) -> Result<OciImage, SourceError> {
        let blobs = self.blobs(options)?;
        let entry = choose(list(&blobs, options)?, &self.options.image, &blobs)?;
        OciImage::open(entry, blobs, options)
    }
}

impl Source for OciSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        let image = self.image(options)?;
        let layer = |layer| Ok(Part::new(image.layer(layer, &self.options, options)?, b""));
        let parts: Vec<Part> = image.layers.iter().map(layer).collect::<Result<_, SourceError>>()?;
        match parts.is_empty() {
            true => Err(SourceError::Choice { path: self.path.clone(), reason: "the image has no layer".into() }),
            false => Merged::new(parts, Whiteouts::Apply).read(options),
        }
    }
}
