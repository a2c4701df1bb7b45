//! Inodes and directories that updates in place keep: images that grow little, and show the right tree in each
//! generation.

use kiln_builder::{BuildOptions, Choices, Preset, Summary, Threads};
use kiln_format::BlockBits;
use kiln_read::{Image, ImageOptions, MemorySource, ReadAt, generations};
use kiln_revise::update::{About, Added, BehindImage, TargetExtent, Update, UpdateTarget};
use kiln_revise::{IncrementBase, Trust};
use kiln_source::SourceOptions;
use kiln_tests::data::numbers;
use kiln_tests::disk::Disk;
use kiln_tests::golden::golden_images;
use kiln_tests::image::{build, exactly, scan_dir};
use kiln_tests::mnt::Mount;
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir, of_image};
use kiln_tests::temp::TempDir;
use kilnfs::{Packer, Scanned};
use rustix::fs::{XattrFlags, setxattr};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

const BLOCK_LEN: u64 = 4096;

fn options(choices: Choices) -> BuildOptions {
    choices.build_options().unwrap().with(|o| o.work.scratch_dir = std::env::temp_dir())
}

fn preset(preset: Preset) -> BuildOptions {
    options(Choices { preset, ..Choices::default() })
}

fn kernel(version: &str) -> BuildOptions {
    options(Choices { kernel: Some(version.parse().unwrap()), ..Choices::default() })
}

/// An image on a disk, and the directory from which it is updated.
struct Place {
    dir: TempDir,
    disk: Arc<Disk>,
    trees: Vec<Snapshot>,
    options: BuildOptions,
}

impl Place {
    /// Packs the tree that `make` makes in a directory.
    fn new(options: BuildOptions, make: impl FnOnce(&Path)) -> Self {
        let dir = TempDir::new("kept").unwrap();
        make(dir.path());
        let (bytes, _) = build(&scan_dir(dir.path(), 1).unwrap().tree, &options).unwrap();
        let disk = Disk::new(bytes, &Arc::new(AtomicU64::new(u64::MAX)));
        let trees = vec![of_dir(dir.path()).unwrap()];
        Self { dir, disk, trees, options }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    fn begin(&self) -> Update<'_> {
        let source = Arc::new(MemorySource::new(self.disk.now()));
        let (path, output) = (Path::new("image"), &*self.disk);
        let target = UpdateTarget { path, output, source, extent: TargetExtent::File, changed_at: None };
        Update::begin(target, BehindImage::OwnRemains).unwrap()
    }

    fn update_with(&mut self, change: impl FnOnce(&mut BuildOptions)) -> (Summary, Added) {
        let update = self.begin();
        let base = IncrementBase::of(update.base().clone(), Trust::Contents).unwrap();
        let packer = Packer::new().options(self.options.clone().with(change)).base(Arc::new(base));
        let packer = packer.scratch_dir(std::env::temp_dir());
        let source = kiln_source::open(self.dir.path(), &SourceOptions::default()).unwrap();
        let Scanned { scan, options, .. } = packer.scan(&*source).unwrap();
        let control = kiln_builder::Control { stop: &AtomicBool::new(false), progress: &|_| {} };
        let (summary, _, added) = update.build(&scan.tree, &options, &control, &About::default()).unwrap();
        drop(update);
        self.trees.push(of_dir(self.dir.path()).unwrap());
        (summary, added)
    }

    fn update(&mut self) -> (Summary, Added) {
        self.update_with(|_| {})
    }

    fn roll_back(&mut self, number: u32) {
        self.begin().roll_back(number, &About::default()).unwrap();
        self.trees.push(self.trees[number as usize].clone());
    }

    fn open(&self, number: u32) -> Image {
        let options = ImageOptions::default().with_generation(Some(number));
        Image::open(Arc::new(MemorySource::new(self.disk.now())), Vec::new(), &options).unwrap()
    }

    /// Reads and checks all generations.
    fn verify(&self, what: &str) {
        for (number, tree) in (0..).zip(&self.trees) {
            let (image, what) = (self.open(number), format!("{what}, generation {number}"));
            assert_same(tree, &of_image(&image).unwrap(), &what);
            let report = image.check(exactly(2)).unwrap();
            assert_eq!(report.problem_count, 0, "{what}: {:?}", report.problems);
        }
    }

    /// Compares the tree of the last generation as the kernel shows it.
    fn verify_by_kernel(&self, what: &str) {
        let dir = TempDir::new("kept-image").unwrap();
        let path = dir.join("image.erofs");
        fs::write(&path, self.disk.durable()).unwrap();
        match Mount::by_kernel(&path) {
            Ok(mount) => assert_same(self.trees.last().unwrap(), &of_dir(mount.path()).unwrap(), what),
            Err(reason) => kiln_tests::skipped(&reason),
        }
    }
}

/// Makes 2,000 files in 20 directories.
fn many_files(root: &Path) {
    let mut rng = Rng::new(5);
    for dir in 0..20 {
        fs::create_dir(root.join(format!("dir-{dir}"))).unwrap();
        for file in 0..100 {
            let len = rng.below(3000) as usize;
            fs::write(root.join(format!("dir-{dir}/file-{file}")), numbers(&mut rng, len)).unwrap();
        }
    }
}

#[test]
fn one_changed_file_costs_a_few_blocks() {
    for (options, what, packed_map_len) in [
        (preset(Preset::Balanced), "balanced", 4 << 10),
        (preset(Preset::Fast), "fast", 0),
        (preset(Preset::Plain), "plain", 0),
    ] {
        let mut place = Place::new(options, many_files);
        fs::write(place.path("dir-7/file-50"), "the first change").unwrap();
        let (summary, _) = place.update();
        // Directories name inodes by other numbers from now on.
        assert_eq!(summary.kept_inodes, 1999, "{what}: all files but one");
        for round in 0..3 {
            fs::write(place.path("dir-7/file-50"), format!("change {round}")).unwrap();
            let (summary, added) = place.update();
            assert_eq!(summary.kept_inodes, 1999 + 19, "{what}: all files and directories but one of each");
            // Record, data, the changed directory, the root's names, inodes.
            let len = 5 * BLOCK_LEN + packed_map_len;
            assert!(added.appended_bytes <= len, "{what}: {} bytes", added.appended_bytes);
        }
        place.verify(what);
        place.verify_by_kernel(what);
    }
}

/// Makes a tree in which all kinds of inodes and attributes are.
fn some_of_all(root: &Path) {
    let mut rng = Rng::new(8);
    for dir in ["a/b/c/d", "many", "other/deep/deeper"] {
        fs::create_dir_all(root.join(dir)).unwrap();
        for at in 0..12 {
            let len = *rng.pick(&[0, 10, 700, 5000, 40_000, 300_000]);
            let path = root.join(format!("{dir}/file-{at}"));
            fs::write(&path, numbers(&mut rng, len)).unwrap();
            if at % 3 == 0 {
                attribute(&path, "shared", "the same for several files");
            }
        }
        std::os::unix::fs::symlink("x".repeat(600), root.join(dir).join("link")).unwrap();
    }
    for at in 0..300 {
        fs::write(root.join(format!("many/a-name-that-is-not-short-{at}")), numbers(&mut rng, at)).unwrap();
    }
    fs::hard_link(root.join("a/b/c/d/file-4"), root.join("many/linked")).unwrap();
    attribute(root, "root", "of the root");
}

fn attribute(path: &Path, name: &str, value: &str) {
    let set = setxattr(path, format!("trusted.{name}").as_str(), value.as_bytes(), XattrFlags::empty());
    if let Err(error) = set {
        kiln_tests::skipped(&format!("attributes: {error}"));
    }
}

/// Changes the tree in the way of a round.
fn change(place: &Place, round: u64, rng: &mut Rng) {
    let write = |path: &str, len: usize, rng: &mut Rng| fs::write(place.path(path), numbers(rng, len)).unwrap();
    match round {
        0 => write("many/file-3", 9000, rng),
        1 => fs::rename(place.path("other"), place.path("a/b/c/renamed")).unwrap(),
        2 => write("many/linked", 8000, rng),
        3 => attribute(&place.path("many/file-5"), "shared", "the same for several files"),
        4 => {
            for at in 0..40 {
                attribute(&place.path(&format!("many/a-name-that-is-not-short-{at}")), "new", "of many files");
            }
        }
        5 => fs::set_permissions(place.dir.path(), Permissions::from_mode(0o711)).unwrap(),
        6 => attribute(place.dir.path(), "root", "another value"),
        7 => fs::remove_file(place.path("many/linked")).unwrap(),
        8 => fs::rename(place.path("a/b/c/renamed"), place.path("other")).unwrap(),
        9 => attribute(place.dir.path(), "more", &"long ".repeat(100)),
        10 => {
            rustix::fs::removexattr(place.dir.path(), "trusted.more").unwrap();
            fs::hard_link(place.path("many/file-1"), place.path("another-name")).unwrap();
        }
        _ => write(&format!("a/new-{round}"), 60_000, rng),
    }
}

#[test]
fn each_generation_has_its_tree() {
    let cases = [
        (preset(Preset::Balanced), "balanced"),
        (preset(Preset::Plain).with(|o| o.block_bits = BlockBits::new(9).unwrap()), "blocks of 512 bytes"),
        (preset(Preset::Plain).with(|o| o.block_bits = BlockBits::new(10).unwrap()), "blocks of 1 KiB"),
        (kernel("5.4"), "Linux 5.4"),
        (kernel("6.15").with(|o| (o.metadata.own_mtimes, o.metadata.omit_dot) = (true, true)), "48 bits"),
        (preset(Preset::Backup), "digests"),
    ];
    for (options, what) in cases {
        let has_large_blocks = options.block_bits.len() >= 1024;
        let mut place = Place::new(options, some_of_all);
        let (mut rng, mut kept) = (Rng::new(3), 0);
        for round in 0..14 {
            change(&place, round, &mut rng);
            kept += place.update().0.kept_inodes;
            if round == 11 {
                place.roll_back(4);
            }
        }
        // A root with long attributes does not fit beside the superblock.
        assert!(kept > 12 * 250, "{what}: {kept} inodes kept");
        place.verify(what);
        if has_large_blocks {
            place.verify_by_kernel(what);
        }
    }
}

#[test]
fn shared_attributes_keep_their_ids() {
    let mut place = Place::new(preset(Preset::Balanced), some_of_all);
    let files = place.trees[0].len() as u64;
    // The file and its directory, the root, and the directories that name it have other bytes.
    for round in 0..3 {
        attribute(&place.path("many/file-5"), "another", &format!("value {round}"));
        fs::write(place.path("many/file-5"), format!("{round}")).unwrap();
        let (summary, _) = place.update();
        let directories = if round == 0 { 9 } else { 2 };
        assert_eq!(summary.kept_inodes, files - 1 - 1 - directories, "round {round}");
    }
    place.verify("shared attributes");
}

#[test]
fn nothing_is_kept_with_times_before_the_epoch() {
    let mut place = Place::new(preset(Preset::Balanced), many_files);
    let time = 1_000_000_000;
    // The second update finds the epoch that the first one has chosen.
    for (round, source_date_epoch, kept) in [
        (0, Some(time), None),
        (1, Some(time), Some(1999)),
        (2, Some(time), Some(1999 + 19)),
        (3, Some(time - 1), None),
        (4, Some(time + 1), Some(0)),
    ] {
        fs::write(place.path("dir-3/file-3"), "x".repeat(round as usize)).unwrap();
        let (summary, _) = place.update_with(|o| o.identity.source_date_epoch = source_date_epoch);
        let image = place.open(round + 1);
        let is_beside = image.superblock().meta_blkaddr.0 == 0;
        assert_eq!((summary.kept_inodes, is_beside), (kept.unwrap_or(0), kept.is_some()), "round {round}");
        assert_eq!(image.check(exactly(2)).unwrap().problem_count, 0, "round {round}");
    }
}

#[test]
fn a_rollback_goes_back_to_kept_inodes() {
    let mut place = Place::new(preset(Preset::Balanced), many_files);
    let change = |place: &Place, round: u32| {
        fs::write(place.path("dir-3/file-3"), format!("change {round}")).unwrap();
    };
    for round in 0..4 {
        change(&place, round);
        place.update();
    }
    for number in [2, 0, 3] {
        place.roll_back(number);
        change(&place, 10 + number);
        let (summary, _) = place.update();
        let directories = if number == 0 { 0 } else { 19 };
        assert_eq!(summary.kept_inodes, 1999 + directories, "after generation {number}");
    }
    place.verify("rollbacks");
    place.verify_by_kernel("rollbacks");
}

#[test]
fn threads_do_not_show() {
    let updated = |threads: usize| {
        let options = preset(Preset::Balanced);
        let mut place = Place::new(options, |root| {
            many_files(root);
            let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
            let set = |path: &Path| fs::File::open(path).unwrap().set_modified(time).unwrap();
            for dir in 0..20 {
                (0..100).for_each(|file| set(&root.join(format!("dir-{dir}/file-{file}"))));
                set(&root.join(format!("dir-{dir}")));
            }
            set(root);
        });
        for number in 0..2 {
            let path = place.path("dir-9/file-9");
            fs::write(&path, format!("{number}")).unwrap();
            let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000 + number);
            fs::File::open(&path).unwrap().set_modified(time).unwrap();
            place.update_with(|o| o.work.threads = Threads::at_least_one(threads));
        }
        place.disk.durable()
    };
    let one = updated(1);
    assert!(one == updated(2) && one == updated(5));
}

#[test]
fn inodes_beside_the_superblock_of_mkfs_erofs_stay() {
    let mut updated = 0;
    for golden in golden_images().unwrap().iter().filter(|golden| golden.blob.is_none()) {
        let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(golden.bytes.clone()));
        let superblock = generations(&source).unwrap()[0].superblock.clone();
        if superblock.metabox_nid.is_some() || superblock.meta_blkaddr.0 > 0 {
            continue;
        }
        let image = golden.open_as(golden.bytes.clone()).unwrap();
        let walk = image.walk(&image.inode(image.root_nid()).unwrap(), b"").map(Result::unwrap);
        let files: Vec<_> = walk.filter(|entry| entry.inode.is_file()).map(|entry| entry.path).take(2).collect();
        let disk = Disk::new(golden.bytes.clone(), &Arc::new(AtomicU64::new(u64::MAX)));
        for path in &files {
            kiln_tests::updated::without(&disk, path).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
            let (after, start) = (disk.now(), superblock.root_nid.0 as usize * 32);
            let end = golden.bytes.len().min(1536);
            assert!(after[start..end] == golden.bytes[start..end], "{}", golden.name);
            updated += 1;
        }
    }
    assert!(updated > 20, "{updated}");
}
