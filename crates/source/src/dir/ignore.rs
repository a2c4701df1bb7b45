//! Ignore files in a directory of the host.

use kiln_tree::filter::{IGNORE_FILE_MAX_LEN, IgnoreFileProblem};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;

/// Reads the ignore file `name` in the directory `dir`. Returns `None` if there is none.
///
/// # Errors
/// I/O errors; a file that is not regular, or too long.
pub(super) fn read_beneath(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    // O_NONBLOCK: a pipe must not block; it is refused below.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NXIO) => return Err(IgnoreFileProblem::NotRegular.into()),
        Err(error) => return Err(error.into()),
    };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(IgnoreFileProblem::NotRegular.into());
    }
    let mut text = Vec::new();
    if file.take(IGNORE_FILE_MAX_LEN + 1).read_to_end(&mut text)? as u64 > IGNORE_FILE_MAX_LEN {
        return Err(IgnoreFileProblem::TooLong.into());
    }
    Ok(Some(text))
}
