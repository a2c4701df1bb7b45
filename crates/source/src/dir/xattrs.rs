//! Reader of an entry's extended attributes. It does not open the entry, which devices, pipes or
//! permissions may forbid.
//!
//! Nearly all files have no attributes, so listing dominates the time. listxattrat(2) of Linux 6.13
//! takes a directory and a name. On older kernels a path through /proc names the directory by its
//! descriptor, which takes three times as long to resolve.
#![allow(unsafe_code)]

use kiln_tree::{ThinSlice, Xattr};
use rustix::fs::{AtFlags, lgetxattr, llistxattr};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Buffer size in bytes that suffices for the names of nearly all files.
const USUAL_LEN: usize = 256;
/// Maximum length in bytes of a list and of a value in Linux.
const MAX_LEN: usize = 64 << 10;
/// Number of listxattrat(2), the same on all architectures except Alpha and MIPS; the libc crate
/// does not define it yet.
const SYS_LISTXATTRAT: libc::c_long = 465;
/// True if the kernel has listxattrat(2) and no sandbox refuses it.
static HAS_LISTXATTRAT: AtomicBool =
    AtomicBool::new(cfg!(all(target_os = "linux", not(any(target_arch = "mips", target_arch = "mips64")))));

/// Reads the extended attributes of `name` in `dir`, in the order of the filesystem; an empty name
/// is the directory itself.
pub(super) fn read(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<ThinSlice<Xattr>> {
    let listed = match HAS_LISTXATTRAT.load(Ordering::Relaxed) {
        true => with_room(|buf| list_at(dir, name, buf)),
        false => Err(Errno::NOSYS),
    };
    let names = match listed {
        Err(Errno::NOSYS | Errno::PERM) => {
            HAS_LISTXATTRAT.store(false, Ordering::Relaxed);
            let path = proc_path(dir, name);
            with_room(|buf| llistxattr(&path, buf))
        }
        listed => listed,
    };
    let names = match names {
        Ok(names) if names.is_empty() => return Ok(ThinSlice::default()),
        Ok(names) => names,
        Err(Errno::OPNOTSUPP | Errno::NODATA) => return Ok(ThinSlice::default()),
        Err(error) => return Err(named(error, "cannot list its extended attributes")),
    };
    let path = proc_path(dir, name);
    let mut xattrs = Vec::new();
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        match with_room(|buf| lgetxattr(&path, name, buf)) {
            Ok(value) => xattrs.push(Xattr { name: name.into(), value: value.into() }),
            // The attribute was removed after the list was read.
            Err(Errno::NODATA) => {}
            Err(error) => {
                let name = String::from_utf8_lossy(name);
                return Err(named(error, &format!("cannot read its extended attribute {name}")));
            }
        }
    }
    Ok(xattrs.into())
}

fn proc_path(dir: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
    [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), name.to_bytes()].concat()
}

/// Calls listxattrat(2). The names in `buf` are each followed by a zero byte; returns their total
/// length in bytes.
fn list_at(dir: BorrowedFd<'_>, name: &CStr, buf: &mut [u8]) -> Result<usize, Errno> {
    let flags = (AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH).bits();
    // SAFETY: the kernel reads `name` up to its zero, and writes at most `buf.len()` bytes to
    // `buf`; both outlive the call.
    let len =
        unsafe { libc::syscall(SYS_LISTXATTRAT, dir.as_raw_fd(), name.as_ptr(), flags, buf.as_mut_ptr(), buf.len()) };
    usize::try_from(len).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Calls `call` with a growing buffer until the result fits.
fn with_room(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut usual = [0; USUAL_LEN];
    match call(&mut usual) {
        Ok(len) => return Ok(usual[..len].to_vec()),
        Err(Errno::RANGE) => {}
        Err(error) => return Err(error),
    }
    let mut buf = vec![0; USUAL_LEN * 4];
    loop {
        match call(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            Err(Errno::RANGE) if buf.len() <= MAX_LEN => buf.resize(buf.len() * 4, 0),
            Err(error) => return Err(error),
        }
    }
}

fn named(error: Errno, what: &str) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, XattrFlags, openat, setxattr};
    use std::fs;
    use std::os::fd::AsFd;

    #[test]
    fn both_ways_find_the_same() {
        let place = std::env::temp_dir().join(format!("kiln-xattrs-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        fs::write(place.join("one"), b"").unwrap();
        fs::write(place.join("none"), b"").unwrap();
        std::os::unix::fs::symlink("one", place.join("link")).unwrap();
        for number in 0..20 {
            let value = vec![b'x'; number * number];
            setxattr(place.join("one"), format!("user.attribute-{number}"), &value, XattrFlags::empty()).unwrap();
        }
        setxattr(&place, "user.of-the-directory", b"yes", XattrFlags::empty()).unwrap();
        let dir = openat(CWD, &place, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let all = || [c"one", c"none", c"link", c""].map(|name| read(dir.as_fd(), name).unwrap().to_vec());
        let found = all();
        assert_eq!(found.each_ref().map(Vec::len), [20, 0, 0, 1]);
        HAS_LISTXATTRAT.store(false, Ordering::Relaxed);
        assert!(found == all());
        fs::remove_dir_all(&place).unwrap();
    }
}
