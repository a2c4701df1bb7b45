//! Hash trees on block devices, which have no files beside them.

use super::files;
use crate::common::{LoopDevice, Scratch, fails, json, number, skip, stdout, text};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;

/// Makes a device of 4 MiB, and a source.
fn device() -> Option<(Scratch, LoopDevice, String)> {
    let scratch = Scratch::new();
    let [src, disk] = ["src", "disk"].map(|name| scratch.path(name));
    files(&src);
    fs::write(&disk, vec![0xA5; 4 << 20]).unwrap();
    let device = LoopDevice::new(&disk);
    if device.is_none() {
        skip("there are no loop devices for us");
    }
    Some((scratch, device?, src))
}

/// Verifies a device by the root hash in a document of `--json`.
fn assert_verified(device: &str, told: &Value) {
    let root_hash = told["verity"]["root_hash"].as_str().unwrap_or_else(|| told["root_hash"].as_str().unwrap());
    stdout(&["verity", "verify", "-q", device, "--root-hash", root_hash]);
}

#[test]
fn images_on_devices_have_trees() {
    let Some((scratch, LoopDevice(ref device), src)) = device() else { return };
    let told = json(&stdout(&["pack", "--json", "--force", "--verity", &src, device]));
    assert_verified(device, &told);
    fails(&["update", device, &src, "--discard-tail"], 1, "--drop-verity");
    fails(&["pack", "--force", "--verity", "--sidecar", &src, device], 2, "--sidecar");
    fs::write(format!("{src}/new"), text(9, 50_000)).unwrap();
    let told = json(&stdout(&["update", "--json", "--verity", device, &src]));
    assert_verified(device, &told);
    stdout(&["rollback", "-q", "--drop-verity", device]);
    fails(&["verity", "show", device], 1, "no hash tree");
    assert_eq!(fs::metadata(scratch.path("disk")).unwrap().len(), 4 << 20);
    assert_eq!(scratch.names(), ["disk", "src"]);
}

#[test]
fn no_tree_of_an_older_image_stays_on_a_device() {
    let Some((scratch, LoopDevice(ref device), src)) = device() else { return };
    let told = json(&stdout(&["pack", "--json", "--force", "--verity", &src, device]));
    let end = number(&told["verity"], "hash_offset");
    // An image of the same length.
    stdout(&["pack", "-q", "--force", &src, device]);
    let (mut sector, disk) = ([1; 513], fs::File::open(scratch.path("disk")).unwrap());
    disk.read_exact_at(&mut sector, end).unwrap();
    assert!(sector[..512] == [0; 512] && sector[512] != 1, "the superblock of the tree alone");
    stdout(&["update", "-q", "--remove", "below/f1", device]);
    // A shorter image with a tree inside the older one.
    let told = json(&stdout(&["pack", "--json", "--force", "--verity", &src, device]));
    assert_verified(device, &told);
}

#[test]
fn patches_bring_trees_to_devices() {
    let Some((scratch, LoopDevice(ref device), src)) = device() else { return };
    let [v1, v2, v3, patch] = ["v1", "v2", "v3", "patch"].map(|name| scratch.path(name));
    stdout(&["pack", "-q", "--verity", &src, &v1]);
    fs::write(format!("{src}/new"), text(9, 50_000)).unwrap();
    stdout(&["pack", "-q", "--verity", &src, &v2]);
    stdout(&["pack", "-q", &src, &v3]);
    stdout(&["patch", "make", "-q", &v1, &v2, &patch]);
    let told = json(&stdout(&["patch", "apply", "--json", "--force", &v1, &patch, device]));
    assert_verified(device, &told);
    // In place of an image with a tree.
    stdout(&["pack", "-q", "--force", "--verity", "--base", &v1, &src, &scratch.path("other")]);
    let first = fs::read(&v1).unwrap();
    fs::File::options().write(true).open(device).unwrap().write_all_at(&first, 0).unwrap();
    let journal = scratch.path("journal");
    let apply = || json(&stdout(&["patch", "apply", "--json", "--in-place", "--journal", &journal, device, &patch]));
    let told = apply();
    assert_verified(device, &told);
    assert_eq!(apply()["outcome"], "present");
    // The new image has none, and no old one stays.
    stdout(&["patch", "make", "-q", "--force", &v2, &v3, &patch]);
    apply();
    fails(&["verity", "show", device], 1, "no hash tree");
    assert!(fs::read(scratch.path("disk")).unwrap().starts_with(&fs::read(&v3).unwrap()));
}
