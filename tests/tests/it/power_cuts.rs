//! Updates in place, interrupted at every write, on a disk that loses unsynced data, and on one
//! that keeps it.
//!
//! `KILN_UPDATE_ROUNDS=n` sets the number of trees: one per kind of image by default, 60 with
//! `./test.sh --long`.

use kiln_builder::{BuildOptions, Control, Preset};
use kiln_read::{Image, ImageOptions, MemorySource, ReadAt, generations};
use kiln_revise::EditedImage;
use kiln_revise::update::{About, Added, BehindImage, TargetExtent, Update, UpdateTarget};
use kiln_source::SourceOptions;
use kiln_tests::data::numbers;
use kiln_tests::disk::Disk;
use kiln_tests::image::{build, open, scan_dir};
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use kiln_tests::snapshot::{Snapshot, of_image};
use kiln_tests::temp::TempDir;
use kilnfs::{Error, Packer, Scanned};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A tree, and another one to be merged into it.
fn trees(seed: u64) -> TempDir {
    let dir = TempDir::in_memory("cuts").unwrap();
    let mut rng = Rng::new(seed);
    for (name, count, len) in [("old", 40, 30_000), ("between", 9, 50_000), ("new", 12, 90_000)] {
        fs::create_dir_all(dir.join(name).join("sub")).unwrap();
        for at in 0..count {
            let len = rng.below(len) as usize;
            let (place, number) = (["", "sub/"][at % 2], rng.below(60));
            fs::write(dir.join(name).join(format!("{place}file-{number}")), numbers(&mut rng, len)).unwrap();
        }
    }
    dir
}

fn options(preset: Preset, kernel: Option<&str>) -> BuildOptions {
    let options = BuildOptions::preset(preset, kernel.map(|kernel| kernel.parse().unwrap())).unwrap();
    options.with(|o| o.work.scratch_dir = std::env::temp_dir())
}

/// Begins an update of the image on `disk`.
fn begin(disk: &Disk, extent: TargetExtent) -> Result<Update<'_>, Error> {
    let source = Arc::new(MemorySource::new(disk.now()));
    let target = UpdateTarget { path: Path::new("image"), output: disk, source, extent, changed_at: None };
    Ok(Update::begin(target, BehindImage::OwnRemains)?)
}

/// Merges the tree at `dir` into that of the image.
fn update(disk: &Disk, extent: TargetExtent, dir: &Path) -> Result<Added, Error> {
    let update = begin(disk, extent)?;
    let mut edited = EditedImage::new(update.base().clone());
    edited.add(kiln_source::open(dir, &SourceOptions::default())?);
    let packer = Packer::new().options(update.choices()?.build_options()?).scratch_dir(std::env::temp_dir());
    let Scanned { scan, options, .. } = packer.scan(&edited)?;
    let control = Control { stop: &AtomicBool::new(false), progress: &|_| {} };
    let (_, _, added) = update.build(&scan.tree, &options, &control, &About::default())?;
    Ok(added)
}

fn snapshot(bytes: &[u8]) -> Snapshot {
    of_image(&open(bytes.to_vec()).unwrap()).unwrap()
}

fn snapshot_of(bytes: &[u8], generation: u32) -> Snapshot {
    let options = ImageOptions::default().with_generation(Some(generation));
    of_image(&Image::open(Arc::new(MemorySource::new(bytes.to_vec())), Vec::new(), &options).unwrap()).unwrap()
}

/// Interrupts `act` after each write and sync, and once more while it is repeated. `act` turns the
/// tree `old` into `new`.
fn cut_everywhere(old: &[u8], extent: TargetExtent, act: &dyn Fn(&Disk) -> Result<Added, Error>) {
    let unlimited = || Arc::new(AtomicU64::new(u64::MAX));
    let before = snapshot(old);
    let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(old.to_vec()));
    let older: Vec<_> = generations(&source).unwrap().iter().map(|found| found.number).collect();
    let older: Vec<(u32, Snapshot)> = older.into_iter().map(|number| (number, snapshot_of(old, number))).collect();
    let whole = Disk::new(old.to_vec(), &unlimited());
    act(&whole).unwrap();
    let after = snapshot(&whole.now());
    assert_ne!(before, after);
    assert!(whole.now() == whole.durable(), "{extent:?}: done, but not durable");
    let mut rng = Rng::new(old.len() as u64);
    let (mut seen_old, mut seen_new) = (0, 0);
    for count in 0.. {
        let disk = Disk::new(old.to_vec(), &Arc::new(AtomicU64::new(count)));
        let Err(error) = act(&disk) else {
            assert!(seen_old > 3 && seen_new > 0, "{count}: {seen_old} old, {seen_new} new");
            return;
        };
        let is_in_place = snapshot(&disk.now()) == after;
        assert_eq!(error.to_string().contains("shows the new tree"), is_in_place, "cut behind {count}: {error}");
        for bytes in [disk.now(), disk.durable(), disk.after_power_cut(&mut rng), disk.after_power_cut(&mut rng)] {
            let found = snapshot(&bytes);
            let is_new = found == after;
            assert!(is_new || found == before, "cut behind {count}: neither the old nor the new tree");
            (seen_old, seen_new) = (seen_old + u32::from(!is_new), seen_new + u32::from(is_new));
            for (number, tree) in older.iter().filter(|_| is_new) {
                assert_eq!(snapshot_of(&bytes, *number), *tree, "cut behind {count}, generation {number}");
            }
            if is_new {
                continue;
            }
            // Remains after the image do not prevent another update, even if that is interrupted,
            // too.
            let again = Disk::new(bytes, &Arc::new(AtomicU64::new(rng.below(count + 3))));
            let bytes = match act(&again) {
                Ok(_) => again.durable(),
                Err(_) => again.after_power_cut(&mut rng),
            };
            let found = snapshot(&bytes);
            assert!(found == after || found == before, "cut behind {count} and once more");
            let last = Disk::new(bytes, &unlimited());
            if found == before {
                act(&last).unwrap_or_else(|error| panic!("cut behind {count} and once more: {error}"));
            }
            assert_eq!(snapshot(&last.durable()), after, "cut behind {count} and once more");
        }
    }
}

#[test]
fn an_update_that_is_cut_short_leaves_the_old_tree_or_the_new_one() {
    let presets = [
        (Preset::Balanced, None, TargetExtent::File),
        (Preset::Plain, None, TargetExtent::File),
        (Preset::Fast, Some("5.4"), TargetExtent::Device),
        (Preset::Balanced, Some("6.15"), TargetExtent::File),
    ];
    for seed in 0..rounds("KILN_UPDATE_ROUNDS", presets.len() as u64, 60) {
        let (preset, kernel, extent) = presets[seed as usize % presets.len()];
        println!("KILN_UPDATE_ROUNDS, seed {seed}: {preset:?}, {kernel:?}");
        let dir = trees(seed);
        let tree = scan_dir(&dir.join("old"), 1).unwrap().tree;
        let (mut old, _) = build(&tree, &options(preset, kernel)).unwrap();
        if extent == TargetExtent::Device {
            // Of an older filesystem.
            old.extend((0..2_000_000_u32).map(|at| (at / 3) as u8));
        }
        // In every other round, the image has generations already.
        if (seed as usize / presets.len()) % 2 == 1 {
            let disk = Disk::new(old, &Arc::new(AtomicU64::new(u64::MAX)));
            update(&disk, extent, &dir.join("between")).unwrap();
            begin(&disk, extent).unwrap().roll_back(0, &About::default()).unwrap();
            old = disk.durable();
        }
        cut_everywhere(&old, extent, &|disk| update(disk, extent, &dir.join("new")));
    }
}

#[test]
fn a_rollback_that_is_cut_short_leaves_the_one_tree_or_the_other() {
    let dir = trees(7);
    let tree = scan_dir(&dir.join("old"), 1).unwrap().tree;
    let (old, _) = build(&tree, &options(Preset::Balanced, None)).unwrap();
    let first = snapshot(&old);
    let disk = Disk::new(old, &Arc::new(AtomicU64::new(u64::MAX)));
    update(&disk, TargetExtent::File, &dir.join("new")).unwrap();
    let updated = disk.durable();
    let act =
        |disk: &Disk| -> Result<Added, Error> { Ok(begin(disk, TargetExtent::File)?.roll_back(0, &About::default())?) };
    let unlimited = Arc::new(AtomicU64::new(u64::MAX));
    let whole = Disk::new(updated.clone(), &unlimited);
    assert_eq!(act(&whole).unwrap().number, 2);
    assert_eq!(snapshot(&whole.durable()), first);
    let second = snapshot(&updated);
    for count in 0.. {
        let disk = Disk::new(updated.clone(), &Arc::new(AtomicU64::new(count)));
        let is_done = act(&disk).is_ok();
        let mut rng = Rng::new(count);
        for bytes in [disk.now(), disk.after_power_cut(&mut rng), disk.after_power_cut(&mut rng)] {
            let found = snapshot(&bytes);
            assert!(found == first || found == second, "cut behind {count}");
            assert_eq!(snapshot_of(&bytes, 1), second, "cut behind {count}");
        }
        if is_done {
            return;
        }
    }
}

#[test]
fn foreign_bytes_after_an_image_are_not_overwritten() {
    let dir = trees(9);
    let tree = scan_dir(&dir.join("old"), 1).unwrap().tree;
    let (old, _) = build(&tree, &options(Preset::Fast, None)).unwrap();
    let unlimited = || Arc::new(AtomicU64::new(u64::MAX));
    let verity = [b"verity\0\0\x01\0\0\0", &[0; 4084][..]].concat();
    for (extent, behind, is_refused) in [
        (TargetExtent::File, &b"something"[..], true),
        (TargetExtent::File, &[0; 100_000], false),
        (TargetExtent::File, &[&[0; 90_000][..], b"a footer"].concat(), true),
        (TargetExtent::File, &verity, true),
        (TargetExtent::Device, &[0xA5; 300_000], false),
        (TargetExtent::Device, &verity, true),
    ] {
        let disk = Disk::new([&old, behind].concat(), &unlimited());
        let before = disk.now();
        match update(&disk, extent, &dir.join("new")) {
            Ok(_) => assert!(!is_refused),
            Err(error) => {
                assert!(is_refused, "{error}");
                assert!(error.to_string().contains("behind the end of the image"), "{error}");
                assert!(disk.now() == before);
            }
        }
    }
}
