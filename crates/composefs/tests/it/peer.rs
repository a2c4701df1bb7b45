//! Generated dumps and directories, and images that `mkcomposefs` makes of them.

use super::common::{Peer, VERSIONS, image, read, write};
use super::generator::{Traits, dump};
use super::golden::id;
use kiln_composefs::from_tree::{HardLinks, TreeOptions, contents};
use kiln_composefs::image::Version;
use kiln_digest::Algorithm;
use kiln_parallel::Threads;
use kiln_tests::generator::make_random;
use kiln_tests::image::scan_dir;
use kiln_tests::rounds;
use kiln_tests::temp::TempDir;

/// Of the images of 240 dumps. `mkcomposefs` made the same images.
const ALL_IMAGES: &str = "02f038a6644733c2d5e66e226db6cfdb8d5481e4dc502ac3c71e69ba727d1920";

#[test]
fn images_of_generated_dumps_stay_as_they_are() {
    let ids: String =
        (0..240).flat_map(|seed| VERSIONS.map(|version| id(&image(&read(dump(seed).as_bytes()), version)))).collect();
    assert_eq!(id(ids.as_bytes()), ALL_IMAGES);
}

#[test]
fn generated_dumps_come_back() {
    for seed in 0..240 {
        let tree = read(dump(seed).as_bytes());
        let canonical = write(&tree);
        let again = read(&canonical);
        assert_eq!(write(&again), canonical, "seed {seed}");
        // The inodes of hard links move to their first paths, and no others.
        let has_links = canonical.windows(2).any(|pair| pair == b" @");
        if !has_links {
            assert_eq!(image(&again, Version::V0), image(&tree, Version::V0), "seed {seed}");
        }
    }
}

#[test]
fn images_are_those_of_mkcomposefs() {
    let Some(peer) = Peer::find() else { return };
    let rounds = rounds("KILN_COMPOSEFS", 240, 5000);
    let mut compared = 0;
    for seed in 0..rounds {
        let text = dump(seed);
        let tree = read(text.as_bytes());
        for version in VERSIONS {
            match peer.image_of_dump(text.as_bytes(), version) {
                Ok(expected) => {
                    let ours = image(&tree, version);
                    let differs = expected.iter().zip(&ours).position(|(a, b)| a != b);
                    assert!(expected == ours, "seed {seed} {version:?}: byte {differs:?}");
                    compared += 1;
                }
                // It refuses some directories with whiteouts that have marks already.
                Err(error) => {
                    let is_mark = error.contains("Numerical result out of range");
                    assert!(is_mark && Traits::of(seed).whiteouts, "seed {seed}: {error}");
                }
            }
        }
        // The canonical dump, too.
        let canonical = write(&tree);
        if let Ok(expected) = peer.image_of_dump(&canonical, Version::V1) {
            assert!(expected == image(&read(&canonical), Version::V1), "seed {seed}, canonical");
        }
    }
    assert!(compared > rounds * 3 / 2, "only {compared} of {rounds} dumps could be compared");
}

#[test]
fn images_of_directories_are_those_of_mkcomposefs() {
    let Some(peer) = Peer::find() else { return };
    for seed in 0..rounds("KILN_COMPOSEFS", 20, 200) {
        let temp = TempDir::new("composefs-dir").unwrap();
        let dir = temp.dir("source");
        make_random(&dir, seed).unwrap();
        let tree = scan_dir(&dir, 2).unwrap().tree;
        let contents = contents::read(&tree, Algorithm::Sha256, Threads::PROCESSORS).unwrap();
        for (use_epoch, skip_devices) in [(false, false), (true, true)] {
            let options = TreeOptions { use_epoch, skip_devices, hard_links: HardLinks::Broken, ..Default::default() };
            let ours = kiln_composefs::from_tree(&tree, &options, |id| contents.of(id)).unwrap();
            let mut flags = Vec::new();
            flags.extend(use_epoch.then_some("--use-epoch"));
            flags.extend(skip_devices.then_some("--skip-devices"));
            let expected = peer.image_of_dir(&dir, &flags).unwrap();
            assert!(expected == image(&ours, Version::V0), "seed {seed} {options:?}");
        }
    }
}

/// Returns a dump in which directories have no size, and attributes are sorted, without those that
/// `composefs-info` leaves out: neither their values nor their keys, but for prefixes, have a byte.
fn comparable(dump: &[u8]) -> Vec<String> {
    let line = |line: &str| {
        let mut fields: Vec<_> = line.split(' ').collect();
        if fields[2].starts_with('4') {
            fields[1] = "0";
        }
        fields.retain(|field| !matches!(*field, "system.posix_acl_access=" | "system.posix_acl_default=" | "user.="));
        fields[11..].sort_unstable();
        fields.join(" ")
    };
    str::from_utf8(dump).unwrap().lines().map(line).collect()
}

#[test]
fn dumps_are_those_of_composefs_info() {
    let Some(peer) = Peer::find() else { return };
    let seeds = (0..rounds("KILN_COMPOSEFS", 240, 2000)).filter(|&seed| !Traits::of(seed).whiteouts);
    for seed in seeds {
        // `composefs-info` takes any file with such a mark for a whiteout of composefs.
        let line = |line: &str| {
            line.split(' ').filter(|field| !field.contains("overlay.whiteout=")).collect::<Vec<_>>().join(" ")
        };
        let text: Vec<_> = dump(seed).lines().map(line).collect();
        let tree = read(text.join("\n").as_bytes());
        let expected = match peer.dump_of_image(&image(&tree, Version::V1)) {
            Ok(dump) => dump,
            Err(error) if error.contains("No such file") => return kiln_tests::without("composefs-info"),
            Err(error) => panic!("seed {seed}: {error}"),
        };
        let (ours, expected) = (comparable(&write(&tree)), comparable(&expected));
        for (ours, expected) in ours.iter().zip(&expected) {
            assert_eq!(ours, expected, "seed {seed}");
        }
        assert_eq!(ours.len(), expected.len(), "seed {seed}");
    }
}
