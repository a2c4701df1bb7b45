//! Copies of this process.
#![allow(unsafe_code)]

use rustix::process::Pid;
use std::io;

/// One side of a fork.
pub enum Side {
    /// The new process.
    Child,
    /// The process that has made it.
    Parent(Pid),
}

/// Copies this process.
///
/// # Errors
/// No room for a process; a process that has threads, as only one of them would be copied.
pub fn fork() -> io::Result<Side> {
    if thread_count()? != 1 {
        return Err(io::Error::other("this process has several threads"));
    }
    // SAFETY: there is one thread, so the copy can do all that this process can.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => Ok(Side::Parent(Pid::from_raw(pid).expect("fork returns process ids above 0"))),
    }
}

fn thread_count() -> io::Result<usize> {
    match std::fs::read_dir("/proc/self/task") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::other("/proc is not mounted")),
        tasks => Ok(tasks?.count()),
    }
}
