//! Hidden names of unfinished files on file systems without nameless files: for a process that is about to end
//! without running destructors.

use parking_lot::Mutex;
use rustix::fs::AtFlags;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// The names, and their directories.
static UNFINISHED: Mutex<Vec<(OwnedFd, CString)>> = Mutex::new(Vec::new());

/// Records the file `name` in `dir`, until [`forget`] is called with the same name.
pub(crate) fn note(dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let entry = (dir.try_clone()?, c_name(name));
    UNFINISHED.lock().push(entry);
    Ok(())
}

/// Forgets the file `name`.
pub(crate) fn forget(name: &OsStr) {
    let name = c_name(name);
    UNFINISHED.lock().retain(|(_, other)| *other != name);
}

/// Converts a name for system calls. Names made here have no zero byte.
fn c_name(name: &OsStr) -> CString {
    CString::new(name.as_bytes()).unwrap_or_default()
}

/// Removes all hidden unfinished files of this process, which can no longer be completed. It is for a process that
/// is about to end without running destructors, such as one that has run out of memory: it neither allocates nor
/// waits.
pub fn remove_unfinished() {
    if let Some(unfinished) = UNFINISHED.try_lock() {
        for (dir, name) in &*unfinished {
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        }
    }
}
