//! Images, byte for byte as composefs 1.0.8 makes them of the same dump.
//!
//! Three passes: `prepare` adds what overlayfs needs and numbers the inodes, `place` measures
//! them, `emit` writes the bytes. Only the last one touches the output.

mod emit;
mod entries;
mod place;
mod prepare;
mod xattrs;

use crate::CfsTree;
use crate::error::ImageError;
use emit::Output;
use kiln_digest::{Algorithm, Digest};
use std::io::Write;

/// Version of composefs's rules: images differ in a field of the header, and in marks on directories
/// with whiteouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Default of composefs in C.
    V0,
    /// Default of composefs-rs.
    V1,
}

/// Options of an image.
#[derive(Clone, Copy, Debug)]
pub struct ImageOptions {
    /// Version of an image without whiteouts.
    pub min_version: Version,
    /// Highest version for an image with whiteouts. A maximum below the minimum is not used.
    pub max_version: Version,
    /// Algorithm for the digest of the image; `None` computes none.
    pub algorithm: Option<Algorithm>,
}

/// Returns the options of `mkcomposefs`.
impl Default for ImageOptions {
    fn default() -> Self {
        Self { min_version: Version::V0, max_version: Version::V1, algorithm: Some(Algorithm::Sha256) }
    }
}

/// Facts of an image that was written.
#[derive(Clone, Copy, Debug)]
pub struct ImageSummary {
    /// Length in bytes.
    pub len: u64,
    /// Version that was chosen.
    pub version: Version,
    /// Number of inodes.
    pub inodes: u64,
    /// fs-verity digest of the image: its id.
    pub digest: Option<Digest>,
}

/// Writes the image of a tree from front to back.
///
/// ```
/// use kiln_composefs::image::{self, ImageOptions};
/// let tree = kiln_composefs::dump::read(&b"/ 0 40755 2 0 0 0 0.0 - - -\n"[..], &mut |_| {})?;
/// let mut bytes = Vec::new();
/// let image = image::write(&tree, &ImageOptions::default(), &mut bytes)?;
/// assert_eq!(image.len, 16384);
/// assert!(image.digest.unwrap().to_string().starts_with("8f589e8f57ecb88823736b0d"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Errors of the output, and images that are too large for their fields.
pub fn write(tree: &CfsTree, options: &ImageOptions, out: &mut impl Write) -> Result<ImageSummary, ImageError> {
    let has_whiteout = tree.nodes().iter().any(|node| node.data.is_whiteout());
    let version = match has_whiteout {
        true => options.min_version.max(options.max_version),
        false => options.min_version,
    };
    let prepared = prepare::Prepared::new(tree);
    let keys = xattrs::escaped_keys(tree);
    let xattrs = xattrs::Xattrs::new(&prepared, &keys, version == Version::V1)?;
    let places = place::Places::new(&prepared, &xattrs)?;
    let mut output = Output::new(out, options.algorithm);
    emit::image(&prepared, &xattrs, &places, version as u32, &mut output)?;
    let (len, digest) = output.finish()?;
    Ok(ImageSummary { len, version, inodes: prepared.order.len() as u64, digest })
}
