//! Increments over damaged images give an error or a readable image.

use kiln_revise::{IncrementBase, Trust};
use kiln_tests::damage::Damager;
use kiln_tests::golden::golden_images;
use kiln_tests::rounds;
use kiln_tests::temp::TempDir;
use kilnfs::output::MemoryOutput;
use kilnfs::{Packer, Preset, Threads};
use std::fs;

#[test]
fn damaged_bases_give_errors_or_images() {
    let rounds = rounds("KILN_BASE_ROUNDS", 12, 1000);
    let dir = TempDir::new("damaged-bases").unwrap();
    let (src, path) = (dir.join("src"), dir.join("base.erofs"));
    let (mut built, mut refused) = (0, 0);
    for golden in golden_images().unwrap().iter().filter(|golden| golden.blob.is_none()) {
        // The tree of the image, so that all of it is reused if possible.
        let image = golden.open_as(golden.bytes.clone()).unwrap();
        kilnfs::extract(&golden.path, &src).unwrap();
        let block_len = image.superblock().block_bits.len();
        let mut damager = Damager::new(7, golden.metadata().unwrap(), block_len as usize);
        for round in 0..rounds {
            let mut bytes = golden.bytes.clone();
            let what = if round == 0 { "nothing".to_owned() } else { damager.damage(&mut bytes, &golden.bytes) };
            kiln_tests::golden::remove_checksum(&mut bytes);
            fs::write(&path, bytes).unwrap();
            let preset = *[Preset::Balanced, Preset::Plain, Preset::Dataset].get(round as usize % 3).unwrap();
            let Ok(base) = IncrementBase::open(&path, Trust::Times) else {
                refused += 1;
                continue;
            };
            let choices = kilnfs::builder::Choices { preset, block_len: Some(block_len), ..Default::default() };
            let packer = Packer::new().choices(choices).threads(Threads::ONE).base(base);
            let out = MemoryOutput::default();
            match packer.pack_to(&src, &out) {
                Ok(_) => built += 1,
                Err(error) => {
                    assert!(round > 0, "{}: {error}", golden.name);
                    let error = error.to_string();
                    assert!(!error.contains("internal error"), "{}: {what}: {error}", golden.name);
                    refused += 1;
                }
            }
        }
        fs::remove_dir_all(&src).unwrap();
    }
    assert!(built > 0 && refused > 0, "{built} {refused}");
}
