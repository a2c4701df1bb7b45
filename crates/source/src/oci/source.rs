//! A layout as a source.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::blobs::Blobs;
use super::choice::{ImageChoice, Listed, Platform};
use super::image::{Entry, Meant, OciImage, choose, holds_images, list};
use super::records::{INDEX_FILE, LAYOUT_FILE};
use crate::archive::tar::TarOptions;
use crate::archive::tar::source::{TarIndex, TarSource, is_archive as is_tar};
use crate::error::SourceError;
use crate::filter::Filter;
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
    let is_document_or_layer = |name: &[u8]| {
        let stem = name.strip_suffix(b".json").or(name.strip_suffix(b".tar"));
        stem.is_some_and(is_hex)
    };
    let is_one = match first {
        b"blobs" => name.starts_with(b"blobs/") && (name.len() == 6 || name.starts_with(b"blobs/sha256")),
        b"index.json" | b"oci-layout" | b"manifest.json" | b"repositories" => true,
        first => is_hex(first) || is_document_or_layer(first),
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
    Archive { tar: Box<TarSource>, blobs: Mutex<Option<Arc<Blobs>>>, without_image: WithoutImage },
}

/// What an archive is in which no image lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WithoutImage {
    Error,
    /// An archive of files that are called like those of a layout.
    Tar,
}

/// An image that a layout lists.
pub struct Opened {
    /// How it is listed.
    pub listed: Listed,
    /// The image, or why it cannot be opened.
    pub image: Result<OciImage, SourceError>,
}

impl OciSource {
    /// The layout at `path`; `-` is standard input.
    ///
    /// # Errors
    /// Nothing is there, or it cannot be read. What it holds shows when it is scanned.
    pub fn open(path: &Path, options: &SourceOptions) -> Result<Self, SourceError> {
        Self::of(Candidate::new(path, options)?.of_given_kind())
    }

    fn of(candidate: Candidate<'_>) -> Result<Self, SourceError> {
        let (path, options) = (candidate.path().to_owned(), candidate.options().clone());
        let layout = match candidate.is_dir() {
            true => Layout::Directory,
            false => {
                let is_asked_for = candidate.kind_is_given() || options.image != ImageChoice::default();
                let without_image = if is_asked_for { WithoutImage::Error } else { WithoutImage::Tar };
                // Layers are read by themselves, and end at their marks whatever is asked for.
                let concatenated = options.concatenated;
                let tar = Box::new(TarSource::of(candidate, TarOptions { concatenated, ..TarOptions::default() })?);
                Layout::Archive { tar, blobs: Mutex::default(), without_image }
            }
        };
        Ok(Self { path, options, layout })
    }

    fn blobs(&self, options: &ScanOptions<'_>) -> Result<Arc<Blobs>, SourceError> {
        let Layout::Archive { tar, blobs, .. } = &self.layout else {
            return Ok(Arc::new(Blobs::in_directory(&self.path)?));
        };
        let mut known = blobs.lock();
        if let Some(known) = &*known {
            return Ok(Arc::clone(known));
        }
        // A filter is about the files of the image, and not about those of the layout.
        let whole = ScanOptions { keep_going: options.keep_going, ..ScanOptions::new(options.stop) };
        let TarIndex { scan, files, archive } = tar.index(&whole)?;
        let found = Arc::new(Blobs::in_archive(&self.path, scan, files, archive));
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

    /// All images, with what is wrong with those that cannot be opened: of an image for several platforms, most layouts hold one.
    ///
    /// # Errors
    /// As [`OciSource::images`]; [`SourceError::Interrupted`].
    pub fn open_images(&self, options: &ScanOptions<'_>) -> Result<Vec<Opened>, SourceError> {
        let blobs = self.blobs(options)?;
        open_all(list(&blobs, options)?, &blobs, options)
    }

    /// The image that [`SourceOptions::image`] chooses, for each of `platforms`; of none, for all that it is there for.
    ///
    /// # Errors
    /// As [`OciSource::open_images`]; [`SourceError::Choice`].
    pub fn open_platforms(
        &self,
        platforms: &[Platform],
        options: &ScanOptions<'_>,
    ) -> Result<Vec<Opened>, SourceError> {
        let blobs = self.blobs(options)?;
        let meant = Meant::Platforms(platforms);
        open_all(choose(list(&blobs, options)?, &self.options.image, meant, &blobs)?, &blobs, options)
    }

    /// The only image, or the one that [`SourceOptions::image`] chooses.
    ///
    /// # Errors
    /// As [`OciSource::images`]; [`SourceError::Choice`].
    pub fn image(&self, options: &ScanOptions<'_>) -> Result<OciImage, SourceError> {
        let blobs = self.blobs(options)?;
        let mut chosen = choose(list(&blobs, options)?, &self.options.image, Meant::Only, &blobs)?;
        OciImage::open(chosen.remove(0), blobs, options)
    }
}

/// The images of these entries, with what is wrong with those that cannot be opened.
fn open_all(entries: Vec<Entry>, blobs: &Arc<Blobs>, options: &ScanOptions<'_>) -> Result<Vec<Opened>, SourceError> {
    let open = |entry: Entry| {
        let listed = entry.listed.clone();
        match OciImage::open(entry, Arc::clone(blobs), options) {
            Err(SourceError::Interrupted) => Err(SourceError::Interrupted),
            image => Ok(Opened { listed, image }),
        }
    };
    entries.into_iter().map(open).collect()
}

impl Source for OciSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        if let Layout::Archive { tar, without_image: WithoutImage::Tar, .. } = &self.layout
            && !holds_images(&*self.blobs(options)?)?
        {
            return tar.read(options);
        }
        let image = self.image(options)?;
        let layer = |at| Ok(Part::new(image.lone_layer(at, &self.options, options)?, b""));
        let parts: Vec<Part> = (0..image.layers().len()).map(layer).collect::<Result<_, SourceError>>()?;
        if parts.is_empty() {
            return Err(SourceError::Choice { path: self.path.clone(), reason: "the image has no layer".into() });
        }
        // The filter is about what a container sees: a file that it leaves out hides what is below all the same.
        let merged = Merged::new(parts, Whiteouts::Apply);
        let mut scan = merged.scan(&ScanOptions { filter: &Filter::default(), ..*options })?;
        scan.notes.extend_from_slice(self.blobs(options)?.notes());
        Ok(Scanned::Everything(scan))
    }
}
