//! An image as a source.

use kiln_format::superblock::{MAGIC, SUPERBLOCK_OFF};
use kiln_read::{Image, ImageOptions};
use std::path::{Path, PathBuf};

use super::scan::{Problem, scan};
use crate::error::SourceError;
use crate::kind::{Candidate, SourceKind};
use crate::source::{ScanOptions, Scanned, Source};

/// Images as a kind of source.
pub(crate) const KIND: SourceKind = SourceKind {
    name: "EROFS image",
    is: |candidate| candidate.holds(SUPERBLOCK_OFF, &MAGIC.to_le_bytes()),
    open: |candidate| Ok(Box::new(open(candidate)?)),
};

fn open(candidate: &Candidate<'_>) -> Result<ImageSource, SourceError> {
    let (path, offset) = (candidate.path.to_owned(), candidate.options.offset);
    let options = ImageOptions { offset, ..ImageOptions::default() };
    let image = Image::open_path(&path, &candidate.options.devices, &options);
    match image.and_then(|image| image.require_devices().map(|()| image)) {
        Ok(image) => Ok(ImageSource { image, path, offset }),
        Err(source) => Err(SourceError::Image { path, offset, source }),
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
        let path = self.path.clone();
        match scan(&self.image, options.stop) {
            Ok(tree) => Ok(Scanned::Everything(tree)),
            Err(Problem::Read(source)) => Err(SourceError::Image { path, offset: self.offset, source }),
            Err(Problem::Tree(source)) => Err(SourceError::Tree { path, source }),
            Err(Problem::TooLarge { limit }) => Err(SourceError::TooLarge { path, limit }),
            Err(Problem::Interrupted) => Err(SourceError::Interrupted),
        }
    }
}
