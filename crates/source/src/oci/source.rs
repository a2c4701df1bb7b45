//! Source that reads an image of a layout.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::archive::{self, Taken, is_named_like_images, taken};
use super::blobs::Blobs;
use super::choice::{ListedImage, Platform};
use super::image::{Entry, Meant, OciImage, choose, list};
use super::records::{DOCKER_FILE, INDEX_FILE, LAYOUT_FILE, VERSION_FILE, VERSION_FRONT};
use crate::archive::tar::TarOptions;
use crate::archive::tar::source::{TarIndex, TarSource, front_of, is_archive as is_tar};
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::{Candidate, SourceOptions};
use crate::kind::SourceKind;
use crate::merge::{MergePart, Merged};
use crate::places::ArchivePlaces;
use crate::source::{Note, Scan, ScanOptions, Source, SourceEntries, select_found};
use kiln_tree::filter::Filter;
use kiln_tree::merge::Whiteouts;
use kiln_tree::{Contents, Intake};

/// The kind "container image". It also opens all tar archives, since only their members show if
/// they hold images. A directory is opened as a layout only on request; usually its files are
/// meant.
pub(crate) const KIND: SourceKind = SourceKind {
    name: "oci",
    title: "a container image",
    is: |candidate| !candidate.is_dir() && is_tar(candidate.plain_head()),
    open: |candidate| {
        let (refers, stop) =
            (candidate.options().reference && !candidate.kind_is_given(), candidate.options().stop.clone());
        let source = OciSource::of(candidate)?;
        if refers { source.or_tar_to_refer_to(&stop.unwrap_or_default()) } else { Ok(Box::new(source)) }
    },
};

/// Returns true if the directory at `path` looks like an OCI layout.
pub fn looks_like_layout(path: &Path) -> bool {
    path.join(LAYOUT_FILE).is_file() && path.join(INDEX_FILE).is_file()
}

/// Returns true if the directory at `path` looks like the `dir:` format of skopeo.
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

/// A layout: a directory or an archive. Its tree is the root filesystem of a container of the only
/// or selected image.
pub struct OciSource {
    path: PathBuf,
    options: SourceOptions,
    layout: Layout,
}

enum Layout {
    Directory,
    Archive { tar: Box<TarSource>, found: Mutex<Option<Found>>, wanted: ExpectedContents, may_be_images: bool },
}

/// Images of an archive, with a note.
struct Found {
    blobs: Arc<Blobs>,
    note: Option<Note>,
}

/// Contents expected in an archive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedContents {
    /// Images.
    Images,
    /// One of its images, if it has any or looks as if it should.
    Choice,
    /// Images or files.
    Anything,
}

/// An image of a layout.
pub struct OpenedImage {
    /// Entry of the layout's list.
    pub listed: ListedImage,
    /// The image, or the error of opening it.
    pub image: Result<OciImage, SourceError>,
}

impl OciSource {
    /// Opens the layout at `path`; `-` is standard input.
    ///
    /// # Errors
    /// A path that does not exist or cannot be read. Problems of the contents are reported by the
    /// scan.
    pub fn open(path: &Path, options: &SourceOptions) -> Result<Self, SourceError> {
        Self::of(Candidate::new(path, options)?.of_given_kind())
    }

    fn of(candidate: Candidate<'_>) -> Result<Self, SourceError> {
        let (path, options) = (candidate.path().to_owned(), candidate.options().clone());
        let layout = match candidate.is_dir() {
            true => Layout::Directory,
            false => {
                let wanted = match (candidate.kind_is_given(), !options.image.is_given()) {
                    (true, _) => ExpectedContents::Images,
                    (false, true) => ExpectedContents::Anything,
                    (false, false) => ExpectedContents::Choice,
                };
                // This does not apply to layers, which always end at their end marks.
                let concatenated = options.concatenated;
                let may_be_images = archive::may_be_images(&front_of(candidate.plain_head(), &path));
                let tar = Box::new(TarSource::of(candidate, TarOptions { concatenated, ..TarOptions::default() })?);
                Layout::Archive { tar, found: Mutex::default(), wanted, may_be_images }
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

    /// Reads all members of an archive.
    fn index(&self, tar: &TarSource, options: &ScanOptions<'_>) -> Result<Blobs, SourceError> {
        // The filter applies to the files of the image and not to those of the layout.
        let whole = ScanOptions { keep_going: options.keep_going, ..ScanOptions::new(options.stop) };
        Ok(Blobs::in_archive(&self.path, tar.index(&whole)?))
    }

    /// Reads the members of an archive of files. Returns `None` for images and for a directory.
    fn files(&self, options: &ScanOptions<'_>) -> Result<Option<TarIndex>, SourceError> {
        let Layout::Archive { tar, found, wanted, .. } = &self.layout else { return Ok(None) };
        if *wanted == ExpectedContents::Images || found.lock().is_some() {
            return Ok(None);
        }
        let blobs = self.index(tar, options)?;
        let note = |text| Note { path: self.path.clone(), text };
        let text = match taken(&blobs) {
            Taken::Images(text) => text,
            Taken::Files(text) if *wanted == ExpectedContents::Choice && is_named_like_images(&blobs) => text,
            Taken::Files(text) => {
                let mut index = blobs.into_index();
                index.iter_mut().for_each(|index| index.scan.notes.extend(text.clone().map(note)));
                return Ok(index);
            }
        };
        *found.lock() = Some(Found { blobs: Arc::new(blobs), note: text.map(note) });
        Ok(None)
    }

    /// Returns this source, or, for an archive of files, a source that uses the archive as a
    /// device.
    fn or_tar_to_refer_to(self, stop: &AtomicBool) -> Result<Box<dyn Source>, SourceError> {
        // Damage is reported by the scan.
        let options = ScanOptions { keep_going: true, ..ScanOptions::new(stop) };
        match (self.files(&options)?, self.layout) {
            (Some(_), Layout::Archive { tar, .. }) => Ok(Box::new(tar.into_device()?)),
            (_, layout) => Ok(Box::new(Self { path: self.path, options: self.options, layout })),
        }
    }

    /// Lists all images.
    ///
    /// # Errors
    /// A file that is not a layout; documents that cannot be read or have another digest.
    pub fn images(&self, options: &ScanOptions<'_>) -> Result<Vec<ListedImage>, SourceError> {
        let blobs = self.blobs(options)?;
        Ok(list(&blobs, options)?.into_iter().map(|entry| entry.listed).collect())
    }

    /// Opens all images; those that cannot be opened have their error. Of a multi-platform image,
    /// most layouts have only one platform.
    ///
    /// # Errors
    /// Those of [`OciSource::images`]; [`SourceError::Interrupted`].
    pub fn open_images(&self, options: &ScanOptions<'_>) -> Result<Vec<OpenedImage>, SourceError> {
        let blobs = self.blobs(options)?;
        open_all(list(&blobs, options)?, &blobs, options)
    }

    /// Opens the image selected by [`SourceOptions::image`] for each of `platforms`, or for all its
    /// platforms if the list is empty.
    ///
    /// # Errors
    /// Those of [`OciSource::open_images`]; [`SourceError::Choice`].
    pub fn open_platforms(
        &self,
        platforms: &[Platform],
        options: &ScanOptions<'_>,
    ) -> Result<Vec<OpenedImage>, SourceError> {
        let blobs = self.blobs(options)?;
        let meant = Meant::Platforms(platforms);
        open_all(choose(list(&blobs, options)?, &self.options.image, meant, &blobs)?, &blobs, options)
    }

    /// Opens the only image, or the one selected by [`SourceOptions::image`].
    ///
    /// # Errors
    /// Those of [`OciSource::images`]; [`SourceError::Choice`].
    pub fn image(&self, options: &ScanOptions<'_>) -> Result<OciImage, SourceError> {
        let blobs = self.blobs(options)?;
        let mut chosen = choose(list(&blobs, options)?, &self.options.image, Meant::Only, &blobs)?;
        OciImage::open(chosen.remove(0), blobs, options)
    }
}

/// Opens the images of these entries; those that cannot be opened have their error.
fn open_all(
    entries: Vec<Entry>,
    blobs: &Arc<Blobs>,
    options: &ScanOptions<'_>,
) -> Result<Vec<OpenedImage>, SourceError> {
    let open = |entry: Entry| {
        let listed = entry.listed.clone();
        match OciImage::open(entry, Arc::clone(blobs), options) {
            Err(SourceError::Interrupted) => Err(SourceError::Interrupted),
            image => Ok(OpenedImage { listed, image }),
        }
    };
    entries.into_iter().map(open).collect()
}

impl Source for OciSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn is_stream(&self) -> bool {
        matches!(&self.layout, Layout::Archive { tar, wanted: ExpectedContents::Anything, may_be_images: false, .. }
            if tar.is_stream())
    }

    fn scan_into(&self, options: &ScanOptions<'_>, intake: &mut dyn Intake) -> Result<Scan, SourceError> {
        let Layout::Archive { tar, .. } = &self.layout else { return self.scan(options) };
        if !self.is_stream() {
            return self.scan(options);
        }
        let scan = tar.scan_into(options, intake)?;
        if archive::lists_images(&scan.tree) {
            let reason = "it holds container images, but begins with other files; use --from oci to read its images, or \
                          --from tar to read its files";
            return Err(SourceError::Choice { path: self.path.clone(), reason: reason.into() });
        }
        Ok(scan)
    }

    fn scan_places(&self, options: &ScanOptions<'_>) -> Result<(Scan, Option<ArchivePlaces>), SourceError> {
        match self.files(options)? {
            Some(files) => {
                let places = files.places(&self.path)?;
                Ok((select_found(files.scan, &self.path, options)?, Some(places)))
            }
            None => Ok((self.scan(options)?, None)),
        }
    }

    fn contents_at(&self, places: ArchivePlaces) -> Result<Box<dyn Contents>, SourceError> {
        match &self.layout {
            Layout::Archive { tar, .. } => tar.contents_at(places),
            Layout::Directory => Err(places.not_of(&self.path)),
        }
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        if let Some(files) = self.files(options)? {
            return Ok(SourceEntries::Everything(files.scan));
        }
        let image = self.image(options)?;
        let layer = |at| Ok(MergePart::new(image.lone_layer(at, &self.options, options)?, b""));
        let parts: Vec<MergePart> = (0..image.layers().len()).map(layer).collect::<Result<_, SourceError>>()?;
        if parts.is_empty() {
            return Err(SourceError::Choice { path: self.path.clone(), reason: "the image has no layers".into() });
        }
        // The filter applies to the merged tree: an excluded file still hides lower ones.
        let merged = Merged::new(parts, Whiteouts::Apply);
        let mut scan = merged.scan(&ScanOptions { filter: &Filter::default(), ..*options })?;
        scan.is_container = true;
        if let Layout::Archive { found, .. } = &self.layout
            && let Some(Found { blobs, note }) = &*found.lock()
        {
            let of_archive = blobs.scan();
            scan.skipped.extend(of_archive.iter().flat_map(|scan| &scan.skipped).map(Unreadable::again));
            scan.notes.extend(of_archive.iter().flat_map(|scan| &scan.notes).chain(note).cloned());
        }
        Ok(SourceEntries::Everything(scan))
    }
}
