//! `kiln mount` and `kiln umount`.

mod common;

use common::{Scratch, fails, golden, kiln, run, skip, stderr, stdout};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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

/// A server in the foreground, by these arguments, and the line that it says when it is ready.
fn foreground(args: &[&str]) -> (Child, String) {
    let mut command = kiln();
    command.args(["mount", "--via=fuse", "--foreground"]).args(args).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line)
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
    let (mut child, line) = foreground(&[&golden("zstd.erofs"), &dir]);
    assert!(line.contains("by FUSE"), "{line}");
    assert!(is_mounted(&dir));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!is_mounted(&dir));
}

/// Context switches of all threads of a process so far, and how many threads it has.
fn switches(pid: u32) -> (u64, usize) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let counts = tasks.map(|task| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let lines = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
        lines.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum::<u64>()
    });
    counts.fold((0, 0), |(sum, threads), count| (sum + count, threads + 1))
}

#[test]
fn an_idle_server_sleeps() {
    const IDLE: Duration = Duration::from_secs(10);
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    let _place = Place(&dir);
    let (mut child, _) = foreground(&[&golden("zstd.erofs"), &dir]);
    fs::read(format!("{dir}/big/text")).unwrap();
    // Other programs may look at a new mount: one such time is enough.
    let deadline = Instant::now() + 4 * IDLE;
    loop {
        let before = switches(child.id());
        thread::sleep(IDLE);
        let after = switches(child.id());
        assert!(after.1 > 1, "the threads that answer are counted, too");
        if after == before {
            break;
        }
        assert!(Instant::now() < deadline, "{} switches in {IDLE:?}", after.0 - before.0);
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Whatever the server does for the kernel unasked, by its own mount as well.
#[test]
fn a_server_that_is_killed_is_gone() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let files: Vec<String> = (0..2400).map(|file| format!("{:02}/{:02}", file / 24, file % 24)).collect();
    for file in &files {
        let path = scratch.path(&format!("tree/{file}"));
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(path, file.repeat(100)).unwrap();
    }
    let (image, dir) = (scratch.path("image"), scratch.path("mnt"));
    stdout(&["pack", "--quiet", &scratch.path("tree"), &image]);
    fs::create_dir(&dir).unwrap();
    for round in 0..12 {
        let _place = Place(&dir);
        let (mut child, _) = foreground(&[&image, &dir]);
        thread::scope(|scope| {
            // Until the mount answers no more.
            let read = |from: usize| files[from..].iter().all(|file| fs::read(format!("{dir}/{file}")).is_ok());
            scope.spawn(move || read(0));
            scope.spawn(move || read(1200));
            thread::sleep(Duration::from_millis(1 + 4 * round));
            child.kill().unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            while child.try_wait().unwrap().is_none() {
                if Instant::now() > deadline {
                    // For the readers to go on.
                    let _ = unmount(&*dir, UnmountFlags::FORCE);
                    panic!("round {round}: it is not gone");
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

#[test]
fn a_mount_tells_what_it_did() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let (scratch, image) = (Scratch::new(), golden("lz4.erofs"));
    let (dir, list, metrics) = (scratch.path("mnt"), scratch.path("list"), scratch.path("kiln.prom"));
    fs::create_dir(&dir).unwrap();
    fs::write(&list, "/big/text\n\nmissing\n").unwrap();
    fails(&["stats", &dir], 1, "not the root of a mount that kiln serves by FUSE");
    {
        let _place = Place(&dir);
        run(&["mount", "--via=fuse", "--quiet", "--preload", &list, "--metrics", &metrics, &image, &dir]);
        let len = stdout(&["cat", &image, "big/text"]).len() as u64;
        // What is preloaded is read by the server's own thread; the second reader finds it, or waits for the same pages.
        assert_eq!(fs::read(format!("{dir}/big/text")).unwrap().len() as u64, len);
        // A request is counted when it is done, which is just after its answer.
        std::thread::sleep(std::time::Duration::from_millis(200));
        let json: Value = serde_json::from_slice(&stdout(&["stats", "--json", &dir])).unwrap();
        assert_eq!((&json["schema"], &json["served_bytes"]), (&1.into(), &len.into()));
        assert_eq!(json["errors"], 0);
        let documented = include_str!("../JSON.md");
        for name in json.as_object().unwrap().keys() {
            assert!(documented.contains(&format!("`{name}`")), "{name} is not in JSON.md");
        }
        let reads = json["requests"]["read"]["durations"].as_object().unwrap().values().map(|n| n.as_u64().unwrap());
        assert_eq!(reads.sum::<u64>(), json["reads"].as_u64().unwrap());
        let text = String::from_utf8(stdout(&["stats", &dir])).unwrap();
        assert!(text.starts_with("served ") && text.contains("\nread "), "{text}");
        let prometheus = String::from_utf8(stdout(&["stats", "--prometheus", &dir])).unwrap();
        assert!(prometheus.contains(&format!("\nkiln_read_size_bytes_sum {len}\n")), "{prometheus}");
        assert!(fs::read_to_string(&metrics).unwrap().starts_with("# HELP kiln_"));
        if run(&["mount", "--via=kernel", "--quiet", "--preload", &list, &image, &scratch.path("mnt")]).status.success()
        {
            fails(&["stats", &dir], 1, "not the root of a mount that kiln serves by FUSE");
            stdout(&["umount", &dir]);
        }
    }
    fails(&["mount", "--preload", &scratch.path("nothing"), &image, &dir], 1, "nothing");
    assert!(!is_mounted(&dir));
}

/// Eight readers of far more than the cache holds, again and again: a server takes its cache, and for each thread what one request
/// needs, however long it runs.
#[test]
fn memory_stays_bounded_under_load() {
    const MIB: u64 = 1 << 20;
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let (tree, image, dir) = (scratch.path("tree"), scratch.path("image.erofs"), scratch.path("mnt"));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&dir).unwrap();
    let contents =
        |file: u32| (0..MIB as u32 * 3 / 2).flat_map(move |at| (at / 5 * (file + 1)).to_le_bytes()).collect();
    for file in 0..8 {
        let bytes: Vec<u8> = contents(file);
        fs::write(format!("{tree}/{file}"), bytes).unwrap();
    }
    stdout(&["pack", "--quiet", "-z", "lz4", "-C", "64K", &tree, &image]);
    let _place = Place(&dir);
    let (mut child, _) = foreground(&["--cache=4M", "--threads=4", &image, &dir]);
    let peak = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().to_owned();
        line.strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    };
    let before = peak();
    std::thread::scope(|scope| {
        for reader in 0..8u32 {
            let dir = &dir;
            scope.spawn(move || {
                for round in 0..6 {
                    let file = (reader + round) % 8;
                    let path = format!("{dir}/{file}");
                    let expected: Vec<u8> = contents(file);
                    assert!(fs::read(&path).unwrap() == expected, "{path}");
                    // The next reader must not find it in the kernel's cache. Pages here and there are what ours is for.
                    let file = fs::File::open(&path).unwrap();
                    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                    for page in 0..400 {
                        let (off, mut buf) = (page * 7919 % 1536 * 4096, [0; 4096]);
                        file.read_exact_at(&mut buf, off as u64).unwrap();
                        assert!(buf == expected[off..off + 4096], "{path}: {off}");
                    }
                    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                }
            });
        }
    });
    let served = serde_json::from_slice::<Value>(&stdout(&["stats", "--json", &dir])).unwrap();
    assert!(served["served_bytes"].as_u64().unwrap() > 96 * MIB, "{served}");
    // The cache, and for each of four threads a request, a pcluster, an extent and the allocator's slack.
    let taken = peak() - before;
    assert!(taken < 4 * MIB + 4 * 8 * MIB, "{} KiB", taken >> 10);
    stdout(&["umount", &dir]);
    assert!(child.wait().unwrap().success());
}
