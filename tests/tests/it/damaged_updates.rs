//! Updates of damaged images give an error or a readable image, and do not change the bytes of the
//! old one.
//!
//! `KILN_BASE_ROUNDS=n` sets how often each image is damaged, as for bases.

use kiln_read::{MemorySource, ReadAt, generations};
use kiln_tests::damage::Damager;
use kiln_tests::disk::Disk;
use kiln_tests::golden::{golden_images, remove_checksum};
use kiln_tests::image::open;
use kiln_tests::rounds;
use kiln_tests::updated::{UpdatedImage, begin, without};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Counts of the results of updates.
#[derive(Default)]
struct Outcome {
    updated: u32,
    refused: u32,
}

/// Updates an untrusted image, and rolls it back.
fn survives(bytes: &[u8], what: &str, outcome: &mut Outcome) {
    let disk = Disk::new(bytes.to_vec(), &Arc::new(AtomicU64::new(u64::MAX)));
    // Any existing path is good enough.
    let victim = open(bytes.to_vec()).ok().and_then(|image| {
        let root = image.inode(image.root_nid()).ok()?;
        let mut walk = image.walk(&root, b"").filter_map(Result::ok).map(|entry| entry.path);
        walk.find(|path| path.len() > 1)
    });
    let acts: [&dyn Fn() -> Result<(), kilnfs::Error>; 2] =
        [&|| without(&disk, victim.as_deref().unwrap_or(b"nothing")).map(drop), &|| {
            begin(&disk)?.roll_back(0, &Default::default())?;
            Ok(())
        }];
    for act in acts {
        let before = disk.now();
        match act() {
            Ok(()) => {
                outcome.updated += 1;
                let after = disk.now();
                assert!(open(after.clone()).is_ok(), "{what}: what was written cannot be opened");
                let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(after.clone()));
                let list = generations(&source).unwrap_or_else(|error| panic!("{what}: {error}"));
                let end = list[list.len() - 2].end as usize;
                assert!(after[1536..end] == before[1536..end] && after[..1024] == before[..1024], "{what}");
            }
            Err(error) => {
                outcome.refused += 1;
                let error = error.to_string();
                assert!(!error.contains("internal error"), "{what}: {error}");
                // The bytes after the image may have been the remains of an update.
                assert!(before.starts_with(&disk.now()), "{what}: an error, and other bytes");
            }
        }
    }
}

fn all_survive(name: &str, bytes: &[u8], metadata: Vec<Range<usize>>, block_len: usize, count: u64) -> Outcome {
    let mut damager = Damager::new(11, metadata, block_len);
    let mut outcome = Outcome::default();
    for round in 0..count {
        let mut damaged = bytes.to_vec();
        let what = if round == 0 { "nothing".to_owned() } else { damager.damage(&mut damaged, bytes) };
        remove_checksum(&mut damaged);
        survives(&damaged, &format!("{name}, round {round}: {what}"), &mut outcome);
    }
    outcome
}

#[test]
fn damaged_images_are_updated_or_refused() {
    let count = rounds("KILN_BASE_ROUNDS", 10, 300);
    let image = UpdatedImage::make().unwrap();
    let metadata = image.metadata().unwrap();
    let outcome = all_survive("four generations", &image.bytes, metadata, 4096, 20 * count);
    assert!(outcome.updated > 0 && outcome.refused > 0, "{} {}", outcome.updated, outcome.refused);
    for golden in golden_images().unwrap().iter().filter(|golden| golden.blob.is_none()) {
        let block_len = golden.open_as(golden.bytes.clone()).unwrap().superblock().block_bits.len();
        all_survive(&golden.name, &golden.bytes, golden.metadata().unwrap(), block_len as usize, count);
    }
}

#[test]
fn no_rollback_shows_a_tree_that_cannot_be_opened() {
    let UpdatedImage { mut bytes } = UpdatedImage::make().unwrap();
    let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(bytes.clone()));
    let first = &generations(&source).unwrap()[0].superblock;
    let root = (first.meta_blkaddr.0 << first.block_bits.bits()) + first.root_nid.0 * 32;
    bytes[root as usize..][..32].fill(0xFF);
    let disk = Disk::new(bytes, &Arc::new(AtomicU64::new(u64::MAX)));
    let before = disk.now();
    // Generation 2 shows the tree of the first one again.
    for number in [0, 2] {
        let error = begin(&disk).unwrap().roll_back(number, &Default::default()).unwrap_err();
        assert!(error.to_string().starts_with("image: "), "{error}");
    }
    assert!(disk.now() == before);
    begin(&disk).unwrap().roll_back(1, &Default::default()).unwrap();
}
