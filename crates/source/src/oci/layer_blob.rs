//! Where the layers of an image are.

use super::blobs::Blobs;
use super::records::Descriptor;
use crate::error::SourceError;

/// Where a layer is.
#[derive(Clone, Debug)]
pub struct LayerBlob {
    pub(super) place: LayerPlace,
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
            (true, _) => return Ok(Self { place: LayerPlace::Blob(descriptor) }),
        };
        let reason = format!("layer {}: mediaType = {kind:?}: {refusal}", descriptor.digest);
        Err(SourceError::Unsupported { path: blobs.path().to_owned(), reason })
    }

    pub(super) fn of_path(path: String) -> Self {
        Self { place: LayerPlace::Path(path) }
    }
}
