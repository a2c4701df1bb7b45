//! Journals that `kiln patch apply --in-place` has left beside an image, for all commands that open one.

use kiln_delta::in_place::is_journal;
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Default directory for journals of block devices: its files survive a restart of the system.
const DEVICE_JOURNAL_DIR: &str = "/var/tmp";
/// Permission of the group and of all others to write.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Returns the default path of the journal of an image.
pub(super) fn default_place(image: &Path, is_device: bool) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(image.file_name().unwrap_or_default());
    name.push(".kiln-journal");
    match is_device {
        true => Path::new(DEVICE_JOURNAL_DIR).join(name),
        false => image.with_file_name(name),
    }
}

/// Returns whether only this user can have written a journal.
pub(super) fn is_ours(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & OTHERS_MAY_WRITE == 0
}

/// Returns the journal beside an image, if there is a complete one: the image may be half old and half new.
pub fn find(image: &Path) -> Option<PathBuf> {
    let is_device = std::fs::metadata(image).ok()?.file_type().is_block_device();
    let path = default_place(image, is_device);
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(&path).ok()?;
    let metadata = file.metadata().ok()?;
    (metadata.is_file() && is_ours(&metadata) && is_journal(&file).ok()?).then_some(path)
}

/// Returns the message for a user about such a journal.
pub fn hint(image: &Path, journal: &Path) -> String {
    let (image, journal) = (image.display(), journal.display());
    format!(
        "`kiln patch apply --in-place` has left a journal, {journal}: `kiln patch apply --in-place --complete {image}` completes \
         the new image, and --status shows its state"
    )
}
