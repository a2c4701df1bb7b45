//! Patches applied resumably: interrupted at every write, and with unsynced writes lost.

use crate::common::{files, image, make, next, preset, source};
use kiln_builder::{Control, Preset};
use kiln_delta::resumable::{self, ResumeReport};
use kiln_delta::{DeltaError, Patch};
use kiln_output::Output;
use kiln_parallel::Threads;
use kiln_tests::disk::Disk;
use kiln_tests::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Distance between notes in bytes, so that an image of these tests has several.
const STEP_LEN: u64 = 60_000;

struct Case {
    old: Vec<u8>,
    new: Vec<u8>,
    patch: Vec<u8>,
}

fn case(seed: u64, one: Preset) -> Case {
    let files: Vec<_> = files(seed).into_iter().skip(50).filter(|(_, bytes)| bytes.len() < 400_000).collect();
    let (old, new) = (image(&files, &preset(one)), image(&next(&files, seed + 1), &preset(one)));
    let (patch, _) = make(&old, &new, false);
    assert!(new.len() as u64 > 4 * STEP_LEN);
    Case { old, new, patch }
}

fn unlimited() -> Arc<AtomicU64> {
    Arc::new(AtomicU64::new(u64::MAX))
}

impl Case {
    fn run(&self, partial: &Disk) -> Result<ResumeReport, DeltaError> {
        let patch = Patch::open(&self.patch[..])?.with_threads(Threads::at_least_one(2));
        let control = Control { stop: &AtomicBool::new(false), progress: &|_| {} };
        let done = resumable::apply(patch, source(&self.old), partial, STEP_LEN, &control)?;
        // As the caller does before it renames the file.
        partial.sync().map_err(|source| DeltaError::Write { action: "sync", source })?;
        Ok(done)
    }

    /// Continues with these bytes, without a limit. Returns how many of them were used.
    fn complete(&self, bytes: Vec<u8>, what: &str) -> u64 {
        let disk = Disk::new(bytes, &unlimited());
        let done = self.run(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(disk.durable() == self.new, "{what}: other bytes than those of the new image");
        done.there
    }
}

/// Cuts the power after each write and sync, and once more while the next run continues.
fn cut_everywhere(case: &Case) {
    let mut rng = Rng::new(case.new.len() as u64);
    let (mut went_on, mut lost) = (0, 0);
    for count in 0.. {
        let disk = Disk::new(Vec::new(), &Arc::new(AtomicU64::new(count)));
        if case.run(&disk).is_ok() {
            assert!(disk.durable() == case.new, "done, but not durable");
            break;
        }
        let what = format!("cut behind {count}");
        // The process dies, but not the system.
        let kept = case.complete(disk.now(), &what);
        for bytes in [disk.durable(), disk.after_power_cut(&mut rng), disk.after_power_cut(&mut rng)] {
            let again = Disk::new(bytes, &Arc::new(AtomicU64::new(rng.below(count + 3))));
            let bytes = match case.run(&again) {
                Ok(_) => again.durable(),
                Err(_) => again.after_power_cut(&mut rng),
            };
            let there = case.complete(bytes, &what);
            (went_on, lost) = (went_on + u32::from(there > 0), lost + u32::from(there < kept));
        }
    }
    assert!(went_on > 0 && lost > 0, "{went_on} went on, {lost} had lost something");
}

#[test]
fn a_run_that_is_cut_short_is_completed_by_the_next() {
    for (seed, one) in [(1, Preset::Fast), (2, Preset::Balanced)] {
        cut_everywhere(&case(seed, one));
    }
}

#[test]
fn remains_are_used_only_if_valid() {
    let case = case(3, Preset::Balanced);
    // All but the last write.
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let disk = Disk::new(Vec::new(), &left);
    case.run(&disk).unwrap();
    let total = {
        let mut total = 0;
        while case.run(&Disk::new(Vec::new(), &Arc::new(AtomicU64::new(total)))).is_err() {
            total += 1;
        }
        total
    };
    let disk = Disk::new(Vec::new(), &Arc::new(AtomicU64::new(total - 2)));
    case.run(&disk).unwrap_err();
    let bytes = disk.now();
    let header = Patch::open(&case.patch[..]).unwrap().header().clone();
    let whole = case.complete(bytes.clone(), "all but the end");
    assert!(whole >= case.new.len() as u64 - 2 * STEP_LEN, "{whole} of {}", case.new.len());
    assert_eq!(resumable::kept_len(&header, &*Disk::new(bytes.clone(), &unlimited())).unwrap(), whole);

    // Damage after the first note leaves the bytes before that note; damage before both leaves
    // nothing.
    let mut damaged = bytes.clone();
    damaged[whole as usize - 1] ^= 1;
    let less = case.complete(damaged.clone(), "damage behind");
    assert!(less > 0 && less < whole, "{less} of {whole}");
    damaged[5000] ^= 1;
    assert_eq!(case.complete(damaged, "damage in front"), 0);
    let mut zeros = bytes.clone();
    zeros[..whole as usize].fill(0);
    assert_eq!(case.complete(zeros, "lost writes"), 0);

    // Damaged notes, and a file that is too short for its note.
    let notes = case.new.len().next_multiple_of(4096);
    let mut rng = Rng::new(4);
    for _ in 0..60 {
        let mut damaged = bytes.clone();
        let at = notes + rng.below((damaged.len() - notes) as u64) as usize;
        damaged[at] ^= 1 << rng.below(8);
        assert!([0, less, whole].contains(&case.complete(damaged, "a damaged note")));
    }
    assert_eq!(case.complete(bytes[..notes - 4096].to_vec(), "without notes"), 0);

    // Remains of another image.
    let other = self::case(5, Preset::Fast);
    assert_eq!(other.complete(bytes.clone(), "of another image"), 0);
    assert_eq!(case.complete(vec![0xA5; 3 * case.new.len()], "anything"), 0);
    // Bytes of the same image, made by another patch, are equally good.
    let (portable, _) = make(&case.old, &case.new, true);
    let other = Case { old: case.old.clone(), new: case.new.clone(), patch: portable };
    assert_eq!(other.complete(bytes, "by another patch"), whole);
}

#[test]
fn another_old_image_changes_nothing() {
    let case = case(6, Preset::Fast);
    let disk = Disk::new(b"something".to_vec(), &unlimited());
    let patch = Patch::open(&case.patch[..]).unwrap();
    let control = Control { stop: &AtomicBool::new(false), progress: &|_| {} };
    let refused = resumable::apply(patch, source(&case.new), &*disk, STEP_LEN, &control).unwrap_err();
    assert!(matches!(refused, DeltaError::WrongOld { .. }), "{refused}");
    assert!(disk.now() == b"something");
}
