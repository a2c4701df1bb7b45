//! Where the layers of an image are.

use super::blobs::Blobs;
use super::choice::Listed;
use super::records::Descriptor;
use crate::error::SourceError;

/// Where a layer is.
#[derive(Clone, Debug)]
pub struct LayerBlob {
    pub(super) place: LayerPlace,
    /// The digest of what is in it, decompressed, if the configuration of the image tells it.
    pub(super) diff_id: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) enum LayerPlace {
    Blob(Descriptor),
    /// A path of `docker save`, which has no digest.
    Path(String),
}

impl LayerBlob {
    /// What refers to it; of `docker save`, nothing does but a path.
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
            (_, Some("device")) => "a layer that is a device of another one",
            (_, Some("overlay-data")) => "a layer that holds data of another one only",
            _ if kind.ends_with("+encrypted") => "an encrypted layer",
            (false, _) => "no layer of files",
            (true, _) => return Ok(Self { place: LayerPlace::Blob(descriptor), diff_id: None }),
        };
        let reason = format!("layer {}: mediaType = {kind:?}: {refusal}", descriptor.digest);
        Err(SourceError::Unsupported { path: blobs.path().to_owned(), reason })
    }

    pub(super) fn of_path(path: String) -> Self {
        Self { place: LayerPlace::Path(path), diff_id: None }
    }

    /// Let `layers`, those of the image `listed`, have these digests.
    ///
    /// # Errors
    /// Another number of digests than of layers.
    pub(super) fn set_diff_ids(
        layers: &mut [Self],
        diff_ids: Vec<String>,
        listed: &Listed,
        blobs: &Blobs,
    ) -> Result<(), SourceError> {
        if layers.len() != diff_ids.len() {
            let (told, found, image) = (diff_ids.len(), layers.len(), &listed.digest);
            let reason = format!(
                "the image {image}: its configuration has rootfs.diff_ids of {told} layers, its manifest {found} layers"
            );
            return Err(SourceError::Malformed { path: blobs.path().to_owned(), offset: 0, reason });
        }
        layers.iter_mut().zip(diff_ids).for_each(|(layer, id)| layer.diff_id = Some(id));
        Ok(())
    }
}
