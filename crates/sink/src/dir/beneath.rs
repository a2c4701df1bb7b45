//! Opening of files in the target without ever leaving it.
//!
//! Paths come from an untrusted image, and other programs may change the target during extraction.
//! So `openat2` opens a directory relative to the target's descriptor, without following symlinks
//! and without going up; if the kernel or a sandbox rejects that call, the directory is opened
//! component by component with `O_NOFOLLOW`. Files are then created by their bare name in that
//! directory.

use crate::selection::components;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Longest path in bytes that the kernel accepts, without the terminating zero.
const PATH_MAX_LEN: usize = 4095;

/// Opens the directory at `path` below `root` with `flags`, for example `O_PATH`; the empty path is
/// `root` itself.
pub(super) fn open_dir(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    open_by(root, path, flags, |dir, path, flags| match open_one(dir, path, flags) {
        Err(Errno::NOSYS | Errno::PERM) => open_by_components(dir, path, flags),
        opened => opened,
    })
}

fn open_one(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(dir, path, flags, Mode::empty(), resolve)
}

/// Does the same as [`open_one`] on kernels before 5.6.
fn open_by_components(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let mut at = openat(dir, ".", step_flags(), Mode::empty())?;
    let mut names = components(path).peekable();
    while let Some(name) = names.next() {
        if name == b".." {
            return Err(Errno::XDEV); // as openat2 answers
        }
        let flags = if names.peek().is_some() { step_flags() } else { flags };
        at = openat(at, name, flags, Mode::empty())?;
    }
    Ok(at)
}

/// Opens a path of any length: splits one that the kernel would reject, and opens each piece
/// relative to the one before.
fn open_by(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    open: impl Fn(BorrowedFd<'_>, &[u8], OFlags) -> Result<OwnedFd>,
) -> Result<OwnedFd> {
    let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut rest = path;
    let mut at: Option<OwnedFd> = None;
    while rest.len() > PATH_MAX_LEN {
        let cut = rest[..=PATH_MAX_LEN].iter().rposition(|&b| b == b'/').ok_or(Errno::NAMETOOLONG)?;
        at = Some(open(at.as_ref().map_or(root, |fd| fd.as_fd()), &rest[..cut], step_flags())?);
        rest = &rest[cut + 1..];
    }
    let rest = if rest.is_empty() { b"." } else { rest };
    open(at.as_ref().map_or(root, |fd| fd.as_fd()), rest, flags)
}

fn step_flags() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tests::temp::TempDir;
    use std::fs;
    use std::os::unix::fs::symlink;

    type Open = fn(BorrowedFd<'_>, &[u8], OFlags) -> Result<OwnedFd>;

    /// Both ways of opening agree on every path.
    #[test]
    fn nothing_leads_out() {
        let scratch = TempDir::new("beneath").unwrap();
        fs::create_dir_all(scratch.join("target/a/b")).unwrap();
        symlink("../outside", scratch.join("target/link")).unwrap();
        symlink("a", scratch.join("target/inner")).unwrap();
        fs::create_dir(scratch.join("outside")).unwrap();
        fs::write(scratch.join("target/file"), "").unwrap();
        let root = fs::File::open(scratch.join("target")).unwrap();
        for open in [open_one as Open, open_by_components] {
            let open = |path: &str| open_by(root.as_fd(), path.as_bytes(), OFlags::PATH, open).is_ok();
            for path in ["", "a", "a/b"] {
                assert!(open(path), "{path}");
            }
            for path in ["link", "link/x", "inner", "inner/b", "..", "a/../..", "/etc", "file", "missing"] {
                // By components, "/etc" is "etc" below the target, which does not exist either.
                assert!(!open(path), "{path}");
            }
        }
    }

    #[test]
    fn long_paths_are_opened_in_pieces() {
        let scratch = TempDir::new("beneath").unwrap();
        let root = fs::File::open(scratch.path()).unwrap();
        let name = "n".repeat(200);
        let mut path = Vec::new();
        for _ in 0..50 {
            let parent = open_dir(root.as_fd(), &path, OFlags::PATH).unwrap();
            rustix::fs::mkdirat(&parent, &*name, Mode::RWXU).unwrap();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
        }
        assert!(path.len() > 2 * PATH_MAX_LEN);
        assert!(open_dir(root.as_fd(), &path, OFlags::RDONLY).is_ok());
        assert!(open_by(root.as_fd(), &path, OFlags::RDONLY, open_by_components).is_ok());
    }
}
