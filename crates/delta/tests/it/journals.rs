//! Journals of another run: of another target, of another patch, damaged, forged. The result can
//! only be the new image, and other targets stay unchanged.

use crate::common::{files, image, make, next, preset};
use crate::in_place::{case, run, target};
use kiln_builder::Preset;
use kiln_delta::DeltaError;
use kiln_delta::in_place::{self, Identity, InPlace, Resize, Standing};
use kiln_tests::disk::Disk;
use kiln_tests::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

fn disk(bytes: &[u8]) -> Arc<Disk> {
    Disk::new(bytes.to_vec(), &Arc::new(AtomicU64::new(u64::MAX)))
}

/// Returns device and journal of a run that was interrupted in the second step, with part of the
/// new image written.
fn unfinished(old: &[u8], patch: &[u8], resize: Resize) -> (Vec<u8>, Vec<u8>) {
    let mut rng = Rng::new(25);
    for count in 0.. {
        let left = Arc::new(AtomicU64::new(count));
        let (device, journal) = (Disk::new(old.to_vec(), &left), Disk::new(Vec::new(), &left));
        run(patch, &device, &journal, resize).unwrap_err();
        let state = device.after_power_cut(&mut rng);
        if state[1024..1536] == [0; 512] && state[4096..] != old[4096..] {
            return (state, journal.now());
        }
    }
    unreachable!("the run ends with an error until all is written");
}

fn standing(device: &[u8], journal: &[u8], resize: Resize) -> Result<Option<Standing>, DeltaError> {
    in_place::standing(&target(&disk(device), resize), &*disk(journal), &AtomicBool::new(false))
}

fn complete(device: &Arc<Disk>, journal: &[u8], resize: Resize) -> Result<InPlace, DeltaError> {
    in_place::complete(&target(device, resize), &*disk(journal), &AtomicBool::new(false))
}

/// Checks that `apply` and `complete` refuse the target with these words, and change neither it nor
/// the journal.
fn refused(patch: &[u8], device: &[u8], journal: &[u8], resize: Resize, words: &str) {
    let (there, kept) = (disk(device), disk(journal));
    let error = run(patch, &there, &kept, resize).unwrap_err();
    assert!(error.to_string().contains(words), "{error}");
    assert!(there.now() == device && kept.now() == journal);
    let error = complete(&there, journal, resize).unwrap_err();
    assert!(error.to_string().contains(words), "{error}");
    assert!(there.now() == device);
}

#[test]
fn another_disk_is_not_written_to() {
    let (old, _, patch) = case(true);
    let mut rng = Rng::new(3);
    for resize in [Resize::ToImage, Resize::Never] {
        let room = if resize == Resize::Never { old.len() * 2 } else { old.len() };
        let mut old = old.clone();
        old.resize(room, 0xEE);
        let (device, journal) = unfinished(&old, &patch, resize);
        assert_eq!(standing(&device, &journal, resize).unwrap(), Some(Standing::Unfinished));
        // Another filesystem, and one that differs in a single sector to be replaced.
        let mut other = vec![0; device.len()];
        rng.fill(&mut other);
        refused(&patch, &other, &journal, resize, "neither those of the old image nor those of the new one");
        other = device.clone();
        let at = (4096..old.len()).find(|&at| other[at] != old[at]).unwrap();
        other[at] = !old[at];
        other[at + 1] = other[at + 1].wrapping_add(1);
        refused(&patch, &other, &journal, resize, "neither those of the old image nor those of the new one");
        let done = disk(&device);
        assert_eq!(complete(&done, &journal, resize).unwrap(), InPlace::Resumed);
        assert_eq!(standing(&done.now(), &journal, resize).unwrap(), Some(Standing::New));
        assert_eq!(standing(&old, &journal, resize).unwrap(), Some(Standing::Old));
    }
}

#[test]
fn unreplaced_bytes_are_compared_too() {
    let before: Vec<_> = files(1).into_iter().skip(50).filter(|(_, bytes)| bytes.len() < 250_000).collect();
    let mut after = before.clone();
    after[3].1[100] ^= 1;
    let [old, new] = [&before, &after].map(|files| image(files, &preset(Preset::Plain)));
    let (patch, _) = make(&old, &new, false);
    let (there, journal) = (disk(&old), disk(&[]));
    run(&patch, &there, &journal, Resize::ToImage).unwrap();
    let journal = journal.now();
    assert!(journal.len() < old.len() / 2, "{} of {}", journal.len(), old.len());
    assert_eq!(complete(&disk(&old), &journal, Resize::ToImage).unwrap(), InPlace::Resumed);
    let mut other = old.clone();
    let at =
        (8192..old.len()).rev().step_by(4096).find(|&at| old[at & !4095..=at | 4095] == new[at & !4095..=at | 4095]);
    other[at.unwrap()] ^= 1;
    refused(&patch, &other, &journal, Resize::ToImage, "would not turn it into the new image");
}

#[test]
fn a_third_image_is_not_written_to() {
    let (old, new, patch) = case(true);
    let (_, journal) = unfinished(&old, &patch, Resize::ToImage);
    let mut third = image(&next(&files(5), 9), &preset(Preset::Fast));
    third.resize(old.len().midpoint(new.len()), 0);
    refused(&patch, &third, &journal, Resize::ToImage, "neither those of the old image nor those of the new one");
}

#[test]
fn another_length_is_refused() {
    let (mut old, new, patch) = case(true);
    old.resize(new.len() + 8192, 0xEE);
    let (mut device, journal) = unfinished(&old, &patch, Resize::Never);
    device.extend([0; 4096]);
    refused(&patch, &device, &journal, Resize::Never, "but the journal is of one with");
    device.truncate(new.len());
    refused(&patch, &device, &journal, Resize::Never, "but the journal is of one with");
    let (old, new, patch) = case(true);
    let (mut file, journal) = unfinished(&old, &patch, Resize::ToImage);
    file.truncate(old.len() - 1);
    refused(&patch, &file, &journal, Resize::ToImage, "but the journal is of one with");
    file.resize(new.len() + 1, 0);
    refused(&patch, &file, &journal, Resize::ToImage, "but the journal is of one with");
}

#[test]
fn a_device_has_its_properties() {
    let (mut old, new, patch) = case(true);
    old.resize(new.len() + 8192, 0xEE);
    let with = |device: &Arc<Disk>, serial: &str| {
        let properties = [("serial", serial), ("wwid", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let properties = properties.into_iter().filter(|(_, value)| !value.is_empty());
        kiln_delta::in_place::Target { identity: Identity::new(properties), ..target(device, Resize::Never) }
    };
    let patch_of = || kiln_delta::Patch::open(&patch[..]).unwrap();
    let control = kiln_builder::Control { stop: &AtomicBool::new(false), progress: &|_| {} };
    let (first, journal) = (disk(&old), disk(&[]));
    in_place::apply(patch_of(), &with(&first, "A"), &*journal, &control).unwrap();
    // Another one with the same old image, as of the other slot.
    let second = disk(&old);
    let error = in_place::apply(patch_of(), &with(&second, "B"), &*journal, &control).unwrap_err();
    assert!(error.to_string().contains("its serial is B, but the journal is of the device with A"), "{error}");
    assert!(second.now() == old);
    // An unknown property does not count.
    let stop = AtomicBool::new(false);
    assert_eq!(in_place::standing(&with(&second, ""), &*journal, &stop).unwrap(), Some(Standing::Old));
    assert_eq!(in_place::complete(&with(&second, "A"), &*journal, &stop).unwrap(), InPlace::Resumed);
    assert!(second.now() == first.now());
}

#[test]
fn a_journal_of_another_patch_is_completed_first() {
    let (old, new, patch) = case(true);
    let (back, _) = make(&new, &old, false);
    let (device, journal) = unfinished(&old, &patch, Resize::ToImage);
    let (there, kept) = (disk(&device), disk(&journal));
    let error = run(&back, &there, &kept, Resize::ToImage).unwrap_err();
    assert!(matches!(error, DeltaError::Journal { .. }) && error.to_string().contains("another patch"), "{error}");
    assert!(there.now() == device && kept.now() == journal);
    // A completed journal does not prevent another patch, nor does one of which nothing was
    // written.
    complete(&there, &journal, Resize::ToImage).unwrap();
    assert!(matches!(run(&back, &there, &kept, Resize::ToImage), Ok(InPlace::Applied(_))));
    assert!(there.now() == old);
    let kept = disk(&journal);
    let other = make(&old, &image(&files(5), &preset(Preset::Fast)), true).0;
    assert!(matches!(run(&other, &there, &kept, Resize::ToImage), Ok(InPlace::Applied(_))));
}

#[test]
fn journals_of_other_versions_and_other_files_are_refused() {
    let (old, _, patch) = case(true);
    let (device, mut journal) = unfinished(&old, &patch, Resize::ToImage);
    journal[8] = 3;
    refused(&patch, &device, &journal, Resize::ToImage, "has version 3");
    journal[..8].copy_from_slice(b"\x8Akilnjrn");
    refused(&patch, &device, &journal, Resize::ToImage, "has version 1");
    refused(&patch, &old, b"notes", Resize::ToImage, "has no valid magic");
    refused(&patch, &old, b"important notes of a user", Resize::ToImage, "has no valid magic");
}

/// Corrects the checksums of a journal.
fn seal(journal: &mut [u8]) {
    let head_len = u32::from_le_bytes(journal[12..16].try_into().unwrap()) as usize;
    let records_len = u64::from_le_bytes(journal[80..88].try_into().unwrap());
    let records_end = 4096_u64.saturating_add(records_len).min(journal.len() as u64) as usize;
    let digest = *blake3::hash(&journal[4096.min(records_end)..records_end]).as_bytes();
    journal[88..120].copy_from_slice(&digest);
    if (128..=4096).contains(&head_len) {
        let check = *blake3::hash(&journal[..head_len - 8]).as_bytes();
        journal[head_len - 8..head_len].copy_from_slice(&check[..8]);
    }
}

/// A forged length of the new image is no work: the bytes behind the target would be in records.
#[test]
fn what_neither_records_nor_the_target_have_is_not_read() {
    let (old, _, patch) = case(true);
    let (device, journal) = unfinished(&old, &patch, Resize::ToImage);
    let forged = |new_len: u64, more: &[u8]| {
        let mut journal = [&journal, more].concat();
        let records_len = journal.len() as u64 - 4096;
        journal[48..56].copy_from_slice(&new_len.to_le_bytes());
        journal[80..88].copy_from_slice(&records_len.to_le_bytes());
        seal(&mut journal);
        journal
    };
    let longer = forged(1 << 60, &[]);
    refused(&patch, &device, &longer, Resize::ToImage, "the new image goes on behind the last one");
    let record = [&(1u64 << 60).to_le_bytes()[..], &4096u64.to_le_bytes(), &[0; 64 + 4096]].concat();
    let farther = forged((1 << 60) + 4096, &record);
    refused(&patch, &device, &farther, Resize::ToImage, "neither in a record nor in the target");
}

#[test]
fn a_journal_that_is_damaged_or_forged_gives_the_new_image_or_nothing() {
    let (old, new, patch) = case(true);
    let (device, journal) = unfinished(&old, &patch, Resize::ToImage);
    let mut rng = Rng::new(11);
    let mut completed = 0;
    for round in 0..kiln_tests::rounds("KILN_DELTA_ROUNDS", 120, 600) {
        let mut changed = journal.clone();
        for _ in 0..rng.below(3) {
            // Fields of the head, heads of records, anything.
            let end = [130, 4200, changed.len() as u64][rng.below(3) as usize].min(changed.len() as u64);
            let at = rng.below(end) as usize;
            match rng.below(5) {
                0 => changed[at] = rng.below(256) as u8,
                1 => changed[at] ^= 1 << rng.below(8),
                2 => changed[at..(at + 8).min(end as usize)].fill(0xFF),
                3 => changed.truncate(at.max(200)),
                _ => changed.splice(at..at, [0; 16]).for_each(drop),
            }
        }
        if round % 4 != 0 && changed.len() >= 128 {
            seal(&mut changed);
        }
        for by_patch in [false, true] {
            let (there, kept) = (disk(&device), disk(&changed));
            let done = match by_patch {
                true => run(&patch, &there, &kept, Resize::ToImage),
                false => complete(&there, &changed, Resize::ToImage),
            };
            match done {
                Ok(_) => assert!(there.now() == new, "{round}: other bytes"),
                Err(_) => assert!(there.now() == device && kept.now() == changed, "{round}: written to"),
            }
            completed += u32::from(there.now() == new);
        }
    }
    assert!(completed > 0, "no journal was right");
}
