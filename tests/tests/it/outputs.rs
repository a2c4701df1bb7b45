//! Outputs that fail, shorten writes, or lose power: the final name refers to a complete image, or
//! to the previous file.

use kiln_builder::{Blob, BuildError, BuildOptions, Out};
use kiln_codec::Method;
use kiln_output::{AtomicFile, Durability, Existing, MemoryOutput, Output, Unpublished, commit};
use kiln_tests::data::Texture;
use kiln_tests::faulty::{FULL, FailingOutput, ShortOutput, SimulatedDisk};
use kiln_tests::image::{build, build_to, options};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::rng::Rng;
use kiln_tests::temp::TempDir;
use kiln_tree::{NodeId, Tree};
use std::fs;

/// Files that are packed, shared, and in several pieces.
fn tree() -> Tree {
    let mut mem = MemTree::default();
    let dir = mem.dir(NodeId::ROOT, b"dir");
    for (name, texture, len) in [
        (&b"text"[..], Texture::Text, 90_000),
        (b"noise", Texture::Noise, 40_000),
        (b"mixed", Texture::Mixed, 300_000),
        (b"again", Texture::Mixed, 300_000),
        (b"small", Texture::Text, 700),
    ] {
        mem.file(dir, name, MemFile::whole(texture.bytes(len as u64, len)));
    }
    mem.finish().unwrap()
}

/// Ways of writing: plain, in chunks that are read back, compressed, and as encoded extents.
fn cases() -> Vec<BuildOptions> {
    let flat = options(None, 4096, 1);
    let zstd = options(Some((Method::Zstd, 1)), 16_384, 1);
    vec![
        flat.clone().with(|o| o.layout.chunk_bits = Some(13)),
        flat,
        zstd.clone().with(|o| o.compression.encoded_extents = true),
        zstd,
    ]
}

/// Returns the names in a directory, including hidden ones.
fn names(dir: &TempDir) -> Vec<String> {
    fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn whatever_write_fails_nothing_half_written_has_the_name() {
    let (tree, dir) = (tree(), TempDir::in_memory("outputs").unwrap());
    let path = dir.path().join("image");
    for options in cases() {
        let (expected, _) = build(&tree, &options).unwrap();
        for existing in [Existing::Keep, Existing::Replace] {
            let before = (existing == Existing::Replace).then_some(b"old");
            for count in 0.. {
                before.iter().for_each(|old| fs::write(&path, old).unwrap());
                let file = AtomicFile::create(&path, existing).unwrap();
                let failing = FailingOutput::new(&file, count);
                let built = build_to(&tree, &failing, &options).map(|_| failing.left());
                match built {
                    Err(BuildError::Write { source, .. }) => assert_eq!(source.to_string(), FULL),
                    Err(error) => panic!("call {count}: {error}"),
                    Ok(left) => {
                        assert_eq!(left, 0, "the first build that succeeds had no call to spare");
                        assert!(count > 5, "only {count} calls");
                        file.commit().unwrap();
                        assert_eq!(fs::read(&path).unwrap(), expected);
                        fs::remove_file(&path).unwrap();
                        break;
                    }
                }
                drop(file);
                assert_eq!(names(&dir).len(), before.iter().len(), "call {count}: {:?}", names(&dir));
                assert!(before.is_none_or(|old| fs::read(&path).unwrap() == old), "call {count}");
            }
        }
    }
}

#[test]
fn an_extra_device_that_fails_is_an_error_too() {
    let tree = tree();
    let options = options(None, 4096, 1).with(|o| o.layout.chunk_bits = Some(13));
    let mut failures = 0;
    loop {
        let (image, device) = (MemoryOutput::default(), MemoryOutput::default());
        let failing = FailingOutput::new(&device, failures);
        let blob = Some(Blob { file: &failing, tag: [b'b'; 64] });
        match build_to(&tree, Out { image: &image, offset: 0, blob, behind: None }, &options) {
            Ok(_) => break,
            Err(BuildError::Write { source, .. }) => assert_eq!(source.to_string(), FULL),
            Err(error) => panic!("call {failures}: {error}"),
        }
        failures += 1;
    }
    assert!(failures > 3, "{failures}");
}

#[test]
fn writes_that_are_cut_short_go_on() {
    for options in cases() {
        let short = ShortOutput::default();
        build_to(&tree(), &short, &options).unwrap();
        assert!(short.into_bytes() == build(&tree(), &options).unwrap().0, "{options:?}");
    }
}

#[test]
fn memory_is_an_output() {
    for options in cases() {
        let memory = MemoryOutput::default();
        build_to(&tree(), &memory, &options).unwrap();
        assert!(memory.into_bytes() == build(&tree(), &options).unwrap().0, "{options:?}");
    }
    let memory = MemoryOutput::default();
    assert!(memory.write_at(b"x", u64::MAX).is_err());
    assert_eq!(memory.read_at(&mut [0; 4], 10).unwrap(), 0);
}

/// Cuts the power at every moment, each with several outcomes for unsynced data. Returns the
/// numbers of complete and of damaged images.
fn images_after_power_cuts(disk: &SimulatedDisk, expected: &[u8]) -> (u64, u64) {
    let (mut whole, mut damaged) = (0, 0);
    for count in 0..=disk.len() {
        for seed in 0..8 {
            match disk.after_power_cut(count, &mut Rng::new(count as u64 * 8 + seed)) {
                Some(bytes) if bytes == expected => whole += 1,
                Some(_) => damaged += 1,
                None => {}
            }
        }
    }
    (whole, damaged)
}

#[test]
fn a_power_cut_leaves_a_whole_image_or_none() {
    let tree = tree();
    for options in cases() {
        let (expected, _) = build(&tree, &options).unwrap();
        let built = || {
            let disk = SimulatedDisk::default();
            build_to(&tree, &disk, &options).unwrap();
            disk
        };
        let mut disk = built();
        assert_eq!(images_after_power_cuts(&disk, &expected), (0, 0), "before it is committed");
        commit(&mut disk, Durability::Synced).unwrap();
        let (whole, damaged) = images_after_power_cuts(&disk, &expected);
        assert!(whole > 8 && damaged == 0, "{whole} whole, {damaged} damaged");
        // The simulation detects the mistake that it is for: a name that is given too early.
        let mut disk = built();
        disk.publish().unwrap();
        disk.sync().unwrap();
        assert!(images_after_power_cuts(&disk, &expected).1 > 0);
    }
}
