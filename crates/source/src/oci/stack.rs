//! Stack of an image's layers: resolves metadata that a single layer lacks.

use kiln_tree::{Builder, Kind, Metadata, Node, NodeId, Tree};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::blobs::Blobs;
use super::layer::{Layer, LayerPosition};
use super::layer_blob::{LayerBlob, LayerPlace};
use super::plain::LayerDigest;
use crate::archive::left_out::LeftOut;
use crate::error::SourceError;
use crate::input::candidate::{Candidate, SourceOptions};
use crate::source::{Note, Scan, ScanOptions, Scanned, Source};
use kiln_tree::merge::{LostLinks, Overlay, Whiteouts, with_marks};
use kiln_tree::policy::marks::is_opaque;

/// Note on a layer of `docker save` whose image has no `rootfs.diff_ids`.
const UNKNOWN: &str = "this layer has no known digest, so it is not verified";

/// Layers of an image.
#[derive(Clone)]
pub(super) struct Stack {
    pub(super) blobs: Arc<Blobs>,
    /// Layers, the lowest first.
    pub(super) layers: Arc<[LayerBlob]>,
    /// Merged layers below the one after the most recently read layer: layers are usually read in
    /// order.
    lower: Arc<Mutex<Option<Lower>>>,
}

/// The lowest layers of an image, merged.
struct Lower {
    count: usize,
    builder: Builder,
}

/// A layer in its stack. overlayfs takes owner, permissions, times and attributes of a directory
/// from the uppermost layer that has it. A tar layer that only implies a directory has none of
/// them, so those of the layers below are used.
pub(super) struct StackedLayer {
    stack: Stack,
    at: usize,
    layer: Layer,
    options: SourceOptions,
}

impl Stack {
    pub(super) fn new(blobs: Arc<Blobs>, layers: Vec<LayerBlob>) -> Self {
        Self { blobs, layers: layers.into(), lower: Arc::default() }
    }

    /// Opens layer `at` on its own.
    ///
    /// # Errors
    /// A missing blob; a blob with a wrong digest, or with a wrong digest of its decompressed
    /// bytes, unless the scan keeps going; a layer that is neither a tar archive nor an EROFS
    /// image.
    pub(super) fn layer(
        &self,
        at: usize,
        source: &SourceOptions,
        options: &ScanOptions<'_>,
    ) -> Result<Layer, SourceError> {
        let layer = &self.layers[at];
        let path = self.layer_path(layer);
        let mut left_out = LeftOut::new(&path, options);
        // The other digest does not apply to a damaged blob.
        let (blob, diff_id, own) = match &layer.place {
            LayerPlace::Blob(descriptor) => {
                let blob = self.blobs.unchecked(descriptor)?;
                match left_out.survive(b"", self.blobs.check(descriptor, &*blob, options))? {
                    Some(()) => (blob, layer.diff_id.as_deref(), Some(&*descriptor.digest)),
                    None => (blob, None, None),
                }
            }
            LayerPlace::Path(path) => (self.blobs.required(path)?, layer.diff_id.as_deref(), None),
        };
        let (spool_dir, spool_limit) = (source.spool_dir.clone(), source.spool_limit.clone());
        let source = SourceOptions { spool_dir, spool_limit, ..SourceOptions::default() };
        let mut candidate = Candidate::of_bytes(&path, &source, blob)?;
        if let Some(diff_id) = diff_id {
            candidate = LayerDigest { at, diff_id, blob: own }.compare(candidate, &mut left_out, options)?;
        }
        let is_unknown = layer.diff_id.is_none() && layer.descriptor().is_none();
        let note = is_unknown.then(|| Note { path: path.clone(), text: UNKNOWN.into() });
        let place = if at == 0 { LayerPosition::Lowest } else { LayerPosition::Upper };
        Ok(Layer::open(candidate, place)?.with_damage(left_out.into_list().pop()).with_note(note))
    }

    /// Opens layer `at` over those below it. Reading layers in order is fastest: the layers below
    /// are read again unless they were read just before.
    ///
    /// # Errors
    /// Those of [`Stack::layer`].
    /// As [`Stack::layer`].
    pub(super) fn stacked(
        &self,
        at: usize,
        source: &SourceOptions,
        options: &ScanOptions<'_>,
    ) -> Result<StackedLayer, SourceError> {
        let layer = self.layer(at, source, options)?;
        Ok(StackedLayer { stack: self.clone(), at, layer, options: source.clone() })
    }

    /// Returns the name of a layer in error messages.
    fn layer_path(&self, layer: &LayerBlob) -> PathBuf {
        self.blobs.path().join(match &layer.place {
            LayerPlace::Blob(descriptor) => {
                self.blobs.blob_name(descriptor).unwrap_or_else(|_| descriptor.digest.clone())
            }
            LayerPlace::Path(path) => path.clone(),
        })
    }

    /// Merges the `count` lowest layers, starting from those in `known`.
    fn read_lower(
        &self,
        count: usize,
        known: Option<Lower>,
        source: &SourceOptions,
        options: &ScanOptions<'_>,
    ) -> Result<Lower, SourceError> {
        let mut lower = known.filter(|lower| lower.count <= count).unwrap_or_default();
        for at in lower.count..count {
            let layer = self.layer(at, source, options)?;
            lower.put(&layer.read_all(options)?.tree, layer.path())?;
        }
        Ok(lower)
    }
}

impl Default for Lower {
    fn default() -> Self {
        Self { count: 0, builder: Builder::new(Metadata { permissions: 0o755, ..Metadata::default() }) }
    }
}

impl Lower {
    /// Merges the next layer, which error messages call `path`, over the previous ones.
    fn put(&mut self, tree: &Tree, path: &Path) -> Result<LostLinks, SourceError> {
        // Contents are never opened through this tree.
        let mut overlay = Overlay { builder: &mut self.builder, whiteouts: Whiteouts::Apply, first_content: 0 };
        let lost = overlay.put(tree, b"").map_err(SourceError::tree(path))?;
        self.count += 1;
        Ok(lost)
    }

    /// Sets the metadata of directories that `tree` only implies to that of the directories here.
    fn lend(&mut self, tree: &mut Tree, path: &Path) -> Result<(), SourceError> {
        let mut stack = vec![NodeId::ROOT];
        while let Some(dir) = stack.pop() {
            let found = match tree.is_implied(dir) {
                true => self.builder.find(&tree.path(dir)).map_err(SourceError::tree(path))?,
                false => None,
            };
            if let Some(Node { meta, xattrs, kind: Kind::Directory(_) }) =
                found.map(|id| &self.builder.nodes()[id.idx()])
            {
                let xattrs = with_marks(xattrs.clone(), &tree.node(dir).xattrs);
                tree.set(dir, *meta, xattrs);
            }
            // An opaque directory hides everything below it in lower layers.
            if !is_opaque(tree.node(dir)) {
                let is_dir = |id: &NodeId| matches!(tree.node(*id).kind, Kind::Directory(_));
                stack.extend(tree.entries(dir).iter().map(|entry| entry.node).filter(is_dir));
            }
        }
        Ok(())
    }
}

impl Source for StackedLayer {
    fn path(&self) -> &Path {
        self.layer.path()
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        let found = self.layer.read_all(options)?;
        let Scan { mut tree, mut notes, .. } = found;
        let mut known = self.stack.lower.lock();
        let mut lower = self.stack.read_lower(self.at, known.take(), &self.options, options)?;
        lower.lend(&mut tree, self.path())?;
        notes.extend(Note::of_links(lower.put(&tree, self.path())?, self.path()));
        *known = Some(lower);
        Ok(Scanned::Everything(Scan { tree, notes, ..found }))
    }
}
