//! Archives and images as sources: the command lines of programs that call `mkfs.erofs --tar=f` today.

use super::{Place, UUID};
use crate::common::{run, skip, stderr, text};
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

impl Place {
    /// Makes an archive of the tree by tar(1) with these options and members, and returns its path.
    pub fn tar(&self, name: &str, options: &[&str], members: &[&str]) -> String {
        let path = self.scratch.path(name);
        let mut command = Command::new("tar");
        command.args(["--format=posix", "--numeric-owner", "--xattrs", "--xattrs-include=*"]).args(options);
        let output = command.args(["-C", &self.src, "-cf", &path]).args(members).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        path
    }

    /// Makes the tree old: the original drops the nanoseconds of times within the second of the build.
    pub fn age(&self) {
        let touch = ["-exec", "touch", "-hd", "@1600000000.25", "{}", "+"];
        assert!(Command::new("find").arg(&self.src).args(touch).status().unwrap().success());
    }

    /// Runs the program with `input` as standard input.
    pub fn run_with(&self, args: &[&str], input: &Path) -> Output {
        self.command().args(args).stdin(File::open(input).unwrap()).output().unwrap()
    }

    /// Runs the original with the same command line and another output; `None` if it is not installed.
    pub fn original(&self, args: &[&str], input: Option<&Path>) -> Option<String> {
        let version = Command::new("mkfs.erofs").arg("-V").output().ok()?;
        let banner = String::from_utf8_lossy(&version.stdout).into_owned();
        if !banner.starts_with("mkfs.erofs (erofs-utils) 1.9.4") && !banner.starts_with("mkfs.erofs 1.9.4") {
            return None;
        }
        let image = self.scratch.path("original");
        let args: Vec<&str> = args.iter().map(|&arg| if arg == self.image { &*image } else { arg }).collect();
        let stdin = input.map_or(Stdio::null(), |path| File::open(path).unwrap().into());
        let output =
            Command::new("mkfs.erofs").args(args).env_remove("SOURCE_DATE_EPOCH").stdin(stdin).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        Some(image)
    }

    /// Checks that the original's image has the same contents.
    fn is_as_from_the_original(&self, args: &[&str], input: Option<&Path>) {
        match self.original(args, input) {
            Some(image) => self.is_equal_to(&image),
            None => kiln_tests::without("mkfs.erofs 1.9.4"),
        }
    }

    fn is_equal_to(&self, other: &str) {
        let diff = run(&["diff", other, &self.image]);
        assert_eq!(diff.status.code(), Some(0), "{}{}", String::from_utf8_lossy(&diff.stdout), stderr(&diff));
    }

    /// Returns whiteouts and marks of a layer: their names and contents.
    pub fn marks(&self) -> Vec<String> {
        ["gone", "dir", "dir/opaque", "dir/sub/gone"]
            .iter()
            .filter_map(|path| {
                let output = run(&["stat", "--json", &self.image, path]);
                let entry: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
                let xattrs = entry["xattrs"].as_array()?.iter().map(|x| format!(" {}", x["name"].as_str().unwrap()));
                Some(format!("{path} {}{}", entry["type"].as_str().unwrap(), xattrs.collect::<String>()))
            })
            .collect()
    }
}

/// With an archive whose root is a member, so that no directory is implied.
#[test]
fn command_lines_of_others_read_archives() {
    let place = Place::new();
    place.age();
    let plain = place.tar("plain.tar", &[], &["."]);
    let gzip = place.tar("packed.tar.gz", &["-z"], &["."]);
    let xz = place.tar("packed.tar.xz", &["-J"], &["."]);
    let (image, stdin) = (&*place.image, true);
    for (args, archive, is_stdin) in [
        // containerd: its differ, what its documentation recommends, and its converter.
        (&["--tar=f", "--aufs", "--quiet", "-Enoinline_data", "-b4096", "-U", UUID, image][..], &plain, stdin),
        (
            &[
                "--tar=f",
                "--aufs",
                "--quiet",
                "-Enoinline_data",
                "-b4096",
                "-T0",
                "--mkfs-time",
                "--sort=none",
                "-U",
                UUID,
                image,
            ],
            &plain,
            stdin,
        ),
        (
            &["--tar=f", "--aufs", "--quiet", "-Enoinline_data", "-b4096", "-zlz4hc", "-C65536", "-U", UUID, image],
            &plain,
            stdin,
        ),
        (&["--tar=f", "--ungzip", "--aufs", "--quiet", "-Enoinline_data", "-U", UUID, image], &gzip, stdin),
        // stacker, Linglong.
        (&["--tar=f", "--ovlfs-strip=0", "-T0", "-U", UUID, "--preserve-mtime", image, &plain], &plain, !stdin),
        (&["--tar=f", "-zlz4hc,9", "-Eztailpacking", image, &plain], &plain, !stdin),
        (&["--tar", "--gzip", "--quiet", image, &gzip], &gzip, !stdin),
        (&["--tar=f", "--quiet", "--unxz", image, &xz], &xz, !stdin),
        (&["--tar=f", "--quiet", "--unlzma", "--sort=path", image], &xz, stdin),
        // Any compression is recognised.
        (&["--tar=f", image, &gzip], &gzip, !stdin),
    ] {
        let _ = fs::remove_file(image);
        let output = if is_stdin { place.run_with(args, archive.as_ref()) } else { place.run(args) };
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() || !args.contains(&"--quiet"), "{args:?}");
        // -T alone applies to all times.
        if args.contains(&"-T0") && !args.contains(&"--mkfs-time") {
            assert_eq!(place.entry("text")["mtime"], 0);
        } else {
            place.holds_the_tree();
            place.mounts();
        }
        if *archive == plain {
            place.is_as_from_the_original(args, is_stdin.then_some(archive.as_ref()));
        }
    }
}

#[test]
fn archives_come_through_pipes() {
    let place = Place::new();
    let (archive, fifo) = (place.tar("plain.tar", &[], &["."]), place.scratch.path("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut child = place.command().args(["--tar=f", &place.image, &fifo]).stdout(Stdio::null()).spawn().unwrap();
    File::options().write(true).open(&fifo).unwrap().write_all(&fs::read(archive).unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    place.holds_the_tree();
}

#[test]
fn archives_are_kept_decompressed() {
    let place = Place::new();
    let (plain, kept) = (place.tar("plain.tar", &[], &["."]), place.scratch.path("kept"));
    // tar itself would write the time of reading and its own process number into its headers.
    for program in ["gzip", "xz"] {
        assert!(Command::new(program).args(["-k", &plain]).status().unwrap().success());
    }
    let (gzip, xz) = (format!("{plain}.gz"), format!("{plain}.xz"));
    for (option, archive) in [("--ungzip", &gzip), ("--unxz", &xz), ("--unlzma", &xz), ("--ungzip", &plain)] {
        let option = format!("{option}={kept}");
        let output = place.run(&["--tar=f", &option, &place.image, archive]);
        assert_eq!(output.status.code(), Some(0), "{option}: {}", stderr(&output));
        place.holds_the_tree();
        assert!(fs::read(&kept).unwrap() == fs::read(&plain).unwrap(), "{option}");
        fs::remove_file(&kept).unwrap();
    }
    fs::remove_file(&place.image).unwrap();
    let onto = |path: &str| format!("--ungzip={path}");
    let (onto_plain, onto_gzip, onto_image) = (onto(&plain), onto(&gzip), onto(&place.image));
    let before = [&plain, &gzip].map(|path| fs::read(path).unwrap());
    for (args, archive, words) in [
        (&["--tar=f", "--ungzip"][..], &xz, "plain.tar.xz: --ungzip: compressed otherwise: xz"),
        (&["--tar=f", "--unxz"], &plain, "plain.tar: --unxz: compressed otherwise: not at all"),
        (&["--gzip"], &gzip, "--gzip must be used together with --tar"),
        (&["--tar=f", "--ungzip=/nowhere/kept"], &gzip, "/nowhere/kept"),
        (&["--tar=f", &onto_plain], &plain, "plain.tar: the output cannot also be the source"),
        (&["--tar=f", &onto_gzip], &gzip, "plain.tar.gz: the output cannot also be the source"),
        (&["--tar=f", &onto_image], &gzip, "the archive that is kept needs a file of its own"),
        (&["--tar=f"], &place.src, "src"),
        (&[], &plain, "not an EROFS image"),
        (&["--clean=data"], &plain, "plain.tar"),
    ] {
        let output = place.run(&[args, &[&*place.image, archive]].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr(&output).contains(words), "{args:?}: {}", stderr(&output));
        assert!(!Path::new(&place.image).exists(), "{args:?}");
    }
    assert!(before == [&plain, &gzip].map(|path| fs::read(path).unwrap()));
    // Half an archive is an error, and no copy is kept.
    fs::write(&plain, &fs::read(&plain).unwrap()[..200_000]).unwrap();
    let output = place.run_with(&["--tar=f", &onto(&kept), &place.image], plain.as_ref());
    assert_eq!((output.status.code(), Path::new(&place.image).exists()), (Some(1), false), "{}", stderr(&output));
    assert!(!Path::new(&kept).exists());
}

/// Makes a layer: `gone` and `dir/sub/gone` are removed, `dir/opaque` replaces the directory below.
pub fn layer(place: &Place) -> String {
    fs::create_dir(format!("{}/dir/opaque", place.src)).unwrap();
    for mark in [".wh.gone", "dir/sub/.wh.gone", "dir/opaque/.wh..wh..opq"] {
        fs::write(format!("{}/{mark}", place.src), "").unwrap();
    }
    place.age();
    place.tar("layer.tar", &[], &["."])
}

#[test]
fn marks_of_layers_become_those_of_overlayfs() {
    let place = Place::new();
    let layer = layer(&place);
    let whiteouts = ["gone character device", "dir directory", "dir/sub/gone character device"];
    let (opaque, stripped) = ("dir/opaque directory trusted.overlay.opaque", "dir/opaque directory");
    for (args, expected) in [
        (&["--aufs"][..], vec![whiteouts[0], whiteouts[1], opaque, whiteouts[2]]),
        (&["--aufs", "--ovlfs-strip=0"], vec![whiteouts[0], whiteouts[1], opaque, whiteouts[2]]),
        (&["--aufs", "--ovlfs-strip=1"], vec![whiteouts[1], stripped]),
        (&["--aufs", "--ovlfs-strip"], vec![whiteouts[1], stripped]),
    ] {
        let args = [&["--tar=f", "--quiet"], args, &[&*place.image, &layer]].concat();
        let output = place.run(&args);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(place.marks(), expected, "{args:?}");
        place.is_as_from_the_original(&args, None);
    }
}

/// containerd unpacks layers in this way.
#[test]
fn steps_up_stay_within_the_root() {
    let place = Place::new();
    for (to, code) in [("dir/../moved", 0), ("../moved", 1)] {
        let archive = place.tar("up.tar", &["-P", &format!("--transform=s,^text$,{to},")], &["text"]);
        let output = place.run(&["--tar=f", "--quiet", &place.image, &archive]);
        assert_eq!(output.status.code(), Some(code), "{to}: {}", stderr(&output));
        if code == 0 {
            assert_eq!(place.entry("moved")["type"], "file");
        }
    }
}

#[test]
fn implied_directories_are_those_of_root() {
    let place = Place::new();
    fs::create_dir_all(format!("{}/shared/a/b", place.src)).unwrap();
    fs::write(format!("{}/shared/a/b/file", place.src), "x").unwrap();
    fs::set_permissions(format!("{}/shared", place.src), fs::Permissions::from_mode(0o775)).unwrap();
    File::open(format!("{}/shared", place.src)).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let members = ["--no-recursion", "shared", "shared/a/b/file", "dir/sub", "text"];
    let archive = place.tar("parts.tar", &["--owner=7", "--group=8"], &members);
    let output = place.run(&["--tar=f", "-T5", "--mkfs-time", &place.image, &archive]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for (path, mode, uid, mtime) in [
        ("shared", "0775", 7, 0),
        ("shared/a", "0755", 0, 0),
        ("shared/a/b", "0755", 0, 0),
        ("", "0755", 0, 5),
        ("dir", "0755", 0, 5),
    ] {
        let entry = place.entry(path);
        assert_eq!(
            (&entry["mode"], &entry["uid"], &entry["mtime"]),
            (&mode.into(), &uid.into(), &mtime.into()),
            "{path}"
        );
    }
}

/// systemd-repart writes options behind operands.
#[test]
fn options_stand_behind_operands() {
    let place = Place::new();
    let output = place.run(&["-U", UUID, &place.image, &place.src, "--quiet", "-zlz4hc,9", "-b4096"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    let info = place.json(&["info"]);
    assert_eq!((&info["uuid"], &info["algorithms"][0]["name"]), (&UUID.into(), &"lz4".into()));
    place.holds_the_tree();
    // osbuild, Flatcar.
    for args in [&["-zlz4hc,9", "-E", "dedupe,fragments", "-C65536"][..], &["-zlz4", "--all-root"]] {
        let output = place.run(&[&[&*place.image, &*place.src], args].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        let owners: BTreeSet<_> = ["text", "dir"].map(|path| place.entry(path)["uid"].as_u64()).into();
        assert!(!args.contains(&"--all-root") || owners == BTreeSet::from([Some(0)]));
    }
}

#[test]
fn images_are_merged() {
    let place = Place::new();
    let layer_tar = layer(&place);
    let base = Place::new();
    for name in ["gone", "dir/sub/gone", "dir/opaque/lower"] {
        let path = format!("{}/{name}", base.src);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(path, text(7, 9000)).unwrap();
    }
    let base_tar = base.tar("base.tar", &[], &["."]);
    let (lower, upper) = (place.scratch.path("lower.erofs"), place.scratch.path("upper.erofs"));
    for (image, archive) in [(&lower, &base_tar), (&upper, &layer_tar)] {
        let output = place.run(&["--tar=f", "--aufs", "--quiet", "-Enoinline_data", "-U", UUID, image, archive]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let merge = |args: &[&str]| {
        let args = [args, &[&*place.image, &lower, &upper]].concat();
        let output = place.run(&args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        assert_eq!(run(&["check", &place.image]).status.code(), Some(0));
    };
    merge(&["--aufs", "--clean=data", "--quiet"]);
    let opaque = "dir/opaque directory trusted.overlay.opaque";
    assert_eq!(place.marks(), ["gone character device", "dir directory", opaque, "dir/sub/gone character device"]);
    merge(&["--aufs", "--ovlfs-strip=1", "--clean=data", "--quiet", "-zlz4"]);
    assert_eq!(place.marks(), ["dir directory", "dir/opaque directory"]);
    assert_eq!(run(&["cat", &place.image, "dir/opaque/lower"]).status.code(), Some(1));
    assert!(run(&["cat", &place.image, "text"]).stdout == text(1, 300_000));
    // The tree below the marks is the layer's.
    for mark in [".wh.gone", "dir/sub/.wh.gone", "dir/opaque/.wh..wh..opq"] {
        let path = format!("{}/{mark}", place.src);
        let dir = Path::new(&path).parent().unwrap();
        let time = fs::metadata(dir).unwrap().modified().unwrap();
        fs::remove_file(&path).unwrap();
        File::open(dir).unwrap().set_modified(time).unwrap();
    }
    place.holds_the_tree();
    place.mounts();
    // A single image, in another block size.
    let output = place.run(&["--clean=data", "-b1024", &place.image, &upper]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    place.is_equal_to(&upper);
}

/// mkosi: an attribute that comes and goes is in the image or not.
#[test]
fn attributes_may_vanish() {
    let place = Place::new();
    if !geteuid().is_root() {
        return skip("the attribute needs root");
    }
    let file = format!("{}/dir", place.src);
    let owner = fs::metadata(&file).unwrap().uid();
    let set = |flags: &[&str]| Command::new("setfattr").args(flags).arg(&file).status();
    if !set(&["-n", "user.there", "-v", "1"]).is_ok_and(|status| status.success()) {
        return skip("no setfattr");
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = set(&["-n", "user.passing", "-v", "1"]);
                let _ = set(&["-x", "user.passing"]);
            }
        });
        let outputs: Vec<_> = (0..20).map(|_| place.run(&["--quiet", "-Uclear", &place.image, &place.src])).collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        for output in outputs {
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        }
    });
    let entry = place.entry("dir");
    assert_eq!(entry["uid"], owner);
    assert!(entry["xattrs"].as_array().unwrap().iter().any(|x| x["name"] == "user.there"));
}
