//! Container images: OCI layouts as directories and archives (`oci-archive`), and the output of
//! `docker save`.
//!
//! An image is a stack of layers, which are tar archives or EROFS images and are merged as a
//! container runtime unpacks them. The digest of each blob is checked before the blob is read. The
//! digest of the decompressed layer in the configuration is checked as well.

mod archive;
mod blobs;
pub(crate) mod choice;
mod digest;
mod image;
mod layer;
mod layer_blob;
mod plain;
pub mod records;
pub(crate) mod source;
mod stack;

pub use choice::{ImageChoice, ListedImage, Platform, PlatformError};
pub use image::{OciImage, StoredLayer};
pub use layer_blob::LayerBlob;
pub use source::{OciSource, OpenedImage, looks_like_dir_transport, looks_like_layout};
