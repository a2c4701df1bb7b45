//! Options of opening an image.

pub(crate) mod read_policy;

use crate::source::objects::Objects;
use read_policy::ReadPolicy;

/// Options of opening an image.
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
    /// Bytes of cache for metadata and decoded data. Metadata takes what it needs, but at most half
    /// of the cache (and 256 KiB in any case). Extents longer than a quarter of this are decoded
    /// again for each read.
    pub cache_bytes: u64,
    /// Refuse an image whose superblock has a wrong checksum.
    pub verify_checksum: bool,
    /// First byte of the image in its primary source. All other addresses, those in errors too, are
    /// counted from there.
    pub offset: u64,
    /// Generation to read of an image that was updated in place, see
    /// [`generations`](crate::generations); `None` is the last one.
    pub generation: Option<u32>,
    /// Directory that takes the place of the root, by its path; `None` is the root.
    pub subdir: Option<Vec<u8>>,
    /// Data that is read first.
    pub opening: Opening,
    /// Directories with the objects of a composefs image, which is then read as overlayfs shows it.
    /// Of other images they change nothing.
    pub objects: Option<Objects>,
    /// Policy of reading ahead, caching and decoding.
    pub policy: ReadPolicy,
}

/// Data that is read first of an image, which decides how much metadata is fetched when it is
/// opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opening {
    /// Unknown: each inode that is needed is fetched alone.
    #[default]
    Any,
    /// A hot list, by [`Image::load_ahead`](crate::Image::load_ahead) or
    /// [`Image::pin_ahead`](crate::Image::pin_ahead): metadata is fetched in runs of up to 1 MiB,
    /// which the list needs soon.
    HotList,
}

impl Default for ImageOptions {
    /// Returns options with 64 MiB of cache, a verified checksum, and the image at byte 0 of its
    /// source.
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            verify_checksum: true,
            offset: 0,
            generation: None,
            subdir: None,
            opening: Opening::Any,
            objects: None,
            policy: ReadPolicy::default(),
        }
    }
}

impl ImageOptions {
    /// Returns the same options with a cache of so many bytes.
    pub fn with_cache_bytes(self, cache_bytes: u64) -> Self {
        Self { cache_bytes, ..self }
    }

    /// Returns the same options, but a superblock with a wrong checksum is no reason to refuse the
    /// image.
    pub fn with_any_checksum(self) -> Self {
        Self { verify_checksum: false, ..self }
    }

    /// Returns the same options for an image that begins at this byte of its primary source.
    pub fn with_offset(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// Returns the same options for an older tree of an image that was updated in place.
    pub fn with_generation(self, generation: Option<u32>) -> Self {
        Self { generation, ..self }
    }

    /// Returns the same options with a directory in the place of the root.
    pub fn with_subdir(self, subdir: Option<Vec<u8>>) -> Self {
        Self { subdir, ..self }
    }

    /// Returns the same options for an image of which this is read first.
    pub fn with_opening(self, opening: Opening) -> Self {
        Self { opening, ..self }
    }

    /// Returns the same options for an image with these objects.
    pub fn with_objects(self, objects: impl Into<Option<Objects>>) -> Self {
        Self { objects: objects.into(), ..self }
    }

    /// Returns the same options with this policy.
    pub fn with_policy(self, policy: ReadPolicy) -> Self {
        Self { policy, ..self }
    }
}
