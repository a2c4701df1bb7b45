//! Builder of a tree from whole trees and single files.

use std::collections::HashMap;

use super::contents::MergedContents;
use super::lost_links::LostLinks;
use super::overlay::{Overlay, Whiteouts};
use crate::path::normal;
use crate::{
    Builder, Content, ContentError, ContentId, Contents, Kind, Node, Stored, StoredDigest, Stores, Tree, TreeError,
    TreeProblem, Version, content_count,
};

/// A tree under construction, to which whole trees are added with their contents, and single files.
///
/// Later additions are merged over earlier ones: a directory over a directory is merged with it,
/// and gets owner, permissions, times and attributes of the later one. Anything else replaces the
/// earlier file. A directory that is only implied by paths does not change an existing directory.
pub struct MergeBuilder {
    builder: Builder,
    whiteouts: Whiteouts,
    contents: MergedContents,
    /// Original paths of contents whose files got new names, by the number of the contents.
    moved: HashMap<u32, Box<[u8]>>,
}

impl MergeBuilder {
    /// Starts with the entries of `builder`, which have no contents.
    pub fn new(builder: Builder, whiteouts: Whiteouts) -> Self {
        Self { builder, whiteouts, contents: MergedContents::default(), moved: HashMap::new() }
    }

    /// Returns the entries.
    pub fn entries_mut(&mut self) -> &mut Builder {
        &mut self.builder
    }

    /// Merges `tree` over the tree at `at`. Returns the symbolic links that it replaces by
    /// directories.
    ///
    /// # Errors
    /// An invalid path, or one that leads through a file; more files than a tree can have.
    pub fn put(&mut self, tree: Tree, at: &[u8]) -> Result<LostLinks, TreeError> {
        let at = normal(at);
        let first_content = self.contents.take(content_count(&tree))?;
        let mut overlay = Overlay { builder: &mut self.builder, whiteouts: self.whiteouts, first_content };
        let lost = overlay.put(&tree, &at);
        // Entries that were added before an error refer to the contents.
        self.contents.add(first_content, tree, &at);
        lost
    }

    /// Adds a file at `path`. The content of a regular file is a result of
    /// [`MergeBuilder::next_content`].
    ///
    /// # Errors
    /// An invalid path.
    pub fn insert(&mut self, path: &[u8], node: Node) -> Result<(), TreeError> {
        self.builder.insert(path, node).map(drop)
    }

    /// Adds another name for the file at `existing`, which must not be a directory.
    ///
    /// # Errors
    /// A missing file, or a directory; an invalid path.
    pub fn link(&mut self, path: &[u8], existing: &[u8]) -> Result<(), TreeError> {
        let dangling = || TreeProblem::DanglingLink(existing.to_owned()).at(path);
        let id = self.builder.find(existing)?.ok_or_else(dangling)?;
        self.builder.hard_link(path, existing)?;
        if let Kind::File { content, .. } = self.builder.nodes()[id.idx()].kind {
            // A source that opens files by path only knows this one by its original path.
            self.moved.entry(content.0).or_insert_with(|| normal(existing).into());
        }
        Ok(())
    }

    /// Reserves the id of a content. [`MergeBuilder::add_contents`] adds the contents of all ids
    /// that were reserved since it was called last.
    ///
    /// # Errors
    /// More files than a tree can have.
    pub fn next_content(&mut self) -> Result<ContentId, TreeError> {
        self.contents.take(1).map(ContentId)
    }

    /// Adds the contents for the `count` ids that were reserved last, if any. They must be on no
    /// device, and are not opened by path.
    pub fn add_contents(&mut self, count: u32, contents: Box<dyn Contents>) {
        self.contents.add_last(count, contents);
    }

    /// Returns the tree.
    ///
    /// # Errors
    /// An invalid tree.
    pub fn finish(self) -> Result<Tree, TreeError> {
        self.builder.finish(Box::new(RenamedContents { base: self.contents, moved: self.moved }))
    }
}

/// Contents of a tree whose files got new names.
struct RenamedContents {
    base: MergedContents,
    /// Original paths of contents whose files got new names; the base only knows the original ones.
    moved: HashMap<u32, Box<[u8]>>,
}

impl RenamedContents {
    fn path<'p>(&'p self, id: ContentId, path: &'p [u8]) -> &'p [u8] {
        self.moved.get(&id.0).map_or(path, |path| path)
    }
}

impl Contents for RenamedContents {
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
    use crate::conformance::{Echo, assert_forwards};
    use crate::{Metadata, NoContents, ThinSlice};

    #[test]
    fn contents_are_those_of_the_merged_trees() {
        let mut base = MergedContents::default();
        base.take(5).unwrap();
        base.add_last(5, Box::new(NoContents));
        let root =
            Node { meta: Metadata::default(), xattrs: ThinSlice::default(), kind: Kind::Directory(Box::default()) };
        let first = base.take(2).unwrap();
        base.add(first, Tree::new(vec![root], Box::new(Echo)).unwrap(), b"at/dir");
        let renamed = RenamedContents { base, moved: HashMap::from([(6, b"at/dir/first"[..].into())]) };
        // The other contents have no digests, and if an image refers to data, all parts must have
        // digests.
        let own = ["stores digests"];
        assert_forwards(&renamed.base, (ContentId(5), "at/dir/name"), (ContentId(0), "name"), &own);
        assert_forwards(&renamed, (ContentId(5), "at/dir/name"), (ContentId(0), "name"), &own);
        assert_forwards(&renamed, (ContentId(6), "name"), (ContentId(1), "first"), &own);
    }
}
