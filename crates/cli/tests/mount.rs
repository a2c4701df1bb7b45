//! `kiln mount` and `kiln umount`.

mod common;

use common::{Scratch, fails, golden, kiln, run, skip, stderr, stdout};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// A mount point that is unmounted at the end, whatever happens.
struct Place<'a>(&'a str);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let _ = run(&["umount", self.0]);
    }
}

fn is_mounted(dir: &str) -> bool {
    fs::read_to_string("/proc/self/mounts").unwrap().lines().any(|line| line.split(' ').nth(1) == Some(dir))
}

fn has_fuse() -> bool {
    geteuid().is_root() && Path::new("/dev/fuse").exists()
}

#[test]
fn the_kernel_or_fuse_serves_it() {
    let (scratch, image) = (Scratch::new(), golden("lz4.erofs"));
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    for via in [&[][..], &["--via=fuse"], &["--via=fuse", "--threads=2", "--cache=1M", "--allow-other"]] {
        let place = Place(&dir);
        let output = run(&[&["mount"], via, &[&image, &dir]].concat());
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(told.contains("mounted on") && (told.contains("FUSE") || via.is_empty()), "{told}");
        assert!(is_mounted(&dir));
        assert!(fs::read(format!("{dir}/big/text")).unwrap() == stdout(&["cat", &image, "big/text"]));
        stdout(&["umount", &dir]);
        assert!(!is_mounted(&dir));
        drop(place);
    }
    fails(&["umount", &dir], 1, "not mounted");
}

#[test]
fn a_relative_path_is_found_from_the_background() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    fs::copy(golden("lz4.erofs"), scratch.path("image")).unwrap();
    let _place = Place(&dir);
    let output = kiln().args(["mount", "--via=fuse", "image", "mnt"]).current_dir(scratch.path("")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(is_mounted(&dir));
}

#[test]
fn the_background_reports_why_it_failed() {
    let scratch = Scratch::new();
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    fails(&["mount", "--via=fuse", &scratch.path("missing"), &dir], 1, "missing");
    fails(&["mount", &scratch.path("missing"), &dir], 1, "missing");
    fs::write(scratch.path("text"), vec![b'x'; 10_000]).unwrap();
    fails(&["mount", "--via=fuse", &scratch.path("text"), &dir], 1, "not an EROFS image");
    fails(&["mount", "--via=fuse", &golden("lz4.erofs"), &scratch.path("nowhere")], 1, "nowhere");
    assert!(!is_mounted(&dir));
}

#[test]
fn the_foreground_ends_with_a_signal() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    let _place = Place(&dir);
    let mut command = kiln();
    command.args(["mount", "--via=fuse", "--foreground", &golden("zstd.erofs"), &dir]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("by FUSE"), "{line}");
    assert!(is_mounted(&dir));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!is_mounted(&dir));
}
