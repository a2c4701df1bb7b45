//! An image as a source.

use kiln_format::superblock::{MAGIC, SUPERBLOCK_OFF};
use kiln_read::{Image, ImageOptions, ImageSources};
use std::path::{Path, PathBuf};

use super::scan::{Named, scan};
use crate::error::SourceError;
use crate::input::candidate::Candidate;
use crate::kind::SourceKind;
use crate::source::{ScanOptions, Scanned, Source};

/// Images as a kind of source.
pub(crate) const KIND: SourceKind = SourceKind {
    name: "erofs",
    title: "an EROFS image",
    is: |candidate| candidate.holds(SUPERBLOCK_OFF as usize, &MAGIC.to_le_bytes()),
    open: |candidate| Ok(Box::new(open(candidate)?)),
};

fn open(candidate: Candidate<'_>) -> Result<ImageSource, SourceError> {
    let (path, options) = (candidate.path().to_owned(), candidate.options().clone());
    // The reader opens what has a path itself, and then decides about the readahead of the system.
    let sources = match candidate.is_file() {
        true => ImageSources::from_paths(&path, &options.devices).with_offset(options.offset),
        false => ImageSources::new(candidate.into_bytes()?),
    };
    let image = sources.open(&ImageOptions::default());
    match image.and_then(|image| image.require_devices().map(|()| image)) {
        Ok(image) => Ok(ImageSource { image, path, offset: options.offset }),
        Err(source) => Err(SourceError::Image { path, offset: options.offset, source }),
    }
}

/// An image.
pub struct ImageSource {
    image: Image,
    path: PathBuf,
    offset: u64,
}

impl ImageSource {
    /// An open image, which messages call `path`.
    pub fn new(image: Image, path: &Path) -> Self {
        Self { image, path: path.to_owned(), offset: 0 }
    }
}

impl Source for ImageSource {
    fn path(&self) -> &Path {
        &self.path
    }

    /// An inode with several names is one node; attributes that Linux does not show are not there, and of several with one name
    /// the first counts, as in Linux.
    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        let named = Named { image: &self.image, path: &self.path, offset: self.offset };
        Ok(Scanned::Everything(scan(named, options)?.into()))
    }
}
