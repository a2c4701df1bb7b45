//! Whole images.

use super::input::Input;
use crate::exercise::{Limits, exercise};
use crate::golden::{Golden, small_images};
use kiln_read::{Image, ImageOptions, MemorySource};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

const LIMITS: Limits = Limits { entries: 100, file_bytes: 16 << 10, extents: 60 };

/// Input: an image.
pub fn image(data: &[u8]) {
    let options = ImageOptions::default().with_any_checksum().with_cache_bytes(1 << 20);
    if let Ok(image) = Image::open(Arc::new(MemorySource::new(data.to_vec())), Vec::new(), &options) {
        exercise(&image, &LIMITS);
    }
}

/// A valid image and its metadata.
struct Base {
    golden: Golden,
    metadata: Vec<Range<usize>>,
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let images = small_images().expect("the images are part of the project");
    let base = |golden: Golden| Base { metadata: golden.metadata().expect("good images"), golden };
    images.into_iter().map(base).collect()
});

impl Base {
    /// Returns the offset of the `nth` byte of all metadata.
    fn in_metadata(&self, nth: usize) -> Option<usize> {
        let total: usize = self.metadata.iter().map(ExactSizeIterator::len).sum();
        let mut rest = nth % total.max(1);
        for range in &self.metadata {
            match rest.checked_sub(range.len()) {
                Some(behind) => rest = behind,
                None => return Some(range.start + rest),
            }
        }
        None
    }
}

/// Input: a byte that selects a valid image, then patches of it: a byte (length, and whether the
/// place counts metadata only), two bytes for the place, the new bytes.
pub fn patched_image(data: &[u8]) {
    let mut input = Input(data);
    let base = &BASES[usize::from(input.u8()) % BASES.len()];
    let mut bytes = base.golden.bytes.clone();
    while !input.0.is_empty() {
        let (kind, place) = (input.u8(), usize::from(input.u16()));
        let at = if kind & 0x80 == 0 { base.in_metadata(place) } else { None }.unwrap_or(place % bytes.len());
        let patch = input.take(1 + usize::from(kind & 0x0F));
        let end = bytes.len().min(at + patch.len());
        bytes[at..end].copy_from_slice(&patch[..end - at]);
    }
    if let Ok(image) = base.golden.open_as(bytes) {
        exercise(&image, &LIMITS);
    }
}
