//! Disks that become full: existing files stay unchanged, and no truncated file appears.

use crate::common::trees::{OLD, write};
use crate::common::{Scratch, names, run, skip, stderr, stdout, text};
use crate::mount::{Place, has_fuse};
use kiln_tests::rng::Rng;
use std::fs;
use std::process::Command;

/// A filesystem in memory of a given size in KiB, unmounted at the end.
struct SmallDisk(String);

impl SmallDisk {
    fn new(scratch: &Scratch, kib: u32) -> Option<Self> {
        let dir = scratch.path("disk");
        fs::create_dir(&dir).unwrap();
        let size = format!("size={kib}k");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs", &dir]).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            skip("mounting a small file system needs root");
            return None;
        }
        Some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Makes an image of a megabyte that does not compress, on a disk that has room for `more` KiB more.
fn image_on_disk(options: &[&str], more: u32) -> Option<(Scratch, SmallDisk)> {
    let scratch = Scratch::new();
    let [src, image] = ["src", "image.erofs"].map(|name| scratch.path(name));
    fs::create_dir(&src).unwrap();
    let mut noise = vec![0; 1 << 20];
    Rng::new(1).fill(&mut noise);
    write(format!("{src}/noise"), noise, OLD);
    write(format!("{src}/text"), text(1, 300_000), OLD);
    stdout(&[&["pack", "--quiet"], options, &[&src, &image]].concat());
    let len = fs::metadata(&image).unwrap().len();
    let disk = SmallDisk::new(&scratch, (len / 1024) as u32 + more)?;
    fs::copy(&image, format!("{}/image.erofs", disk.0)).unwrap();
    Some((scratch, disk))
}

#[test]
fn old_images_stay_and_new_ones_do_not_appear() {
    for options in [&[][..], &["--preset", "plain"]] {
        for more in [16, 300, 900] {
            let Some((scratch, disk)) = image_on_disk(options, more) else { return };
            let [src, list, spool] = ["src", "list", "src"].map(|name| scratch.path(name));
            let [image, new] = ["image.erofs", "new.erofs"].map(|name| format!("{}/{name}", disk.0));
            fs::write(&list, "text\nnoise\n").unwrap();
            let before = fs::read(&image).unwrap();
            let mut noise = vec![0; 1 << 20];
            Rng::new(2).fill(&mut noise);
            write(format!("{src}/other"), noise, OLD + 1);
            for (args, output) in [
                (&["relayout", &image, &new][..], &new),
                (&["relayout", "--order", &list, &image, &new], &new),
                (&["relayout", "--order", &list, "--hot-as", "none", &image, &new], &new),
                (&["pack", "--base", &image, &src, &new], &new),
                (&["pack", "--base", &image, "--base-trust", "content", "--stamp", &src, &new], &new),
                (&["update", "--spool", &spool, &image, &src], &image),
                (&["update", "--spool", &spool, &image, "--add", &src], &image),
            ] {
                let ended = run(args);
                let told = stderr(&ended);
                assert_eq!(ended.status.code(), Some(1), "{more} {args:?}: {told}");
                assert!(told.contains(output.as_str()) && told.contains("No space left"), "{more} {args:?}: {told}");
                assert_eq!(names(&disk.0), ["image.erofs"], "{more} {args:?}");
                assert!(fs::read(&image).unwrap() == before, "{more} {args:?}");
            }
        }
    }
}

/// Lists of reads are written when the command has ended: its exit code then reports errors.
#[test]
fn lists_appear_whole_or_not_at_all() {
    let scratch = Scratch::new();
    let Some(disk) = SmallDisk::new(&scratch, 16) else { return };
    let [src, image, dir, long] = ["src", "image", "mnt", "long.list"].map(|name| scratch.path(name));
    fs::create_dir(&src).unwrap();
    fs::create_dir(&dir).unwrap();
    let mut lines = "#kiln-hotlist 1\n".to_owned();
    for at in 0..400 {
        let name = format!("{at:0200}");
        fs::write(format!("{src}/{name}"), "x").unwrap();
        lines.push_str(&format!("0+1\t{at}\t{name}\n"));
    }
    fs::write(&long, &lines).unwrap();
    let list = format!("{}/hot.list", disk.0);
    let merged = run(&["hotlist", "merge", &long, &long, "-o", &list]);
    let told = stderr(&merged);
    assert_eq!(merged.status.code(), Some(1), "{told}");
    assert!(told.contains(&list) && told.contains("No space left"), "{told}");
    assert!(names(&disk.0).is_empty(), "{:?}", names(&disk.0));
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    stdout(&["pack", "--quiet", &src, &image]);
    stdout(&["mount", "--quiet", "--via=fuse", &image, &dir]);
    let _place = Place(&dir);
    let recorded = run(&["record", "-o", &list, &dir, "--", "sh", "-c", "cat \"$0\"/* >/dev/null", &dir]);
    let told = stderr(&recorded);
    assert_eq!(recorded.status.code(), Some(1), "{told}");
    assert!(told.contains(&list) && told.contains("No space left"), "{told}");
    assert!(names(&disk.0).is_empty(), "{:?}", names(&disk.0));
}
