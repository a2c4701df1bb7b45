//! Contents of a draft, except its spool.

use kiln_tree::{Content, ContentError, ContentId, Contents, PlainContents, Stored, StoredDigest, Stores, Version};
use rustix::fs::{Mode, OFlags, open};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::dir::contents::{Stamp, open_beneath, open_changed_beneath, open_stamped_beneath};
use crate::dir::entry::{Entry, look};
use crate::merge::contents::MergedContents;

/// A file of the host.
pub(super) struct HostEntry {
    /// Path without symbolic links and leading slash, which later changes of links do not affect.
    pub(super) path: Box<[u8]>,
    pub(super) entry: Entry,
}

/// Reads the file that `path` leads to.
///
/// # Errors
/// I/O errors.
pub(super) fn look_at(path: &Path) -> io::Result<HostEntry> {
    let real = fs::canonicalize(path)?;
    let real = real.as_os_str().as_bytes().strip_prefix(b"/").ok_or(io::ErrorKind::InvalidInput)?;
    let (dir, name) = match real.iter().rposition(|&b| b == b'/') {
        Some(at) => (&real[..at], &real[at + 1..]),
        None => (&b""[..], real),
    };
    let dir = open_beneath(open_root()?.as_fd(), dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
    Ok(HostEntry { entry: look(dir.as_fd(), &CString::new(name)?)?.whole()?, path: real.into() })
}

fn open_root() -> io::Result<OwnedFd> {
    Ok(open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Consecutively added regular files of the host.
#[derive(Default)]
pub(super) struct HostFiles {
    /// Root directory of the host, opened once for all files of a draft.
    root: Option<Arc<OwnedFd>>,
    files: Vec<(Box<[u8]>, Stamp)>,
}

impl HostFiles {
    /// Adds a file with this stamp, whose path is that of a [`HostEntry`].
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn add(&mut self, path: Box<[u8]>, stamp: Stamp) -> io::Result<()> {
        if self.root.is_none() {
            self.root = Some(Arc::new(open_root()?));
        }
        self.files.push((path, stamp));
        Ok(())
    }

    /// Takes the files added since the last call: their number and contents.
    pub(super) fn take(&mut self) -> (u32, Box<dyn Contents>) {
        let files = Self { root: self.root.clone(), files: std::mem::take(&mut self.files) };
        (files.files.len() as u32, Box::new(files))
    }

    fn file(&self, id: ContentId) -> io::Result<(&OwnedFd, &[u8], Stamp)> {
        let (path, stamp) = &self.files[id.0 as usize];
        // The root is opened before the first file is added.
        let root = self.root.as_deref().ok_or(io::ErrorKind::NotFound)?;
        Ok((root, path, *stamp))
    }
}

impl PlainContents for HostFiles {
    fn open_plain(&self, id: ContentId, _: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        let (root, path, stamp) = self.file(id)?;
        match version {
            Version::Changed => open_changed_beneath(root.as_fd(), path, stamp),
            _ => open_stamped_beneath(root.as_fd(), path, stamp),
        }
    }
}

/// Contents of a draft.
pub(super) struct DraftContents {
    pub(super) base: MergedContents,
    /// Original paths of contents whose files got new names; the base only knows the original ones.
    pub(super) moved: HashMap<u32, Box<[u8]>>,
}

impl DraftContents {
    fn path<'p>(&'p self, id: ContentId, path: &'p [u8]) -> &'p [u8] {
        self.moved.get(&id.0).map_or(path, |path| path)
    }
}

impl Contents for DraftContents {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        self.base.open(id, self.path(id, path), version)
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        self.base.stored(id, len)
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        self.base.stored_digest(id)
    }

    fn stores(&self) -> Stores {
        self.base.stores()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tree::conformance::{Echo, assert_forwards};
    use kiln_tree::{Kind, Metadata, Node, ThinSlice, Tree};

    #[test]
    fn contents_of_a_draft_are_those_of_its_sources() {
        let mut base = MergedContents::default();
        base.take(5).unwrap();
        base.add_last(5, Box::new(HostFiles::default()));
        let root =
            Node { meta: Metadata::default(), xattrs: ThinSlice::default(), kind: Kind::Directory(Box::default()) };
        let first = base.take(2).unwrap();
        base.add(first, Tree::new(vec![root], Box::new(Echo)).unwrap(), b"at/dir");
        let draft = DraftContents { base, moved: HashMap::from([(6, b"at/dir/first"[..].into())]) };
        // Files of the host have no digests, and if an image refers to data, all parts must have
        // digests.
        let own = ["stores digest_name"];
        assert_forwards(&draft.base, (ContentId(5), "at/dir/name"), (ContentId(0), "name"), &own);
        assert_forwards(&draft, (ContentId(5), "at/dir/name"), (ContentId(0), "name"), &own);
        assert_forwards(&draft, (ContentId(6), "name"), (ContentId(1), "first"), &own);
    }
}
