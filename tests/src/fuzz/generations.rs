//! Images that were updated in place, and the records of their older trees.

use super::input::Input;
use crate::exercise::{Limits, exercise};
use crate::updated::UpdatedImage;
use kiln_format::generation::{END_LEN, GenerationEnd, GenerationRecord, RECORD_LEN};
use kiln_format::superblock::{SUPERBLOCK_OFF, Superblock};
use kiln_read::{Image, ImageOptions, MemorySource, ReadAt, ReadError, generations};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

const LIMITS: Limits = Limits { entries: 40, file_bytes: 16 << 10, extents: 40 };
/// Maximum number of generations opened.
const OPENED_MAX: usize = 6;
/// Maximum number of records whose checksums are corrected.
const REPAIRED_MAX: usize = 16;
const CHECKSUM: Range<usize> = 12..16;

/// Input: a byte that says whether to correct the checksum, 8 bytes for the place, a record or an
/// end. A decoded record must encode to the same bytes, except for ignored ones.
pub fn generation(data: &[u8]) {
    let mut input = Input(data);
    let (is_repaired, at) = (input.u8() % 2 == 1, input.u64());
    let mut end = [0; END_LEN];
    let len = input.0.len().min(END_LEN);
    end[..len].copy_from_slice(&input.0[..len]);
    if is_repaired {
        repair_end(&mut end);
    }
    if let Ok(Some(found)) = GenerationEnd::decode(&end, at) {
        assert_eq!(found.encode(), end);
    }
    let mut bytes = input.0.to_vec();
    if is_repaired {
        repair_record(&mut bytes);
    }
    if let Ok(record) = GenerationRecord::decode(&bytes, at) {
        let again = record.encode().expect("what was decoded fits");
        assert_eq!(GenerationRecord::decode(&again, at), Ok(record));
    }
}

/// An image of several generations, and its metadata ranges.
struct Base {
    image: UpdatedImage,
    metadata: Vec<Range<usize>>,
}

static BASE: LazyLock<Base> = LazyLock::new(|| {
    let image = UpdatedImage::make().expect("a good image");
    Base { metadata: image.metadata().expect("a good image"), image }
});

/// Input: a byte that says whether to correct the checksums of records, and whether an image
/// follows or patches of one with four generations. A patch is a byte for the length and whether
/// the place counts metadata only, two bytes for the place, the new bytes.
pub fn updated_image(data: &[u8]) {
    let mut input = Input(data);
    let kind = input.u8();
    let mut bytes = input.0.to_vec();
    if kind & 2 == 0 {
        bytes = BASE.image.bytes.clone();
        while !input.0.is_empty() {
            let (kind, place) = (input.u8(), usize::from(input.u16()));
            let range = &BASE.metadata[usize::from(kind >> 4) % BASE.metadata.len()];
            let at = if kind & 0x80 == 0 && !range.is_empty() { range.start + place % range.len() } else { place * 4 };
            let patch = input.take(1 + usize::from(kind & 0x0F));
            let end = bytes.len().min(at + patch.len());
            if at < end {
                bytes[at..end].copy_from_slice(&patch[..end - at]);
            }
        }
    }
    if kind & 1 == 1 {
        repair(&mut bytes);
    }
    ask(&bytes);
}

/// Opens all generations, and makes all requests to some of them.
///
/// # Panics
/// If answers contradict each other, or an error is not due to the image.
fn ask(bytes: &[u8]) {
    let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(bytes.to_vec()));
    let options = ImageOptions::default().with_any_checksum().with_cache_bytes(1 << 20);
    let open = |number| Image::open(source.clone(), Vec::new(), &options.clone().with_generation(Some(number)));
    let look_at = |error: ReadError| {
        assert!(!error.to_string().is_empty() && !matches!(error, ReadError::Internal { .. }), "{error}");
    };
    let list = match generations(&source) {
        Ok(list) => list,
        Err(error) => return look_at(error),
    };
    assert!((0..).zip(&list).all(|(number, found)| found.number == number), "numbers without gaps");
    assert!(list.windows(2).all(|pair| pair[0].end <= pair[1].start), "each lies behind the one before");
    for found in list.iter().rev().take(OPENED_MAX) {
        match open(found.number) {
            Ok(image) => drop(exercise(&image, &LIMITS)),
            Err(error) => look_at(error),
        }
    }
    let missing = open(list.len() as u32);
    assert!(matches!(missing, Err(ReadError::NoGeneration { .. })), "a generation behind the last one");
}

/// Corrects the checksums along the chain of records, as far as it leads.
fn repair(bytes: &mut [u8]) {
    let start = SUPERBLOCK_OFF as usize;
    let Some(mut head) = bytes.get(start..start + 512).map(<[u8]>::to_vec) else { return };
    for _ in 0..REPAIRED_MAX {
        let Ok(superblock) = Superblock::decode(&head) else { return };
        let end = superblock.blocks.saturating_mul(superblock.block_bits.len());
        let Some(place) = end.checked_sub(END_LEN as u64).map(|at| at as usize..end as usize) else { return };
        let Some(end_bytes) = bytes.get_mut(place) else { return };
        repair_end(end_bytes);
        let position = u64::from_le_bytes(end_bytes[8..16].try_into().expect("8 bytes"));
        let Some(record_end) = position.checked_add(RECORD_LEN as u64) else { return };
        let Some(record) = bytes.get_mut(position as usize..record_end as usize) else { return };
        repair_record(record);
        head = record[512..].to_vec();
    }
}

fn repair_end(bytes: &mut [u8]) {
    let (fields, checksum) = bytes.split_at_mut(END_LEN - 4);
    checksum.copy_from_slice(&crc32c::crc32c(fields).to_le_bytes());
}

fn repair_record(bytes: &mut [u8]) {
    let Some(record) = bytes.get_mut(..RECORD_LEN) else { return };
    record[CHECKSUM].fill(0);
    let checksum = crc32c::crc32c(record);
    record[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}
