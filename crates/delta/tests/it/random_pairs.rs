//! Seeded pairs of images of generated trees with random options: a patch restores the new image
//! with any number of threads.

use crate::common::{Files, files, make, next, source};
use kiln_builder::{BuildOptions, Preset, Spec};
use kiln_codec::Method;
use kiln_delta::Patch;
use kiln_parallel::Threads;
use kiln_tests::rng::Rng;
use std::sync::atomic::AtomicBool;

/// A method with pclusters of 4 KiB to 1 MiB, or the method of a preset.
fn options(rng: &mut Rng) -> BuildOptions {
    let preset = Preset::ALL[rng.below(Preset::ALL.len() as u64) as usize];
    let options = crate::common::preset(preset);
    if rng.below(3) == 0 {
        return options;
    }
    let method = Method::ALL[rng.below(Method::ALL.len() as u64) as usize];
    let len = 4096 << rng.below(9);
    let level = match method {
        Method::Lz4 => None,
        Method::Lz4hc => Some(1 + rng.below(9) as i32),
        Method::Lzma => Some(rng.below(4) as i32),
        Method::Deflate => Some(1 + rng.below(6) as i32),
        Method::Zstd => Some(1 + rng.below(9) as i32),
    };
    let compression = Some(Spec::new(method, level, len).unwrap());
    options.with(|o| {
        o.compression.spec = compression;
        o.compression.encoded_extents = rng.below(3) == 0;
    })
}

fn some(files: Files, rng: &mut Rng) -> Files {
    files.into_iter().filter(|(_, bytes)| bytes.len() < 400_000 && rng.below(3) > 0).collect()
}

#[test]
fn any_image_becomes_any_other() {
    for seed in 0..kiln_tests::rounds("KILN_DELTA_PAIRS", 8, 400) {
        let mut rng = Rng::new(seed + 100);
        let tree = some(files(seed), &mut rng);
        // Two versions, or two trees that have little in common.
        let other = if rng.below(4) > 0 { next(&tree, seed + 1) } else { some(files(seed + 7), &mut rng) };
        let old_options = options(&mut rng);
        let new_options = if rng.below(2) == 0 { old_options.clone() } else { options(&mut rng) };
        let (old, new) = (crate::common::image(&tree, &old_options), crate::common::image(&other, &new_options));
        let portable = rng.below(5) == 0;
        let (patch, made) = make(&old, &new, portable);
        for threads in [1, 3] {
            let mut bytes = Vec::new();
            let applied = Patch::open(&patch[..]).unwrap().with_threads(Threads::at_least_one(threads)).apply(
                source(&old),
                &mut |_, part| {
                    bytes.extend_from_slice(part);
                    Ok(())
                },
                &AtomicBool::new(false),
            );
            let applied = applied.unwrap_or_else(|error| panic!("seed {seed}, {threads} threads: {error}"));
            assert!(bytes == new, "seed {seed}, {threads} threads: other bytes");
            assert_eq!((applied.copied, applied.encoded), (made.copied, made.encoded), "seed {seed}");
        }
    }
}
