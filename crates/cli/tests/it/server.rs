//! A running server: memory, counters, prefetch, its log and its end.

use crate::common::{Scratch, fails, golden, json, prometheus, run, skip, stdout};
use crate::mount::{Place, foreground, has_fuse, is_mounted};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Returns a line in KiB of the status of a process, in bytes.
fn memory(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Extents of 8 MiB, each with a dictionary of that length: four threads that decoded at a time allocated four of
/// both, and kept them.
#[test]
fn decodes_of_long_extents_share_memory() {
    const MIB: u64 = 1 << 20;
    const FILE_LEN: u64 = 8 * MIB;
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let (tree, image, dir) = (scratch.path("tree"), scratch.path("image.erofs"), scratch.path("mnt"));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&dir).unwrap();
    let word = |file: u64, idx: u64| (idx / 5 * (file + 1)) as u32;
    for file in 0..4 {
        let bytes: Vec<u8> = (0..FILE_LEN / 4).flat_map(|idx| word(file, idx).to_le_bytes()).collect();
        fs::write(format!("{tree}/{file}"), bytes).unwrap();
    }
    stdout(&["pack", "--quiet", "-z", "lzma,1", "-C", "1M", &tree, &image]);
    let _place = Place(&dir);
    let (mut child, _) = foreground(&["--cache=16M", "--threads=4", &image, &dir]);
    thread::scope(|scope| {
        for reader in 0..16 {
            let dir = &dir;
            scope.spawn(move || {
                let file = reader % 4;
                let source = fs::File::open(format!("{dir}/{file}")).unwrap();
                for page in 0..8 {
                    let (off, mut buf) = ((page * 7919 + reader * 31) % (FILE_LEN / 4096) * 4096, [0; 4096]);
                    source.read_exact_at(&mut buf, off).unwrap();
                    assert_eq!(buf[..4], word(file, off / 4).to_le_bytes());
                    // The next reader must not find it in the kernel's cache.
                    rustix::fs::fadvise(&source, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                }
            });
        }
    });
    // Cache, decoders, answers, and the base memory of a server.
    let taken = memory(child.id(), "RssAnon");
    assert!(taken < 40 * MIB, "{} KiB", taken >> 10);
    stdout(&["umount", &dir]);
    assert!(child.wait().unwrap().success());
}

/// Returns the bytes of code of a process's program: those that are mapped, and those that are in memory.
fn code(pid: u32) -> (u64, u64) {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let (mut is_code, mut sums) = (false, (0, 0));
    for line in smaps.lines() {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let kib = || words[1].parse::<u64>().unwrap();
        match words[0] {
            "Size:" if is_code => sums.0 += kib() << 10,
            "Rss:" if is_code => sums.1 += kib() << 10,
            range if range.contains('-') => is_code = words[1] == "r-xp" && line.ends_with(program.to_str().unwrap()),
            _ => {}
        }
    }
    sums
}

/// Checks that a server does not have to load parts of its program from the disk while a client waits for a file: a
/// disk with a long readahead read more bytes of the program than of the image.
#[test]
fn a_server_has_its_program_in_memory() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    let _place = Place(&dir);
    let (mut child, _) = foreground(&[&golden("zstd.erofs"), &dir]);
    let (mapped, resident) = code(child.id());
    assert!(mapped > 1 << 20, "{mapped}");
    assert_eq!(resident, mapped);
    stdout(&["umount", &dir]);
    assert!(child.wait().unwrap().success());
}

/// Returns the context switches of all threads of a process so far, and the number of threads.
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
    const IDLE: Duration = Duration::from_secs(5);
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    let _place = Place(&dir);
    let (mut child, _) = foreground(&[&golden("zstd.erofs"), &dir]);
    fs::read(format!("{dir}/big/text")).unwrap();
    // Other programs may look at a new mount: one quiet period is enough.
    let deadline = Instant::now() + 8 * IDLE;
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

/// A server that prefetches, even through its own mount, can be killed.
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
            // Reads until the mount stops answering.
            let read = |from: usize| files[from..].iter().all(|file| fs::read(format!("{dir}/{file}")).is_ok());
            scope.spawn(move || read(0));
            scope.spawn(move || read(1200));
            thread::sleep(Duration::from_millis(1 + 4 * round));
            child.kill().unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            while child.try_wait().unwrap().is_none() {
                if Instant::now() > deadline {
                    // Lets the readers continue.
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
    fails(&["stats", &dir], 1, "not the root of a FUSE mount of kiln");
    {
        let _place = Place(&dir);
        run(&["mount", "--via=fuse", "--quiet", "--preload", &list, "--metrics", &metrics, &image, &dir]);
        let len = stdout(&["cat", &image, "big/text"]).len() as u64;
        // The server's own thread reads preloaded data; the second reader finds it, or waits for the same pages.
        assert_eq!(fs::read(format!("{dir}/big/text")).unwrap().len() as u64, len);
        // A request is counted when it is done, just after its answer.
        std::thread::sleep(std::time::Duration::from_millis(200));
        let json = json(&stdout(&["stats", "--json", &dir]));
        assert_eq!((&json["schema"], &json["served_bytes"]), (&2.into(), &len.into()));
        assert_eq!(json["errors"], 0);
        let documented = include_str!("../../JSON.md");
        for name in json.as_object().unwrap().keys() {
            assert!(documented.contains(&format!("`{name}`")), "{name} is not in JSON.md");
        }
        let reads = json["requests"]["read"]["durations"].as_object().unwrap().values().map(|n| n.as_u64().unwrap());
        assert_eq!(reads.sum::<u64>(), json["reads"].as_u64().unwrap());
        let text = String::from_utf8(stdout(&["stats", &dir])).unwrap();
        assert!(text.starts_with("served ") && text.contains("\nread "), "{text}");
        let prometheus = String::from_utf8(stdout(&["stats", "--prometheus", &dir])).unwrap();
        let sum = format!("\nkiln_read_size_bytes_sum{{image=\"{image}\",mount=\"{dir}\"}} {len}\n");
        assert!(prometheus.contains(&sum), "{sum}{prometheus}");
        assert!(fs::read_to_string(&metrics).unwrap().starts_with("# HELP kiln_"));
        if run(&["mount", "--via=kernel", "--quiet", "--preload", &list, &image, &scratch.path("mnt")]).status.success()
        {
            fails(&["stats", &dir], 1, "not the root of a FUSE mount of kiln");
            stdout(&["umount", &dir]);
        }
    }
    fails(&["mount", "--preload", &scratch.path("nothing"), &image, &dir], 1, "nothing");
    assert!(!is_mounted(&dir));
}

/// The option reaches the server, in the background as well.
#[test]
fn prefetch_can_be_switched_off() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    for file in 0..80 {
        let path = scratch.path(&format!("tree/{}/{:02}", file / 40, file % 40));
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(path, format!("{file} ").repeat(300)).unwrap();
    }
    let (image, dir) = (scratch.path("image"), scratch.path("mnt"));
    stdout(&["pack", "--quiet", &scratch.path("tree"), &image]);
    fs::create_dir(&dir).unwrap();
    for (value, has_data, has_names) in [("off", false, false), ("data", true, false), ("all", true, true)] {
        let _place = Place(&dir);
        stdout(&["mount", "--via=fuse", "--quiet", "--prefetch", value, &image, &dir]);
        // By names, and then in the order of a listing.
        (0..40).for_each(|file| drop(fs::read(format!("{dir}/0/{file:02}")).unwrap()));
        for entry in fs::read_dir(format!("{dir}/1")).unwrap() {
            fs::read(entry.unwrap().path()).unwrap();
        }
        let json = json(&stdout(&["stats", "--json", &dir]));
        let pushes = json["prefetch"].as_object().unwrap().values().map(|kind| kind["count"].as_u64().unwrap());
        assert_eq!(pushes.sum::<u64>() > 0, has_data, "{value}: {json}");
        assert_eq!(json["prefetched_dentries"].as_u64().unwrap() > 0, has_names, "{value}: {json}");
    }
    fails(&["mount", "--prefetch", "names", &image, &dir], 2, "--prefetch");
}

/// Counters of two mounts, with names that need escapes, in the file for Prometheus and by `kiln stats`.
#[test]
fn counters_of_two_mounts_do_not_collide() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let mut all = BTreeSet::new();
    let images = ["a, \"b\" \\c", "d\ne"].map(|name| scratch.path(&format!("{name}.erofs")));
    for (number, image) in images.iter().enumerate() {
        fs::copy(golden("lz4.erofs"), image).unwrap();
        for dir in [format!("one\\{number}"), format!("two\n{number}")].map(|name| scratch.path(&name)) {
            // A server writes its file once more when it ends, which may be after the next one has begun.
            let metrics = scratch.path(&format!("{}.prom", all.len()));
            fs::create_dir(&dir).unwrap();
            let _place = Place(&dir);
            stdout(&["mount", "--via=fuse", "--quiet", "--metrics", &metrics, image, &dir]);
            fs::read(format!("{dir}/big/text")).unwrap();
            let told = prometheus::parse(str::from_utf8(&stdout(&["stats", "--prometheus", &dir])).unwrap());
            let kept = prometheus::parse(&fs::read_to_string(&metrics).unwrap());
            assert_eq!(told.keys().collect::<Vec<_>>(), kept.keys().collect::<Vec<_>>());
            for (name, labels) in told.into_keys() {
                assert_eq!((labels.get("image"), labels.get("mount")), (Some(image), Some(&dir)));
                assert!(all.insert((name, labels)));
            }
        }
    }
    assert!(all.len() > 400, "{}", all.len());
}

/// Makes an image whose file `dir/file` does not decode.
fn damaged_image(scratch: &Scratch) -> String {
    let (tree, image) = (scratch.path("tree"), scratch.path("image"));
    fs::create_dir_all(format!("{tree}/dir")).unwrap();
    fs::write(format!("{tree}/dir/file"), crate::common::text(1, 600_000)).unwrap();
    stdout(&["pack", "--quiet", "-z", "zstd", &tree, &image]);
    let extents = json(&stdout(&["stat", "--extents", "--json", &image, "dir/file"]));
    let file = fs::File::options().write(true).open(&image).unwrap();
    for extent in extents["extents"].as_array().unwrap() {
        let len = extent["stored_bytes"].as_u64().unwrap() as usize;
        file.write_all_at(&vec![0xE2; len], extent["address"].as_u64().unwrap()).unwrap();
    }
    image
}

#[test]
fn errors_are_logged_with_inode_path_and_offset() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let (image, dir, log) = (damaged_image(&scratch), scratch.path("mnt"), scratch.path("log"));
    fs::create_dir(&dir).unwrap();
    let nid = json(&stdout(&["stat", "--json", &image, "dir/file"]))["nid"].clone();
    let words = format!("{image}: inode {nid} (/dir/file), byte ");
    let errors;
    {
        let _place = Place(&dir);
        stdout(&["mount", "--via=fuse", "--quiet", "--log", &log, &image, &dir]);
        // Far more than a log may contain per minute.
        for _ in 0..40 {
            assert!(fs::read(format!("{dir}/dir/file")).is_err());
        }
        errors = json(&stdout(&["stats", "--json", &dir]))["errors"].as_u64().unwrap();
        assert!(errors >= 40, "{errors}");
    }
    // All errors are logged, as a line or in the count of omitted ones, which the server writes at the latest when
    // it ends.
    let counted = || {
        let text = fs::read_to_string(&log).unwrap();
        let count = |line: &str| match line.strip_suffix(" more lines were left out") {
            Some(line) => line.rsplit(' ').next().unwrap().parse().unwrap(),
            None => u64::from(line.contains(&words) && line.contains("corrupt image: ")),
        };
        text.lines().map(count).sum::<u64>()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while counted() < errors {
        assert!(Instant::now() < deadline, "{} of {errors}: {}", counted(), fs::read_to_string(&log).unwrap());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(counted(), errors);
    fails(&["mount", "--via=fuse", "--log", &scratch.path("no/log"), &image, &dir], 1, "no/log");
    assert!(!is_mounted(&dir));

    // In the foreground, standard error is the log.
    let _place = Place(&dir);
    let (mut child, _) = foreground(&[&image, &dir]);
    assert!(fs::read(format!("{dir}/dir/file")).is_err());
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with(&format!("kiln: {words}")), "{line}");
    stdout(&["umount", &dir]);
    assert!(child.wait().unwrap().success());
}

/// Eight readers of far more than the cache holds, again and again: a server takes its cache, and for each thread
/// the memory of one request, however long it runs.
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
                    // The next reader must not find it in the kernel's cache. Only scattered pages remain, which
                    // kiln's cache is for.
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
