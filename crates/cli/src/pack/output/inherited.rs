//! Descriptors that were open when this program started.
#![allow(unsafe_code)] // the only way to a descriptor by its number

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// A copy of descriptor `number`, which shares its place in a file with it.
///
/// # Errors
/// `EBADF` if it is not open; no more descriptors.
pub fn duplicate(number: RawFd) -> io::Result<File> {
    if number < 0 {
        return Err(rustix::io::Errno::BADF.into());
    }
    // SAFETY: the borrow ends with this statement, and the one system call in it answers EBADF for what is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()?;
    Ok(File::from(fd))
}
