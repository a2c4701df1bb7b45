//! Images that are being read, so that no program writes another image over them.
//!
//! A FUSE server holds a shared lock on a byte far after its image, by fcntl(2), of the open file.
//! A program that writes over an image takes the same lock exclusively. `kiln update`, whose
//! changes do not disturb readers, has another lock, flock(2), which readers do not take. The
//! kernel's own mounts take no lock; they are found in the mount table and among the loop devices.

use crate::MountError;
use crate::table::Mounted;
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Byte that is locked: no image has it.
const LOCKED_BYTE: libc::off_t = libc::off_t::MAX - 1;
/// Directory of all block devices.
const BLOCK_DEVICES: &str = "/sys/block";

/// Takes the lock of a reader for as long as the file is open.
///
/// # Errors
/// [`MountError::InUse`] if another image is being written over this one.
pub(crate) fn hold(path: &Path) -> Result<Option<File>, MountError> {
    // If the image cannot be opened, its reader reports the error.
    // Opening a FIFO would wait for a writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let Ok(file) = File::options().read(true).custom_flags(flags).open(path) else { return Ok(None) };
    match lock(&file, libc::F_RDLCK) {
        true => Ok(Some(file)),
        false => Err(in_use(path, "another image is being written over it (kiln patch apply --in-place)".to_owned())),
    }
}

/// Claims the image in `file`, which is open for reading and writing, before another one is written
/// over it. The claim lasts as long as the file is open. This does not open a block device with
/// `O_EXCL`, which fails if the device is mounted.
///
/// # Errors
/// [`MountError::InUse`] with the reader that uses it.
pub fn claim_unused(path: &Path, file: &File) -> Result<(), MountError> {
    if !lock(file, libc::F_WRLCK) {
        return Err(in_use(path, "a FUSE server has it mounted: unmount it first".to_owned()));
    }
    let metadata = file.metadata().map_err(|source| MountError::Source { path: path.to_owned(), source })?;
    if !metadata.is_file() {
        return Ok(());
    }
    let is_it = |path: &Path| {
        fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (metadata.dev(), metadata.ino()))
    };
    if let Some(device) = loop_devices().find(|device| is_it(&device.backing)) {
        let name = device.name.display();
        return Err(in_use(path, format!("/dev/{name} is a loop device of it: unmount and detach that first")));
    }
    // Without /proc, nothing is known of mounts.
    let mounts = Mounted::all().unwrap_or_default();
    match mounts.iter().find(|mounted| mounted.is_image() && is_it(Path::new(&mounted.source))) {
        Some(mounted) => Err(in_use(path, format!("it is mounted on {}: unmount it first", mounted.dir.display()))),
        None => Ok(()),
    }
}

fn in_use(path: &Path, by: String) -> MountError {
    MountError::InUse { path: path.to_owned(), by }
}

/// Tries to lock the byte. Returns false if another process has a conflicting lock, and true on a
/// filesystem without locks.
fn lock(file: &File, kind: libc::c_int) -> bool {
    let (l_type, l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    let lock = libc::flock { l_type, l_whence, l_start: LOCKED_BYTE, l_len: 1, l_pid: 0 };
    !matches!(fcntl(file, FcntlArg::F_OFD_SETLK(&lock)), Err(nix::Error::EAGAIN | nix::Error::EACCES))
}

struct Loop {
    name: PathBuf,
    backing: PathBuf,
}

/// Returns the loop devices that have a file.
fn loop_devices() -> impl Iterator<Item = Loop> {
    let entries = fs::read_dir(BLOCK_DEVICES).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let backing: io::Result<String> = fs::read_to_string(entry.path().join("loop/backing_file"));
        Some(Loop { name: entry.file_name().into(), backing: backing.ok()?.trim_end_matches('\n').into() })
    })
}
