//! Damaged and forged patches, and images that a patch was not made for.

use crate::common::{apply, files, image, make, next, preset, source};
use kiln_builder::Preset;
use kiln_delta::{DeltaError, Patch, seal, unseal};
use kiln_tests::rng::Rng;
use std::sync::atomic::AtomicBool;

fn images() -> (Vec<u8>, Vec<u8>) {
    let files: Vec<_> = files(1).into_iter().skip(50).filter(|(_, bytes)| bytes.len() < 250_000).collect();
    (image(&files, &preset(Preset::Balanced)), image(&next(&files, 2), &preset(Preset::Balanced)))
}

/// Applies a patch of any bytes; returns an error or the new image.
fn survives(old: &[u8], new: &[u8], patch: &[u8]) -> bool {
    match apply(old, patch) {
        Ok((bytes, _)) => {
            assert!(bytes == new, "other bytes were taken for the new image");
            true
        }
        Err(_) => false,
    }
}

#[test]
fn a_flipped_bit_is_found() {
    let (old, new) = images();
    let (patch, _) = make(&old, &new, false);
    let mut rng = Rng::new(7);
    for _ in 0..kiln_tests::rounds("KILN_DELTA_ROUNDS", 150, 5000) {
        let mut damaged = patch.clone();
        let at = rng.below(damaged.len() as u64) as usize;
        damaged[at] ^= 1 << rng.below(8);
        assert!(!survives(&old, &new, &damaged), "a flip at {at}");
    }
}

#[test]
fn a_patch_that_is_cut_short_is_refused() {
    let (old, new) = images();
    let (patch, _) = make(&old, &new, false);
    let mut rng = Rng::new(8);
    let cuts = (0..40).chain((0..100).map(|_| rng.below(patch.len() as u64) as usize)).chain([patch.len() - 1]);
    for len in cuts {
        match apply(&old, &patch[..len]) {
            Err(DeltaError::PatchRead { .. } | DeltaError::NotAPatch(_)) => {}
            other => panic!("cut to {len}: {:?}", other.map(|(bytes, _)| bytes.len())),
        }
    }
}

#[test]
fn bytes_behind_the_end_are_refused() {
    let (old, new) = images();
    let (patch, _) = make(&old, &new, false);
    assert!(survives(&old, &new, &patch));
    for behind in [&b"\0"[..], b"x", &patch] {
        match apply(&old, &[&patch, behind].concat()) {
            Err(DeltaError::Patch(defect)) => assert_eq!((defect.at, defect.record), (patch.len() as u64, "end")),
            other => panic!("{:?}", other.map(|(bytes, _)| bytes.len())),
        }
    }
}

#[test]
fn damage_inside_valid_checksums_is_handled() {
    let (old, new) = images();
    let (patch, _) = make(&old, &new, false);
    let (header, streams) = unseal(&patch).unwrap();
    let parts = streams.each_ref().map(|stream| &stream[..]);
    assert!(survives(&old, &new, &seal(&header, parts).unwrap()), "the parts of a patch make a patch");
    let mut rng = Rng::new(9);
    for round in 0..kiln_tests::rounds("KILN_DELTA_ROUNDS", 300, 20_000) {
        let (mut header, mut streams) = (header.clone(), streams.clone());
        let changed = match round % 3 {
            0 => &mut header,
            _ => &mut streams[0],
        };
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(changed.len() as u64) as usize;
            match rng.below(4) {
                0 => changed[at] = rng.below(256) as u8,
                1 => changed[at] ^= 0x80,
                2 => changed.truncate(at + 1),
                _ => changed.splice(at..at, [0xFF; 9]).for_each(drop),
            }
        }
        survives(&old, &new, &seal(&header, streams.each_ref().map(|stream| &stream[..])).unwrap());
    }
}

#[test]
fn another_old_image_is_refused_before_anything_is_written() {
    let (old, new) = images();
    let (patch, _) = make(&old, &new, false);
    let refused = |old: &[u8]| {
        let mut write = |_, _: &[u8]| panic!("something was written");
        let applied = Patch::open(&patch[..]).unwrap().apply(source(old), &mut write, &AtomicBool::new(false));
        match applied {
            Err(DeltaError::WrongOld { what }) => what,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(&new).contains("UUID") || refused(&new).contains("bytes"));
    assert!(refused(&[]).contains("0 bytes"));
    assert!(refused(&vec![0; old.len()]).contains("no EROFS image"));
    let header = Patch::open(&patch[..]).unwrap().header().clone();
    let used = header.old_used.last().unwrap();
    let mut damaged = old.clone();
    damaged[used.end as usize - 1] ^= 1;
    assert!(refused(&damaged).contains("BLAKE3"));
}

#[test]
fn other_files_are_no_patches() {
    let is_none = |bytes: &[u8]| matches!(Patch::open(bytes), Err(DeltaError::NotAPatch(_)));
    assert!(is_none(b"") && is_none(b"BSDIFF40 and more") && is_none(&[0; 5000]));
    let (old, new) = images();
    let (mut patch, _) = make(&old, &new, false);
    patch[8] = 9;
    assert!(matches!(Patch::open(&patch[..]), Err(DeltaError::Version { found: 9, known: 2 })));
}

#[test]
fn a_missing_encoder_is_told_before_anything_is_written() {
    let (old, new) = images();
    let (patch, _) = make(&old, &new, false);
    let (mut header, streams) = unseal(&patch).unwrap();
    let version = Patch::open(&patch[..]).unwrap().header().encoders[0].version;
    // The version as stored in the header: seven bits per byte.
    let mut encoded: Vec<u8> = (0..5).map(|n| (version >> (7 * n)) as u8 & 0x7F | 0x80).collect();
    *encoded.last_mut().unwrap() &= 0x7F;
    let at = header.windows(5).position(|bytes| bytes == encoded).expect("the version of the encoder");
    header[at] ^= 1;
    let patch = seal(&header, streams.each_ref().map(|stream| &stream[..])).unwrap();
    let mut write = |_, _: &[u8]| panic!("something was written");
    let applied = Patch::open(&patch[..]).unwrap().apply(source(&old), &mut write, &AtomicBool::new(false));
    assert!(matches!(applied, Err(DeltaError::Encoder { method: "zstd", .. })), "{applied:?}");
}
