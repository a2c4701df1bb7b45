//! Regression tests of fuzzing: every input of `fuzz/corpus` with the target that it was found
//! with.

use kiln_read::Threads;
use kiln_tests::damage::Damager;
use kiln_tests::fuzz::{TARGETS, run};
use kiln_tests::golden::small_images;
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

/// Returns the sorted names in a directory.
fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn replay(target: &str) {
    let dir = corpus().join(target);
    let inputs = names(&dir);
    assert!(!inputs.is_empty(), "no inputs for {target}");
    for name in inputs {
        let data = fs::read(dir.join(&name)).unwrap();
        assert!(catch_unwind(|| run(target, &data)).is_ok(), "fuzz/corpus/{target}/{name}");
    }
}

macro_rules! replay {
    ($($test:ident $target:literal,)*) => {
        $(#[test] fn $test() { replay($target); })*

        #[test]
        fn every_target_has_a_program_a_corpus_and_a_test() {
            let targets: BTreeSet<_> = TARGETS.iter().map(|(name, _)| name.to_string()).collect();
            assert_eq!(targets, names(&corpus()));
            assert_eq!(targets, BTreeSet::from([$($target.to_owned()),*]));
            let programs = names(&corpus().join("../targets"));
            assert_eq!(programs, targets.iter().map(|name| format!("{name}.rs")).collect());
        }
    };
}

replay! {
    superblock "superblock",
    compr_cfg "compr-cfg",
    inode "inode",
    dirent "dirent",
    tables "tables",
    zmap "zmap",
    xattr "xattr",
    map "map",
    lz4 "lz4",
    lzma "lzma",
    deflate "deflate",
    zstd "zstd",
    image "image",
    patched_image "patched-image",
    tar "tar",
    cpio "cpio",
    zip "zip",
    squashfs "squashfs",
    ext4 "ext4",
    cramfs "cramfs",
    oci "oci",
    mtree "mtree",
    pseudo "pseudo",
    device_table "device-table",
    fs_config "fs-config",
    compressed "compressed",
    partitions "partitions",
    patch "patch",
    generation "generation",
    updated_image "updated-image",
    hot_list "hot-list",
    stamps "stamps",
    composefs_dump "composefs-dump",
    verity "verity",
    signature "signature",
}

/// The images that fuzzing starts from are valid; otherwise it would start from errors.
#[test]
fn the_small_images_are_good() {
    let images = small_images().unwrap();
    assert_eq!(images.len(), 27);
    for golden in images {
        let report = golden.open_as(golden.bytes.clone()).unwrap().check(Threads::ONE).unwrap();
        assert_eq!(report.problem_count, 0, "{}: {}", golden.name, report.problems[0]);
        assert!(report.inodes > 40);
        run("image", &golden.bytes);
    }
}

/// Targets for sources, lists, generations and hash trees, whose seeds are also mutated here: a format with few
/// fields needs no coverage to find bugs.
const SOURCES: [&str; 20] = [
    "tar",
    "cpio",
    "zip",
    "squashfs",
    "ext4",
    "cramfs",
    "oci",
    "mtree",
    "pseudo",
    "device-table",
    "fs-config",
    "compressed",
    "partitions",
    "generation",
    "updated-image",
    "hot-list",
    "stamps",
    "composefs-dump",
    "verity",
    "signature",
];

/// Returns the number of mutations per input. `KILN_FUZZ_ROUNDS=3000` and `KILN_FUZZ_SEED=7` in the
/// environment run more and other ones.
#[test]
fn mutated_sources_give_trees_or_errors() {
    let (count, seed) = (rounds("KILN_FUZZ_ROUNDS", 10, 1000), rounds("KILN_FUZZ_SEED", 1, 1));
    for target in SOURCES {
        let dir = corpus().join(target);
        let inputs: Vec<Vec<u8>> = names(&dir).iter().map(|name| fs::read(dir.join(name)).unwrap()).collect();
        let mut rng = Rng::new(seed);
        for (idx, input) in inputs.iter().enumerate() {
            let other = &inputs[(idx + 1) % inputs.len()];
            let mut damager = Damager::new(seed + idx as u64, vec![0..input.len().min(1024), 0..input.len()], 512);
            for _ in 0..count {
                let mut bytes = input.clone();
                mutate(&mut bytes, other, &mut damager, &mut rng);
                if catch_unwind(|| run(target, &bytes)).is_err() {
                    let kept = std::env::temp_dir().join(format!("kiln-found-{target}"));
                    fs::write(&kept, &bytes).unwrap();
                    panic!("{target}: the input is in {}", kept.display());
                }
            }
        }
    }
}

/// Changes fields of binary formats, and drops or repeats pieces of text.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], damager: &mut Damager, rng: &mut Rng) {
    if rng.below(2) == 0 || bytes.is_empty() {
        if !bytes.is_empty() {
            damager.damage(bytes, other);
        }
        return;
    }
    for _ in 0..=rng.below(3) {
        let start = rng.below(bytes.len() as u64 + 1) as usize;
        let end = (start + rng.below(40) as usize).min(bytes.len());
        let piece = bytes[start..end].to_vec();
        match rng.below(3) {
            0 => drop(bytes.drain(start..end)),
            1 => drop(bytes.splice(start..start, piece)),
            _ => {
                let digits = format!("{}", rng.word() >> rng.below(64));
                drop(bytes.splice(start..end, digits.into_bytes()));
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}
