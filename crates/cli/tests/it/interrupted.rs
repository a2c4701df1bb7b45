//! Interrupted builds leave nothing behind.

pub mod older;

use crate::common::{Scratch, names, run, skip, stderr, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Bytes of the source after which packing has begun: far more than the libraries that a program loads.
const PART_LEN: u64 = 8 << 20;

/// Starts a build that takes long, in a process of its own.
fn slow(scratch: &Scratch, extra: &[&str]) -> Child {
    let root = scratch.path("src");
    fs::create_dir(&root).unwrap();
    fs::create_dir(scratch.path("out")).unwrap();
    fs::write(format!("{root}/big"), text(7, 48 << 20)).unwrap();
    let image = scratch.path("out/image");
    let slowly = ["pack", "-z", "zstd,19", "-C", "64k", "--threads", "1"];
    let mut child = signalled(&[&slowly, extra, &[&root, &image]].concat()).spawn().unwrap();
    while !catches_signals(child.id()) || bytes_read(child.id()) < PART_LEN {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

/// Returns the command with signals enabled: a runner of the tests may ignore them, like jobs in the background, and
/// kiln would inherit that.
pub fn signalled(args: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_kiln")]).args(args).stderr(Stdio::piped());
    command
}

/// Returns the bytes that a process has read.
fn bytes_read(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
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

/// A writer that is absent, or stops writing, keeps no one waiting.
#[test]
fn a_signal_ends_the_wait_for_a_fifo() {
    let member = {
        let scratch = Scratch::new();
        fs::write(scratch.path("member"), text(5, 200 << 10)).unwrap();
        Command::new("tar").args(["-C", &scratch.path(""), "-c", "member"]).output().unwrap().stdout
    };
    let packed = gzip(&member);
    // Nothing has opened it; its format is not known yet; within a member of an archive, and of a compressed one.
    for written in [None, Some(&member[..100]), Some(&member[..150 << 10]), Some(&packed[..packed.len() / 2])] {
        for to_layout in [false, true] {
            let scratch = Scratch::new();
            let (fifo, out) = (scratch.path("fifo"), scratch.path("out"));
            assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
            fs::create_dir(&out).unwrap();
            let mut command = Command::new("env");
            command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_kiln")]);
            if to_layout {
                command.args(["oci", "pack", &fifo, &format!("{out}/layout")]);
            } else {
                command.args(["pack", &fifo, &format!("{out}/image")]);
            }
            let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
            let writer = written.map(|bytes| {
                let mut writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
                writer.write_all(bytes).unwrap();
                writer
            });
            while !catches_signals(child.id()) {
                assert!(child.try_wait().unwrap().is_none(), "it has ended");
                std::thread::sleep(Duration::from_millis(2));
            }
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            let output = child.wait_with_output().unwrap();
            drop(writer);
            assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
            assert_eq!(stderr(&output), "kiln: stopped by signal 2\n");
            // A layout without an image is valid.
            assert!(to_layout || names(&out).is_empty());
        }
    }
}

/// A slow writer is waited for, without wasting time.
#[test]
fn a_fifo_is_read_to_its_end() {
    let scratch = Scratch::new();
    fs::write(scratch.path("member"), text(5, 300 << 10)).unwrap();
    let archive = Command::new("tar").args(["-C", &scratch.path(""), "-c", "member"]).output().unwrap().stdout;
    let (fifo, image) = (scratch.path("fifo"), scratch.path("image"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let child = Command::new(env!("CARGO_BIN_EXE_kiln")).args(["pack", "-q", &fifo, &image]).spawn().unwrap();
    let mut writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    for part in archive.chunks(50_000) {
        std::thread::sleep(Duration::from_millis(20));
        writer.write_all(part).unwrap();
    }
    drop(writer);
    assert!(child.wait_with_output().unwrap().status.success());
    let read = run(&["cat", &image, "member"]);
    assert!(read.stdout == fs::read(scratch.path("member")).unwrap(), "{}", stderr(&read));
}

/// Compresses bytes with gzip.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, bytes) = (child.stdin.take().unwrap(), bytes.to_owned());
    let writer = std::thread::spawn(move || input.write_all(&bytes).unwrap());
    let packed = child.wait_with_output().unwrap().stdout;
    writer.join().unwrap();
    packed
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

/// Memory may run out in our own code, in a library, or as a thread is started.
#[test]
fn memory_that_runs_out_is_told_and_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let (root, out) = (scratch.path("src"), scratch.path("out"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&out).unwrap();
    fs::write(format!("{root}/big"), text(7, 5 << 20)).unwrap();
    let mkfs = scratch.path("mkfs.erofs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kiln"), &mkfs).unwrap();
    let kiln =
        [env!("CARGO_BIN_EXE_kiln"), "pack", "--quiet", "--preset", "archive", "--threads", "4", &root, "out/image"];
    let mkfs = [&mkfs, "-zlzma", "-C1048576", "--quiet", "--workers=4", "out/image", &root];
    let mut told = [0; 2];
    for (idx, command) in [&kiln[..], &mkfs].into_iter().enumerate() {
        for kib in (60_000..300_000).step_by(20_000) {
            let limited = format!("ulimit -v {kib}; cd \"$0\"; RUST_BACKTRACE=1 exec \"$@\"");
            let ended = Command::new("sh").args(["-c", &limited, &scratch.path("")]).args(command).output().unwrap();
            let said = stderr(&ended);
            let left = names(&out);
            match ended.status.code() {
                Some(0) => {
                    // More memory is enough, too.
                    fs::remove_file(format!("{out}/image")).unwrap();
                    break;
                }
                // The program could not even be loaded.
                Some(127) => {}
                code => {
                    assert!(code == Some(1) && said.contains("out of memory"), "{kib}: {code:?} {said}");
                    assert!(said.contains("need less") && !said.contains("panicked"), "{kib}: {said}");
                    told[idx] += 1;
                    assert!(left.is_empty(), "{kib}: {left:?}");
                }
            }
        }
    }
    assert!(told[0] > 0 && told[1] > 0, "{told:?}");
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
