//! Contents of files that definitions add.

use kiln_read::{MemorySource, ReadAt};
use kiln_tree::{Content, ContentError, ContentId, Contents, PlainContents, Version};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::dir::contents::{Stamp, open_changed_beneath, open_stamped_beneath};
use crate::stored::{StoredContents, StoredFiles};

/// Files that definitions add, with contents in the file of definitions or on the host.
pub(super) struct AddedFiles {
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
pub(super) struct AddedFilesBuilder {
    files: Vec<AddedFile>,
    stored: StoredFiles,
}

impl AddedFilesBuilder {
    /// Adds a file whose contents are `range` of the file of definitions.
    pub(super) fn stored(&mut self, range: Range<u64>) -> ContentId {
        let stored = self.stored.whole(range);
        self.push(AddedFile::Stored(stored))
    }

    /// Adds a file of the host, see [`AddedFile::Host`].
    pub(super) fn host(&mut self, path: &[u8], stamp: Stamp) -> ContentId {
        self.push(AddedFile::Host { path: path.into(), stamp })
    }

    fn push(&mut self, file: AddedFile) -> ContentId {
        self.files.push(file);
        ContentId(self.files.len() as u32 - 1)
    }

    /// Finishes the list. `bytes` is the file of definitions; `host` is the root directory of the
    /// host, if any file is there.
    pub(super) fn finish(self, bytes: Option<Arc<dyn ReadAt>>, host: Option<OwnedFd>) -> AddedFiles {
        let bytes = bytes.unwrap_or_else(|| Arc::new(MemorySource::new(Vec::new())));
        AddedFiles { files: self.files, stored: Arc::new(self.stored).in_archive(bytes), host }
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
