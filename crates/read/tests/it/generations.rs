//! Older trees of images that were updated in place, and records that lie.

use kiln_format::generation::{END_LEN, GenerationEnd, GenerationRecord, HEAD_LEN, RECORD_LEN};
use kiln_format::superblock::{SUPERBLOCK_OFF, checksum, checksum_len, set_blocks};
use kiln_read::{
    FoundGenerations, GenerationDamage, Image, ImageOptions, MemorySource, ReadAt, ReadError, find_generations,
    generations,
};
use kiln_tests::golden;
use kiln_tests::snapshot::of_image;
use std::sync::Arc;

const BLOCK_LEN: usize = 4096;
const HEAD: std::ops::Range<usize> = SUPERBLOCK_OFF as usize..SUPERBLOCK_OFF as usize + HEAD_LEN;

/// Returns the start of the last generation, if `record` describes it, and the length of the image
/// then.
struct Added {
    position: usize,
    len: usize,
}

/// Append a generation that shows what the image shows, but for its label, as an update without
/// changes would.
fn add(bytes: &mut Vec<u8>, number: u32, previous: Option<u64>, label: &str) -> Added {
    let position = bytes.len();
    let head = bytes[HEAD].try_into().unwrap();
    let record = GenerationRecord {
        number,
        restored: None,
        position: position as u64,
        previous,
        time: 1_700_000_000 + i64::from(number),
        label: label.to_owned(),
        head,
    };
    bytes.extend(record.encode().unwrap());
    let len = (position + RECORD_LEN + END_LEN).next_multiple_of(BLOCK_LEN);
    bytes.resize(len - END_LEN, 0);
    bytes.extend(GenerationEnd { number, position: position as u64, end: len as u64 }.encode());
    set_blocks(&mut bytes[HEAD], (len / BLOCK_LEN) as u64).unwrap();
    bytes[HEAD.start + 64] = b'A' + number as u8;
    seal(bytes);
    Added { position, len }
}

/// Give the superblock its checksum.
fn seal(bytes: &mut [u8]) {
    let covered = &bytes[HEAD.start..][..checksum_len(kiln_read::BlockBits::DEFAULT)];
    let sum = checksum(covered).to_le_bytes();
    bytes[HEAD.start + 4..HEAD.start + 8].copy_from_slice(&sum);
}

fn source(bytes: &[u8]) -> Arc<dyn ReadAt> {
    Arc::new(MemorySource::new(bytes.to_vec()))
}

fn open(bytes: &[u8], generation: u32) -> Result<Image, ReadError> {
    Image::open(source(bytes), Vec::new(), &ImageOptions::default().with_generation(Some(generation)))
}

/// An image with two generations beside the first, and where these begin.
fn updated() -> (Vec<u8>, Vec<u8>, [Added; 2]) {
    let first = std::fs::read(golden::file("zstd.erofs")).unwrap();
    assert_eq!(first.len() % BLOCK_LEN, 0);
    let mut bytes = first.clone();
    let one = add(&mut bytes, 1, None, "one");
    let two = add(&mut bytes, 2, Some(one.position as u64), "two");
    (first, bytes, [one, two])
}

#[test]
fn generations_are_found_and_opened() {
    let (first, bytes, [one, two]) = updated();
    let list = generations(&source(&bytes)).unwrap();
    let told: Vec<_> = list.iter().map(|one| (one.number, one.label.as_str(), one.start, one.end)).collect();
    let [one_at, two_at] = [one.position as u64, two.position as u64];
    assert_eq!(told, [(0, "", 0, one_at), (1, "one", one_at, two_at), (2, "two", two_at, bytes.len() as u64)]);
    assert_eq!(list[1].time, Some(1_700_000_001));
    let before = of_image(&Image::open(source(&first), Vec::new(), &ImageOptions::default()).unwrap()).unwrap();
    for number in 0..3 {
        let image = open(&bytes, number).unwrap();
        assert_eq!(image.superblock(), &list[number as usize].superblock);
        assert_eq!(image.source_len(), list[number as usize].end);
        assert_eq!(of_image(&image).unwrap(), before);
    }
    let error = open(&bytes, 3).unwrap_err();
    assert!(matches!(error, ReadError::NoGeneration { number: 3, last: 2 }), "{error}");
    // The image as it was is its own and only generation.
    assert_eq!(generations(&source(&first)).unwrap().len(), 1);
    assert!(open(&first, 0).is_ok() && open(&first, 1).is_err());
}

#[test]
fn what_lies_is_refused() {
    let (_, bytes, [one, two]) = updated();
    // Each bit of the records and their ends that is looked at. The tree of the last generation is
    // there whatever they say.
    let places = [one.position..one.position + RECORD_LEN, two.position..two.position + RECORD_LEN];
    let ends = [one.len - END_LEN..one.len, two.len - END_LEN + 8..two.len];
    for place in places.into_iter().chain(ends) {
        for at in place {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            let error = generations(&source(&bytes)).unwrap_err();
            assert!(error.is_corrupt() || matches!(error, ReadError::Unsupported { .. }), "{at}: {error}");
            assert!(Image::open(source(&bytes), Vec::new(), &ImageOptions::default()).is_ok());
        }
    }
    // A generation before that claims to end behind the record that leads to it, and one that leads
    // to itself.
    let mut lies = bytes.clone();
    let mut record = GenerationRecord::decode(&lies[two.position..], two.position as u64).unwrap();
    set_blocks(&mut record.head, (two.len / BLOCK_LEN) as u64).unwrap();
    lies[two.position..][..RECORD_LEN].copy_from_slice(&record.encode().unwrap());
    assert!(generations(&source(&lies)).is_err());
    // A first generation where a second one is expected.
    let mut lies = bytes.clone();
    let mut record = GenerationRecord::decode(&lies[two.position..], two.position as u64).unwrap();
    (record.number, record.previous) = (1, None);
    lies[two.position..][..RECORD_LEN].copy_from_slice(&record.encode().unwrap());
    assert!(generations(&source(&lies)).is_err());
    // Cut off anywhere behind the superblock.
    for len in (1024..bytes.len()).step_by(509) {
        let _ = generations(&source(&bytes[..len]));
    }
}

fn numbers(found: &FoundGenerations) -> Vec<u32> {
    found.whole.iter().map(|one| one.number).collect()
}

#[test]
fn what_is_whole_is_found_in_an_image_that_is_cut() {
    let (first, bytes, [one, two]) = updated();
    let whole = find_generations(&source(&bytes)).unwrap();
    assert!(whole.damage.is_none() && numbers(&whole) == [0, 1, 2]);
    let before = of_image(&Image::open(source(&first), Vec::new(), &ImageOptions::default()).unwrap()).unwrap();
    for len in (1536..bytes.len()).step_by(509).chain([two.position + RECORD_LEN, two.position + RECORD_LEN - 1]) {
        let cut = &bytes[..len];
        let found = find_generations(&source(cut)).unwrap();
        let damage = found.damage.clone().unwrap();
        assert!(matches!(damage, GenerationDamage::Cut { len: at, .. } if at == len as u64), "{damage}");
        // The generation in front of the next record is complete.
        let count = [&one, &two].iter().filter(|added| added.position + RECORD_LEN <= len).count() as u32;
        assert_eq!(numbers(&found), (0..count).collect::<Vec<_>>(), "{len}");
        for number in 0..count {
            assert_eq!(of_image(&open(cut, number).unwrap()).unwrap(), before, "{len} {number}");
        }
        let error = open(cut, count).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains("kiln log"), "{error}");
    }
}

#[test]
fn what_is_whole_is_found_without_superblock_or_records() {
    let (_, bytes, [one, two]) = updated();
    let mut no_superblock = bytes.clone();
    no_superblock[HEAD].fill(0);
    let found = find_generations(&source(&no_superblock)).unwrap();
    assert!(matches!(found.damage, Some(GenerationDamage::NoSuperblock(_))) && numbers(&found) == [0, 1]);
    assert_eq!((found.whole[1].label.as_str(), found.whole[1].end), ("one", two.position as u64));
    assert!(open(&no_superblock, 1).is_ok() && open(&no_superblock, 2).is_err());
    // A record is the only one that has the superblock of the generation before.
    for (added, whole) in [(&one, &[1, 2][..]), (&two, &[0, 2])] {
        let mut damaged = bytes.clone();
        damaged[added.position + 600] ^= 1;
        let found = find_generations(&source(&damaged)).unwrap();
        assert!(matches!(found.damage, Some(GenerationDamage::Record(_))), "{:?}", found.damage);
        assert_eq!(numbers(&found), whole);
        assert!(whole.iter().all(|number| open(&damaged, *number).is_ok()) && generations(&source(&damaged)).is_err());
    }
    // Neither is of this image: a record of another one, and one that does not lie where its
    // generation ends.
    let mut others = no_superblock.clone();
    let mut record = GenerationRecord::decode(&others[two.position..], two.position as u64).unwrap();
    record.position = others.len() as u64;
    others.extend(record.encode().unwrap());
    assert_eq!(numbers(&find_generations(&source(&others)).unwrap()), [0, 1]);
    assert!(find_generations(&source(&vec![0; 1 << 16])).is_err(), "no image");
}
