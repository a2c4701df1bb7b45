//! Contents of an archive that were taken as they came, and are gone.

use kiln_tree::{Content, ContentError, ContentId, PlainContents, Version};
use std::collections::HashMap;
use std::io;

use crate::in_memory::InMemory;

/// Maximum length in bytes of contents that are kept.
const KEPT_MAX_LEN: u64 = 1 << 20;
/// Maximum number of contents that are kept.
const KEPT_MAX_COUNT: usize = 16;
/// Names of files whose contents are kept, since they are read when the tree is complete: the names
/// in ACLs are looked up in the first two, and the last one may list images of containers.
const KEPT_NAMES: [&[u8]; 3] = [b"passwd", b"group", b"manifest.json"];

/// Contents that were taken. Only short lists can be opened.
#[derive(Default)]
pub(crate) struct PassedContents {
    kept: HashMap<ContentId, Vec<u8>>,
}

impl PassedContents {
    /// Returns true if the contents of a file at `path`, of `len` bytes, are to be kept.
    pub(crate) fn keeps(&self, path: &[u8], len: u64) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        KEPT_NAMES.contains(&name) && len <= KEPT_MAX_LEN && self.kept.len() < KEPT_MAX_COUNT
    }

    /// Keeps contents.
    pub(crate) fn keep(&mut self, id: ContentId, bytes: Vec<u8>) {
        self.kept.insert(id, bytes);
    }
}

impl PlainContents for PassedContents {
    fn open_plain(&self, id: ContentId, _: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        match self.kept.get(&id) {
            Some(bytes) => Ok(Box::new(InMemory(bytes.clone()))),
            None => Err(io::Error::other("it was read from a stream, which cannot be read again").into()),
        }
    }
}
