//! Hidden names of files in the making, on file systems that have no nameless files: for a process
//! that is about to end without running destructors.

use parking_lot::Mutex;
use rustix::fs::AtFlags;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// The names, and their directories.
static UNFINISHED: Mutex<Vec<(OwnedFd, CString)>> = Mutex::new(Vec::new());

/// Remember the file `name` in `dir`, until [`forget`] is called with the same name.
pub(crate) fn note(dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let entry = (dir.try_clone()?, c_name(name));
    UNFINISHED.lock().push(entry);
    Ok(())
}

/// No longer remember the file `name`.
pub(crate) fn forget(name: &OsStr) {
    let name = c_name(name);
    UNFINISHED.lock().retain(|(_, other)| *other != name);
}

/// As system calls take names. Those made here have no zero byte.
fn c_name(name: &OsStr) -> CString {
    CString::new(name.as_bytes()).unwrap_or_default()
}

/// Remove all hidden files in the making of this process, which cannot be completed from then on.
/// It is for a process that is about to end without running destructors, such as one that has no
/// memory left: nothing is allocated, and nothing waited for.
pub fn remove_unfinished() {
    if let Some(unfinished) = UNFINISHED.try_lock() {
        for (dir, name) in &*unfinished {
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        }
    }
}
