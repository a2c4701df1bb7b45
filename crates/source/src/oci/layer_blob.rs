//! Locations of the layers of an image.

use super::blobs::Blobs;
use super::choice::ListedImage;
use super::records::Descriptor;
use crate::error::SourceError;

/// Location of a layer.
#[derive(Clone, Debug)]
pub struct LayerBlob {
    pub(super) place: LayerPlace,
    /// Digest of the decompressed layer, if the configuration of the image has it.
    pub(super) diff_id: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) enum LayerPlace {
    Blob(Descriptor),
    /// Path in the output of `docker save`, without a digest.
    Path(String),
}

impl LayerBlob {
    /// Returns the descriptor, or `None` for the path of a layer of `docker save`.
    pub fn descriptor(&self) -> Option<&Descriptor> {
        match &self.place {
            LayerPlace::Blob(descriptor) => Some(descriptor),
            LayerPlace::Path(_) => None,
        }
    }

    pub(super) fn of_descriptor(descriptor: Descriptor, blobs: &Blobs) -> Result<Self, SourceError> {
        let kind = &descriptor.media_type;
        let role = descriptor.annotations.get("org.erofs.role").map(String::as_str);
        let refusal = match (kind.contains("tar") || kind.contains("erofs"), role) {
            (_, Some("device")) => "a layer that is a device of another layer",
            (_, Some("overlay-data")) => "a layer that only has data of another layer",
            _ if kind.ends_with("+encrypted") => "an encrypted layer",
            (false, _) => "not a layer of files",
            (true, _) => return Ok(Self { place: LayerPlace::Blob(descriptor), diff_id: None }),
        };
        let reason = format!("layer {}: mediaType = {kind:?}: {refusal}", descriptor.digest);
        Err(SourceError::Unsupported { path: blobs.path().to_owned(), reason })
    }

    pub(super) fn of_path(path: String) -> Self {
        Self { place: LayerPlace::Path(path), diff_id: None }
    }

    /// Sets the digests of `layers`, which are those of the image `listed`.
    ///
    /// # Errors
    /// Different numbers of digests and layers.
    pub(super) fn set_diff_ids(
        layers: &mut [Self],
        diff_ids: Vec<String>,
        listed: &ListedImage,
        blobs: &Blobs,
    ) -> Result<(), SourceError> {
        if layers.len() != diff_ids.len() {
            let (told, found, image) = (diff_ids.len(), layers.len(), &listed.digest);
            let reason = format!(
                "the image {image}: its configuration has {told} rootfs.diff_ids, but its manifest has {found} layers"
            );
            return Err(SourceError::Malformed { path: blobs.path().to_owned(), offset: 0, reason });
        }
        layers.iter_mut().zip(diff_ids).for_each(|(layer, id)| layer.diff_id = Some(id));
        Ok(())
    }
}
