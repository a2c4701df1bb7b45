//! `kiln patch make` and `kiln patch apply`

use crate::common::{LoopDevice, Scratch, fails, golden, kiln, names, run, skip, stderr, stdout, text};
use kiln_tests::mnt::wait_until;
use kiln_tests::rng::Rng;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};

/// Makes two images of a tree in two versions, and a patch between them.
fn versions(scratch: &Scratch) -> [String; 3] {
    let [root, old, new, patch] = ["src", "old", "new", "patch"].map(|name| scratch.path(name));
    fs::create_dir(&root).unwrap();
    let text: String = (0..40_000).map(|n: u32| format!("{:x} is a word\n", n.wrapping_mul(2_654_435_761))).collect();
    fs::write(format!("{root}/large"), &text).unwrap();
    fs::write(format!("{root}/small"), &text[..3000]).unwrap();
    stdout(&["pack", "-q", &root, &old]);
    fs::write(format!("{root}/large"), text.replacen("1 is", "one IS", 50)).unwrap();
    stdout(&["pack", "-q", "--preset", "fast", &root, &new]);
    stdout(&["patch", "make", "-q", &old, &new, &patch]);
    [old, new, patch]
}

#[test]
fn a_patch_makes_the_new_image() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    assert!(fs::metadata(&patch).unwrap().len() * 20 < fs::metadata(&new).unwrap().len());
    let made = scratch.path("made");
    stdout(&["patch", "apply", &old, &patch, &made]);
    assert!(fs::read(&made).unwrap() == fs::read(&new).unwrap());
    fails(&["patch", "apply", &old, &patch, &made], 1, "exists already");
    stdout(&["patch", "apply", "-q", "--force", &old, &patch, &made]);
    fails(&["patch", "make", &old, &new, &patch], 1, "exists already");
}

#[test]
fn patches_go_through_pipes() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    let made = scratch.path("made");
    let streamed = stdout(&["patch", "make", "-q", &old, &new, "-"]);
    assert!(streamed == fs::read(&patch).unwrap());
    let input = fs::File::open(&patch).unwrap();
    let mut apply = kiln();
    let status = apply.args(["patch", "apply", "-q", &old, "-", &made]).stdin(Stdio::from(input)).status().unwrap();
    assert!(status.success());
    assert!(fs::read(&made).unwrap() == fs::read(&new).unwrap());
    fails(&["patch", "make", "--json", &old, &new, "-"], 2, "--json");
}

#[test]
fn the_old_image_becomes_the_new_one() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    stdout(&["patch", "apply", "--in-place", &old, &patch]);
    assert!(fs::read(&old).unwrap() == fs::read(&new).unwrap());
    assert_eq!(scratch.names(), ["new", "old", "patch", "src"], "the journal is gone");
    stdout(&["patch", "apply", "--in-place", &old, &patch]);
    fails(&["patch", "apply", "--in-place", &old, &patch, &new], 2, "cannot be used with");
    fails(&["patch", "apply", "--journal", &new, &old, &patch, "x"], 2, "--in-place");
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_appears() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    let made = scratch.path("made");
    let before = fs::read(&new).unwrap();
    fails(&["patch", "apply", &new, &patch, &made], 1, "not the image that the patch was made for");
    fails(
        &["patch", "apply", "--in-place", &golden("lz4.erofs"), &patch],
        1,
        "not the image that the patch was made for",
    );
    fails(&["patch", "apply", &old, &new, &made], 1, "not a kiln patch");
    let bytes = fs::read(&patch).unwrap();
    fs::write(&patch, &bytes[..bytes.len() - 30]).unwrap();
    fails(&["patch", "apply", &old, &patch, &made], 1, "cannot read the patch at byte");
    let mut damaged = bytes.clone();
    damaged[bytes.len() - 40] ^= 4;
    fs::write(&patch, damaged).unwrap();
    fails(&["patch", "apply", &old, &patch, &made], 1, "damaged patch");
    fails(&["patch", "apply", "--in-place", &old, &patch], 1, "damaged patch");
    fs::write(&patch, [&bytes[..], b"\n"].concat()).unwrap();
    for args in [
        &["patch", "apply", &old, &patch, &made][..],
        &["patch", "apply", &old, &patch, "-"],
        &["patch", "apply", "--in-place", &old, &patch],
    ] {
        fails(args, 1, "data follows the end of the patch");
    }
    fails(&["patch", "make", &patch, &new, &scratch.path("other")], 1, "patch");
    assert!(fs::read(&new).unwrap() == before);
    assert_eq!(scratch.names(), ["new", "old", "patch", "src"]);
    fs::write(&patch, bytes).unwrap();
    stdout(&["patch", "apply", "--in-place", "-q", &old, &patch]);
}

#[test]
fn it_is_said_when_a_base_would_make_the_patch_small() {
    let scratch = Scratch::new();
    let [root, old, apart, based, patch] = ["src", "old", "apart", "based", "patch"].map(|name| scratch.path(name));
    fs::create_dir(&root).unwrap();
    let mut rng = Rng::new(5);
    let text: Vec<u8> = (0..300_000).flat_map(|_| format!("{:x} ", rng.below(5000)).into_bytes()).collect();
    // Small files, which are packed together.
    let fill = |text: &[u8]| {
        let files = text.chunks(5000).enumerate();
        files.for_each(|(at, bytes)| fs::write(format!("{root}/small{at:03}"), bytes).unwrap());
    };
    fill(&text);
    stdout(&["pack", "-q", &root, &old]);
    // All text packed behind the first file is compressed differently.
    fs::write(format!("{root}/small000"), &text[..4000]).unwrap();
    stdout(&["pack", "-q", &root, &apart]);
    stdout(&["pack", "-q", "--base", &old, &root, &based]);
    let said = |new: &str, options: &[&str]| {
        let output = run(&[&["patch", "make", "--force", "--json", &old, new, &patch], options].concat());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["base_helps"].as_bool(), Some(stderr(&output).contains("kiln pack --base")), "{json}");
        (json["base_helps"].as_bool().unwrap(), json["patch_bytes"].as_u64().unwrap())
    };
    let (helps, long) = said(&apart, &["--portable"]);
    let (helps_no_more, short) = said(&based, &["--portable"]);
    assert!(helps && !helps_no_more && short * 4 < long, "{helps} {long} {helps_no_more} {short}");
    assert!(!said(&apart, &[]).0, "encoding again makes it small, too");
    // If the contents differ, no base makes a patch small.
    fill(&text.iter().map(|byte| byte ^ 1).collect::<Vec<_>>());
    stdout(&["pack", "-q", "--force", &root, &apart]);
    assert!(!said(&apart, &["--portable"]).0);
}

#[test]
fn images_of_mkfs_become_each_other() {
    let scratch = Scratch::new();
    for (old, new) in
        [("lz4.erofs", "zstd.erofs"), ("flat.erofs", "lzma.erofs"), ("deflate.erofs", "metabox-zstd.erofs")]
    {
        let (old, new, patch, made) = (golden(old), golden(new), scratch.path("patch"), scratch.path("made"));
        stdout(&["patch", "make", "-q", "--force", &old, &new, &patch]);
        stdout(&["patch", "apply", "-q", "--force", &old, &patch, &made]);
        assert!(fs::read(&made).unwrap() == fs::read(&new).unwrap(), "{old} {new}");
    }
}

#[test]
fn a_journal_of_others_is_not_replayed() {
    let scratch = Scratch::new();
    let [old, _, patch] = versions(&scratch);
    let (journal, before) = (scratch.path("journal"), fs::read(&old).unwrap());
    fs::write(&journal, "").unwrap();
    fs::set_permissions(&journal, fs::Permissions::from_mode(0o622)).unwrap();
    fails(&["patch", "apply", "--in-place", "--journal", &journal, &old, &patch], 2, "another user could have written");
    assert!(fs::read(&old).unwrap() == before && fs::exists(&journal).unwrap());
}

#[test]
fn the_new_image_goes_through_a_pipe() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    let output = run(&["patch", "apply", &old, &patch, "-"]);
    assert!(output.status.success() && output.stdout == fs::read(&new).unwrap());
    assert!(stderr(&output).contains("encoded"), "{}", stderr(&output));
    // Bytes that were sent cannot be taken back: the exit code reports the error.
    let mut bytes = fs::read(&patch).unwrap();
    let at = bytes.len() - 40;
    bytes[at] ^= 4;
    fs::write(&patch, bytes).unwrap();
    fails(&["patch", "apply", &old, &patch, "-"], 1, "damaged patch");
    fails(&["patch", "apply", &new, &patch, "-"], 1, "not the image that the patch was made for");
    assert_eq!(scratch.names(), ["new", "old", "patch", "src"]);
}

#[test]
fn progress_is_told_if_asked_for() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    let told = |args: &[&str]| stderr(&run(args));
    let made = scratch.path("made");
    assert!(told(&["patch", "make", "--force", "--progress", &old, &new, &patch]).contains("100%"));
    assert!(told(&["patch", "apply", "--progress", &old, &patch, &made]).contains("100%"));
    assert!(!told(&["patch", "apply", "--force", &old, &patch, &made]).contains('%'));
    assert_eq!(told(&["patch", "apply", "--force", "-q", "--progress", &old, &patch, &made]), "");
    assert!(told(&["patch", "apply", "--in-place", "--progress", &old, &patch]).contains("100%"));
}

/// Makes two images with 68 MiB in common, and a patch between them.
fn long_versions(scratch: &Scratch) -> [String; 3] {
    let [root, old, new, patch] = ["src", "old", "new", "patch"].map(|name| scratch.path(name));
    fs::create_dir(&root).unwrap();
    let mut noise = vec![0; 68 << 20];
    Rng::new(3).fill(&mut noise);
    fs::write(format!("{root}/noise"), noise).unwrap();
    stdout(&["pack", "-q", "--preset", "plain", &root, &old]);
    fs::write(format!("{root}/added"), "is new").unwrap();
    stdout(&["pack", "-q", "--preset", "plain", &root, &new]);
    stdout(&["patch", "make", "-q", &old, &new, &patch]);
    [old, new, patch]
}

#[test]
fn a_killed_run_is_gone_on_with() {
    let scratch = Scratch::new();
    let [old, new, patch] = long_versions(&scratch);
    let [made, unfinished] = ["made", ".made.kiln-unfinished"].map(|name| scratch.path(name));
    let (bytes, new_len) = (fs::read(&patch).unwrap(), fs::metadata(&new).unwrap().len());
    // All but the end of the patch arrives: the image is written, and waits.
    let kill = || {
        let mut command = kiln();
        command.args(["patch", "apply", "--threads", "1", &old, "-", &made]).stdin(Stdio::piped());
        let mut apply = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut input = apply.stdin.take().unwrap();
        input.write_all(&bytes[..bytes.len() - 20]).unwrap();
        input.flush().unwrap();
        // A note follows the new image.
        wait_until(|| fs::metadata(&unfinished).is_ok_and(|found| found.len() > new_len));
        let busy = run(&["patch", "apply", &old, &patch, &made]);
        assert!(stderr(&busy).contains("another process is making it"), "{}", stderr(&busy));
        apply.kill().unwrap();
        apply.wait().unwrap();
    };
    kill();
    assert!(!fs::exists(&made).unwrap() && fs::exists(&unfinished).unwrap());
    let output = run(&["patch", "apply", &old, &patch, &made]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("went on behind the first"), "{}", stderr(&output));
    assert!(fs::read(&made).unwrap() == fs::read(&new).unwrap());
    assert_eq!(scratch.names(), ["made", "new", "old", "patch", "src"]);

    // An error keeps the unfinished file, and names it.
    fs::remove_file(&made).unwrap();
    kill();
    let cut = scratch.path("cut");
    fs::write(&cut, &bytes[..bytes.len() - 20]).unwrap();
    fails(&["patch", "apply", &old, &cut, &made], 1, "the same command goes on from there");
    fails(&["patch", "apply", &new, &patch, &made], 1, "not the image that the patch was made for");
    assert!(fs::exists(&unfinished).unwrap());
    // A damaged file is not continued.
    let file = fs::OpenOptions::new().write(true).open(&unfinished).unwrap();
    file.write_all_at(&[0xA5; 4096], 1 << 20).unwrap();
    let output = run(&["patch", "apply", &old, &patch, &made]);
    assert!(stderr(&output).contains("begun anew"), "{}", stderr(&output));
    assert!(fs::read(&made).unwrap() == fs::read(&new).unwrap());
    assert!(!fs::exists(&unfinished).unwrap());
}

/// Runs the command with a limit of `len` bytes for files: writes fail in the middle.
fn limited(len: usize, args: &[&str]) -> std::process::Output {
    let mut command = Command::new("bash");
    // In units of 1024 bytes; without the signal, the write fails.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", len >> 10);
    command.args(["-c", &script, env!("CARGO_BIN_EXE_kiln")]).args(args).stdin(Stdio::null());
    command.output().unwrap()
}

#[test]
fn a_write_that_fails_leaves_all_as_it_was() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    let [made, other] = ["made", "other"].map(|name| scratch.path(name));
    let before = (fs::read(&old).unwrap(), fs::read(&new).unwrap());
    let refused = |len: usize, args: &[&str]| {
        let output = limited(len, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("File too large"), "{args:?}: {}", stderr(&output));
        assert!(before == (fs::read(&old).unwrap(), fs::read(&new).unwrap()), "{args:?}");
    };
    let (patch_len, new_len) = (fs::metadata(&patch).unwrap().len() as usize, before.1.len());
    for part in 1..4 {
        refused(new_len * part / 4, &["patch", "apply", &old, &patch, &made]);
        refused(new_len * part / 4, &["patch", "apply", "--in-place", &old, &patch]);
        refused(patch_len * part / 4, &["patch", "make", &old, &new, &other]);
    }
    let names = scratch.names();
    assert!(names.iter().all(|name| ["new", "old", "patch", "src"].contains(&&**name)), "{names:?}");
    stdout(&["patch", "apply", "--in-place", "-q", &old, &patch]);
    assert!(fs::read(&old).unwrap() == before.1);
}

/// Makes a small filesystem at `dir`, and one over it whose type does not show that it is in memory.
fn small_disk(dir: &str) -> bool {
    let mount = |args: &[&str]| Command::new("mount").args(args).output().is_ok_and(|output| output.status.success());
    let [lower, upper, work, over] = ["lower", "upper", "work", "over"].map(|name| format!("{dir}/{name}"));
    fs::create_dir(dir).unwrap();
    if !mount(&["-t", "tmpfs", "-o", "size=400k", "none", dir]) {
        return false;
    }
    [&lower, &upper, &work, &over].into_iter().for_each(|name| fs::create_dir(name).unwrap());
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    mount(&["-t", "overlay", "-o", &options, "none", &over]) || !unmounted(dir)
}

fn unmounted(dir: &str) -> bool {
    let _ = Command::new("umount").arg(format!("{dir}/over")).output();
    Command::new("umount").arg(dir).status().unwrap().success()
}

#[test]
fn a_full_disk_is_told_before_anything_is_written_or_leaves_nothing() {
    let scratch = Scratch::new();
    let [root, old, new, patch] = ["src", "old", "new", "patch"].map(|name| scratch.path(name));
    fs::create_dir(&root).unwrap();
    let mut noise = vec![0; 200_000];
    Rng::new(4).fill(&mut noise);
    fs::write(format!("{root}/noise"), &noise).unwrap();
    stdout(&["pack", "-q", &root, &old]);
    let mut more = vec![0; 900_000];
    Rng::new(5).fill(&mut more);
    fs::write(format!("{root}/more"), &more).unwrap();
    stdout(&["pack", "-q", &root, &new]);
    stdout(&["patch", "make", "-q", &old, &new, &patch]);
    let disk = scratch.path("disk");
    if !small_disk(&disk) {
        return skip("mounting small filesystems needs root");
    }
    let there = |dir: &str, name: &str| format!("{disk}/{dir}{name}");
    let mut said = Vec::new();
    for dir in ["", "over/"] {
        let copy = there(dir, "old");
        fs::copy(&old, &copy).unwrap();
        said.push((dir, run(&["patch", "apply", &old, &patch, &there(dir, "made")])));
        said.push((dir, run(&["patch", "apply", "--in-place", &copy, &patch])));
        said.push((dir, run(&["patch", "make", &old, &new, &there(dir, "made")])));
        said.push((dir, run(&["patch", "make", "--spool", &there(dir, ""), &old, &new, &scratch.path("made")])));
        let is_old = fs::read(&copy).unwrap() == fs::read(&old).unwrap();
        fs::remove_file(&copy).unwrap();
        assert!(is_old || !unmounted(&disk), "the old image has changed");
    }
    let left = names(&disk);
    assert!(unmounted(&disk));
    for (count, (dir, output)) in said.iter().enumerate() {
        let message = stderr(output);
        assert_eq!(output.status.code(), Some(1), "{count}: {message}");
        let is_early = count < 2;
        let words = if is_early { "there is room for" } else { "No space left" };
        assert!(message.contains(words), "{count}, {dir:?}: {message}");
    }
    assert_eq!(left, ["lower", "over", "upper", "work"]);
    assert!(!fs::exists(scratch.path("made")).unwrap());
}

#[test]
fn a_block_device_becomes_the_new_image() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    let (disk, new_len) = (scratch.path("disk"), fs::metadata(&new).unwrap().len());
    fs::write(&disk, vec![0xEE; new_len.next_multiple_of(4096) as usize + 8192]).unwrap();
    let Some(attached) = LoopDevice::new(&disk) else { return skip("no loop devices for us") };
    let device = attached.0.clone();
    let refused = run(&["patch", "apply", &old, &patch, &device]);
    let untouched = fs::read(&device).unwrap().iter().all(|byte| *byte == 0xEE);
    let cut = scratch.path("cut");
    let bytes = fs::read(&patch).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 20]).unwrap();
    let failed = run(&["patch", "apply", "--force", &old, &cut, &device]);
    let front = fs::read(&device).unwrap()[..4096].to_vec();
    let done = run(&["patch", "apply", "--force", &old, &patch, &device]);
    let whole = fs::read(&device).unwrap();
    let over_itself = run(&["patch", "apply", "--force", &device, &patch, &device]);
    assert!(stderr(&refused).contains("exists already") && untouched, "{}", stderr(&refused));
    assert!(stderr(&failed).contains("cannot read the patch") && front == [0; 4096], "{}", stderr(&failed));
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(whole[..new_len as usize] == fs::read(&new).unwrap() && whole.ends_with(&[0xEE; 8192]));
    assert!(stderr(&over_itself).contains("--in-place"), "{}", stderr(&over_itself));
}

#[test]
fn two_versions_packed_by_mkfs_become_each_other() {
    if !Command::new("mkfs.erofs").arg("-V").output().is_ok_and(|output| output.status.success()) {
        return kiln_tests::without("mkfs.erofs");
    }
    let scratch = Scratch::new();
    let [root, old, new, patch, made] = ["src", "old", "new", "patch", "made"].map(|name| scratch.path(name));
    fs::create_dir(&root).unwrap();
    let write = |name: u64, bytes: &[u8]| fs::write(format!("{root}/{name}"), bytes).unwrap();
    let mut rng = Rng::new(6);
    for options in [
        &["-zlz4"][..],
        &["-zlz4hc,9", "-C65536", "-Eztailpacking"],
        &["-zzstd,5", "-C32768", "-Efragments,dedupe"],
        &["-zdeflate,6", "-C1048576"],
        &["-zlzma,3", "-C131072", "-Eall-fragments"],
        &["-b4096", "-T7"],
    ] {
        let pack = |image: &str| {
            let output = Command::new("mkfs.erofs").args(options).args([image, &root]).output().unwrap();
            assert!(output.status.success(), "{options:?}: {}", stderr(&output));
        };
        for name in 0..12 {
            let len = rng.below(1 + (20_000 << (name % 5)));
            write(name, &text(rng.below(1000), len as usize));
        }
        pack(&old);
        for name in 3..9 {
            let mut bytes = fs::read(format!("{root}/{name}")).unwrap();
            let at = rng.below(bytes.len() as u64 + 1) as usize;
            bytes.splice(at..at, text(name, 100));
            write(name + 1, &bytes);
        }
        pack(&new);
        for more in [&[][..], &["--portable"]] {
            let mut args = vec!["patch", "make", "-q", "--force", &old, &new, &patch];
            args.extend(more);
            stdout(&args);
            stdout(&["patch", "apply", "-q", "--force", &old, &patch, &made]);
            assert!(fs::read(&made).unwrap() == fs::read(&new).unwrap(), "{options:?} {more:?}");
        }
        stdout(&["patch", "apply", "-q", "--in-place", &old, &patch]);
        assert!(fs::read(&old).unwrap() == fs::read(&new).unwrap(), "{options:?}");
        [&old, &new].into_iter().for_each(|image| fs::remove_file(image).unwrap());
    }
}
