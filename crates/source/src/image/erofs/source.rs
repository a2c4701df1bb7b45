//! Source that reads an EROFS image.

use kiln_format::BlockBits;
use kiln_format::superblock::{MAGIC, SUPERBLOCK_OFF};
use kiln_read::{Image, ImageOptions, ImageSources, Nid};
use kiln_tree::Base;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::device::ImageDevices;
use super::scan::{Named, scan};
use crate::error::SourceError;
use crate::input::candidate::Candidate;
use crate::kind::SourceKind;
use crate::source::{Scan, ScanOptions, Source, SourceEntries};

/// The kind "EROFS image".
pub(crate) const KIND: SourceKind = SourceKind {
    name: "erofs",
    title: "an EROFS image",
    is: |candidate| candidate.holds(SUPERBLOCK_OFF as usize, &MAGIC.to_le_bytes()),
    open: |candidate| Ok(Box::new(open(candidate)?)),
};

fn open(candidate: Candidate<'_>) -> Result<ImageSource, SourceError> {
    let (path, options) = (candidate.path().to_owned(), candidate.options().clone());
    if options.reference && !candidate.is_file() {
        let reason =
            "an image can refer to another one only if the other is a file or a block device, and not compressed";
        return Err(SourceError::Options { path, reason });
    }
    // The reader opens files itself, so that it can choose the readahead of the system.
    let sources = match candidate.is_file() {
        true => {
            let sources = ImageSources::from_paths(&path, &options.devices).with_offset(options.offset);
            match options.source_layer.clone() {
                Some(layer) => sources.with_layer(layer),
                None => sources,
            }
        }
        false => ImageSources::new(candidate.into_bytes()?),
    };
    let image = sources.with_objects(options.objects.clone()).open(&ImageOptions::default());
    // Devices that are only referred to need not exist.
    let is_there = |image: &Image| if options.reference { Ok(()) } else { image.require_devices() };
    match image.and_then(|image| is_there(&image).map(|()| image)) {
        Ok(image) => {
            let extra = options.reference.then_some(options.devices);
            Ok(ImageSource { image, path, offset: options.offset, extra, base: None })
        }
        Err(source) => Err(SourceError::Image { path, offset: options.offset, source }),
    }
}

/// An EROFS image.
pub struct ImageSource {
    image: Image,
    path: PathBuf,
    offset: u64,
    /// Paths of its extra devices, as far as they are given, if other images are to refer to it.
    extra: Option<Vec<PathBuf>>,
    /// The image itself, if others reuse its data.
    base: Option<Arc<dyn Base>>,
}

impl ImageSource {
    /// Creates a source for an open image; messages name it `path`.
    pub fn new(image: Image, path: &Path) -> Self {
        Self { image, path: path.to_owned(), offset: 0, extra: None, base: None }
    }

    /// Lets other images reuse the stored data of the image, as that of `base`: contents say how they
    /// are stored.
    pub fn with_base(self, base: Arc<dyn Base>) -> Self {
        Self { base: Some(base), ..self }
    }

    /// Scans the complete image. Returns the nids of regular files, too, by content id.
    ///
    /// # Errors
    /// Those of [`Source::scan`].
    pub fn scan_with_nids(&self, options: &ScanOptions<'_>) -> Result<(Scan, Arc<[Nid]>), SourceError> {
        scan(self.named(), self.stores(), options)
    }

    fn named(&self) -> Named<'_> {
        Named { image: &self.image, path: &self.path, offset: self.offset }
    }

    /// Returns the devices to which other images refer, and the base.
    fn stores(&self) -> (Option<ImageDevices>, Option<Arc<dyn Base>>) {
        let place = (&*self.path, self.offset);
        let devices = self.extra.as_ref().map(|extra| ImageDevices::of(&self.image, place, extra));
        (devices, self.base.clone())
    }
}

impl Source for ImageSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn block_bits(&self) -> Option<BlockBits> {
        self.extra.as_ref().map(|_| self.image.superblock().block_bits)
    }

    /// Reads the image. An inode with several names is one node. Attributes that Linux does not
    /// show are left out, and of several with the same name the first is used, as in Linux.
    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        Ok(SourceEntries::Everything(self.scan_with_nids(options)?.0))
    }
}
