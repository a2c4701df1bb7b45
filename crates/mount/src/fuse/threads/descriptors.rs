//! Threads of a server that use its own mount.
//!
//! If the server is killed while such a thread waits for the server's own answer, only the end of the connection ends
//! that wait, and the connection ends when no process has it open. So these threads have a table of descriptors of
//! their own, without the connection.
#![allow(unsafe_code)]

use rustix::fd::IntoRawFd;
use std::fs::File;
use std::io;

/// Target of the thread's standard descriptors.
const NOWHERE: &str = "/dev/null";

/// Gives this thread an empty table of descriptors (Linux 5.9), except the standard ones, which
/// lead to /dev/null: other processes may wait for the end of the files behind the server's
/// standard descriptors.
pub(in crate::fuse) fn leave_descriptors() -> io::Result<()> {
    // SAFETY: no other thread sees the table that is emptied, and this thread was given no
    // descriptor.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
    if closed != 0 {
        return Err(io::Error::last_os_error());
    }
    for _ in 0..3 {
        let standard = File::options().read(true).write(true).open(NOWHERE)?;
        let _ = standard.into_raw_fd();
    }
    Ok(())
}
