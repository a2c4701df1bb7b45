//! Tree of an image that keeps all stored data, for another image with a different layout.

use kiln_builder::{BuildOptions, Hints, SMALL_FILE_LEN};
use kiln_format::Compat;
use kiln_format::inode::InodeData;
use kiln_read::ReadError;
use kiln_source::image::erofs::reusable_data;
use kiln_source::{Scan, ScanOptions, SourceError};
use kiln_tree::storage::HotZone;
use kiln_tree::{
    Base, Content, ContentError, ContentId, Contents, Kind, NodeId, ReusedData, ReusedExtent, ReusedExtents, Stored,
    StoredDigest, Stores, Tree, Version,
};
use std::ops::Range;
use std::sync::Arc;

use crate::base::BaseImage;
use crate::style::{Depth, ImageStyle};

/// An image whose stored data is to be laid out differently.
pub(super) struct StoredTree {
    /// Tree of the image.
    tree: Tree,
    /// Stored forms of reusable files, by content id.
    reused: Vec<Option<ReusedData>>,
    base: Arc<BaseImage>,
    options: BuildOptions,
}

impl StoredTree {
    /// Scans `base` and the options with which it was made.
    ///
    /// # Errors
    /// Unreadable metadata; [`SourceError::Interrupted`].
    pub(super) fn of(base: &Arc<BaseImage>, options: &ScanOptions<'_>) -> Result<Self, SourceError> {
        let (Scan { tree, .. }, nids) = base.scan_with_nids(options)?;
        let image = base.image();
        let mut reused = vec![None; nids.len()];
        let mut hints = Hints::default();
        let failed = |source: ReadError| SourceError::Image { path: base.path().to_owned(), offset: 0, source };
        for (node, found) in tree.nodes() {
            let Kind::File { content, len, .. } = found.kind else { continue };
            options.check_stop()?;
            let idx = content.0 as usize;
            let stored = image.inode(nids[idx]).and_then(|inode| Ok((reusable_data(image, &inode)?, inode)));
            let (data, inode) = stored.map_err(|source| failed(source.at_path(&tree.path(node))))?;
            // Uncompressed files that are stored again stay uncompressed.
            if data.is_none() && len > 0 && !matches!(inode.meta.data, InodeData::Compressed { .. }) {
                hints.insert(node, None);
            }
            reused[idx] = data;
        }
        let style = ImageStyle::of(image, Depth::All).map_err(failed)?;
        let superblock = image.superblock();
        let options = style.build_options().with(|options| {
            options.compression.hints = hints;
            options.identity.label = superblock.volume_name;
            options.identity.build_time = base.built_at();
            options.identity.checksum = superblock.compat.contains(Compat::SB_CHKSUM);
        });
        Ok(Self { tree, reused, base: base.clone(), options })
    }

    /// Returns the tree of the image.
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns build options for an image made like this one, with the same label.
    pub(super) fn options(&self) -> &BuildOptions {
        &self.options
    }

    /// Returns the stored form of a regular file, if it can be reused.
    pub(super) fn reused(&self, node: NodeId) -> Option<&ReusedData> {
        match self.tree.node(node).kind {
            Kind::File { content, .. } => self.reused[content.0 as usize].as_ref(),
            _ => None,
        }
    }

    /// Returns the stored length in bytes of a regular file, if it can be reused. For data
    /// compressed together with other files it is the file's share.
    pub(super) fn stored_len(&self, node: NodeId) -> Option<u64> {
        let Kind::File { len, .. } = self.tree.node(node).kind else { return None };
        let sum = |list: &[ReusedExtent]| {
            list.iter().fold((0u64, 0u64), |(text, stored), one| {
                (text.saturating_add(one.llen.into()), stored.saturating_add(one.plen.into()))
            })
        };
        let packed = |len: u64| {
            let (text, stored) = sum(&self.base.facts().packed.list);
            (u128::from(len) * u128::from(stored) / u128::from(text.max(1))) as u64
        };
        Some(match self.reused(node)? {
            ReusedData::Flat { .. } => len,
            ReusedData::Fragment { .. } => packed(len),
            ReusedData::Extents(ReusedExtents { list, fragment, inline, .. }) => {
                let end = fragment.map_or(0, |(la, _)| packed(len.saturating_sub(la)));
                sum(list).1.saturating_add(end).saturating_add(inline.map_or(0, |one| one.plen.into()))
            }
        })
    }

    /// Marks a regular file to be re-encoded with the options.
    pub(super) fn store_again(&mut self, node: NodeId) {
        if let Kind::File { content, .. } = self.tree.node(node).kind {
            self.reused[content.0 as usize] = None;
        }
    }

    /// Marks small files to be re-encoded if they are in packed pclusters of which `zone` needs
    /// less than half. They are then stored together, and reading them reads nothing else.
    pub(super) fn gather(&mut self, zone: &HotZone) {
        let list = &self.base.facts().packed.list;
        let mut hot = vec![0_u64; list.len()];
        let mut files = Vec::new();
        for (node, range) in &zone.ranges {
            let (Kind::File { len, .. }, Some(ReusedData::Fragment { off })) =
                (&self.tree.node(*node).kind, self.reused(*node))
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
        sparse.into_iter().for_each(|node| self.store_again(node));
    }

    /// Returns the tree, with all reusable data.
    pub(super) fn into_tree(self) -> Tree {
        let Self { tree, reused, base, .. } = self;
        tree.with_contents(|contents| Box::new(StoredContents { contents, reused, base }))
    }
}

/// Contents of an image, with their stored forms.
struct StoredContents {
    contents: Box<dyn Contents>,
    reused: Vec<Option<ReusedData>>,
    base: Arc<BaseImage>,
}

impl Contents for StoredContents {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        self.contents.open(id, path, version)
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        match &self.reused[id.0 as usize] {
            Some(reused) => Ok(Stored::Reused(reused.clone())),
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
    use crate::base::tests::empty_base;
    use kiln_tree::conformance::{Echo, assert_forwards};

    #[test]
    fn contents_are_those_of_the_image_and_only_how_they_are_stored_is_known_here() {
        let stored = StoredContents { contents: Box::new(Echo), reused: vec![None; 4], base: empty_base() };
        assert_forwards(&stored, (ContentId(3), "name"), (ContentId(3), "name"), &["stores base"]);
    }
}
