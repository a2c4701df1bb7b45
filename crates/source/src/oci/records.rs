//! JSON documents of the OCI image format 1.1, and of `docker save`, as far as they matter here.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the file that makes a directory an OCI layout.
pub const LAYOUT_FILE: &str = "oci-layout";
/// Name of the index of a layout.
pub const INDEX_FILE: &str = "index.json";
/// Name of the list of images of `docker save`.
pub const DOCKER_FILE: &str = "manifest.json";
/// Name of the file by which skopeo marks what it calls `dir:`.
pub const VERSION_FILE: &str = "version";
/// First bytes of that file.
pub const VERSION_FRONT: &[u8; 27] = b"Directory Transport Version";
/// Annotation of an index that has an image's tag.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Annotation in which containerd has an image's full name.
pub const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// Annotations of a descriptor.
pub type Annotations = BTreeMap<String, String>;

/// What refers to a blob.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the blob is.
    #[serde(default)]
    pub media_type: String,
    /// Algorithm and hexadecimal digest, `sha256:...`.
    pub digest: String,
    /// Length of the blob in bytes.
    pub size: u64,
    /// The system that an image is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformRecord>,
    /// More about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: Annotations,
}

/// A system and its processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformRecord {
    /// `linux` as a rule.
    pub os: String,
    /// `amd64`, `arm64`, ...
    pub architecture: String,
    /// `v7`, `v8`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// What the system must be able to do: `erofs` for layers that are EROFS images.
    #[serde(rename = "os.features", default, skip_serializing_if = "Vec::is_empty")]
    pub os_features: Vec<String>,
}

/// The file [`LAYOUT_FILE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Layout {
    /// 1.0.0.
    pub image_layout_version: String,
}

/// Images of one name for several platforms, or all images of a layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// 2.
    pub schema_version: u32,
    /// What this document is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    /// Manifests, and further indexes.
    pub manifests: Vec<Descriptor>,
    /// More about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: Annotations,
}

/// An image.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// 2.
    pub schema_version: u32,
    /// What this document is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    /// How to run it.
    pub config: Descriptor,
    /// The lowest first.
    pub layers: Vec<Descriptor>,
    /// More about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: Annotations,
}

/// Fields of a configuration that matter here: its platform, where no entry tells it, and the digests of layers. The
/// rest is kept as it is.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ConfigRecord {
    /// `linux` as a rule.
    #[serde(default)]
    pub os: String,
    /// `amd64`, `arm64`, ...
    #[serde(default)]
    pub architecture: String,
    /// `v7`, `v8`, ...
    #[serde(default)]
    pub variant: Option<String>,
    /// Layers of the file system. The configurations of artifacts have none.
    #[serde(default)]
    pub rootfs: Option<RootFs>,
}

/// Layers that the file system of an image is made of.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RootFs {
    /// Digests of the layers, decompressed, the lowest first. Images of EROFS layers may have none.
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
