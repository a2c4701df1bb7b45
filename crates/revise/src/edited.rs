//! Image with edits: removed paths, sources merged over it, replaced contents. Unedited files keep
//! the stored data of the image.

use kiln_source::merge::Draft;
use kiln_source::{Note, Scan, ScanOptions, Source, SourceEntries, SourceError, SourceOptions};
use kiln_tree::merge::{MergedContents, Overlay, Whiteouts};
use kiln_tree::{
    Builder, Content, ContentError, ContentId, Contents, Kind, Metadata, Node, NodeId, Stored, StoredDigest, Stores,
    Tree, TreeError, TreeProblem, Version, content_count,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::BaseImage;
use crate::comparison::Differences;
use crate::held::{HeldText, with_held};
use crate::versions::{Previous, versions};

/// An image with edits, as a source. Edits are applied in this order: removals, additions,
/// replacements.
pub struct EditedImage {
    base: Arc<BaseImage>,
    removed: Vec<Vec<u8>>,
    added: Vec<Box<dyn Source>>,
    replaced: Vec<(Vec<u8>, PathBuf)>,
}

impl EditedImage {
    /// Creates a source without edits.
    pub fn new(base: Arc<BaseImage>) -> Self {
        Self { base, removed: Vec::new(), added: Vec::new(), replaced: Vec::new() }
    }

    /// Removes `path` and everything below it. The path must exist.
    pub fn remove(&mut self, path: &[u8]) {
        self.removed.push(path.to_vec());
    }

    /// Merges all of `source` over the image, as [`Merged`](kiln_source::merge::Merged) does: whiteouts and
    /// opaque directories hide entries below them.
    pub fn add(&mut self, source: Box<dyn Source>) {
        self.added.push(source);
    }

    /// Replaces contents and time of the regular file at `path` by those of the regular file
    /// `host`. Owner, permissions and attributes are kept, and other names of the file keep its old
    /// contents.
    pub fn replace(&mut self, path: &[u8], host: &Path) {
        self.replaced.push((path.to_vec(), host.to_owned()));
    }

    /// Returns a tree with the replacement files of the host, at the paths of the replaced files.
    fn replacements(&self) -> Result<Option<Tree>, SourceError> {
        if self.replaced.is_empty() {
            return Ok(None);
        }
        let mut draft = Draft::new(self.path(), &SourceOptions::default());
        for (path, host) in &self.replaced {
            draft.add_file(path, host)?;
        }
        draft.finish().map(Some)
    }

    /// Replaces files. Returns the id of their first content.
    fn put_replaced(
        &self,
        tree: &Tree,
        builder: &mut Builder,
        contents: &mut MergedContents,
    ) -> Result<u32, SourceError> {
        let lost = SourceError::tree(self.path());
        let first = contents.next_id(tree).map_err(&lost)?;
        for (path, host) in &self.replaced {
            let id = existing(builder, path).map_err(&lost)?;
            let new = tree.find(names(path)).map(|id| tree.node(id));
            let (old, new) = match (&builder.nodes()[id.idx()], new) {
                (old @ Node { kind: Kind::File { .. }, .. }, Some(new @ Node { kind: Kind::File { .. }, .. })) => {
                    (old.clone(), new)
                }
                (Node { kind: Kind::File { .. }, .. }, _) => {
                    let reason = "only a regular file can replace a regular file";
                    return Err(SourceError::Options { path: host.clone(), reason });
                }
                _ => return Err(lost(TreeError { path: path.clone(), problem: TreeProblem::NotAFile })),
            };
            let Kind::File { len, content, sparse } = new.kind else { continue };
            let kind = Kind::File { len, content: ContentId(first + content.0), sparse };
            let Metadata { mtime, mtime_nsec, .. } = new.meta;
            let node = Node { meta: Metadata { mtime, mtime_nsec, ..old.meta }, xattrs: old.xattrs, kind };
            builder.insert(path, node).map_err(&lost)?;
        }
        Ok(first)
    }
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !matches!(name, [] | [b'.']))
}

/// Returns the node at `path`.
fn existing(builder: &mut Builder, path: &[u8]) -> Result<NodeId, TreeError> {
    builder.find(path)?.ok_or_else(|| TreeError { path: path.to_owned(), problem: TreeProblem::NothingThere })
}

impl Source for EditedImage {
    fn path(&self) -> &Path {
        self.base.path()
    }

    /// Reads the image and applies the edits. The filter applies to added sources only.
    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        let Scan { tree, mut skipped, mut notes, mut left_out_xattrs, .. } = self.base.scan(options)?;
        let lost = SourceError::tree(self.path());
        let (mut contents, mut outputs) = (MergedContents::default(), Vec::new());
        let added = self.added.iter().map(|source| source.scan(options)).collect::<Result<Vec<_>, _>>()?;
        let replaced = self.replacements()?;
        let find = |new: &Tree| {
            let mut held = HeldText::default();
            let trees = [new, &tree];
            let previous = Previous::find(trees, versions(trees), Differences::new(), options, &mut held)?;
            Ok::<_, SourceError>((previous, held))
        };
        let previous = added.iter().map(|scan| &scan.tree).chain(&replaced).map(find).collect::<Result<Vec<_>, _>>()?;
        let mut previous = previous.into_iter();
        let count = content_count(&tree);
        contents.take(count).map_err(&lost)?;
        let (mut builder, stored) = Builder::from_tree(tree);
        let stored: Arc<dyn Contents> = Arc::from(stored);
        contents.add_last(count, Box::new(stored.clone()));
        let mut with_previous = |tree: Tree| {
            let (previous, held) = previous.next().unwrap_or_default();
            tree.with_contents(|new| Box::new(ChangedContents { new, stored: stored.clone(), previous, held }))
        };
        for path in &self.removed {
            existing(&mut builder, path).map_err(&lost)?;
            builder.remove(path).map_err(&lost)?;
        }
        for (source, scan) in self.added.iter().zip(added) {
            skipped.extend(scan.skipped);
            notes.extend(scan.notes);
            left_out_xattrs.extend(scan.left_out_xattrs, <[u8]>::to_vec);
            outputs.extend(scan.outputs);
            let lost = SourceError::tree(source.path());
            let first_content = contents.next_id(&scan.tree).map_err(&lost)?;
            let mut overlay = Overlay { builder: &mut builder, whiteouts: Whiteouts::Apply, first_content };
            notes.extend(Note::of_links(overlay.put(&scan.tree, b"").map_err(&lost)?, source.path()));
            contents.add(first_content, with_previous(scan.tree), b"");
        }
        if let Some(tree) = replaced {
            let first = self.put_replaced(&tree, &mut builder, &mut contents)?;
            contents.add(first, with_previous(tree), b"");
        }
        outputs.sort();
        let tree = builder.finish(Box::new(contents)).map_err(&lost)?;
        Ok(SourceEntries::Selected(Scan { skipped, notes, left_out_xattrs, outputs, ..Scan::from(tree) }))
    }

    /// Scans without checking that the image is not the output: it may be appended to.
    fn scan(&self, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
        match self.read(options)? {
            SourceEntries::Selected(scan) | SourceEntries::Everything(scan) => Ok(scan),
        }
    }
}

/// Contents that replace some of the image.
struct ChangedContents {
    new: Box<dyn Contents>,
    stored: Arc<dyn Contents>,
    previous: Previous,
    held: HeldText,
}

impl Contents for ChangedContents {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        let content = self.new.open(id, path, version)?;
        Ok(if version == Version::Scanned { with_held(self.held.of(id.0), content) } else { content })
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        Ok(match self.new.stored(id, len)? {
            stored @ Stored::Elsewhere(_) => stored,
            // The source may be an image, but it is not the base.
            _ => self.previous.stored(&*self.stored, id)?,
        })
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        self.new.stored_digest(id)
    }

    fn stores(&self) -> Stores {
        Stores { base: None, ..self.new.stores() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tree::conformance::{Echo, assert_forwards};

    #[test]
    fn changed_contents_are_those_of_their_source_and_their_previous_version_that_of_the_image() {
        let (previous, held) = (Previous::default(), HeldText::default());
        let changed = ChangedContents { new: Box::new(Echo), stored: Arc::new(Echo), previous, held };
        let own = ["stored reused", "stored previous", "stores base"];
        assert_forwards(&changed, (ContentId(3), "name"), (ContentId(3), "name"), &own);
    }
}
