//! How an image is opened.

pub(crate) mod read_policy;

use read_policy::ReadPolicy;

/// How to open an image.
///
/// ```
/// use kiln_read::ImageOptions;
///
/// let options = ImageOptions::default().with_cache_bytes(16 << 20).with_offset(4096);
/// # assert_eq!((options.cache_bytes, options.offset), (16 << 20, 4096));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageOptions {
    /// Bytes of cache for metadata and decoded data. Metadata takes what it needs, but at most half of the cache (and 256 KiB in
    /// any case). Extents longer than a quarter of this are decoded anew for each read.
    pub cache_bytes: u64,
    /// Refuse an image whose superblock has a wrong checksum.
    pub verify_checksum: bool,
    /// Where the image begins in its primary source, in bytes. All other addresses, those of errors too, are counted
    /// from there.
    pub offset: u64,
    /// Which of the trees of an image that was updated in place is read, see [`generations`](crate::generations); `None`: the last one.
    pub generation: Option<u32>,
    /// What is read first.
    pub opening: Opening,
    /// How the image reads beyond what it is asked for.
    pub policy: ReadPolicy,
}

/// What is read first of an image, which decides how much of its metadata is fetched when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opening {
    /// Nobody knows: each inode that is needed is fetched alone.
    #[default]
    Any,
    /// A hot list, by [`Image::load_ahead`](crate::Image::load_ahead) or [`Image::pin_ahead`](crate::Image::pin_ahead): metadata is fetched in runs
    /// of up to 1 MiB, which the list needs soon.
    HotList,
}

impl Default for ImageOptions {
    /// 64 MiB of cache, checksum verified, the source is all image, read by programs.
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            verify_checksum: true,
            offset: 0,
            generation: None,
            opening: Opening::Any,
            policy: ReadPolicy::default(),
        }
    }
}

impl ImageOptions {
    /// The same options with a cache of so many bytes.
    pub fn with_cache_bytes(self, cache_bytes: u64) -> Self {
        Self { cache_bytes, ..self }
    }

    /// The same options, but a superblock with a wrong checksum is no reason to refuse the image.
    pub fn with_any_checksum(self) -> Self {
        Self { verify_checksum: false, ..self }
    }

    /// The same options for an image that begins at this byte of its primary source.
    pub fn with_offset(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// The same options for an older tree of an image that was updated in place.
    pub fn with_generation(self, generation: Option<u32>) -> Self {
        Self { generation, ..self }
    }

    /// The same options for an image of which this is read first.
    pub fn with_opening(self, opening: Opening) -> Self {
        Self { opening, ..self }
    }

    /// The same options with this policy.
    pub fn with_policy(self, policy: ReadPolicy) -> Self {
        Self { policy, ..self }
    }
}
