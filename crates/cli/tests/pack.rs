//! `kiln pack`, from directory to image and back.

mod common;

use common::{Scratch, fails, kiln, run, skip, stderr, stdout, text};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A small tree with some of everything that needs no privilege.
fn tree(scratch: &Scratch) -> String {
    let root = scratch.path("src");
    fs::create_dir_all(format!("{root}/dir/empty")).unwrap();
    fs::write(format!("{root}/text"), text(1, 300_000)).unwrap();
    fs::write(format!("{root}/again"), text(1, 300_000)).unwrap();
    fs::write(format!("{root}/dir/small"), "small").unwrap();
    fs::write(format!("{root}/dir/nothing"), "").unwrap();
    fs::hard_link(format!("{root}/text"), format!("{root}/dir/linked")).unwrap();
    fs::set_permissions(format!("{root}/dir/small"), fs::Permissions::from_mode(0o4711)).unwrap();
    symlink("../text", format!("{root}/dir/link")).unwrap();
    root
}

fn pack(args: &[&str]) {
    let output = run(&[&["pack"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Something that takes long to pack, in a process of its own.
fn slow(scratch: &Scratch, extra: &[&str]) -> Child {
    let root = scratch.path("src");
    fs::create_dir(&root).unwrap();
    fs::create_dir(scratch.path("out")).unwrap();
    fs::write(format!("{root}/big"), text(7, 48 << 20)).unwrap();
    let image = scratch.path("out/image");
    let child = kiln()
        .args(["pack", "-z", "zstd,19", "-C", "64k", "--threads", "1"])
        .args(extra)
        .args([&root, &image])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    child
}

fn names(dir: &str) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_packed_comes_out_again() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    for (idx, options) in [
        &["--preset", "plain"][..],
        &["--preset", "fast"],
        &[],
        &["--preset", "small"],
        &["-z", "lzma", "-C", "64k"],
        &["-z", "deflate,9", "-C", "4096", "--dedupe", "off"],
        &["--kernel", "5.15"],
    ]
    .into_iter()
    .enumerate()
    {
        let (image, out) = (scratch.path(&format!("{idx}.erofs")), scratch.path(&format!("out{idx}")));
        pack(&[options, &[&root, &image]].concat());
        let checked = run(&["check", &image]);
        assert_eq!(checked.status.code(), Some(0), "{options:?}: {}", stderr(&checked));
        stdout(&["extract", &image, &out]);
        for path in ["text", "again", "dir/small", "dir/nothing"] {
            let (before, after) = (format!("{root}/{path}"), format!("{out}/{path}"));
            assert!(fs::read(&before).unwrap() == fs::read(&after).unwrap(), "{path} {options:?}");
            let (before, after) = (fs::metadata(before).unwrap(), fs::metadata(after).unwrap());
            assert_eq!((before.mode(), before.mtime_nsec()), (after.mode(), after.mtime_nsec()), "{path} {options:?}");
        }
        assert_eq!(fs::metadata(format!("{out}/text")).unwrap().nlink(), 2);
        assert_eq!(fs::read_link(format!("{out}/dir/link")).unwrap().as_os_str(), "../text");
        assert!(fs::read_dir(format!("{out}/dir/empty")).unwrap().next().is_none());
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let (one, many) = (scratch.path("one"), scratch.path("many"));
    pack(&["--threads", "1", &root, &one]);
    pack(&["--threads", "7", &root, &many]);
    assert!(fs::read(one).unwrap() == fs::read(many).unwrap());
}

#[test]
fn source_date_epoch_is_the_latest_time() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let packed = |epoch: &str, image: &str| {
        kiln().args(["pack", &root, image]).env("SOURCE_DATE_EPOCH", epoch).output().unwrap()
    };
    let image = scratch.path("image");
    assert_eq!(packed("1000000000", &image).status.code(), Some(0));
    let stat: Value = serde_json::from_slice(&stdout(&["stat", "--json", &image, "text"])).unwrap();
    assert_eq!((&stat["mtime"], &stat["mtime_nsec"]), (&1_000_000_000.into(), &0.into()));
    let bad = packed("yesterday", &scratch.path("bad"));
    assert_eq!((bad.status.code(), stderr(&bad).contains("SOURCE_DATE_EPOCH")), (Some(2), true));
}

#[test]
fn the_summary_is_for_people_and_for_programs() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let output = run(&["pack", "--json", &root, &scratch.path("image")]);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["schema"], &summary["files"], &summary["hard_links"]), (&1.into(), &4.into(), &1.into()));
    assert_eq!((&summary["duplicate_files"], &summary["oldest_kernel"]), (&1.into(), &"6.10".into()));
    assert_eq!(summary["image_bytes"], fs::metadata(scratch.path("image")).unwrap().len());
    let told = stderr(&output);
    for words in ["4 files", "1 hard links", "deduplicated", "scan ", "Linux 6.10 and later, because of zstd"] {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
    let quiet = run(&["pack", "--quiet", &root, &scratch.path("quiet")]);
    assert!(quiet.stderr.is_empty() && quiet.stdout.is_empty());
}

#[test]
fn uuid_and_label_are_as_given() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    let uuid = "12345678-9abc-4def-8123-456789abcdef";
    pack(&["-U", uuid, "-L", "fifteen bytes..", &root, &image]);
    let info: Value = serde_json::from_slice(&stdout(&["info", "--json", &image])).unwrap();
    assert_eq!((&info["uuid"], &info["label"]), (&uuid.into(), &"fifteen bytes..".into()));
    fails(&["pack", "-L", "sixteen bytes...", &root, &scratch.path("b")], 2, "at most 15");
    fails(&["pack", "-U", "no uuid", &root, &scratch.path("b")], 2, "--uuid");
}

#[test]
fn an_image_that_exists_is_kept_unless_forced() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    fs::write(&image, "precious").unwrap();
    fails(&["pack", &root, &image], 1, "--force");
    assert_eq!(fs::read(&image).unwrap(), b"precious");
    // Refused before anything is read.
    fails(&["pack", &scratch.path("missing"), &image], 1, "--force");
    pack(&["--force", &root, &image]);
    assert_eq!(run(&["check", &image]).status.code(), Some(0));
    assert_eq!(scratch.names(), ["image", "src"]);
    fails(&["pack", "--force", &root, &scratch.path("src")], 2, "only a regular file");
    fails(&["pack", &root, &scratch.path("no/such/image")], 1, "no/such/image");
}

#[test]
fn wishes_that_a_kernel_cannot_have_are_refused() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    fails(&["pack", "-z", "zstd", "--kernel", "6.6", &root, &image], 2, "zstd came with Linux 6.10");
    fails(&["pack", "--kernel", "5.10", &root, &image], 2, "5.15 and later");
    fails(&["pack", "--kernel", "new", &root, &image], 2, "X.Y");
    fails(&["pack", "-z", "gzip", &root, &image], 2, "gzip");
    fails(&["pack", "-C", "5000", &root, &image], 2, "multiple of 4096");
    fails(&["pack", &scratch.path("missing"), &image], 1, "missing");
    assert_eq!(scratch.names(), ["src"]);
}

#[test]
fn unreadable_inputs_end_the_build_or_are_skipped() {
    if !geteuid().is_root() {
        return skip("becoming someone else needs root");
    }
    let scratch = Scratch::new();
    let root = tree(&scratch);
    fs::set_permissions(format!("{root}/text"), fs::Permissions::from_mode(0o000)).unwrap();
    let out = scratch.path("out");
    fs::create_dir(&out).unwrap();
    std::os::unix::fs::chown(&out, Some(65534), Some(65534)).unwrap();
    let pack = |extra: &[&str], image: &str| {
        kiln().arg("pack").args(extra).args([&root, &format!("{out}/{image}")]).uid(65534).gid(65534).output()
    };
    let Ok(output) = pack(&[], "all") else { return skip("others may not run this program") };
    assert_eq!((output.status.code(), stderr(&output).contains("text: ")), (Some(1), true), "{}", stderr(&output));
    assert!(names(&out).is_empty());
    let output = pack(&["--keep-going", "--json"], "some").unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("skipped: ") && stderr(&output).contains("text: "), "{}", stderr(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!summary["skipped"].as_array().unwrap().is_empty());
    assert_eq!(run(&["check", &format!("{out}/some")]).status.code(), Some(0));
}

#[test]
fn a_signal_leaves_nothing_behind() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let scratch = Scratch::new();
        let child = slow(&scratch, &[]);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(names(&scratch.path("out")).is_empty());
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
            assert!(names(&scratch.path("out")).is_empty());
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
