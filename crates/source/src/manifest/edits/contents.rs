//! Contents of a tree with files added by definitions.

use kiln_read::{MemorySource, ReadAt};
use kiln_tree::{Content, ContentError, ContentId, Contents, PlainContents, Stored, StoredDigest, Stores, Version};
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::dir::contents::{Stamp, open_changed_beneath, open_stamped_beneath};
use crate::stored::{StoredContents, StoredFiles};

/// Files that definitions add, with contents in the file of definitions or on the host.
pub(in crate::manifest) struct AddedFiles {
    files: Vec<AddedFile>,
    stored: StoredContents,
    /// Root directory of the host, if any file is on the host.
    host: Option<OwnedFd>,
}

enum AddedFile {
    /// Content in the file of definitions; the id is that in `stored`.
    Stored(ContentId),
    /// File of the host. The path has no leading slash and no symbolic links.
    Host { path: Box<[u8]>, stamp: Stamp },
}

/// Builder of [`AddedFiles`].
#[derive(Default)]
pub(in crate::manifest) struct AddedFilesBuilder {
    files: Vec<AddedFile>,
    stored: StoredFiles,
}

impl AddedFilesBuilder {
    /// Adds a file whose contents are `range` of the file of definitions.
    pub(in crate::manifest) fn stored(&mut self, range: Range<u64>) -> ContentId {
        let stored = self.stored.whole(range);
        self.push(AddedFile::Stored(stored))
    }

    /// Adds a file of the host, see [`AddedFile::Host`].
    pub(in crate::manifest) fn host(&mut self, path: &[u8], stamp: Stamp) -> ContentId {
        self.push(AddedFile::Host { path: path.into(), stamp })
    }

    fn push(&mut self, file: AddedFile) -> ContentId {
        self.files.push(file);
        ContentId(self.files.len() as u32 - 1)
    }

    /// Finishes the list. `bytes` is the file of definitions; `host` is the root directory of the
    /// host, if any file is there.
    pub(in crate::manifest) fn finish(self, bytes: Option<Arc<dyn ReadAt>>, host: Option<OwnedFd>) -> AddedFiles {
        let bytes = bytes.unwrap_or_else(|| Arc::new(MemorySource::new(Vec::new())));
        AddedFiles { files: self.files, stored: Arc::new(self.stored).in_archive(bytes), host }
    }
}

impl AddedFiles {
    /// Creates an empty list.
    pub(in crate::manifest) fn none() -> Self {
        AddedFilesBuilder::default().finish(None, None)
    }
}

impl PlainContents for AddedFiles {
    fn open_plain(&self, id: ContentId, _: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        match (&self.files[id.0 as usize], &self.host) {
            (AddedFile::Stored(id), _) => self.stored.open(*id, b"", version),
            (AddedFile::Host { path, stamp }, Some(host)) => match version {
                Version::Changed => open_changed_beneath(host.as_fd(), path, *stamp),
                _ => open_stamped_beneath(host.as_fd(), path, *stamp),
            },
            (AddedFile::Host { .. }, None) => unreachable!("files of the host come with its root directory"),
        }
    }
}

/// Contents of a tree, followed by those of added files.
pub(super) struct EditedContents {
    pub base: Box<dyn Contents>,
    /// Id of the first added content.
    pub first_added: u32,
    pub added: Arc<AddedFiles>,
    /// Original paths of contents whose files got new names; the base only knows the original ones.
    pub moved: HashMap<u32, Box<[u8]>>,
}

impl EditedContents {
    fn base_path<'p>(&'p self, id: ContentId, path: &'p [u8]) -> &'p [u8] {
        self.moved.get(&id.0).map_or(path, |path| path)
    }
}

impl Contents for EditedContents {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        match id.0.checked_sub(self.first_added) {
            Some(added) => self.added.open(ContentId(added), path, version),
            None => self.base.open(id, self.base_path(id, path), version),
        }
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        match id.0.checked_sub(self.first_added) {
            Some(added) => self.added.stored(ContentId(added), len),
            None => self.base.stored(id, len),
        }
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        match id.0.checked_sub(self.first_added) {
            Some(added) => self.added.stored_digest(ContentId(added)),
            None => self.base.stored_digest(id),
        }
    }

    fn stores(&self) -> Stores {
        self.base.stores()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tree::conformance::{Echo, assert_forwards};

    #[test]
    fn contents_of_the_tree_are_those_of_its_source() {
        let moved = HashMap::from([(1, b"first/name"[..].into())]);
        let added = Arc::new(AddedFiles::none());
        let edited = EditedContents { base: Box::new(Echo), first_added: 2, added, moved };
        assert_forwards(&edited, (ContentId(0), "name"), (ContentId(0), "name"), &[]);
        assert_forwards(&edited, (ContentId(1), "name"), (ContentId(1), "first/name"), &[]);
    }
}
