//! Archives and images of other formats, which commands read as they read images.

use crate::exit::Failure;
use crate::image::DEVICE_OPTION;
use kiln_format::superblock::{MAGIC, SUPERBLOCK_OFF};
use kiln_read::ImageSources;
use kiln_source::{ScanOptions, Source, SourceError, SourceOptions};
use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Opens a file as a source, if it is one, and no image of EROFS.
///
/// # Errors
/// A source that is damaged or not supported. Of a file that is no source, the reader of images tells more.
pub fn find(path: &Path) -> Result<Option<Box<dyn Source>>, Failure> {
    let Ok(file) = File::open(path) else { return Ok(None) };
    let is_file = |kind: std::fs::FileType| kind.is_file() || kind.is_block_device();
    if !file.metadata().is_ok_and(|found| is_file(found.file_type())) {
        return Ok(None);
    }
    let mut magic = [0; 4];
    if file.read_exact_at(&mut magic, SUPERBLOCK_OFF).is_ok() && magic == MAGIC.to_le_bytes() {
        return Ok(None);
    }
    match kiln_source::open(path, &SourceOptions::default()) {
        Ok(source) => Ok(Some(source)),
        Err(SourceError::Unknown { .. }) => Ok(None),
        Err(error) => Err(Failure::of_source(error, None, DEVICE_OPTION)),
    }
}

/// Returns an image of a source, whose contents stay where they are.
///
/// # Errors
/// A source that cannot be read.
pub fn open(source: &dyn Source) -> Result<ImageSources, Failure> {
    // A signal ends the process: nothing is left of what is in memory and in files without names.
    static NEVER: AtomicBool = AtomicBool::new(false);
    kilnfs::open_view(source, &ScanOptions::new(&NEVER)).map_err(|error| match error {
        kilnfs::Error::Source(error) => Failure::of_source(error, None, DEVICE_OPTION),
        error => Failure::Library(error),
    })
}
