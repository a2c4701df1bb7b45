//! What fuzzing kept, run again: every input of `fuzz/corpus` through the function that it was found with.

use kiln_read::Threads;
use kiln_tests::fuzz::{TARGETS, run};
use kiln_tests::golden::small_images;
use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

/// Names in a directory, sorted.
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
}

/// The images that fuzzing starts from are good ones: else it would start from errors.
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
