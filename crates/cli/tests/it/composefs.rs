//! `kiln composefs`, and the names `mkcomposefs`, `composefs-info` and `mount.composefs`.

mod containers;
mod objects;
mod walk;

use crate::common::{Scratch, fails, json, kiln, run, stderr, stdout};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = "/ 0 40755 2 0 0 0 0.0 - - -\n";
const EMPTY_V0: &str = "8f589e8f57ecb88823736b0d";
const EMPTY_V1: &str = "14a26c957c84f6eb774b9120";
const WHITEOUT: &str = "24ba4ca8a5b48485654f7ff2";

fn text(args: &[&str]) -> String {
    String::from_utf8(stdout(args)).unwrap()
}

/// Returns a path with a dump.
fn dump(scratch: &Scratch, lines: &str) -> String {
    let path = scratch.path("dump");
    fs::write(&path, format!("{ROOT}{lines}")).unwrap();
    path
}

/// Returns the two programs of composefs 1.0.8, of which `KILN_MKCOMPOSEFS` or PATH has the first.
fn peers() -> Option<[PathBuf; 2]> {
    let found = std::env::var_os("KILN_MKCOMPOSEFS").map(PathBuf::from).or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join("mkcomposefs")).find(|program| program.is_file())
    });
    let is_it = |program: &PathBuf| {
        let scratch = Scratch::new();
        let path = dump(&scratch, "/w 0 20644 1 0 0 0 0.0 - - -\n");
        let told = Command::new(program).args(["--from-file", "--print-digest-only", &path]).output();
        told.is_ok_and(|output| output.stdout.starts_with(WHITEOUT.as_bytes()))
    };
    let Some(program) = found.filter(is_it) else {
        kiln_tests::without("mkcomposefs 1.0.8");
        return None;
    };
    let info = program.with_file_name("composefs-info");
    Some([program, info])
}

/// Runs a program, which must succeed, and returns its output.
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a directory with files of all lengths, names that need escapes, hard links and whiteouts.
fn source(scratch: &Scratch) -> String {
    let dir = scratch.path("source");
    let root = Path::new(&dir);
    fs::create_dir_all(root.join("dir/deep")).unwrap();
    for (at, len) in [0, 1, 64, 65, 4096, 5000, (1 << 20) + 7].into_iter().enumerate() {
        fs::write(root.join(format!("file{at}")), vec![at as u8; len]).unwrap();
    }
    fs::hard_link(root.join("file5"), root.join("dir/again")).unwrap();
    fs::copy(root.join("file4"), root.join("dir/deep/copy")).unwrap();
    fs::write(root.join("a b\n\\\t\u{e9}\x01"), "odd").unwrap();
    symlink("a b\n", root.join("dir/link")).unwrap();
    let pipe = root.join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    dir
}

/// The names in a directory of their own.
fn dropin(scratch: &Scratch, name: &str) -> String {
    stdout(&["install-names", &scratch.path("bin")]);
    scratch.path(&format!("bin/{name}"))
}

#[test]
fn ids_are_those_of_composefs() {
    let scratch = Scratch::new();
    let empty = dump(&scratch, "");
    let id = |args: &[&str]| text(&[&["composefs", "create", "--print-digest-only", "--from-file"][..], args].concat());
    assert!(id(&[&empty]).starts_with(&format!("v1 fsverity-sha256-12 {EMPTY_V1}")));
    assert!(id(&["--min-version=0", &empty]).starts_with(&format!("v0 fsverity-sha256-12 {EMPTY_V0}")));
    let sha512 = id(&["--digest-algorithm=sha512", "--min-version=0", &empty]);
    assert!(sha512.starts_with("v0 fsverity-sha512-12 ae399f4c2c5c1fed2238affa"), "{sha512}");
    let whiteout = dump(&scratch, "/w 0 20644 1 0 0 0 0.0 - - -\n");
    assert!(id(&["--min-version=0", &whiteout]).starts_with(&format!("v1 fsverity-sha256-12 {WHITEOUT}")));
    // The dump's own digests decide.
    let long = dump(&scratch, &format!("/a 99 100644 1 0 0 0 0.0 - - {}\n", "ab".repeat(64)));
    assert!(id(&[&long]).starts_with("v1 fsverity-sha512-12 "));
    let image = scratch.path("image");
    let told = json(&stdout(&["composefs", "create", "--json", "--from-file", &long, &image]));
    assert_eq!(told["id"], id(&[&long]).trim_end());
    assert_eq!(told["bytes"], fs::metadata(&image).unwrap().len());
    let measured = text(&["composefs", "info", "measure-file", "--digest-algorithm=sha512", &image]);
    assert_eq!(told["digest"], measured.trim_end());
    fails(&["composefs", "create", "--from-file", &long, &image], 1, "exists already");
}

#[test]
fn mistakes_in_dumps_are_refused_with_their_place() {
    let scratch = Scratch::new();
    let mkcomposefs = dropin(&scratch, "mkcomposefs");
    for (line, words) in [
        ("/a x 100644 1 0 0 0 0.0 - - -\n", "line 2, column 4: the size"),
        ("/a 0 100644 1 0 0 0 0.0 - - abc\n", "line 2, column 29: the digest"),
        ("/a/b 0 100644 1 0 0 0 0.0 - - -\n", "line 2, column 1: no line before"),
        ("/b 0 @100644 1 0 0 0 0.0 /a - -\n", "line 2, column 26: the target"),
    ] {
        let (path, image) = (dump(&scratch, line), scratch.path("image"));
        fails(&["composefs", "create", "--from-file", &path, &image], 1, &format!("{path}: {words}"));
        let output = Command::new(&mkcomposefs).args(["--from-file", &path, &image]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).starts_with(&format!("mkcomposefs: {path}: {words}")), "{}", stderr(&output));
        assert!(!Path::new(&image).exists());
    }
    let warned = dump(&scratch, "/a 1 100644 3 0 0 0 0.0 aa/b - -\n");
    let output = run(&["composefs", "create", "--print-digest-only", "--from-file", &warned]);
    assert!(stderr(&output).contains("dump: line 2: a link count of 3, but 1 names"), "{}", stderr(&output));
}

#[test]
fn hard_links_stay_and_sources_agree() {
    let scratch = Scratch::new();
    let (dir, image, tar) = (source(&scratch), scratch.path("image"), scratch.path("image.tar"));
    let create = |src: &str, options: &[&str]| {
        text(&[&["composefs", "create", "--print-digest-only"][..], options, &[src]].concat())
    };
    stdout(&["composefs", "create", "-q", &dir, &image]);
    let dumped = text(&["composefs", "info", "dump", &image]);
    assert_eq!(dumped.lines().filter(|line| line.contains(" @100644 2 ")).count(), 1, "{dumped}");
    // A dump makes the same image again.
    let again = scratch.path("again");
    fs::write(scratch.path("text"), &dumped).unwrap();
    stdout(&["composefs", "create", "-q", "--from-file", &scratch.path("text"), &again]);
    assert!(fs::read(&image).unwrap() == fs::read(&again).unwrap());
    // So do other sources of the same tree.
    let erofs = scratch.path("image.erofs");
    stdout(&["pack", "-q", "--preset", "fast", &dir, &erofs]);
    stdout(&["export", "-q", &erofs, &tar]);
    let options = ["--use-epoch", "--skip-xattrs"];
    assert_eq!(create(&dir, &options), create(&erofs, &options));
    assert_eq!(create(&dir, &options), create(&tar, &options));
    assert_ne!(create(&dir, &[]), create(&dir, &["--hardlinks=break"]));
    let not = run(&["composefs", "info", "ls", &erofs]);
    assert_eq!((not.status.code(), stderr(&not)), (Some(1), format!("kiln: {erofs}: no image of composefs\n")));
}

#[test]
fn stores_are_checked_and_cleaned() {
    let scratch = Scratch::new();
    let (dir, store) = (source(&scratch), scratch.path("objects"));
    let images = ["one", "two"].map(|name| scratch.path(name));
    // Two processes at once.
    let children = images.each_ref().map(|image| {
        kiln().args(["composefs", "create", "-q", "--digest-store", &store, &dir, image]).spawn().unwrap()
    });
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert!(fs::read(&images[0]).unwrap() == fs::read(&images[1]).unwrap());
    let objects = text(&["composefs", "info", "objects", &images[0]]);
    assert_eq!(objects.lines().count(), 4, "{objects}");
    let missing = ["composefs", "info", "missing-objects", "--basedir", &store, &images[0]];
    assert_eq!(text(&missing), "");
    assert_eq!(text(&["composefs", "store", "verify", &store]), "");

    fs::write(Path::new(&dir).join("file6"), "other contents").unwrap();
    stdout(&["composefs", "create", "-q", &dir, &scratch.path("three")]);
    let needed = text(&["composefs", "info", "objects", &scratch.path("three")]);
    let unused: Vec<_> = objects.lines().filter(|object| !needed.contains(object)).collect();
    assert_eq!(unused.len(), 1);
    let gc =
        |options: &[&str]| text(&[&["composefs", "store", "gc", &store, &scratch.path("three")][..], options].concat());
    assert_eq!(gc(&["--dry-run"]).trim_end(), unused[0]);
    assert_eq!(text(&missing), "");
    assert_eq!(gc(&[]).trim_end(), unused[0]);
    assert_eq!(text(&missing).trim_end(), unused[0]);
    fails(&["composefs", "store", "gc", &store, &dir], 1, &dir);
    fails(&["composefs", "store", "gc", &store], 2, "IMAGE");

    let [damaged, linked] = [0, 1].map(|at| needed.lines().nth(at).unwrap());
    fs::write(Path::new(&store).join(damaged), "damaged").unwrap();
    fs::remove_file(Path::new(&store).join(linked)).unwrap();
    symlink("/etc/passwd", Path::new(&store).join(linked)).unwrap();
    let output = run(&["composefs", "store", "verify", &store]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(told.contains(&format!("{damaged}: its contents have the digest ")), "{told}");
    assert!(told.contains(&format!("{linked}: no object of a store: a symbolic link")), "{told}");
    assert_eq!(told.lines().count(), 2);
    let store_link = ["composefs", "create", "-q", "--force", "--digest-store", &store, &dir, &images[0]];
    fails(&store_link, 1, &store);
}

#[test]
fn dropin_names_take_the_options_of_composefs() {
    let scratch = Scratch::new();
    let empty = dump(&scratch, "");
    let whiteout = scratch.path("whiteout");
    fs::write(&whiteout, format!("{ROOT}/w 0 20644 1 0 0 0 0.0 - - -\n")).unwrap();
    let mkcomposefs = dropin(&scratch, "mkcomposefs");
    let id =
        |args: &[&str]| output_of(Command::new(&mkcomposefs).args(["--from-file", "--print-digest-only"]).args(args));
    assert!(id(&[&empty]).starts_with(EMPTY_V0));
    assert!(id(&["--min-version=1", &empty]).starts_with(EMPTY_V1));
    assert!(id(&[&whiteout]).starts_with(WHITEOUT));
    // With a minimum alone, the maximum is that, too.
    assert!(!id(&["--min-version=0", &whiteout]).starts_with(WHITEOUT));
    assert!(id(&["--min-version=0", "--max-version", "1", &whiteout]).starts_with(WHITEOUT));
    let (image, dir, nothing) = (&*scratch.path("image"), &*scratch.path(""), &*scratch.path("nothing"));
    let empty = &*empty;
    for (args, words) in [
        (&[][..], "No source path specified"),
        (&[empty], "No destination path specified"),
        (&[empty, image, "more"], "Too many arguments"),
        (&["--print-digest-only", empty, image], "Cannot specify destination path with --print-digest-only"),
        (&["--min-version=2", empty, image], "cannot write file: Invalid argument"),
        (&["--max-version=x", empty, image], "Invalid max version x"),
        (&["--threads=0", empty, image], "Invalid threads count 0"),
        (&["--bad", empty, image], "unrecognized option '--bad'"),
        (&["--skip-xattrs", "--user-xattrs", dir, image], "Invalid argument"),
        (&[nothing, image], "nothing"),
    ] {
        let output = Command::new(&mkcomposefs).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let told = stderr(&output);
        assert!(told.starts_with("mkcomposefs: ") && told.contains(words), "{args:?}: {told}");
    }
    assert!(!Path::new(image).exists());
}

#[test]
fn images_and_stores_are_those_of_mkcomposefs() {
    let Some([mkcomposefs, composefs_info]) = peers() else { return };
    let scratch = Scratch::new();
    let dir = source(&scratch);
    let ours = dropin(&scratch, "mkcomposefs");
    let names = ["theirs", "ours", "kiln"];
    let [theirs, dropped, own] = names.map(|name| scratch.path(name));
    let store = |name: &str| format!("--digest-store={}", scratch.path(&format!("store-{name}")));
    for options in [
        &[][..],
        &["--use-epoch"],
        &["--skip-devices", "--threads=1"],
        &["--skip-xattrs"],
        &["--user-xattrs"],
        &["--min-version=1"],
        &["--min-version=0", "--max-version=1"],
    ] {
        let make = |program: &Path, name: &str| {
            let args = [&store(name), &dir, &scratch.path(name)];
            output_of(Command::new(program).args(options).arg("--print-digest").args(args))
        };
        assert_eq!(make(&mkcomposefs, "theirs"), make(Path::new(&ours), "ours"), "{options:?}");
        assert!(fs::read(&theirs).unwrap() == fs::read(&dropped).unwrap(), "{options:?}");
    }
    stdout(&["composefs", "create", "-q", "--min-version=0", "--hardlinks=break", &store("kiln"), &dir, &own]);
    output_of(Command::new(&mkcomposefs).args([&dir, &theirs]));
    assert!(fs::read(&theirs).unwrap() == fs::read(&own).unwrap());
    for name in ["ours", "kiln"] {
        let stores = [scratch.path("store-theirs"), scratch.path(&format!("store-{name}"))];
        assert_eq!(output_of(Command::new("diff").arg("-r").args(stores)), "", "{name}");
    }

    let info = dropin(&scratch, "composefs-info");
    let (basedir, file, empty) =
        (format!("--basedir={}", scratch.path("store-theirs")), format!("{dir}/file6"), dump(&scratch, ""));
    for args in [
        &["ls", &theirs][..],
        &["ls", &theirs, &own],
        &["--filter=dir", "--filter=file6", "ls", &theirs],
        &["objects", &theirs, &own],
        &["--filter=dir", "objects", &theirs],
        &["missing-objects", &theirs],
        &["missing-objects", &basedir, &theirs],
        &["--basedir=/nowhere", "missing-objects", &theirs],
        &["measure-file", &theirs, &file, &empty],
    ] {
        let [expected, found] = [composefs_info.as_path(), Path::new(&info)]
            .map(|program| Command::new(program).args(args).output().unwrap());
        assert_eq!(String::from_utf8_lossy(&found.stdout), String::from_utf8_lossy(&expected.stdout), "{args:?}");
        assert_eq!(found.status.code(), expected.status.code(), "{args:?}: {}", stderr(&found));
    }
    for args in
        [&["ls", "/nowhere"][..], &["ls", &file], &["nothing", &theirs], &["ls"], &[], &["--filter=a/b", "ls", &theirs]]
    {
        let [expected, found] = [composefs_info.as_path(), Path::new(&info)]
            .map(|program| Command::new(program).args(args).output().unwrap());
        assert_eq!(found.status.code(), expected.status.code(), "{args:?}: {}", stderr(&found));
    }
}
