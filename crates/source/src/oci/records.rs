//! JSON documents of the OCI image format 1.1 and of `docker save`, with the fields used here.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the file that makes a directory an OCI layout.
pub const LAYOUT_FILE: &str = "oci-layout";
/// Name of the index of a layout.
pub const INDEX_FILE: &str = "index.json";
/// Name of the list of images of `docker save`.
pub const DOCKER_FILE: &str = "manifest.json";
/// Name of the file that marks the `dir:` format of skopeo.
pub const VERSION_FILE: &str = "version";
/// First bytes of that file.
pub const VERSION_FRONT: &[u8; 27] = b"Directory Transport Version";
/// Annotation of an index with an image's tag.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Annotation of containerd with an image's full name.
pub const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// Annotations of a descriptor.
pub type Annotations = BTreeMap<String, String>;

/// Reference to a blob.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type of the blob.
    #[serde(default)]
    pub media_type: String,
    /// Algorithm and hexadecimal digest, `sha256:...`.
    pub digest: String,
    /// Length of the blob in bytes.
    pub size: u64,
    /// Platform of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformRecord>,
    /// Additional information.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: Annotations,
}

/// An operating system and architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformRecord {
    /// Operating system, usually `linux`.
    pub os: String,
    /// Architecture: `amd64`, `arm64`, ...
    pub architecture: String,
    /// Variant of the architecture: `v7`, `v8`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Features that the system needs: `erofs` for layers that are EROFS images.
    #[serde(rename = "os.features", default, skip_serializing_if = "Vec::is_empty")]
    pub os_features: Vec<String>,
}

/// The file [`LAYOUT_FILE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Layout {
    /// Version, always 1.0.0.
    pub image_layout_version: String,
}

/// List of the images of one name for several platforms, or of all images of a layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Version, always 2.
    pub schema_version: u32,
    /// Media type of this document.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    /// Manifests and further indexes.
    pub manifests: Vec<Descriptor>,
    /// Additional information.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: Annotations,
}

/// Manifest of an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Version, always 2.
    pub schema_version: u32,
    /// Media type of this document.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    /// Reference to the configuration.
    pub config: Descriptor,
    /// Layers, the lowest first.
    pub layers: Vec<Descriptor>,
    /// Additional information.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: Annotations,
}

/// Fields of a configuration: the platform, if no entry has it, and the digests of the layers. The
/// document itself is kept unchanged.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ConfigRecord {
    /// Operating system, usually `linux`.
    #[serde(default)]
    pub os: String,
    /// Architecture: `amd64`, `arm64`, ...
    #[serde(default)]
    pub architecture: String,
    /// Variant of the architecture: `v7`, `v8`, ...
    #[serde(default)]
    pub variant: Option<String>,
    /// Layers of the root filesystem. Configurations of artifacts have none.
    #[serde(default)]
    pub rootfs: Option<RootFs>,
}

/// Layers of an image's root filesystem.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RootFs {
    /// Digests of the decompressed layers, the lowest first. Images of EROFS layers may have none.
    #[serde(default)]
    pub diff_ids: Option<Vec<String>>,
}

/// An image in the list of `docker save`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DockerImage {
    /// Path of the configuration.
    pub config: String,
    /// Names with tags.
    #[serde(default)]
    pub repo_tags: Option<Vec<String>>,
    /// Paths of tar archives, the lowest first.
    pub layers: Vec<String>,
}
