//! Archives and images of other formats, which commands read as they read images.

use crate::console::report::note;
use crate::exit::Failure;
use kiln_format::superblock::{MAGIC, SUPERBLOCK_OFF};
use kiln_read::ImageSources;
use kiln_source::oci::{ImageChoice, OciSource, looks_like_layout};
use kiln_source::{ScanOptions, Source, SourceError, SourceOptions};
use kilnfs::oci::host_platform;
use kilnfs::view::IndexError;
use kilnfs::{Error, IndexUse};
use std::fs::{File, FileType};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Returns the name of a file's kind if it is a source of trees, and no image of EROFS.
///
/// # Errors
/// A file whose compression is damaged.
pub fn kind(path: &Path) -> Result<Option<&'static str>, Failure> {
    // The reader of images tells what is wrong with a file that cannot be opened.
    let Ok(file) = File::open(path) else { return Ok(None) };
    if looks_like_layout(path) {
        return Ok(Some("oci"));
    }
    let is_file = |kind: FileType| kind.is_file() || kind.is_block_device();
    if !file.metadata().is_ok_and(|found| is_file(found.file_type())) {
        return Ok(None);
    }
    let mut magic = [0; 4];
    if file.read_exact_at(&mut magic, SUPERBLOCK_OFF).is_ok() && magic == MAGIC.to_le_bytes() {
        return Ok(None);
    }
    kiln_source::kind_of(path, &SourceOptions::default()).map_err(failed)
}

/// Returns an image of a source, whose contents stay where they are. What is found out about an archive is kept in the
/// file `index`, or read there. `cache_bytes` is that of [`SourceOptions`].
///
/// # Errors
/// A source that cannot be read; an index that cannot be kept.
pub fn open(path: &Path, index: Option<&Path>, cache_bytes: Option<u64>) -> Result<ImageSources, Failure> {
    // A signal ends the process: nothing is left of what is in memory and in files without names.
    static NEVER: AtomicBool = AtomicBool::new(false);
    // Of an image for several platforms, the one for this machine is meant.
    let image = ImageChoice { preferred: Some(host_platform()), ..ImageChoice::default() };
    let source_options = SourceOptions { image, cache_bytes, ..SourceOptions::default() };
    let source: Box<dyn Source> = match looks_like_layout(path) {
        true => Box::new(OciSource::open(path, &source_options).map_err(failed)?),
        false => kiln_source::open(path, &source_options).map_err(failed)?,
    };
    let options = ScanOptions::new(&NEVER);
    let opened = match index {
        None => kilnfs::open_view(&*source, &options).map(|sources| (sources, IndexUse::Read)),
        Some(index) => kilnfs::open_view_indexed(&*source, index, &options),
    };
    let (sources, used) = opened.map_err(|error| match error {
        Error::Source(error) => failed(error),
        Error::Index(error) => of_index(error),
        error => Failure::Library(error),
    })?;
    if let (IndexUse::Replaced(reason), Some(index)) = (used, index) {
        note(format_args!("{}: {reason}: the index is made anew", index.display()));
    }
    Ok(sources)
}

fn of_index(error: IndexError) -> Failure {
    match error {
        IndexError::Output(error) => error.into(),
        IndexError::Unreadable { path, source } => Failure::File { path, action: "read", source },
        error => Failure::Usage(error.to_string()),
    }
}

fn failed(error: SourceError) -> Failure {
    if let SourceError::Choice { .. } = error {
        return Failure::Usage(format!("{error}: pack the one that you mean first, with kiln pack --from oci"));
    }
    Failure::of_source(error, None, "--device")
}
