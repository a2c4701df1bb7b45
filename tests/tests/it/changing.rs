//! Directories that change while they are packed: what is in the image is, for every file, bytes that
//! the file had at that place when it was read, and all changes are told.
//!
//! `KILN_CHANGING=n` sets the number of images: 24 by default, 1,000 with `./test.sh --long`.
//! `KILN_CHANGING_FROM=n` sets the first seed; a failure names its own. A seed gives the same
//! directory and options, and the same changes for each thread, but threads meet by chance.

use kiln_builder::{
    BuildOptions, Choices, Compression, ContentDigests, Dedupe, Fragments, MethodChoice, Preset, Skipped, Trial,
};
use kiln_codec::{Method, Spec};
use kiln_read::{DigestCheck, Threads};
use kiln_tests::image::{build, exactly, open, scan_dir};
use kiln_tests::restless::Restless;
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use kiln_tests::slow::Slow;
use kiln_tests::temp::TempDir;
use kiln_tree::DigestName;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const ROUNDS: u64 = 24;
const LONG_ROUNDS: u64 = 1000;

/// Counts of what was found in images.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Files with the contents that were scanned.
    first: u64,
    /// Files with other contents.
    changed: u64,
    /// Files that are left out.
    skipped: u64,
    /// Units of 4 KiB that were read while they were written or cut off.
    torn: u64,
}

/// Returns random options of a build that keeps going.
fn random_options(rng: &mut Rng) -> BuildOptions {
    let presets = [Preset::Plain, Preset::Fast, Preset::Balanced, Preset::Archive, Preset::Dataset, Preset::Backup];
    let preset = *rng.pick(&presets);
    let fastest = MethodChoice { level: Some(0), ..MethodChoice::from(Method::Lzma) };
    let is_archive = preset == Preset::Archive;
    let choices = Choices {
        preset,
        compression: is_archive.then_some(Compression::By(fastest)),
        pcluster_len: is_archive.then_some(64 << 10),
        encoded_extents: (preset != Preset::Plain && rng.below(3) == 0).then_some(true),
        ..Choices::default()
    };
    choices.build_options().unwrap().with(|o| {
        o.dedupe = *rng.pick(&[Dedupe::Off, Dedupe::Files, Dedupe::Parts]);
        let fragments = [Fragments::Off, Fragments::UpTo(64 << 10), Fragments::Tails(32 << 10)];
        o.packing.fragments = if is_archive { Fragments::UpTo(u64::MAX) } else { *rng.pick(&fragments) };
        o.layout.chunk_bits = *rng.pick(&[None, None, Some(12), Some(16)]);
        if let Some(Spec { pcluster_len, .. }) = o.compression.spec.filter(|_| rng.below(4) == 0) {
            let other = Spec { method: Method::Deflate, level: 1, pcluster_len, window_len: None };
            o.compression.trial = Trial { specs: vec![other], budget_percent: 300 };
        }
        if rng.below(3) == 0 {
            o.metadata.content_digests = ContentDigests::Named(DigestName::Usual);
        }
        o.work.threads = exactly(1 + rng.below(2) as usize);
        o.work.readers = exactly(*rng.pick(&[1, 8]));
        o.work.memory = *rng.pick(&[1 << 20, 16 << 20, 512 << 20]);
        o.work.scratch_dir = std::env::temp_dir();
        o.work.keep_going = true;
    })
}

/// Packs a directory that changes, and explains each file of the image.
fn pack_changing(seed: u64) -> Counts {
    let mut rng = Rng::new(seed ^ 0xC4A6);
    let dir = if seed.is_multiple_of(2) { TempDir::in_memory("restless") } else { TempDir::new("restless") }.unwrap();
    let (root, aside) = (dir.dir("root"), dir.dir("aside"));
    let mut restless = Restless::make(&root, &aside, seed).unwrap();
    let options = random_options(&mut rng);
    let longest = Duration::from_micros(*rng.pick(&[1, 300, 2000]));
    let step = *rng.pick(&[64 << 10, 1 << 20]);
    let tree = Slow::tree(scan_dir(&root, 2).unwrap().tree, seed, longest, step);
    let (image, summary) = restless.change_during(|| build(&tree, &options)).unwrap();
    let image = open(image).unwrap();
    let report = image.check(Threads::ONE).unwrap();
    assert_eq!(report.problem_count, 0, "{}", report.problems[0]);

    let paths = |list: &[Skipped]| list.iter().map(|one| one.path.clone()).collect::<BTreeSet<_>>();
    let (changed, skipped) = (paths(&summary.changed), paths(&summary.skipped));
    assert!(changed.is_disjoint(&skipped) && summary.damaged.is_empty());
    let start = image.inode(image.root_nid()).unwrap();
    let entries = image.walk(&start, b"").map(Result::unwrap).filter(|entry| entry.inode.is_file());
    let mut stored: BTreeMap<_, _> = entries.map(|entry| (entry.path, entry.inode)).collect();
    let mut counts = Counts::default();
    for (path, is_restless) in restless.paths() {
        let is_told = changed.contains(path.as_bytes());
        let Some(inode) = stored.remove(path.as_bytes()) else {
            assert!(is_restless && skipped.contains(path.as_bytes()), "{path} is missing");
            counts.skipped += 1;
            continue;
        };
        let mut bytes = vec![0; inode.meta.size as usize];
        assert_eq!(image.read_at(&inode, &mut bytes, 0).unwrap(), bytes.len(), "{path}");
        let found = restless.explain(path, &bytes).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(found.is_first || is_told, "{path} has changed, and nothing tells it");
        assert!(is_restless || (found.is_first && !is_told), "{path} has not changed");
        let has_digest = options.metadata.content_digests != ContentDigests::AsSource && !bytes.is_empty();
        let digest = if has_digest { DigestCheck::Equal } else { DigestCheck::Absent };
        assert_eq!(image.check_digest(&inode).unwrap(), digest, "{path}");
        *(if found.is_first { &mut counts.first } else { &mut counts.changed }) += 1;
        counts.torn += found.torn;
    }
    assert!(stored.is_empty(), "files that were not scanned: {:?}", stored.keys());
    counts
}

#[test]
fn what_is_stored_of_files_that_change_is_what_was_read() {
    let (first, count) = (rounds("KILN_CHANGING_FROM", 0, 0), rounds("KILN_CHANGING", ROUNDS, LONG_ROUNDS));
    let mut all = Counts::default();
    for seed in first..first + count {
        let counts = catch_unwind(AssertUnwindSafe(|| pack_changing(seed)));
        let Ok(Counts { first, changed, skipped, torn }) = counts else {
            let options = random_options(&mut Rng::new(seed ^ 0xC4A6));
            panic!("the image above failed, KILN_CHANGING=1 KILN_CHANGING_FROM={seed}: {options:?}");
        };
        all.first += first;
        all.changed += changed;
        all.skipped += skipped;
        all.torn += torn;
    }
    println!("{count} images from seed {first}: {all:?}");
    // Otherwise changes would come too early, too late or not at all.
    assert!(count < ROUNDS || (all.first > 0 && all.changed > 0 && all.skipped > 0), "{all:?}");
}
