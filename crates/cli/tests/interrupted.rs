//! Builds that do not come to their end leave nothing behind.

mod common;

use common::{Scratch, names, run, skip, stderr, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Something that takes long to pack, in a process of its own.
fn slow(scratch: &Scratch, extra: &[&str]) -> Child {
    let root = scratch.path("src");
    fs::create_dir(&root).unwrap();
    fs::create_dir(scratch.path("out")).unwrap();
    fs::write(format!("{root}/big"), text(7, 48 << 20)).unwrap();
    let image = scratch.path("out/image");
    // Whoever runs the tests may ignore signals, as jobs in the background do, and kiln would, too.
    let mut child = Command::new("env")
        .args([
            "--default-signal=INT,TERM,HUP",
            env!("CARGO_BIN_EXE_kiln"),
            "pack",
            "-z",
            "zstd,19",
            "-C",
            "64k",
            "--threads",
            "1",
        ])
        .args(extra)
        .args([&root, &image])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !catches_signals(child.id()) {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    // In the middle of packing, which takes seconds.
    std::thread::sleep(Duration::from_millis(300));
    child
}

fn catches_signals(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap() >> (Signal::TERM.as_raw() - 1) & 1 == 1
}

#[test]
fn a_signal_leaves_nothing_behind() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let scratch = Scratch::new();
        let child = slow(&scratch, &[]);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(names(scratch.path("out")).is_empty());
    }
}

#[test]
fn not_even_sigkill_leaves_anything_behind() {
    for extra in [&[][..], &["--force"]] {
        let scratch = Scratch::new();
        let mut child = slow(&scratch, extra);
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        if scratch_has_tmpfile(&scratch) {
            assert!(names(scratch.path("out")).is_empty());
        } else {
            skip("this file system has no nameless files");
        }
    }
}

fn scratch_has_tmpfile(scratch: &Scratch) -> bool {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(scratch.path("out"), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).is_ok()
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let disk = scratch.path("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs", &disk]).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return skip("mounting a small file system needs root");
    }
    let root = scratch.path("src");
    fs::create_dir(&root).unwrap();
    fs::write(format!("{root}/big"), text(3, 4 << 20)).unwrap();
    let image = format!("{disk}/image");
    let output = run(&["pack", &root, &image]);
    let left = names(&disk);
    Command::new("umount").arg(&disk).status().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&image) && stderr(&output).contains("No space left"), "{}", stderr(&output));
    assert!(left.is_empty(), "{left:?}");
}
