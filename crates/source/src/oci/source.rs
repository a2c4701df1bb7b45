//! A layout as a source.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::archive::{Taken, is_named_like_images, taken};
use super::blobs::Blobs;
use super::choice::{ImageChoice, Listed, Platform};
use super::image::{Entry, Meant, OciImage, choose, list};
use super::records::{DOCKER_FILE, INDEX_FILE, LAYOUT_FILE, VERSION_FILE, VERSION_FRONT};
use crate::archive::tar::TarOptions;
use crate::archive::tar::source::{TarSource, is_archive as is_tar};
use crate::error::{SourceError, Unreadable};
use crate::filter::Filter;
use crate::input::candidate::{Candidate, SourceOptions};
use crate::kind::SourceKind;
use crate::merge::{Merged, Part, Whiteouts};
use crate::source::{Note, Scan, ScanOptions, Scanned, Source};

/// Images of containers as a kind of source, and tar archives, of which the members tell whether they are images. A
/// directory is one only if it is asked for: as a rule, a directory is meant as it is.
pub(crate) const KIND: SourceKind = SourceKind {
    name: "oci",
    title: "an image of a container",
    is: |candidate| !candidate.is_dir() && is_tar(candidate.plain_head()),
    open: |candidate| {
        let (refers, stop) =
            (candidate.options().reference && !candidate.kind_is_given(), candidate.options().stop.clone());
        let source = OciSource::of(candidate)?;
        if refers { source.or_tar_to_refer_to(&stop.unwrap_or_default()) } else { Ok(Box::new(source)) }
    },
};

/// Whether the directory at `path` looks like an OCI layout.
pub fn looks_like_layout(path: &Path) -> bool {
    path.join(LAYOUT_FILE).is_file() && path.join(INDEX_FILE).is_file()
}

/// Tells if the directory at `path` looks like what skopeo calls `dir:`.
pub fn looks_like_dir_transport(path: &Path) -> bool {
    let version = || {
        File::open(path.join(VERSION_FILE)).and_then(|mut file| {
            let mut front = [0; VERSION_FRONT.len()];
            file.read_exact(&mut front).map(|()| front)
        })
    };
    path.join(VERSION_FILE).is_file()
        && path.join(DOCKER_FILE).is_file()
        && version().is_ok_and(|front| front == *VERSION_FRONT)
}

/// A layout: a directory or an archive. As a tree, it is what a container of its only or chosen image would see.
pub struct OciSource {
    path: PathBuf,
    options: SourceOptions,
    layout: Layout,
}

enum Layout {
    Directory,
    Archive { tar: Box<TarSource>, found: Mutex<Option<Found>>, wanted: Wanted },
}

/// The images of an archive, and what is to be known of it.
struct Found {
    blobs: Arc<Blobs>,
    note: Option<Note>,
}

/// Contents that are wanted of an archive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Images.
    Images,
    /// One of its images, if it has some or looks as if it should.
    Choice,
    /// Images or files, whichever it has.
    Anything,
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
                let wanted = match (candidate.kind_is_given(), options.image == ImageChoice::default()) {
                    (true, _) => Wanted::Images,
                    (false, true) => Wanted::Anything,
                    (false, false) => Wanted::Choice,
                };
                // Layers are read by themselves, and end at their marks whatever is asked for.
                let concatenated = options.concatenated;
                let tar = Box::new(TarSource::of(candidate, TarOptions { concatenated, ..TarOptions::default() })?);
                Layout::Archive { tar, found: Mutex::default(), wanted }
            }
        };
        Ok(Self { path, options, layout })
    }

    fn blobs(&self, options: &ScanOptions<'_>) -> Result<Arc<Blobs>, SourceError> {
        let Layout::Archive { tar, found, .. } = &self.layout else {
            return Ok(Arc::new(Blobs::in_directory(&self.path)?));
        };
        let mut known = found.lock();
        if let Some(Found { blobs, .. }) = &*known {
            return Ok(Arc::clone(blobs));
        }
        let blobs = Arc::new(self.index(tar, options)?);
        *known = Some(Found { blobs: Arc::clone(&blobs), note: None });
        Ok(blobs)
    }

    /// All members of an archive.
    fn index(&self, tar: &TarSource, options: &ScanOptions<'_>) -> Result<Blobs, SourceError> {
        // A filter is about the files of the image, and not about those of the layout.
        let whole = ScanOptions { keep_going: options.keep_going, ..ScanOptions::new(options.stop) };
        Ok(Blobs::in_archive(&self.path, tar.index(&whole)?))
    }

    /// The members of an archive, if it is taken for these; `None`: for images, or it is a directory.
    fn files(&self, options: &ScanOptions<'_>) -> Result<Option<Scan>, SourceError> {
        let Layout::Archive { tar, found, wanted } = &self.layout else { return Ok(None) };
        if *wanted == Wanted::Images || found.lock().is_some() {
            return Ok(None);
        }
        let blobs = self.index(tar, options)?;
        let note = |text| Note { path: self.path.clone(), text };
        let text = match taken(&blobs) {
            Taken::Images(text) => text,
            Taken::Files(text) if *wanted == Wanted::Choice && is_named_like_images(&blobs) => text,
            Taken::Files(text) => {
                let mut scan = blobs.into_scan();
                scan.iter_mut().for_each(|scan| scan.notes.extend(text.clone().map(note)));
                return Ok(scan);
            }
        };
        *found.lock() = Some(Found { blobs: Arc::new(blobs), note: text.map(note) });
        Ok(None)
    }

    /// This, or, if it is an archive of files, that as a device of an image.
    fn or_tar_to_refer_to(self, stop: &AtomicBool) -> Result<Box<dyn Source>, SourceError> {
        // What is damaged is told when it is read.
        let options = ScanOptions { keep_going: true, ..ScanOptions::new(stop) };
        match (self.files(&options)?, self.layout) {
            (Some(_), Layout::Archive { tar, .. }) => Ok(Box::new(tar.into_device()?)),
            (_, layout) => Ok(Box::new(Self { path: self.path, options: self.options, layout })),
        }
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
        if let Some(files) = self.files(options)? {
            return Ok(Scanned::Everything(files));
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
        if let Layout::Archive { found, .. } = &self.layout
            && let Some(Found { blobs, note }) = &*found.lock()
        {
            let of_archive = blobs.scan();
            scan.skipped.extend(of_archive.iter().flat_map(|scan| &scan.skipped).map(Unreadable::again));
            scan.notes.extend(of_archive.iter().flat_map(|scan| &scan.notes).chain(note).cloned());
        }
        Ok(Scanned::Everything(scan))
    }
}
