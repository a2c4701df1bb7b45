//! Contents of a tree with files added by definitions.

use crate::{Content, ContentError, ContentId, Contents, Stored, StoredDigest, Stores, Version};
use std::collections::HashMap;
use std::sync::Arc;

/// Contents of a tree, followed by those of added files.
pub(super) struct EditedContents {
    pub base: Box<dyn Contents>,
    /// Id of the first added content.
    pub first_added: u32,
    pub added: Arc<dyn Contents>,
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
    use crate::NoContents;
    use crate::conformance::{Echo, assert_forwards};

    #[test]
    fn contents_of_the_tree_are_those_of_its_source() {
        let moved = HashMap::from([(1, b"first/name"[..].into())]);
        let added = Arc::new(NoContents);
        let edited = EditedContents { base: Box::new(Echo), first_added: 2, added, moved };
        assert_forwards(&edited, (ContentId(0), "name"), (ContentId(0), "name"), &[]);
        assert_forwards(&edited, (ContentId(1), "name"), (ContentId(1), "first/name"), &[]);
    }
}
