//! How an image is opened.

pub(crate) mod read_policy;

use read_policy::ReadPolicy;

/// How to open an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageOptions {
    /// Bytes of cache for metadata and decoded data. Metadata takes what it needs, but at most half of the cache (and 256 KiB in
    /// any case). Extents longer than a quarter of this are decoded anew for each read.
    pub cache_bytes: u64,
    /// Refuse an image whose superblock has a wrong checksum.
    pub verify_checksum: bool,
    /// Where the image begins in its primary source, in bytes. All other addresses, those of errors too, are counted
    /// from there.
    pub offset: u64,
    /// How the image reads beyond what it is asked for.
    pub policy: ReadPolicy,
}

impl Default for ImageOptions {
    /// 64 MiB of cache, checksum verified, the source is all image, read by programs.
    fn default() -> Self {
        Self { cache_bytes: 64 << 20, verify_checksum: true, offset: 0, policy: ReadPolicy::default() }
    }
}
