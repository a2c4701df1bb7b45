//! All readers of images: they have to agree about a tree.

use super::{skip, stderr, stdout};
use kiln_read::{Image, ImageOptions, Threads};
use kiln_tests::mnt::Mount;
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir, of_image};
use std::path::Path;
use std::process::Command;
use std::sync::Once;

/// The longest blocks that kernels mount, and that fsck.erofs reads: a page of most machines.
const PAGE_LEN: u64 = 4096;

/// Opens an image, or one of its generations.
pub fn open(image: &str, generation: Option<u32>) -> Image {
    let options = ImageOptions::default().with_generation(generation);
    Image::open_path(image.as_ref(), &[], &options).unwrap()
}

/// Returns the tree of an image, or of one of its generations.
pub fn tree_of(image: &str, generation: Option<u32>) -> Snapshot {
    of_image(&open(image, generation)).unwrap()
}

/// Checks that an image has the tree at `src`, by `kiln diff`, `kiln check` and all other readers.
pub fn has_tree(image: &str, src: &str) {
    stdout(&["diff", image, src]);
    stdout(&["check", image]);
    if let Some(mount) = by_kernel(image) {
        stdout(&["diff", mount.path().to_str().unwrap(), src]);
    }
    by_fsck(image);
}

/// Checks that an image has a tree, by the library and its check, the kernel and fsck.erofs.
pub fn has_snapshot(image: &str, expected: &Snapshot, what: &str) {
    let opened = open(image, None);
    let report = opened.check(Threads::at_least_one(2)).unwrap();
    assert_eq!(report.problem_count, 0, "{what}: {}", report.problems[0]);
    assert_same(expected, &of_image(&opened).unwrap(), what);
    if let Some(mount) = by_kernel(image) {
        assert_same(expected, &of_dir(mount.path()).unwrap(), &format!("{what}, by the kernel"));
    }
    by_fsck(image);
}

/// Mounts the image by the kernel.
fn by_kernel(image: &str) -> Option<Mount> {
    let mounted = Mount::by_kernel(Path::new(image));
    let is_mountable = || open(image, None).superblock().block_bits.len() <= PAGE_LEN;
    match mounted {
        Ok(mount) => Some(mount),
        Err(reason) => {
            if is_mountable() {
                skip(&format!("the kernel does not mount: {reason}"));
            }
            None
        }
    }
}

/// Lets fsck.erofs decode all of it.
fn by_fsck(image: &str) {
    static TOLD: Once = Once::new();
    match Command::new("fsck.erofs").args(["--extract", image]).output() {
        Err(_) => TOLD.call_once(|| kiln_tests::without("fsck.erofs")),
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let block_len = open(image, None).superblock().block_bits.len();
            assert!(block_len > PAGE_LEN, "{image}: fsck.erofs: {}", stderr(&output));
        }
    }
}
