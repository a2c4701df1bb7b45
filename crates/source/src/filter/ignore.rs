//! Ignore files within the tree.

use kiln_tree::{Kind, NodeId, Tree};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::rules::{Rules, Verdict};

/// Maximum length in bytes of an ignore file.
const FILE_MAX_LEN: u64 = 1 << 20;

/// Rules of one ignore file.
#[derive(Debug)]
struct Layer {
    /// Length of the path of its directory including the trailing slash; 0 at the root.
    base_len: usize,
    rules: Rules,
}

/// Rules of all ignore files from the root to a directory. A list instead of a chain of references,
/// since a tree may be deeper than the stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers(Arc<[Arc<Layer>]>);

impl Layers {
    /// Returns the verdict of [`Rules::verdict`] for the nearest file with a matching rule; `path`
    /// is relative to the root.
    pub(super) fn verdict(&self, path: &[u8], is_dir: &dyn Fn() -> io::Result<bool>) -> io::Result<Option<Verdict>> {
        for layer in self.0.iter().rev() {
            if let Some(verdict) = layer.rules.verdict(&path[layer.base_len..], is_dir)? {
                return Ok(Some(verdict));
            }
        }
        Ok(None)
    }
}

/// Returns `outer` extended by the ignore files with these names in the directory at `path`. `read`
/// returns their text, or `None` if there is no such file.
///
/// # Errors
/// Ignore files that cannot be read, are not regular files, or have an invalid rule. Without their
/// rules the image might contain secrets.
pub(crate) fn read_layers(
    names: &[CString],
    path: &[u8],
    outer: &Layers,
    read: &dyn Fn(&CStr) -> io::Result<Option<Vec<u8>>>,
) -> io::Result<Layers> {
    let mut found = Vec::new();
    for name in names {
        let shown = name.to_string_lossy();
        let text = read(name).map_err(|error| io::Error::new(error.kind(), format!("{shown}: {error}")))?;
        if let Some(text) = text {
            let rules = Rules::parse(&text, &shown).map_err(io::Error::other)?;
            let base_len = if path.is_empty() { 0 } else { path.len() + 1 };
            found.push(Arc::new(Layer { base_len, rules }));
        }
    }
    if found.is_empty() {
        return Ok(outer.clone());
    }
    Ok(Layers(outer.0.iter().cloned().chain(found).collect()))
}

/// Reads the ignore file `name` in the directory `dir`. Returns `None` if there is none.
pub(crate) fn read_beneath(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    // O_NONBLOCK: a pipe must not block; it is refused below.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NXIO) => return Err(not_regular()),
        Err(error) => return Err(error.into()),
    };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(not_regular());
    }
    let mut text = Vec::new();
    if file.take(FILE_MAX_LEN + 1).read_to_end(&mut text)? as u64 > FILE_MAX_LEN {
        return Err(too_long());
    }
    Ok(Some(text))
}

/// Reads the ignore file `name` in the directory `dir` of `tree`. Returns `None` if there is none.
pub(super) fn read_in(tree: &Tree, dir: NodeId, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let Some(node) = tree.entries(dir).find(name.to_bytes()) else { return Ok(None) };
    let Kind::File { len, .. } = tree.node(node).kind else { return Err(not_regular()) };
    if len > FILE_MAX_LEN {
        return Err(too_long());
    }
    let mut text = vec![0; len as usize];
    let mut content = tree.open(node).map_err(io::Error::other)?;
    content.read_exact_at(&mut text, 0).map_err(io::Error::other)?;
    Ok(Some(text))
}

fn not_regular() -> io::Error {
    io::Error::other("an ignore file must be a regular file")
}

fn too_long() -> io::Error {
    io::Error::other("an ignore file must not be longer than 1 MiB")
}
