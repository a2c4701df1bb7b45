//! Drop-in names that scripts already call: `fsck.erofs`, `dump.erofs`, `erofsfuse`, `mount.erofs`; for `mkfs.erofs` see `../mkfs`.

mod dump;
mod fsck;
mod mount_kiln;

use crate::common::{Scratch, fails, golden, kiln, run, skip, stderr, stdout};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const NAMES: [&str; 10] = [
    "mkfs.erofs",
    "fsck.erofs",
    "dump.erofs",
    "erofsfuse",
    "mount.erofs",
    "mkcomposefs",
    "composefs-info",
    "mount.composefs",
    "mount.kiln",
    "mount.fuse.kiln",
];

/// The drop-in names in a directory of their own.
struct Names(Scratch);

impl Names {
    fn new() -> Self {
        let scratch = Scratch::new();
        stdout(&["install-names", &scratch.path("")]);
        Self(scratch)
    }

    fn command(&self, name: &str) -> Command {
        Command::new(self.0.path(name))
    }

    fn run(&self, name: &str, args: &[&str]) -> Output {
        self.command(name).args(args).output().unwrap()
    }

    /// Runs a program, which must exit with `code`; returns its standard error.
    fn exits(&self, name: &str, args: &[&str], code: i32) -> String {
        let output = self.run(name, args);
        assert_eq!(output.status.code(), Some(code), "{name} {args:?}: {}", stderr(&output));
        stderr(&output)
    }

    fn stdout(&self, name: &str, args: &[&str]) -> String {
        let output = self.run(name, args);
        assert_eq!(output.status.code(), Some(0), "{name} {args:?}: {}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Returns the names of the golden images.
fn images() -> Vec<String> {
    let manifest = fs::read_to_string(golden("MANIFEST.tsv")).unwrap();
    let names: Vec<_> = manifest.lines().skip(1).map(|line| line.split('\t').next().unwrap().to_owned()).collect();
    assert!(names.len() > 30);
    names
}

/// Returns the arguments that name a golden image: its extra device, if it has one, and itself.
fn arguments(name: &str) -> Vec<String> {
    let blob = golden(&format!("{name}.blob"));
    let device = Path::new(&blob).exists().then(|| format!("--device={blob}"));
    device.into_iter().chain([golden(&format!("{name}.erofs"))]).collect()
}

/// Makes a copy of a golden image whose superblock has another UUID, and so a wrong checksum.
fn flipped(scratch: &Scratch, name: &str) -> String {
    let mut bytes = fs::read(golden(&format!("{name}.erofs"))).unwrap();
    bytes[1024 + 48] ^= 1;
    let path = scratch.path(&format!("flipped-{name}"));
    fs::write(&path, bytes).unwrap();
    path
}

/// All visible properties of a file, except the times that reading changes.
#[derive(Debug, PartialEq)]
struct Shown {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    rdev: u64,
    contents: Vec<u8>,
}

/// Returns everything below `dir` by its path, which begins with a slash.
fn tree(dir: &str) -> BTreeMap<Vec<u8>, Shown> {
    use std::os::unix::ffi::OsStrExt;
    let mut all = BTreeMap::new();
    let mut todo = vec![PathBuf::from(dir)];
    while let Some(path) = todo.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        if stat.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let contents = match stat.file_type() {
            kind if kind.is_file() => fs::read(&path).unwrap(),
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
            _ => Vec::new(),
        };
        let (owner, mtime) = ((stat.uid(), stat.gid()), (stat.mtime(), stat.mtime_nsec()));
        let shown = Shown { mode: stat.mode(), owner, mtime, rdev: stat.rdev(), contents };
        let below = path.strip_prefix(dir).unwrap();
        all.insert([b"/", below.as_os_str().as_bytes()].concat(), shown);
    }
    all
}

#[test]
fn names_are_installed_with_care() {
    let scratch = Scratch::new();
    let dir = scratch.path("bin");
    fs::create_dir(&dir).unwrap();
    let first = String::from_utf8(stdout(&["install-names", &dir])).unwrap();
    assert_eq!(first.lines().count(), NAMES.len(), "{first}");
    for name in NAMES {
        assert!(fs::read_link(format!("{dir}/{name}")).unwrap().is_absolute());
    }
    assert_eq!(stdout(&["install-names", &dir]), b"all names are there already\n");
    // Foreign files are kept, and then nothing is created at all.
    for name in NAMES {
        fs::remove_file(format!("{dir}/{name}")).unwrap();
    }
    fs::write(format!("{dir}/erofsfuse"), "precious").unwrap();
    fails(&["install-names", &dir], 1, "--force");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    stdout(&["install-names", "--force", &dir]);
    assert!(fs::symlink_metadata(format!("{dir}/erofsfuse")).unwrap().is_symlink());
    // A missing directory is created.
    let missing = scratch.path("missing/sbin");
    stdout(&["install-names", &missing]);
    assert_eq!(fs::read_dir(&missing).unwrap().count(), NAMES.len());
    fails(&["install-names", &format!("{dir}/erofsfuse/sbin")], 1, "create the directory");
    // A link to another program is foreign, too.
    fs::remove_file(format!("{dir}/erofsfuse")).unwrap();
    symlink("/bin/true", format!("{dir}/erofsfuse")).unwrap();
    fails(&["install-names", &dir], 1, "erofsfuse");
}

#[test]
fn names_beside_the_program_are_relative() {
    let scratch = Scratch::new();
    fs::hard_link(env!("CARGO_BIN_EXE_kiln"), scratch.path("kiln"))
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_kiln"), scratch.path("kiln")).map(drop))
        .unwrap();
    let made = Command::new(scratch.path("kiln")).args(["install-names", &scratch.path("")]).output().unwrap();
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    assert_eq!(fs::read_link(scratch.path("dump.erofs")).unwrap(), Path::new("kiln"));
    assert_eq!(Command::new(scratch.path("dump.erofs")).arg("-V").output().unwrap().status.code(), Some(0));
}

#[test]
fn copies_answer_to_their_names_as_well() {
    let scratch = Scratch::new();
    stdout(&["install-names", "--copy", &scratch.path("")]);
    assert!(fs::symlink_metadata(scratch.path("fsck.erofs")).unwrap().is_file());
    assert_eq!(stdout(&["install-names", "--copy", &scratch.path("")]), b"all names are there already\n");
    let names = Names(scratch);
    names.exits("fsck.erofs", &[&golden("lz4.erofs")], 0);
    if has_fuse() {
        // The background process is called `kiln` again.
        let _place = Place::new(&names, &golden("lz4.erofs"), &[]);
    }
}

#[test]
fn versions_are_what_scripts_look_for() {
    let names = Names::new();
    // The programs of composefs have no such option.
    for name in &NAMES[..4] {
        let version = names.stdout(name, &["-V"]);
        assert_eq!(version.lines().next(), Some(&*format!("{name} (kiln) 1.9.4")));
        assert!(version.contains(concat!("kiln ", env!("CARGO_PKG_VERSION"))), "{version}");
    }
    for name in NAMES {
        let help = names.stdout(name, &["--help"]);
        assert!(help.starts_with(&format!("Usage: {name} ")), "{help}");
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }
}

#[test]
fn wrong_command_lines() {
    let names = Names::new();
    let image = &*golden("lz4.erofs");
    for (name, args, words) in [
        ("fsck.erofs", &[][..], "<E> erofs: missing argument: IMAGE"),
        ("fsck.erofs", &[image, "second"], "<E> erofs: unexpected argument: second"),
        ("fsck.erofs", &["--frob", image], "fsck.erofs: unrecognized option '--frob'"),
        ("fsck.erofs", &["-d10", image], "<E> erofs: invalid debug level 10"),
        ("fsck.erofs", &["--offset=4k", image], "<E> erofs: invalid disk offset 4k"),
        ("fsck.erofs", &["--nid=x", image], "<E> erofs: invalid nid x"),
        ("fsck.erofs", &["--extract=", image], "empty value given for --extract=X"),
        ("fsck.erofs", &["--extract=/", image], "--extract=/ must be used together with --force"),
        ("fsck.erofs", &["--extract=//../.", image], "--extract=/ must be used together with --force"),
        ("fsck.erofs", &["--force", image], "--force must be used together with --extract=X"),
        ("fsck.erofs", &["--preserve", image], "must be used together with --extract=X"),
        ("dump.erofs", &[], "<E> erofs: missing argument: IMAGE"),
        ("dump.erofs", &["-x", image], "dump.erofs: invalid option -- 'x'"),
        ("dump.erofs", &["-e", image], "-e must be used together with"),
        ("dump.erofs", &["--path", image], "missing argument: IMAGE"),
        ("erofsfuse", &[image], "<E> erofs: missing argument: MOUNTPOINT"),
        ("erofsfuse", &["-oallow_root", image, "/nowhere"], "unknown option(s): `-o allow_root'"),
    ] {
        let said = names.exits(name, args, 1);
        assert!(said.contains(words), "{name} {args:?}: {said}");
        assert!(said.ends_with(&format!("Try '{name} --help' for more information.\n")), "{said}");
    }
}

/// The exit code of every failure is 1.
#[test]
fn failures() {
    let names = Names::new();
    let image = &*golden("lz4.erofs");
    let missing = names.0.path("missing");
    fs::write(names.0.path("short"), &fs::read(image).unwrap()[..200_000]).unwrap();
    let short = &*names.0.path("short");
    let flipped = flipped(&names.0, "lz4");
    let out = names.0.path("out");
    for (name, args, words) in [
        ("fsck.erofs", &[&*missing][..], "missing"),
        ("fsck.erofs", &[short], "blocks"),
        ("fsck.erofs", &["/dev/null"], "/dev/null"),
        ("fsck.erofs", &["--path=/missing", image], "/missing"),
        ("fsck.erofs", &["--nid=99999999", image], "99999999"),
        ("fsck.erofs", &["--path=/big/text", short], "/big/text"),
        ("fsck.erofs", &["--xattr-inode-digest", image], "no inode digest xattrs"),
        ("fsck.erofs", &["--offset=4096", image], "image at byte 4096"),
        ("fsck.erofs", &["--device=/missing", image], "/missing"),
        ("fsck.erofs", &[&format!("--extract={missing}/out"), image], "missing/out"),
        ("fsck.erofs", &[&format!("--extract={out}"), short], "lz4"),
        ("fsck.erofs", &[&flipped], "checksum"),
        ("dump.erofs", &[&missing], "missing"),
        ("dump.erofs", &[&flipped], "checksum"),
        ("dump.erofs", &["--path=/missing", image], "/missing"),
        ("dump.erofs", &["--ls", "--path=/big/text", image], "/big/text: not a directory"),
        ("dump.erofs", &["--cat", "--path=/big", image], "is a directory"),
        ("dump.erofs", &["-S", short], "short"),
        ("erofsfuse", &[&missing, &out], "missing"),
        ("erofsfuse", &[&flipped, &out], "checksum"),
    ] {
        let said = names.exits(name, args, 1);
        let error = said.lines().any(|line| line.starts_with("<E> erofs: ") || line.starts_with("kiln: "));
        assert!(error && (said.contains(words) || words == "lz4"), "{name} {args:?}: {said}");
    }
}

fn has_fuse() -> bool {
    let has = geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !has {
        skip("mounting needs root and /dev/fuse");
    }
    has
}

/// An image that `erofsfuse` serves, until the end of the test.
struct Place {
    dir: String,
    _scratch: Scratch,
}

impl Place {
    fn new(names: &Names, image: &str, args: &[&str]) -> Self {
        let scratch = Scratch::new();
        let dir = scratch.path("mnt");
        fs::create_dir(&dir).unwrap();
        let place = Self { dir, _scratch: scratch };
        assert_eq!(names.exits("erofsfuse", &[args, &[image, &place.dir]].concat(), 0), "");
        place
    }

    fn mount_line(&self) -> String {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        table.lines().find(|line| line.split(' ').nth(1) == Some(&self.dir)).unwrap_or_default().into()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = run(&["umount", &self.dir]);
    }
}

#[test]
fn erofsfuse_serves_in_the_background() {
    if !has_fuse() {
        return;
    }
    let names = Names::new();
    let image = golden("lz4.erofs");
    let options = ["-s", "-o", "ro,fsname=some-name,allow_other,max_idle_threads=10", "--dbglevel=3"];
    let place = Place::new(&names, &image, &options);
    let line = place.mount_line();
    assert!(line.starts_with("some-name ") && line.contains("allow_other") && line.contains("ro,"), "{line}");
    assert!(fs::read(format!("{}/big/text", place.dir)).unwrap() == stdout(&["cat", &image, "big/text"]));
    stdout(&["umount", &place.dir]);
    assert_eq!(place.mount_line(), "");
}

/// Embeds `image` at byte `offset` of a larger file, with other bytes before and behind it.
fn embedded(scratch: &Scratch, image: &str, offset: u64) -> String {
    let mut bytes = vec![0xE2; offset as usize];
    bytes.extend(fs::read(image).unwrap());
    bytes.extend([0xE2; 10_000]);
    let path = scratch.path(&format!("at-{offset}"));
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn images_inside_larger_files() {
    let names = Names::new();
    let blob = format!("--device={}", golden("blobdev.blob"));
    // An odd offset, too: only the kernel requires more.
    for offset in [1 << 20, 4096 + 512, 1001] {
        let file = embedded(&names.0, &golden("blobdev.erofs"), offset);
        let at = &*format!("--offset={offset}");
        names.exits("fsck.erofs", &[at, &blob, &file], 0);
        let dump = names.stdout("dump.erofs", &[at, &blob, &file]);
        assert_eq!(dump, names.stdout("dump.erofs", &[&blob, &golden("blobdev.erofs")]));
        let out = names.0.path(&format!("out-{offset}"));
        stdout(&["extract", at, &blob, &file, &out]);
        let expected = tree(&out);
        assert!(expected.len() > 200 || !geteuid().is_root());
        let text = stdout(&["cat", at, &blob, &file, "big/text"]);
        assert!(text == fs::read(format!("{out}/big/text")).unwrap());
        fails(&["ls", &file], 1, "not an EROFS image");
        fails(&["ls", "--offset=1T", &file], 1, "image at byte 1099511627776");
        if !has_fuse() {
            continue;
        }
        let place = Place::new(&names, &file, &[at, &blob]);
        assert!(expected == tree(&place.dir), "by FUSE");
        drop(place);
        let dir = names.0.path(&format!("mnt-{offset}"));
        fs::create_dir(&dir).unwrap();
        let mounted = run(&["mount", at, &blob, &file, &dir]);
        assert_eq!(mounted.status.code(), Some(0), "{}", stderr(&mounted));
        let found = tree(&dir);
        stdout(&["umount", &dir]);
        assert!(expected == found, "{}", stderr(&mounted));
    }
}

#[test]
fn our_own_name_is_not_affected() {
    let scratch = Scratch::new();
    symlink(env!("CARGO_BIN_EXE_kiln"), scratch.path("erofs")).unwrap();
    let output = Command::new(scratch.path("erofs")).arg("--version").output().unwrap();
    assert_eq!(output.stdout, kiln().arg("--version").output().unwrap().stdout);
}
