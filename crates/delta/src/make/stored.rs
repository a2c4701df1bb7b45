//! Stored bytes that both images have: pclusters of the old image by their hashes.

use kiln_read::ReadAt;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{DeltaError, Side};
use crate::make::map::{ImageMap, Span, Stored};

/// Bytes of a span that is stored as it is that are compared at a time.
const PART_LEN: u64 = 64 << 10;

/// Where the old image has stored bytes.
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

    /// Where the old image has the bytes of a span of the new one, part by part: their lengths and addresses.
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

/// A span in parts, each of which is compared as a whole: addresses and lengths.
fn parts(span: &Span) -> impl Iterator<Item = (u64, u64)> + use<> {
    let step = if span.stored == Stored::Raw { PART_LEN } else { span.plen };
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
