//! `kiln apply --in-place`

use super::applying::{Applying, file_failure, said};
use super::room;
use crate::console::report::note;
use crate::exit::Failure;
use kiln_builder::{Control, Output, Progress};
use kiln_delta::in_place::{self, InPlace, Resize, Target};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the journal of a block device lies by default: not lost when the system starts again.
const DEVICE_JOURNAL_DIR: &str = "/var/tmp";
/// Permission of the group and of all others to write.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Apply a patch over OLD.
pub(super) fn run(applying: Applying<'_>, journal: Option<&Path>) -> Result<(), Failure> {
    let meter = applying.meter();
    let Applying { patch, old, quiet, signals, of_patch, .. } = applying;
    let (target, is_device) = open_target(old)?;
    let path = journal.map_or_else(|| journal_path(old, is_device), Path::to_owned);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // A link that someone else has put there is not followed.
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    let journal = options.open(&path).map_err(file_failure(&path, "open"))?;
    check_journal(&path, &journal.metadata().map_err(file_failure(&path, "look at"))?)?;
    sync_dir_of(&path)?;
    let (new_len, changed_len) = (patch.header().new_len, patch.header().changed_len);
    let result = match is_empty(&journal) {
        true => check_room(&path, &journal, &target, changed_len, new_len),
        false => Ok(()),
    };
    let result = result.and_then(|()| {
        let progress = |Progress { done_bytes, total_bytes }: Progress| meter.set(done_bytes, total_bytes);
        let control = Control { stop: signals.stop(), progress: &progress };
        in_place::apply(patch, &target, &journal, &control).map_err(of_patch)
    });
    drop(meter);
    let is_complete = result.is_ok();
    // Where nothing was begun, nothing has to be resumed.
    if is_complete || is_empty(&journal) {
        std::fs::remove_file(&path).map_err(file_failure(&path, "remove"))?;
        sync_dir_of(&path)?;
    }
    let done = result?;
    if !quiet {
        match done {
            InPlace::Applied(applied) => note(format_args!("{}", said(&applied))),
            InPlace::Resumed => note(format_args!("{}: completed from {}", old.display(), path.display())),
            InPlace::WasThere => note(format_args!("{}: is the new image already", old.display())),
        }
    }
    Ok(())
}

/// Refuse to begin where the journal cannot fit, or a file cannot become as long as NEW.
fn check_room(
    path: &Path,
    journal: &File,
    target: &Target<File>,
    changed_len: u64,
    new_len: u64,
) -> Result<(), Failure> {
    let grows = match target.resize {
        Resize::ToImage => new_len.saturating_sub(target.len),
        Resize::Never => 0,
    };
    // Both on one filesystem need room at the same time.
    let is_one = |metadata: [std::io::Result<Metadata>; 2]| match metadata {
        [Ok(a), Ok(b)] => a.dev() == b.dev(),
        _ => false,
    };
    let shared = if is_one([journal.metadata(), target.device.metadata()]) { grows } else { 0 };
    room::check(path, journal, changed_len.saturating_add(shared))
}

/// Refuse a journal that somebody else may have written: what it holds would be written to the device.
fn check_journal(path: &Path, metadata: &Metadata) -> Result<(), Failure> {
    let refuse = |what: &str| Err(Failure::Usage(format!("{}: {what}", path.display())));
    if !metadata.is_file() {
        return refuse("a journal is a regular file");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & OTHERS_MAY_WRITE != 0 {
        return refuse("another user could have written this journal: remove it, or name another one with --journal");
    }
    Ok(())
}

/// Whether a journal has no head: then the old image is as it was.
fn is_empty(journal: &File) -> bool {
    let mut head = [0; 8];
    !matches!(Output::read_at(journal, &mut head, 0), Ok(8) if head != [0; 8])
}

/// Make the name of a new file durable.
fn sync_dir_of(path: &Path) -> Result<(), Failure> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(file_failure(dir, "sync"))
}

/// The file or device at `path`, and whether it is a device. A device is opened for itself alone: one that is mounted is refused.
fn open_target(path: &Path) -> Result<(Target<File>, bool), Failure> {
    let failed = |action| file_failure(path, action);
    let is_device = std::fs::metadata(path).map_err(failed("look at"))?.file_type().is_block_device();
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if is_device {
        options.custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    }
    let mut device = options.open(path).map_err(failed("open for writing"))?;
    let metadata = device.metadata().map_err(failed("look at"))?;
    if !is_device && !metadata.is_file() {
        return Err(Failure::Usage(format!("{}: neither a file nor a block device", path.display())));
    }
    let len = device.seek(SeekFrom::End(0)).map_err(failed("find the end of"))?;
    let resize = if is_device { Resize::Never } else { Resize::ToImage };
    Ok((Target { device: Arc::new(device), len, resize }, is_device))
}

/// Where the journal lies by default.
fn journal_path(old: &Path, is_device: bool) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(old.file_name().unwrap_or_default());
    name.push(".kiln-journal");
    match is_device {
        true => Path::new(DEVICE_JOURNAL_DIR).join(name),
        false => old.with_file_name(name),
    }
}
