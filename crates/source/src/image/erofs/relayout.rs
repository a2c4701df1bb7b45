//! Tree of an image that keeps all stored data, for another image with a different layout.

use kiln_builder::{BuildOptions, SMALL_FILE_LEN};
use kiln_read::{Nid, ReadError};
use kiln_tree::storage::HotZone;
use kiln_tree::{
    Base, Content, ContentError, ContentId, Contents, Kept, KeptExtent, KeptExtents, Kind, NodeId, Stored,
    StoredDigest, Stores, Tree, Version,
};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::base::BaseImage;
use super::kept;
use super::survey::Survey;
use crate::error::SourceError;
use crate::source::{Scan, ScanOptions};

/// An image whose stored data is to be laid out differently.
pub struct Relayout {
    /// Tree of the image.
    tree: Tree,
    /// Stored forms of reusable files, by content id.
    kept: Vec<Option<Kept>>,
    base: Arc<BaseImage>,
    options: BuildOptions,
}

impl Relayout {
    /// Scans `base` and the options with which it was made.
    ///
    /// # Errors
    /// Unreadable metadata; [`SourceError::Interrupted`].
    pub fn of(base: &Arc<BaseImage>, options: &ScanOptions<'_>) -> Result<Self, SourceError> {
        let (Scan { tree, .. }, nids) = base.scan_with_nids(options)?;
        let (image, mut survey) = (base.image(), Survey::default());
        let mut kept = vec![None; nids.len()];
        let failed = |node: NodeId, source: ReadError| {
            let source = source.at_path(&tree.path(node));
            SourceError::Image { path: base.path().to_owned(), offset: 0, source }
        };
        for (node, found) in tree.nodes() {
            let Kind::File { content, .. } = found.kind else { continue };
            options.check_stop()?;
            let mut look = |nid: Nid| -> Result<Option<Kept>, ReadError> {
                let inode = image.inode(nid)?;
                let how = kept::kept(image, &inode)?;
                survey.file((image, node), &inode, how.as_ref())?;
                Ok(how)
            };
            let idx = content.0 as usize;
            kept[idx] = look(nids[idx]).map_err(|error| failed(node, error))?;
        }
        let found = image.inode(image.root_nid()).and_then(|root| {
            survey.directory(&root);
            let dirs = image.walk(&root, b"").filter(|entry| !matches!(entry, Ok(entry) if !entry.inode.is_dir()));
            for entry in dirs {
                survey.directory(&entry?.inode);
            }
            survey.options(image)
        });
        let options = found.map_err(|error| failed(NodeId::ROOT, error))?;
        Ok(Self { tree, kept, base: base.clone(), options })
    }

    /// Returns the tree of the image.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns build options for an image made like this one, with the same label.
    pub fn options(&self) -> &BuildOptions {
        &self.options
    }

    /// Returns the path for messages.
    pub fn path(&self) -> &Path {
        self.base.path()
    }

    /// Returns the stored form of a regular file, if it can be reused.
    pub fn kept(&self, node: NodeId) -> Option<&Kept> {
        match self.tree.node(node).kind {
            Kind::File { content, .. } => self.kept[content.0 as usize].as_ref(),
            _ => None,
        }
    }

    /// Returns the stored length in bytes of a regular file, if it can be reused. For data
    /// compressed together with other files it is the file's share.
    pub fn stored_len(&self, node: NodeId) -> Option<u64> {
        let Kind::File { len, .. } = self.tree.node(node).kind else { return None };
        let sum = |list: &[KeptExtent]| {
            list.iter().fold((0u64, 0u64), |(text, stored), one| {
                (text.saturating_add(one.llen.into()), stored.saturating_add(one.plen.into()))
            })
        };
        let packed = |len: u64| {
            let (text, stored) = sum(&self.base.facts().packed.list);
            (u128::from(len) * u128::from(stored) / u128::from(text.max(1))) as u64
        };
        Some(match self.kept(node)? {
            Kept::Flat { .. } => len,
            Kept::Fragment { .. } => packed(len),
            Kept::Extents(KeptExtents { list, fragment, inline, .. }) => {
                let end = fragment.map_or(0, |(la, _)| packed(len.saturating_sub(la)));
                sum(list).1.saturating_add(end).saturating_add(inline.map_or(0, |one| one.plen.into()))
            }
        })
    }

    /// Marks a regular file to be re-encoded with the options.
    pub fn store_anew(&mut self, node: NodeId) {
        if let Kind::File { content, .. } = self.tree.node(node).kind {
            self.kept[content.0 as usize] = None;
        }
    }

    /// Marks small files to be re-encoded if they are in packed pclusters of which `zone` needs
    /// less than half. They are then stored together, and reading them reads nothing else.
    pub fn gather(&mut self, zone: &HotZone) {
        let list = &self.base.facts().packed.list;
        let mut hot = vec![0_u64; list.len()];
        let mut files = Vec::new();
        for (node, range) in &zone.ranges {
            let (Kind::File { len, .. }, Some(Kept::Fragment { off })) =
                (&self.tree.node(*node).kind, self.kept(*node))
            else {
                continue;
            };
            let bytes = off.saturating_add(range.start)..off.saturating_add(range.end.min(*len));
            let first = list.partition_point(|extent| extent.end() <= bytes.start);
            for (extent, hot) in
                list[first..].iter().zip(&mut hot[first..]).take_while(|(extent, _)| extent.la < bytes.end)
            {
                let part = extent.end().min(bytes.end).saturating_sub(extent.la.max(bytes.start));
                *hot = hot.saturating_add(part);
            }
            if *len <= SMALL_FILE_LEN {
                files.push((*node, *off..off.saturating_add(*len)));
            }
        }
        let is_sparse = |bytes: &Range<u64>| {
            let first = list.partition_point(|extent| extent.end() <= bytes.start);
            let holding = list[first..].iter().zip(&hot[first..]).take_while(|(extent, _)| extent.la < bytes.end);
            holding.into_iter().any(|(extent, hot)| hot.saturating_mul(2) < extent.llen.into())
        };
        let sparse: Vec<NodeId> = files.iter().filter(|(_, bytes)| is_sparse(bytes)).map(|(node, _)| *node).collect();
        sparse.into_iter().for_each(|node| self.store_anew(node));
    }

    /// Returns the tree, with all reusable data.
    pub fn into_tree(self) -> Tree {
        let Self { tree, kept, base, .. } = self;
        tree.with_contents(|contents| Box::new(StoredContents { contents, kept, base }))
    }
}

/// Contents of an image, with their stored forms.
struct StoredContents {
    contents: Box<dyn Contents>,
    kept: Vec<Option<Kept>>,
    base: Arc<BaseImage>,
}

impl Contents for StoredContents {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        match version {
            // The image is the base of itself.
            Version::Previous => Err(ContentError::Io(io::ErrorKind::NotFound.into())),
            _ => self.contents.open(id, path, version),
        }
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        match &self.kept[id.0 as usize] {
            Some(kept) => Ok(Stored::Reused(kept.clone())),
            None => self.contents.stored(id, len),
        }
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        self.contents.stored_digest(id)
    }

    fn stores(&self) -> Stores {
        Stores { base: Some(self.base.clone()), ..self.contents.stores() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::erofs::base::tests::empty_base;
    use kiln_tree::conformance::{Echo, assert_forwards};

    #[test]
    fn contents_are_those_of_the_image_and_only_how_they_are_stored_is_known_here() {
        let stored = StoredContents { contents: Box::new(Echo), kept: vec![None; 4], base: empty_base() };
        assert_forwards(&stored, (ContentId(3), "name"), (ContentId(3), "name"), &["open previous", "stores base"]);
    }
}
