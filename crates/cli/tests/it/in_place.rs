//! `kiln patch apply --in-place`: remains of a run that was cut short, and targets in use.

use crate::common::{LoopDevice, Scratch, fails, json, run, skip, stderr, stdout, text};
use kiln_builder::Control;
use kiln_delta::Patch;
use kiln_delta::in_place::{self, Identity, Resize, Target};
use kiln_mount::claim_unused;
use kiln_mount::fuse::ImageSources;
use kiln_tests::disk::Disk;
use kiln_tests::mnt::Mount;
use kiln_tests::rng::Rng;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Makes two images, and a patch between them.
fn versions(scratch: &Scratch) -> [String; 3] {
    let [root, old, new, patch] = ["src", "old", "new", "patch"].map(|name| scratch.path(name));
    fs::create_dir(&root).unwrap();
    for at in 0..20 {
        fs::write(format!("{root}/file-{at}"), text(at, 20_000)).unwrap();
    }
    stdout(&["pack", "-q", &root, &old]);
    for at in 5..15 {
        fs::write(format!("{root}/file-{at}"), text(at + 100, 25_000)).unwrap();
    }
    stdout(&["pack", "-q", &root, &new]);
    stdout(&["patch", "make", "-q", &old, &new, &patch]);
    [old, new, patch]
}

/// Returns the target and the journal of a run that lost power in the second step.
fn cut_off(old: &[u8], patch: &str, resize: Resize, properties: &[(&str, &str)]) -> (Vec<u8>, Vec<u8>) {
    let patch = fs::read(patch).unwrap();
    let identity = Identity::new(properties.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    let control = Control { stop: &AtomicBool::new(false), progress: &|_| {} };
    for count in 0.. {
        let left = Arc::new(AtomicU64::new(count));
        let (device, journal) = (Disk::new(old.to_vec(), &left), Disk::new(Vec::new(), &left));
        let target = Target { device: device.clone(), len: old.len() as u64, resize, identity: identity.clone() };
        in_place::apply(Patch::open(&patch[..]).unwrap(), &target, &*journal, &control).unwrap_err();
        let now = device.after_power_cut(&mut Rng::new(count));
        if now[1024..1536] == [0; 512] && now[8192..] != old[8192..] {
            return (now, journal.now());
        }
    }
    unreachable!("the run ends with an error until all is written");
}

/// Makes a file that is half new, with its journal beside it.
fn unfinished(scratch: &Scratch) -> ([String; 3], String) {
    let [old, new, patch] = versions(scratch);
    let (half, journal) = cut_off(&fs::read(&old).unwrap(), &patch, Resize::ToImage, &[]);
    let place = scratch.path(".old.kiln-journal");
    fs::write(&old, half).unwrap();
    fs::write(&place, journal).unwrap();
    ([old, new, patch], place)
}

fn status(args: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["patch", "apply", "--in-place", "--status"], args].concat());
    (output.status.code(), String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[test]
fn another_disk_of_the_name_is_not_written_to() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    let [first, second, journal] = ["first", "second", "journal"].map(|name| scratch.path(name));
    let mut bytes = fs::read(&old).unwrap();
    bytes.resize(8 << 20, 0xEE);
    let (half, left) = cut_off(&bytes, &patch, Resize::Never, &[]);
    fs::write(&first, &half).unwrap();
    fs::write(&journal, &left).unwrap();
    // The device name now belongs to another filesystem.
    fs::write(&second, vec![0; 8 << 20]).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", &second]).status().is_ok_and(|status| status.success());
    let other = if made { fs::read(&second).unwrap() } else { vec![0x5A; 8 << 20] };
    fs::write(&second, &other).unwrap();
    let Some(device) = LoopDevice::new(&second) else { return skip("no loop devices for us") };
    let args = ["patch", "apply", "--in-place", "--journal", &journal, &device.0, &patch];
    fails(&args, 1, "the journal was written for another target");
    fails(&args, 1, &journal);
    fails(&["patch", "apply", "--in-place", "--complete", "--journal", &journal, &device.0], 1, "nothing was written");
    assert_eq!(status(&["--journal", &journal, &device.0]), (Some(12), "unknown".to_owned()));
    drop(device);
    assert!(fs::read(&second).unwrap() == other && fs::read(&journal).unwrap() == left);

    let device = LoopDevice::new(&first).unwrap();
    assert_eq!(status(&["--journal", &journal, &device.0]), (Some(11), "unfinished".to_owned()));
    stdout(&["patch", "apply", "-q", "--in-place", "--journal", &journal, &device.0, &patch]);
    drop(device);
    let (done, image) = (fs::read(&first).unwrap(), fs::read(&new).unwrap());
    assert!(done.starts_with(&image) && done.ends_with(&half[image.len()..]) && !fs::exists(&journal).unwrap());
}

#[test]
fn a_device_is_known_by_what_it_is() {
    let scratch = Scratch::new();
    let [old, _, patch] = versions(&scratch);
    let [disk, journal] = ["disk", "journal"].map(|name| scratch.path(name));
    let mut bytes = fs::read(&old).unwrap();
    bytes.resize(8 << 20, 0xEE);
    // The other slot contains the same old image.
    let (half, left) = cut_off(&bytes, &patch, Resize::Never, &[("offset of the loop device", "4096")]);
    fs::write(&disk, &half).unwrap();
    fs::write(&journal, left).unwrap();
    let Some(device) = LoopDevice::new(&disk) else { return skip("no loop devices for us") };
    let words = "its offset of the loop device is 0, but the journal is of the device with 4096";
    fails(&["patch", "apply", "--in-place", "--journal", &journal, &device.0, &patch], 1, words);
    drop(device);
    assert!(fs::read(&disk).unwrap() == half);
    // The journal of the command contains properties of the device, and completes with them.
    fs::write(&disk, &bytes).unwrap();
    fs::remove_file(&journal).unwrap();
    let device = LoopDevice::new(&disk).unwrap();
    stdout(&["patch", "apply", "-q", "--in-place", "--journal", &journal, &device.0, &patch]);
    assert_eq!(status(&[&device.0, &patch]), (Some(0), "new".to_owned()));
}

#[test]
fn a_third_image_in_place_of_the_file_is_not_written_to() {
    let scratch = Scratch::new();
    let ([old, _, patch], journal) = unfinished(&scratch);
    fs::write(scratch.path("src/other"), text(77, 300_000)).unwrap();
    let third = scratch.path("third");
    stdout(&["pack", "-q", &scratch.path("src"), &third]);
    fs::rename(&third, &old).unwrap();
    let before = fs::read(&old).unwrap();
    fails(&["patch", "apply", "--in-place", &old, &patch], 1, "the journal was written for another target");
    assert!(fs::read(&old).unwrap() == before && fs::exists(&journal).unwrap());
    // The image can be read, and a note mentions the journal.
    let output = run(&["check", &old]);
    assert!(output.status.success() && stderr(&output).contains(&journal), "{}", stderr(&output));
}

#[test]
fn every_command_says_that_an_image_is_unfinished_and_what_completes_it() {
    let scratch = Scratch::new();
    let ([old, new, patch], journal) = unfinished(&scratch);
    let [dir, out] = ["dir", "out"].map(|name| scratch.path(name));
    fs::create_dir(&dir).unwrap();
    let half = fs::read(&old).unwrap();
    let words = format!("kiln patch apply --in-place --complete {old}");
    for args in [
        &["ls", &old][..],
        &["info", &old],
        &["cat", &old, "file-1"],
        &["mount", &old, &dir],
        &["mount", "--via", "fuse", &old, &dir],
        &["update", &old, &scratch.path("src")],
        &["rollback", &old],
        &["log", &old],
        &["extract", &old, &out],
        &["relayout", &old, &out],
    ] {
        fails(args, 1, &words);
    }
    fails(&["check", &old], 4, &words);
    assert_eq!(status(&[&old]), (Some(11), "unfinished".to_owned()));
    assert_eq!(status(&[&old, &patch]), (Some(11), "unfinished".to_owned()));
    let told = json(&run(&["patch", "apply", "--in-place", "--status", "--json", &old]).stdout);
    assert_eq!((told["state"].as_str(), told["journal"].as_str()), (Some("unfinished"), Some(&*journal)));
    assert!(fs::read(&old).unwrap() == half);
    let done = run(&["patch", "apply", "--in-place", "--complete", &old]);
    assert!(done.status.success() && stderr(&done).contains("completed from"), "{}", stderr(&done));
    assert!(fs::read(&old).unwrap() == fs::read(&new).unwrap() && !fs::exists(&journal).unwrap());
    stdout(&["check", &old]);
    fails(&["patch", "apply", "--in-place", "--complete", &old], 2, "there is nothing to complete");
    // Without a journal, the patch decides.
    assert_eq!(status(&[&old, &patch]), (Some(0), "new".to_owned()));
    assert_eq!(status(&[&old]), (Some(12), "unknown".to_owned()));
    stdout(&["patch", "make", "-q", "--force", &new, &scratch.path("new"), &scratch.path("same")]);
    assert_eq!(status(&[&new, &scratch.path("same")]), (Some(10), "old".to_owned()));
    fails(&["patch", "apply", "--status", &old], 2, "--in-place");
    fails(&["patch", "apply", "--in-place", &old], 2, "PATCH");
}

#[test]
fn an_unfinished_image_without_its_journal_is_told() {
    let scratch = Scratch::new();
    let ([old, new, patch], journal) = unfinished(&scratch);
    let moved = scratch.path("moved");
    fs::rename(&journal, &moved).unwrap();
    let mut half = fs::read(&old).unwrap();
    half[..4096].fill(0);
    fs::write(&old, &half).unwrap();
    fails(&["patch", "apply", "--in-place", &old, &patch], 1, "no journal at");
    fails(&["patch", "apply", "--in-place", &old, &patch], 1, "not the image that the patch was made for");
    assert!(fs::read(&old).unwrap() == half && !fs::exists(&journal).unwrap());
    stdout(&["patch", "apply", "-q", "--in-place", "--journal", &moved, &old, &patch]);
    assert!(fs::read(&old).unwrap() == fs::read(&new).unwrap());
}

#[test]
fn an_image_that_is_in_use_is_not_written_over() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    let before = fs::read(&old).unwrap();
    let refused = |words: &str| {
        fails(&["patch", "apply", "--in-place", &old, &patch], 1, words);
        assert!(fs::read(&old).unwrap() == before && !fs::exists(scratch.path(".old.kiln-journal")).unwrap());
    };
    let updating = File::options().write(true).open(&old).unwrap();
    updating.lock().unwrap();
    refused("another process updates it");
    drop(updating);
    let path = Path::new(&old);
    let sources = || ImageSources::from_paths(path, &[]);
    type Mounting<'m> = &'m dyn Fn() -> Result<Mount, String>;
    let mounts: [(Mounting<'_>, &str); 3] = [
        (&|| Mount::by_kernel(path), "in use: "),
        (&|| Mount::by_loop(path), "is a loop device of it"),
        (&|| Mount::by_fuse(sources()), "a FUSE server has it mounted"),
    ];
    for (mount, words) in mounts {
        match mount() {
            Ok(_mounted) => refused(words),
            Err(reason) => skip(&reason),
        }
    }
    // While it is overwritten, it is not served.
    let writing = File::options().read(true).write(true).open(&old).unwrap();
    claim_unused(path, &writing).unwrap();
    let reason = Mount::by_fuse(sources()).expect_err("an image that is written over is served");
    assert!(reason.contains("another image is being written over it") || reason.contains("FUSE"), "{reason}");
    drop(writing);
    stdout(&["patch", "apply", "-q", "--in-place", &old, &patch]);
    assert!(fs::read(&old).unwrap() == fs::read(&new).unwrap());
}
