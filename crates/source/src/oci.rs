//! Container images: OCI layouts, as directories and as archives (`oci-archive`), and what `docker save` writes.
//!
//! An image is a stack of layers, tar archives or EROFS images, which is merged as a container runtime would unpack
//! it. Every blob is compared with its digest before it is read, and so is what is in a layer, decompressed, with the
//! digest that the configuration has of it.

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

pub use choice::{ImageChoice, Listed, Platform, PlatformError};
pub use image::OciImage;
pub use layer_blob::LayerBlob;
pub use source::{OciSource, Opened, looks_like_dir_transport, looks_like_layout};
