//! The file or device that a patch is applied to in place.

use super::applying::file_failure;
use super::device;
use crate::exit::Failure;
use kiln_delta::in_place::{Identity, Resize, Target};
use kiln_mount::claim_unused;
use kiln_revise::update::lock_for_update;
use rustix::fs::OFlags;
use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Opens the file or device at `path` for this process alone. Refuses one that is mounted or being updated.
pub(super) fn open_to_write(path: &Path) -> Result<Target<File>, Failure> {
    let failed = |action| file_failure(path, action);
    let mut options = File::options();
    options.read(true).write(true);
    if metadata(path)?.file_type().is_block_device() {
        options.custom_flags(OFlags::EXCL.bits() as i32);
    }
    let file = options.open(path).map_err(failed("open for writing"))?;
    lock_for_update(&file).map_err(|source| Failure::Update { image: path.to_owned(), source })?;
    claim_unused(path, &file).map_err(Failure::Mount)?;
    target(path, file)
}

/// Opens a file or device to look at it.
pub(super) fn open_to_read(path: &Path) -> Result<Target<File>, Failure> {
    metadata(path)?;
    target(path, File::open(path).map_err(file_failure(path, "open"))?)
}

/// Returns the metadata of a file or a block device; opening anything else might block.
fn metadata(path: &Path) -> Result<Metadata, Failure> {
    let metadata = std::fs::metadata(path).map_err(file_failure(path, "look at"))?;
    match metadata.is_file() || metadata.file_type().is_block_device() {
        true => Ok(metadata),
        false => Err(Failure::Usage(format!("{}: neither a file nor a block device", path.display()))),
    }
}

fn target(path: &Path, mut file: File) -> Result<Target<File>, Failure> {
    let metadata = file.metadata().map_err(file_failure(path, "look at"))?;
    let len = file.seek(SeekFrom::End(0)).map_err(file_failure(path, "find the end of"))?;
    let (resize, identity) = match metadata.file_type().is_block_device() {
        true => (Resize::Never, device::identity(&metadata)),
        false => (Resize::ToImage, Identity::default()),
    };
    Ok(Target { device: Arc::new(file), len, resize, identity })
}
