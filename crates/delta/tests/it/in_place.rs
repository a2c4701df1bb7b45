//! Patches applied over the old image: interrupted at every write, and with unsynced writes lost.

use crate::common::{files, image, make, next, preset};
use kiln_builder::{Control, Preset};
use kiln_delta::in_place::{self, Identity, InPlace, Resize, Target};
use kiln_delta::{DeltaError, Patch};
use kiln_tests::disk::Disk;
use kiln_tests::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The images and a patch. The new image is longer or shorter.
pub fn case(grows: bool) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let files: Vec<_> = files(1).into_iter().skip(55).filter(|(_, bytes)| bytes.len() < 250_000).collect();
    let (a, b) = (image(&files, &preset(Preset::Fast)), image(&next(&files, 2), &preset(Preset::Fast)));
    let (old, new) = if (a.len() < b.len()) == grows { (a, b) } else { (b, a) };
    let (patch, _) = make(&old, &new, false);
    (old, new, patch)
}

/// Returns a disk as a target.
pub fn target(device: &Arc<Disk>, resize: Resize) -> Target<Disk> {
    Target { device: device.clone(), len: device.now().len() as u64, resize, identity: Identity::default() }
}

pub fn run(patch: &[u8], device: &Arc<Disk>, journal: &Disk, resize: Resize) -> Result<InPlace, DeltaError> {
    let target = target(device, resize);
    let control = Control { stop: &AtomicBool::new(false), progress: &|_| {} };
    in_place::apply(Patch::open(patch)?, &target, journal, &control)
}

/// Cuts the power after each write and sync, and once more while the next run completes.
fn cut_everywhere(grows: bool, resize: Resize) {
    let (mut old, new, patch) = case(grows);
    if resize == Resize::Never {
        let room = old.len().max(new.len()) + 8192;
        old.resize(room, 0xEE);
    }
    let is_new = |bytes: &[u8]| match resize {
        Resize::ToImage => *bytes == new,
        Resize::Never => bytes[..new.len()] == new && bytes.len() == old.len(),
    };
    let mut rng = Rng::new(grows as u64);
    let mut resumed = 0;
    for count in 0.. {
        let left = Arc::new(AtomicU64::new(count));
        let (device, journal) = (Disk::new(old.clone(), &left), Disk::new(Vec::new(), &left));
        let is_done = run(&patch, &device, &journal, resize).is_ok();
        if is_done {
            assert!(is_new(&device.durable()), "done, but not durable");
            break;
        }
        // The power fails once more, somewhere.
        let mut state = (device.after_power_cut(&mut rng), journal.after_power_cut(&mut rng));
        let left = Arc::new(AtomicU64::new(rng.below(count + 3)));
        let (device, journal) = (Disk::new(state.0.clone(), &left), Disk::new(state.1.clone(), &left));
        let again = run(&patch, &device, &journal, resize);
        resumed += matches!(again, Ok(InPlace::Resumed)) as u32;
        if again.is_err() {
            state = (device.after_power_cut(&mut rng), journal.after_power_cut(&mut rng));
            let left = Arc::new(AtomicU64::new(u64::MAX));
            let (device, journal) = (Disk::new(state.0, &left), Disk::new(state.1, &left));
            let done = run(&patch, &device, &journal, resize).unwrap_or_else(|error| panic!("{count}: {error}"));
            resumed += (done == InPlace::Resumed) as u32;
            assert!(is_new(&device.now()), "cut behind {count}");
        } else {
            assert!(is_new(&device.now()), "cut behind {count}");
        }
    }
    assert!(resumed > 0, "no journal was ever replayed");
}

#[test]
fn a_file_that_grows_survives_any_cut() {
    cut_everywhere(true, Resize::ToImage);
}

#[test]
fn a_file_that_shrinks_survives_any_cut() {
    cut_everywhere(false, Resize::ToImage);
}

#[test]
fn a_device_survives_any_cut() {
    cut_everywhere(true, Resize::Never);
}

/// Cuts the power at random, on disks that write 512 bytes or 4 KiB atomically. If there is a
/// superblock, the image is complete, old or new.
fn mounts_whole_images_only(grows: bool, resize: Resize) {
    let (mut old, mut new, patch) = case(grows);
    if resize == Resize::Never {
        let room = old.len().max(new.len()) + 8192;
        old.resize(room, 0xEE);
        new.extend_from_slice(&old[new.len()..]);
    }
    let left = Arc::new(AtomicU64::new(u64::MAX));
    run(&patch, &Disk::new(old.clone(), &left), &Disk::new(Vec::new(), &left), resize).unwrap();
    let spent = u64::MAX - left.load(Ordering::Relaxed);
    let mut rng = Rng::new(26 + u64::from(grows));
    let (mut seen_old, mut seen_new, mut seen_none) = (0, 0, 0);
    for count in 0..150 {
        let unit_len = [512, 4096][count % 2];
        let left = Arc::new(AtomicU64::new(rng.below(spent)));
        let (device, journal) = (Disk::new(old.clone(), &left), Disk::new(Vec::new(), &left));
        run(&patch, &device, &journal, resize).unwrap_err();
        let state = device.after_power_cut_by(unit_len, &mut rng);
        let kept = journal.after_power_cut_by(unit_len, &mut rng);
        match state.get(1024..1028) {
            Some([0xE2, 0xE1, 0xF5, 0xE0]) => {
                assert!(state == old || state == new, "{count}: a half of an image would be mounted");
                (seen_old, seen_new) = (seen_old + u32::from(state == old), seen_new + u32::from(state == new));
            }
            _ => seen_none += 1,
        }
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let (device, journal) = (Disk::new(state, &left), Disk::new(kept, &left));
        run(&patch, &device, &journal, resize).unwrap_or_else(|error| panic!("{count}: {error}"));
        assert!(device.durable() == new, "{count}");
    }
    println!("{resize:?}, grows: {grows}: {seen_old} old, {seen_new} new, {seen_none} without a superblock");
    assert!(seen_old > 0 && seen_none > 0);
}

#[test]
fn no_half_of_an_image_has_a_superblock() {
    mounts_whole_images_only(true, Resize::ToImage);
    mounts_whole_images_only(false, Resize::ToImage);
    mounts_whole_images_only(true, Resize::Never);
}

#[test]
fn results_report_the_work_done() {
    let (old, new, patch) = case(true);
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let (device, journal) = (Disk::new(old, &left), Disk::new(Vec::new(), &left));
    assert!(matches!(run(&patch, &device, &journal, Resize::ToImage), Ok(InPlace::Applied(_))));
    let changed_len = Patch::open(&patch[..]).unwrap().header().changed_len;
    // The head, the first block, heads of records, and eight bytes per sector.
    let more_len = 4096 + 4096 + 16 * (changed_len / 4096 + 1) + (changed_len + 4096) / 64;
    let journal_len = journal.now().len() as u64;
    assert!((changed_len..=changed_len + more_len).contains(&journal_len), "{journal_len} of {changed_len}");
    assert!(matches!(run(&patch, &device, &journal, Resize::ToImage), Ok(InPlace::WasThere)));
    let journal = Disk::new(Vec::new(), &left);
    assert!(matches!(run(&patch, &device, &journal, Resize::ToImage), Ok(InPlace::WasThere)));
    assert!(device.now() == new);
}

#[test]
fn a_device_that_is_too_small_is_refused() {
    let (old, _, patch) = case(true);
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let (device, journal) = (Disk::new(old.clone(), &left), Disk::new(Vec::new(), &left));
    let error = run(&patch, &device, &journal, Resize::Never).unwrap_err();
    assert!(error.to_string().contains("are needed"), "{error}");
    assert!(device.now() == old);
}
