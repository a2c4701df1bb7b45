//! `kiln record`, and the use of its lists.

use crate::common::{Scratch, fails, json, run, skip, stderr, stdout, text};
use crate::interrupted::signalled;
use crate::mount::{Place, as_nobody, foreground, has_fuse};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

const LEN: usize = 100_000;

/// An image of some files, all of which have been read where it is mounted.
struct Scene {
    scratch: Scratch,
    root: String,
    image: String,
    dir: String,
    list: String,
}

impl Scene {
    fn new(pack: &[&str]) -> Self {
        let scratch = Scratch::new();
        let [root, image, dir, list] = ["src", "image", "mnt", "hot.list"].map(|name| scratch.path(name));
        fs::create_dir_all(format!("{root}/dir/deep")).unwrap();
        for (seed, name) in (0..).zip(["a", "b", "dir/c", "dir/deep/d", "odd\tname", "unread"]) {
            fs::write(format!("{root}/{name}"), text(seed, LEN)).unwrap();
        }
        fs::write(format!("{root}/dir/small"), "a few bytes").unwrap();
        fs::write(format!("{root}/empty"), "").unwrap();
        fs::hard_link(format!("{root}/b"), format!("{root}/dir/b2")).unwrap();
        fs::create_dir(&dir).unwrap();
        stdout(&[&["pack", "--quiet"], pack, &[&root, &image]].concat());
        Self { scratch, root, image, dir, list }
    }

    /// Mounts the image, and reads everything once.
    fn mount(&self, args: &[&str]) -> Option<Place<'_>> {
        let output = run(&[&["mount", "--quiet"], args, &[&self.image, &self.dir]].concat());
        if !output.status.success() {
            skip(&stderr(&output));
            return None;
        }
        let place = Place(&self.dir);
        for name in ["a", "b", "dir/c", "dir/deep/d", "odd\tname", "unread", "dir/small", "empty"] {
            fs::read(format!("{}/{name}", self.dir)).unwrap();
        }
        Some(place)
    }

    /// Records a command line of a shell.
    fn record(&self, line: &str) -> std::process::Output {
        run(&["record", "--force", "-o", &self.list, &self.dir, "--", "sh", "-c", line, "sh", &self.dir])
    }

    /// Returns ranges and paths of the list.
    fn entries(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.list).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("#kiln-hotlist 1"));
        let mut last = 0;
        let entry = |line: &str| {
            let [range, micros, path] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let micros: u64 = micros.parse().unwrap();
            assert!(micros >= last, "{text}");
            last = micros;
            format!("{range} {path}")
        };
        lines.map(entry).collect()
    }
}

/// Commands that read a page of `a`, two pages of `b` by its other name, a few bytes, and all of a file.
const READS: &str = "cd /; dd if=$1/a bs=100 skip=50 count=1 2>/dev/null >&2
    dd if=$1/dir/b2 bs=4096 skip=3 count=2 2>/dev/null >&2; head -c 3 $1/dir/small >/dev/null
    cat $1/dir/deep/d >/dev/null
    cat $1/empty \"$1/odd\tname\" >/dev/null; dd if=$1/a bs=4096 count=2 2>/dev/null >&2";

#[test]
fn reads_on_a_fuse_mount_are_listed_page_by_page() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    for pack in [&[][..], &["--layout=metadata"], &["--preset", "plain"], &["--fragments", "off", "-z", "lz4"]] {
        let scene = Scene::new(pack);
        let _place = scene.mount(&["--via=fuse"]).unwrap();
        for _ in 0..2 {
            let output = scene.record(READS);
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            let entries = scene.entries();
            let b = entries[1].strip_prefix("12288+8192 ").unwrap();
            assert!(["b", "dir/b2"].contains(&b), "{b}");
            assert_eq!(entries[0], "4096+4096 a", "{pack:?}");
            // The page of `a` that was read before is listed once.
            assert_eq!(
                entries[2..],
                ["0+11 dir/small", "0+100000 dir/deep/d", "0+100000 odd\\011name", "0+4096 a"],
                "{pack:?}"
            );
            let told = stderr(&output);
            assert!(told.ends_with("hot.list: 6 ranges of 5 files, 211.3 KiB\n"), "{told}");
        }
        // Prefetch and readahead, which were off, are on again.
        let device = rustix::fs::stat(&*scene.dir).unwrap().st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let window = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).unwrap();
        assert_eq!(window.trim(), "1024");
    }
}

#[test]
fn data_of_a_recording_comes_first() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scene = Scene::new(&["--fragments", "off"]);
    let ordered = scene.scratch.path("ordered");
    let place = scene.mount(&["--via=fuse"]).unwrap();
    assert_eq!(scene.record("cat $1/dir/deep/d $1/a >/dev/null; head -c 1 $1/dir/c >/dev/null").status.code(), Some(0));
    stdout(&["pack", "--quiet", "--fragments", "off", "--order", &scene.list, &scene.root, &ordered]);
    assert_eq!(run(&["diff", &scene.root, &ordered]).status.code(), Some(0));
    let first_byte = |name: &&str| {
        let stat: Value = serde_json::from_slice(&stdout(&["stat", "--json", "--extents", &ordered, name])).unwrap();
        stat["extents"][0]["address"].as_u64().unwrap_or_else(|| panic!("{stat}"))
    };
    let mut names = ["a", "b", "dir/c", "dir/deep/d", "unread"];
    names.sort_by_key(first_byte);
    assert_eq!(names[..3], ["dir/deep/d", "a", "dir/c"]);
    // Other commands accept the list.
    assert!(
        String::from_utf8(stdout(&["preload", "--wait", "--json", &scene.dir, &scene.list]))
            .unwrap()
            .contains("204096")
    );
    drop(place);
}

#[test]
fn reads_on_a_mount_by_the_kernel_are_listed_file_by_file() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scene = Scene::new(&["--kernel", "6.1"]);
    let Some(_place) = scene.mount(&["--via=kernel"]) else { return };
    let output = scene.record(READS);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let entries = scene.entries();
    assert!(["0+100000 b", "0+100000 dir/b2"].contains(&&*entries[1]), "{entries:?}");
    assert_eq!(entries[0], "0+100000 a");
    assert_eq!(entries[2..], ["0+11 dir/small", "0+100000 dir/deep/d", "0+0 empty", "0+100000 odd\\011name"]);
    assert!(stderr(&output).contains("5 whole files"), "{}", stderr(&output));
}

#[test]
fn it_ends_as_the_command_does() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scene = Scene::new(&[]);
    let _place = scene.mount(&["--via=fuse"]).unwrap();
    for (line, code) in [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let output = scene.record(&format!("cat $1/a >/dev/null; {line}"));
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert_eq!(scene.entries(), ["0+100000 a"], "{line}");
        fs::remove_file(&scene.list).unwrap();
    }
    // A signal to kiln is forwarded to the command, and the list is written. In a group of its own the command is
    // not in a terminal's foreground.
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let line = "trap 'cat $1/b >/dev/null; exit 5' INT TERM HUP; cat $1/a >/dev/null; echo ready
            while :; do sleep 0.01; done";
        let record = ["record", "--force", "-o", &scene.list, &scene.dir, "--", "sh", "-c", line, "sh", &scene.dir];
        let mut command = signalled(&record);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{signal:?}: {}", stderr(&output));
        assert_eq!(scene.entries().len(), 2);
        fs::remove_file(&scene.list).unwrap();
    }
    let output = scene.record("exit 9");
    assert_eq!(output.status.code(), Some(9));
    assert!(stderr(&output).contains("has read nothing"), "{}", stderr(&output));
    assert!(!fs::exists(&scene.list).unwrap());
    let missing = scene.scratch.path("missing");
    fails(&["record", "-o", &scene.list, &scene.dir, "--", &missing], 127, "missing: cannot be run");
    fails(&["record", "-o", &scene.list, &scene.dir, "--", &scene.root], 126, "src: cannot be run");
    assert!(!fs::exists(&scene.list).unwrap());
}

#[test]
fn what_cannot_be_recorded_is_told_before_the_command_runs() {
    let scene = Scene::new(&[]);
    let trace = scene.scratch.path("trace");
    let record = |list: &str, dir: &str| {
        let output = run(&["record", "-o", list, dir, "--", "touch", &trace]);
        assert!(!fs::exists(&trace).unwrap(), "it has run");
        (output.status.code().unwrap(), stderr(&output))
    };
    let (code, told) = record(&scene.list, &scene.dir);
    assert!(code == 1 && told.contains("mnt: not mounted"), "{told}");
    let (code, told) = record(&scene.list, "/proc");
    assert!(code == 1 && told.contains("/proc: cannot record a mount of type proc"), "{told}");
    let (code, told) = record("-", &scene.dir);
    assert!(code == 2 && told.contains("standard output is the command's"), "{told}");
    fs::write(&scene.list, "mine").unwrap();
    let (code, told) = record(&scene.list, &scene.dir);
    assert!(code == 1 && told.contains("exists already"), "{told}");
    fails(&["record", "-o", &trace, &scene.dir], 2, "COMMAND");
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let _place = scene.mount(&["--via=fuse", "-oallow_other"]).unwrap();
    fs::remove_file(&scene.list).unwrap();
    // Other users must not see root's reads.
    let output = as_nobody(env!("CARGO_BIN_EXE_kiln"))
        .args(["record", "-o", "/dev/shm/kiln-record-nobody", &scene.dir, "--", "true"])
        .output()
        .unwrap();
    let told = stderr(&output);
    assert!(output.status.code() == Some(1) && told.contains("only root and the user who mounted it may"), "{told}");
    // Only one recording runs at a time.
    let output = scene.record(&format!(
        "{} record -o {trace} $1 -- true; test $? = 1 && cat $1/a >/dev/null",
        env!("CARGO_BIN_EXE_kiln")
    ));
    let told = stderr(&output);
    assert!(output.status.success() && told.contains("mnt: cannot record: it is being recorded already"), "{told}");
    assert_eq!(scene.entries(), ["0+100000 a"]);
}

/// A server that ends while it is recorded.
#[test]
fn a_mount_that_ends_is_told() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scene = Scene::new(&[]);
    let _place = scene.mount(&["--via=fuse"]).unwrap();
    let output = scene.record("umount -l $1; sleep 0.2");
    // The recording holds the mount, which is only detached from the tree.
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (mut child, _) = foreground(&[&scene.image, &scene.dir]);
    let output = scene.record(&format!("cat $1/a >/dev/null; kill -9 {}; sleep 0.2", child.id()));
    let told = stderr(&output);
    assert!(output.status.code() == Some(1) && told.contains("mnt: cannot record: "), "{told}");
    let _ = child.wait();
}

/// Returns the counters of a server, once its requests are done.
fn stats(dir: &str) -> Value {
    std::thread::sleep(Duration::from_millis(200));
    json(&stdout(&["stats", "--json", dir]))
}

#[test]
fn pinned_data_is_decoded_once() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scene = Scene::new(&["-z", "zstd,3", "-C", "64k", "--fragments", "off"]);
    fs::write(&scene.list, "#kiln-hotlist 1\n0+0\t1\tdir\n0+100000\t3\tdir/deep/d\n8192+4096\t4\ta\n0+1\t5\tgone\n")
        .unwrap();
    fails(&["mount", "--pin=1M", &scene.image, &scene.dir], 2, "--preload");
    fails(&["mount", "-o", "pin=1M", &scene.image, &scene.dir], 2, "kept by --pin");
    fails(&["mount", "--pin=1M", "--via=kernel", "--preload", &scene.list, &scene.image, &scene.dir], 2, "--pin");
    for (how, most) in [(&["--pin", "1M"][..], 1 << 20), (&["--pin", "110000"], 110_000)] {
        let _place = Place(&scene.dir);
        let args =
            [&["mount", "--quiet", "--preload", &scene.list, "--prefetch=off"], how, &[&scene.image, &scene.dir]];
        stdout(&args.concat());
        let deadline = Instant::now() + Duration::from_secs(30);
        // Preloading comes later: it reads 104096 bytes, through the mount.
        while stats(&scene.dir)["served_bytes"].as_u64().unwrap() < 104_096 {
            assert!(Instant::now() < deadline, "{}", stats(&scene.dir));
        }
        let before = stats(&scene.dir);
        let pinned = before["pinned_bytes"].as_u64().unwrap();
        assert!(pinned <= most && pinned >= LEN as u64, "{before}");
        assert_eq!(pinned > 150_000, most > 150_000, "all of both files are a few extents: {before}");
        for round in 0..3 {
            let file = File::open(format!("{}/dir/deep/d", scene.dir)).unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            assert!(fs::read(format!("{}/dir/deep/d", scene.dir)).unwrap() == text(3, LEN), "{round}");
        }
        let after = stats(&scene.dir);
        assert_eq!(
            (&after["decoded_bytes"], &after["fetched_bytes"]),
            (&before["decoded_bytes"], &before["fetched_bytes"])
        );
        assert!(after["served_bytes"].as_u64().unwrap() >= before["served_bytes"].as_u64().unwrap() + 3 * LEN as u64);
    }
}
