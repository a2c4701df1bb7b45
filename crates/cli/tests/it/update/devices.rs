//! Updates of images on block devices, whose length is fixed.

use crate::common::readers::{has_tree, tree_of};
use crate::common::trees::{OLD, write};
use crate::common::{LoopDevice, Scratch, fails, number, run, skip, stderr, stdout, text};
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{assert_same, of_dir};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

/// Byte that fills the device behind the image: remains of an older filesystem.
const REST: u8 = 0xA5;

/// Makes a device of `len` bytes with the image of a tree of two files, and the tree.
fn device(scratch: &Scratch, len: u64) -> Option<(LoopDevice, String)> {
    let [src, image, disk] = ["src", "image.erofs", "disk"].map(|name| scratch.path(name));
    fs::create_dir(&src).unwrap();
    write(Path::new(&src).join("large"), text(1, 500_000), OLD);
    write(Path::new(&src).join("small"), text(2, 9000), OLD);
    stdout(&["pack", "--quiet", &src, &image]);
    let mut bytes = fs::read(&image).unwrap();
    assert!((bytes.len() as u64) < len);
    bytes.resize(len as usize, REST);
    fs::write(&disk, bytes).unwrap();
    let device = LoopDevice::new(&disk);
    if device.is_none() {
        skip("there are no loop devices for us");
    }
    Some((device?, src))
}

fn bytes_of(device: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(device).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn images_on_devices_are_updated() {
    let scratch = Scratch::new();
    let Some((LoopDevice(ref device), src)) = device(&scratch, 4 << 20) else { return };
    let first = of_dir(src.as_ref()).unwrap();
    let mut trees = vec![first];
    for round in 1..4 {
        write(Path::new(&src).join(format!("new-{round}")), text(round, 200_000), OLD + round);
        let told = crate::common::json(&stdout(&["update", "--quiet", "--json", device, &src]));
        assert_eq!(number(&told, "generation"), round);
        trees.push(of_dir(src.as_ref()).unwrap());
        has_tree(device, &src);
    }
    stdout(&["rollback", "--quiet", "--generation", "1", device]);
    trees.push(trees[1].clone());
    stdout(&["update", "--quiet", device, "--remove", "/new-1"]);
    for (number, tree) in (0..).zip(&trees) {
        assert_same(tree, &tree_of(device, Some(number)), &format!("generation {number}"));
    }
    let bytes = bytes_of(device);
    assert_eq!(bytes.len(), 4 << 20);
    assert!(bytes[(2 << 20)..].iter().all(|byte| *byte == REST), "nothing is written to behind what was appended");
}

#[test]
fn a_device_without_room_keeps_its_image() {
    let scratch = Scratch::new();
    let Some((LoopDevice(ref device), src)) = device(&scratch, 1 << 20) else { return };
    let before = tree_of(device, None);
    let mut noise = vec![0; 2 << 20];
    Rng::new(1).fill(&mut noise);
    write(Path::new(&src).join("noise"), &noise, OLD);
    let output = run(&["update", device, &src]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let told = stderr(&output);
    assert!(told.contains(&format!("{device}: ")) && told.contains("No space left on device"), "{told}");
    assert_same(&before, &tree_of(device, None), "after an update without room");
    stdout(&["check", device]);
    // A tree that fits overwrites the remains of the other one.
    fs::remove_file(Path::new(&src).join("noise")).unwrap();
    write(Path::new(&src).join("little"), text(9, 5000), OLD);
    stdout(&["update", "--quiet", device, &src]);
    has_tree(device, &src);
    // Not even a rollback has room on a device that is full.
    let scratch = Scratch::new();
    let [src, image] = ["src", "image.erofs"].map(|name| scratch.path(name));
    fs::create_dir(&src).unwrap();
    write(Path::new(&src).join("file"), text(1, 50_000), OLD);
    stdout(&["pack", "--quiet", &src, &image]);
    write(Path::new(&src).join("file"), text(2, 50_000), OLD + 1);
    stdout(&["update", "--quiet", &image, &src]);
    let full = LoopDevice::new(&image).unwrap();
    fails(&["rollback", "--generation", "0", &full.0], 1, "No space left on device");
    has_tree(&full.0, &src);
}

#[test]
fn what_follows_an_image_on_a_device_is_known() {
    let scratch = Scratch::new();
    let Some((device, src)) = device(&scratch, 2 << 20) else { return };
    drop(device);
    // A hash tree of dm-verity begins where the image ends.
    let end = fs::metadata(scratch.path("image.erofs")).unwrap().len() as usize;
    let mut bytes = fs::read(scratch.path("disk")).unwrap();
    bytes[end..end + 8].copy_from_slice(b"verity\0\0");
    File::options().write(true).open(scratch.path("disk")).unwrap().write_all(&bytes).unwrap();
    let device = LoopDevice::new(&scratch.path("disk")).unwrap();
    fails(&["update", &device.0, &src], 1, "hash tree of dm-verity");
    assert!(bytes_of(&device.0) == bytes);
}
