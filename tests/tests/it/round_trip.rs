//! A generated tree becomes an image that is equal to the tree according to our reader, the kernel
//! and FUSE. The image does not depend on the number of threads and the order of directories.

use kiln_builder::BuildOptions;
use kiln_codec::Method;
use kiln_mount::fuse::ImageSources;
use kiln_read::{Image, ImageOptions, Threads};
use kiln_tests::generator::{Scale, make};
use kiln_tests::image::{Choice, build_to, options, scan_dir};
use kiln_tests::mnt::Mount;
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir, of_image};
use kiln_tests::temp::TempDir;
use kiln_tests::{copy, skipped};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

const KIB: u32 = 1 << 10;

/// A tree on disk and its snapshot.
struct Source {
    dir: TempDir,
    snapshot: Snapshot,
}

impl Source {
    /// Returns the tree that all running tests share, which is removed after the last of them.
    fn shared(scale: Scale) -> Arc<Source> {
        static TREES: [Mutex<Weak<Source>>; 3] = [const { Mutex::new(Weak::new()) }; 3];
        let mut tree = TREES[scale as usize].lock().unwrap_or_else(PoisonError::into_inner);
        tree.upgrade().unwrap_or_else(|| {
            let source = Arc::new(Self::make(scale));
            *tree = Arc::downgrade(&source);
            source
        })
    }

    fn make(scale: Scale) -> Source {
        let dir = TempDir::new("source").unwrap();
        for reason in make(dir.path(), 1, scale).unwrap() {
            skipped(&reason);
        }
        let snapshot = of_dir(dir.path()).unwrap();
        Source { dir, snapshot }
    }
}

/// Builds the image of `source` beside others in `out`.
fn image_of(source: &Path, out: &TempDir, options: &BuildOptions) -> PathBuf {
    let path = out.path().join(format!("{}-threads.erofs", options.work.threads.count()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let scan = scan_dir(source, options.work.threads.count()).unwrap();
    assert!(scan.skipped.is_empty());
    let summary = build_to(&scan.tree, &file, options).unwrap();
    assert!(summary.skipped.is_empty());
    assert_eq!(summary.image_bytes, file.metadata().unwrap().len());
    path
}

fn round_trip(scale: Scale, choice: Choice, pcluster_lens: &[u32]) {
    let source = Source::shared(scale);
    for &pcluster_len in pcluster_lens {
        let what = format!("{choice:?}, pclusters of {} KiB", pcluster_len / KIB);
        let out = TempDir::new("image").unwrap();
        let [image, other] =
            [1, 3].map(|threads| image_of(source.dir.path(), &out, &options(choice, pcluster_len, threads)));
        assert!(fs::read(&image).unwrap() == fs::read(other).unwrap(), "{what}: the threads show in the bytes");
        let opened = Image::open_path(&image, &[], &ImageOptions::default()).unwrap();
        assert_same(&source.snapshot, &of_image(&opened).unwrap(), &format!("{what}, by the library"));
        let report = opened.check(Threads::at_least_one(2)).unwrap();
        assert_eq!(report.problem_count, 0, "{what}: {}", report.problems[0]);
        match Mount::by_kernel(&image) {
            Ok(mount) => {
                assert_same(&source.snapshot, &of_dir(mount.path()).unwrap(), &format!("{what}, by the kernel"))
            }
            Err(reason) => skipped(&reason),
        }
    }
}

#[test]
fn plain() {
    round_trip(Scale::Full, None, &[4 * KIB]);
}

#[test]
fn lz4() {
    round_trip(Scale::Full, Some((Method::Lz4, 1)), &[64 * KIB, 1024 * KIB]);
    round_trip(Scale::Reduced, Some((Method::Lz4, 1)), &[4 * KIB]);
}

#[test]
fn lz4hc() {
    round_trip(Scale::Full, Some((Method::Lz4hc, 9)), &[64 * KIB]);
    round_trip(Scale::Reduced, Some((Method::Lz4hc, 9)), &[4 * KIB, 1024 * KIB]);
}

#[test]
fn zstd() {
    round_trip(Scale::Full, Some((Method::Zstd, 3)), &[64 * KIB, 1024 * KIB]);
    round_trip(Scale::Reduced, Some((Method::Zstd, 3)), &[4 * KIB]);
}

#[test]
fn zstd_15() {
    round_trip(Scale::Small, Some((Method::Zstd, 15)), &[4 * KIB, 64 * KIB, 1024 * KIB]);
}

#[test]
fn deflate() {
    round_trip(Scale::Full, Some((Method::Deflate, 6)), &[64 * KIB]);
    round_trip(Scale::Reduced, Some((Method::Deflate, 6)), &[4 * KIB, 1024 * KIB]);
}

#[test]
fn lzma() {
    round_trip(Scale::Small, Some((Method::Lzma, 6)), &[4 * KIB, 64 * KIB, 1024 * KIB]);
}

/// The shared xattr area does not depend on the order in which the source lists attributes.
#[test]
fn a_copy_gives_the_same_image() {
    let source = Source::shared(Scale::Small);
    let copied = TempDir::new("copy").unwrap();
    copy::backwards(source.dir.path(), copied.path()).unwrap();
    for choice in [None, Some((Method::Zstd, 3))] {
        let out = [TempDir::new("image").unwrap(), TempDir::new("image").unwrap()];
        let [image, other] = [(&source.dir, &out[0]), (&copied, &out[1])]
            .map(|(dir, out)| fs::read(image_of(dir.path(), out, &options(choice, 64 * KIB, 2))).unwrap());
        assert!(image == other, "{choice:?}: the order of directories shows in the bytes");
    }
}

#[test]
fn fuse_and_loop_devices_serve_the_same() {
    let source = Source::shared(Scale::Small);
    for choice in [None, Some((Method::Lz4, 1)), Some((Method::Zstd, 3))] {
        let out = TempDir::new("image").unwrap();
        let image = image_of(source.dir.path(), &out, &options(choice, 64 * KIB, 2));
        let sources = ImageSources::from_paths(&image, &[]);
        for (how, mount) in [("by FUSE", Mount::by_fuse(sources)), ("by a loop device", Mount::by_loop(&image))] {
            match mount {
                Ok(mount) => {
                    let actual = of_dir(mount.path()).unwrap();
                    assert_same(&source.snapshot, &actual, &format!("{choice:?}, {how}"));
                }
                Err(reason) => skipped(&format!("{how}: {reason}")),
            }
        }
    }
}
