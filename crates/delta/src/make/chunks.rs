//! Content-defined chunks of the old image's text, which find text of the new image in any file.

use kiln_read::Image;
use std::collections::HashMap;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{DeltaError, Side};
use crate::make::map::ImageMap;
use crate::make::region::TextPlace;

/// Minimum and maximum length of a chunk in bytes. Shorter chunks find more and take more memory.
const MIN_LEN: usize = 256;
const MAX_LEN: usize = 8 << 10;
/// A chunk ends where the hash is below this value: on average after 1 KiB.
const CUT_BELOW: u64 = u64::MAX >> 10;
/// Number of bytes of text read at once.
const READ_LEN: usize = 4 << 20;

/// 64 random bits for each byte value.
const GEAR: [u64; 256] = {
    let mut gear = [0; 256];
    let (mut idx, mut state) = (0, 0x9E37_79B9_7F4A_7C15_u64);
    while idx < 256 {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        gear[idx] = bits ^ (bits >> 31);
        idx += 1;
    }
    gear
};

/// Returns the chunks of `text`, in order.
pub(crate) fn chunks(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = &text[start..];
        if rest.is_empty() {
            return None;
        }
        let mut hash = 0u64;
        let limit = rest.len().min(MAX_LEN);
        // The hash depends on the last 64 bytes only.
        let mut len = limit.min(MIN_LEN - 64);
        while len < limit {
            hash = (hash << 1).wrapping_add(GEAR[usize::from(rest[len])]);
            len += 1;
            if len >= MIN_LEN && hash < CUT_BELOW {
                break;
            }
        }
        let chunk = start..start + len;
        start += len;
        Some(chunk)
    })
}

/// Position of the first occurrence of each chunk of the old text.
#[derive(Default)]
pub(crate) struct ChunkIndex {
    places: HashMap<u64, TextPlace>,
}

impl ChunkIndex {
    /// Indexes all text of an image: the packed inode, and files stored separately. Holes are
    /// skipped.
    pub(crate) fn new(
        image: &Image,
        map: &ImageMap,
        check: &dyn Fn() -> Result<(), DeltaError>,
    ) -> Result<Self, DeltaError> {
        let mut index = Self::default();
        let mut text = vec![0; READ_LEN];
        for (idx, file) in map.files.iter().enumerate() {
            for range in &file.own_text {
                let mut off = range.start;
                while off < range.end {
                    check()?;
                    let len = (range.end - off).min(READ_LEN as u64) as usize;
                    let read = image.read_at(&file.inode, &mut text[..len], off);
                    read.map_err(DeltaError::image(Side::Old))?;
                    for chunk in chunks(&text[..len]) {
                        let place = TextPlace { source: idx as u32, off: off + chunk.start as u64 };
                        index.places.entry(xxh3_64(&text[chunk])).or_insert(place);
                    }
                    off += len as u64;
                }
            }
        }
        Ok(index)
    }

    pub(crate) fn find(&self, chunk: &[u8]) -> Option<TextPlace> {
        self.places.get(&xxh3_64(chunk)).copied()
    }
}
