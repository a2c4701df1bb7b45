//! Unfinished files that a later run can find, under hidden names derived from their final ones.

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Returns the hidden name of an unfinished file.
pub(crate) fn name_of(name: &OsStr) -> OsString {
    let mut kept = OsString::from(".");
    // Names have at most 255 bytes; the front of a long one is enough.
    kept.push(OsStr::from_bytes(&name.as_bytes()[..name.len().min(230)]));
    kept.push(".kiln-unfinished");
    kept
}

/// Opens or creates the file `name`, for this process alone.
pub(crate) fn open(dir: &OwnedFd, name: &OsStr, mode: Mode) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    loop {
        let file = File::from(rustix::fs::openat(dir, name, flags, mode)?);
        let stat = rustix::fs::fstat(&file)?;
        let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile;
        if !is_file || stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_nlink > 1 {
            let what = format!("{} is no file of this user alone: remove it", name.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process is making it"));
            }
            // On a file system without locks nothing shows if another process is writing the file.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::INVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Another process may have completed or removed it in between.
        match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino) => return Ok(file),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
