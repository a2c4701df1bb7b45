//! Index of the old image's pclusters by hash, to find stored bytes that both images have.

use kiln_read::ReadAt;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{DeltaError, Side};
use crate::make::map::{ImageMap, Span, SpanStorage};

/// Number of bytes of an unencoded span that are compared at once.
const PART_LEN: u64 = 64 << 10;

/// Addresses of stored bytes in the old image, by length and hash.
pub(crate) struct StoredIndex {
    places: HashMap<(u64, u64), u64>,
}

impl StoredIndex {
    pub(crate) fn new(
        source: &dyn ReadAt,
        map: &ImageMap,
        check: &dyn Fn() -> Result<(), DeltaError>,
    ) -> Result<Self, DeltaError> {
        let (mut places, mut buf) = (HashMap::new(), Vec::new());
        for span in &map.spans {
            check()?;
            for (pa, len) in parts(span) {
                read(source, pa, len, &mut buf, Side::Old)?;
                places.entry((xxh3_64(&buf), len)).or_insert(pa);
            }
        }
        Ok(Self { places })
    }

    /// Returns the address and length of each part of a span of the new image in the old one;
    /// `None` if a part is missing.
    pub(crate) fn find(
        &self,
        span: &Span,
        new: &dyn ReadAt,
        old: &dyn ReadAt,
    ) -> Result<Option<Vec<(u64, u64)>>, DeltaError> {
        let (mut found, mut bytes, mut there) = (Vec::new(), Vec::new(), Vec::new());
        for (pa, len) in parts(span) {
            read(new, pa, len, &mut bytes, Side::New)?;
            let Some(&at) = self.places.get(&(xxh3_64(&bytes), len)) else { return Ok(None) };
            read(old, at, len, &mut there, Side::Old)?;
            if bytes != there {
                return Ok(None);
            }
            found.push((at, len));
        }
        Ok(Some(found))
    }
}

/// Splits a span into parts that are compared as a whole. Returns their addresses and lengths.
fn parts(span: &Span) -> impl Iterator<Item = (u64, u64)> + use<> {
    let step = if span.stored == SpanStorage::Raw { PART_LEN } else { span.plen };
    let bytes = span.bytes();
    (0..span.plen.div_ceil(step)).map(move |n| {
        let pa = bytes.start + n * step;
        (pa, step.min(bytes.end - pa))
    })
}

fn read(source: &dyn ReadAt, off: u64, len: u64, buf: &mut Vec<u8>, side: Side) -> Result<(), DeltaError> {
    buf.resize(len as usize, 0);
    source.read_exact_at(buf, off).map_err(|source| DeltaError::ImageBytes { side, off, len, source })
}
