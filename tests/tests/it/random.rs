//! Random trees with random choices make the whole trip: a directory becomes an image. The
//! library's check, the difference to the directory, the kernel's mount, the FUSE mount and the
//! extracted files all agree with the directory.
//!
//! `KILN_TRIPS=n` sets the number of images: 100 by default, 2,000 with `./test.sh --long`.
//! `KILN_TRIPS_FROM=n` sets the first seed; a failure names its own.

use kiln_builder::{Blob, Out};
use kiln_diff::{DiffOptions, diff};
use kiln_format::BlockBits;
use kiln_mount::fuse::ImageSources;
use kiln_read::{Image, ImageOptions, Threads};
use kiln_sink::Selection;
use kiln_sink::dir::{Control, ExtractOptions, extract};
use kiln_tests::generator::make_random;
use kiln_tests::image::{build_to, scan_dir, scan_image};
use kiln_tests::mnt::Mount;
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir};
use kiln_tests::temp::TempDir;
use kiln_tests::{choices, rounds, skipped};
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;

const TRIPS: u64 = 100;
const LONG_TRIPS: u64 = 2000;

/// An image on disk.
struct Packed {
    dir: TempDir,
    blob: Vec<PathBuf>,
    offset: u64,
}

impl Packed {
    /// Packs the directory `source` by a row of choices.
    fn of(source: &Path, row: &[usize], threads: usize) -> Self {
        let dir = TempDir::new("image").unwrap();
        let tree = scan_dir(source, threads).unwrap().tree;
        let place = choices::place(row, &tree, threads);
        let create =
            |name| File::options().read(true).write(true).create_new(true).open(dir.path().join(name)).unwrap();
        let (image, blob) = (create("image"), place.has_blob.then(|| create("blob")));
        let out = Out {
            image: &image,
            offset: place.offset,
            blob: blob.as_ref().map(|file| Blob { file, tag: [b'b'; 64] }),
            behind: None,
        };
        build_to(&tree, out, &place.options).unwrap();
        let blob = blob.iter().map(|_| dir.path().join("blob")).collect();
        Self { dir, blob, offset: place.offset }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn open(&self) -> Image {
        let options = ImageOptions::default().with_offset(self.offset);
        Image::open_path(&self.path(), &self.blob, &options).unwrap()
    }

    fn sources(&self) -> ImageSources {
        ImageSources::from_paths(&self.path(), &self.blob).with_offset(self.offset)
    }
}

/// Checks `image` with the library, and compares it with `source`.
fn by_library(image: &Image, source: &Path) {
    let report = image.check(Threads::at_least_one(2)).unwrap();
    assert_eq!(report.problem_count, 0, "{}", report.problems[0]);
    let stop = AtomicBool::new(false);
    let of_image = scan_image(image).unwrap();
    let of_dir = scan_dir(source, 1).unwrap().tree;
    let options = DiffOptions {
        path: b"",
        ignore: &[],
        latest_mtime: None,
        is_same: None,
        brief: false,
        threads: Threads::at_least_one(2),
        stop: &stop,
        progress: None,
    };
    let mut changes = Vec::new();
    let summary = diff(&of_dir, &of_image, &options, &mut |change| {
        changes.push(format!("{change:?}"));
        ControlFlow::Continue(())
    });
    assert_eq!(changes, [""; 0], "{:?}", summary.unwrap());
}

/// Extracts `image`, and compares the result with the tree.
fn by_extraction(image: &Image, expected: &Snapshot) {
    let out = TempDir::new("extracted").unwrap();
    let options = ExtractOptions { threads: 2, ..ExtractOptions::default() };
    let stop = AtomicBool::new(false);
    extract(image, out.path(), &Selection::everything(), &options, &Control { stop: &stop, progress: &|_| {} })
        .unwrap();
    assert_same(expected, &of_dir(out.path()).unwrap(), "extracted");
}

/// Makes one trip. Returns why parts of it were left out.
fn trip(seed: u64) -> BTreeSet<String> {
    let source = TempDir::new("source").unwrap();
    let mut left_out = make_random(source.path(), seed).unwrap();
    let expected = of_dir(source.path()).unwrap();
    let mut rng = Rng::new(seed ^ 0x7219);
    let row: Vec<usize> = choices::dimensions().iter().map(|&count| rng.below(count as u64) as usize).collect();
    let what = choices::names(&row);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let packed = Packed::of(source.path(), &row, 1 + rng.below(4) as usize);
        let image = packed.open();
        by_library(&image, source.path());
        by_extraction(&image, &expected);
        match Mount::by_fuse(packed.sources()) {
            Ok(mount) => assert_same(&expected, &of_dir(mount.path()).unwrap(), "by FUSE"),
            Err(reason) => drop(left_out.insert(reason)),
        }
        // Linux mounts blocks up to the length of a page, which is 4 KiB here.
        if image.superblock().block_bits <= BlockBits::DEFAULT {
            match Mount::by_kernel_at(&packed.path(), packed.offset, &packed.blob) {
                Ok(mount) => assert_same(&expected, &of_dir(mount.path()).unwrap(), "by the kernel"),
                Err(reason) => drop(left_out.insert(reason)),
            }
        }
    }));
    if outcome.is_err() {
        panic!("the trip above failed, KILN_TRIPS=1 KILN_TRIPS_FROM={seed}: {what}");
    }
    left_out
}

#[test]
fn random_trees_make_the_whole_trip() {
    let (first, count) = (rounds("KILN_TRIPS_FROM", 0, 0), rounds("KILN_TRIPS", TRIPS, LONG_TRIPS));
    let halves = [0, 1].map(|half| (first..first + count).filter(move |seed| seed % 2 == half));
    let left_out: BTreeSet<String> = thread::scope(|scope| {
        let threads = halves.map(|seeds| scope.spawn(move || seeds.flat_map(trip).collect::<BTreeSet<_>>()));
        threads.into_iter().flat_map(|thread| thread.join().expect("a trip failed")).collect()
    });
    left_out.iter().for_each(|reason| skipped(reason));
    println!("{count} images from seed {first}");
}
