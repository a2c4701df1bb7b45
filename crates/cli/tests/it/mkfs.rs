//! The name `mkfs.erofs`: every option of erofs-utils 1.9.4, and command lines of existing callers.

mod archives;
mod options;
mod references;

use crate::common::{LoopDevice, Scratch, kiln, run, skip, stderr, stdout, text};
use rustix::process::geteuid;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// A small tree, and the program under its drop-in name.
struct Place {
    scratch: Scratch,
    src: String,
    image: String,
}

impl Place {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (src, image) = (scratch.path("src"), scratch.path("image"));
        symlink(env!("CARGO_BIN_EXE_kiln"), scratch.path("mkfs.erofs")).unwrap();
        fs::create_dir_all(format!("{src}/dir/sub")).unwrap();
        fs::write(format!("{src}/text"), text(1, 300_000)).unwrap();
        fs::write(format!("{src}/again"), text(1, 300_000)).unwrap();
        for idx in 0..20 {
            fs::write(format!("{src}/dir/{idx}"), text(idx, 3000 * idx as usize)).unwrap();
        }
        fs::hard_link(format!("{src}/text"), format!("{src}/dir/linked")).unwrap();
        symlink("../text", format!("{src}/dir/link")).unwrap();
        Self { scratch, src, image }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.scratch.path("mkfs.erofs"));
        command.env_remove("SOURCE_DATE_EPOCH");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// Makes an image of the tree with these options, and returns the program's output.
    fn makes(&self, args: &[&str]) -> String {
        let _ = fs::remove_file(&self.image);
        let output = self.run(&[args, &[&self.image, &self.src]].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the program, which must fail with these words and without an image.
    fn refuses(&self, args: &[&str], words: &str) {
        let output = self.run(&[args, &[&self.image, &self.src]].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?} is accepted");
        let said = stderr(&output);
        assert!(said.contains(words), "{args:?}: {words:?} is not in {said:?}");
        assert!(!Path::new(&self.image).exists(), "{args:?} leaves an image");
    }

    /// Checks the image by a mount of the kernel, if that is possible.
    fn mounts(&self) {
        let dir = self.scratch.path("mnt");
        fs::create_dir_all(&dir).unwrap();
        let mounted = run(&["mount", "--via", "kernel", &self.image, &dir]);
        if !mounted.status.success() {
            return skip("the kernel does not mount EROFS for us");
        }
        let diff = run(&["diff", &self.src, &dir]);
        stdout(&["umount", &dir]);
        assert_eq!(diff.status.code(), Some(0), "{}{}", String::from_utf8_lossy(&diff.stdout), stderr(&diff));
    }

    /// Checks that the image is sound, and equal to the tree according to `kiln diff`.
    fn holds_the_tree(&self) {
        let checked = run(&["check", &self.image]);
        assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
        let diff = run(&["diff", &self.src, &self.image]);
        assert_eq!(diff.status.code(), Some(0), "{}{}", String::from_utf8_lossy(&diff.stdout), stderr(&diff));
    }

    fn json(&self, args: &[&str]) -> Value {
        let (command, rest) = args.split_first().unwrap();
        serde_json::from_slice(&stdout(&[&[command, "--json", &*self.image], rest].concat())).unwrap()
    }

    fn entry(&self, path: &str) -> Value {
        self.json(&["stat", path])
    }
}

const UUID: &str = "12345678-9abc-4def-8123-456789abcdef";

/// Command lines of other projects, with a directory as source, that preserve everything in the tree.
const CALLERS: [&[&str]; 12] = [
    &["-U", UUID, "--hard-dereference"],                            // systemd-repart, Nix
    &["-zlzma,6", "-Eall-fragments,fragdedupe=inode", "-C1048576"], // Fedora CoreOS
    &["-zzstd,8", "-Ededupe,all-fragments", "-C65536"],             // lorax
    &["-zlz4hc,12", "-C65536", "-Efragments,ztailpacking"],         // upstream's documentation
    &["--quiet", "-Enoinline_data"],                                // containerd
    &["-zlz4hc", "-C", "16384", "-T", "0", "--mkfs-time", "-U", UUID, "-L", "x"], // Android's builds
    &["-z", "lz4hc,9", "-b4096", "--workers=4"],
    &["-zdeflate,level=9,dictsize=32768", "-C64k", "-E48bit,dedupe"],
    &["-zzstd,level=3", "-x2", "-d9", "--preserve-mtime"],
    &["-zzstd,level=3,dictsize=8k", "-C65536"],
    &["-zlzma,level=1,dictsize=4096", "-C65536", "-Eztailpacking"],
    &["-zdeflate,dictsize=512", "-C16384", "-Efragments"],
];

#[test]
fn command_lines_of_others_make_images() {
    let place = Place::new();
    for args in CALLERS {
        place.makes(args);
        if args.contains(&"--hard-dereference") {
            assert_eq!(place.entry("dir/linked")["nlink"], 1);
            assert_eq!(run(&["check", &place.image]).status.code(), Some(0));
            continue;
        }
        place.holds_the_tree();
        place.mounts();
    }
}

#[test]
fn the_lines_are_those_that_scripts_read() {
    let place = Place::new();
    let printed = place.makes(&["-zlz4", "-Efragments", "-U", UUID]);
    let info = place.json(&["info"]);
    let lines: Vec<&str> = printed.lines().collect();
    let blocks = fs::metadata(&place.image).unwrap().len() / 4096;
    let expected = [
        "mkfs.erofs 1.9.4".into(),
        "Build completed.".into(),
        String::new(),
        "------".into(),
        format!("Filesystem UUID: {UUID}"),
        format!("Filesystem total blocks: {blocks} (of 4096-byte blocks)"),
        format!("Filesystem total inodes: {}", info["inodes"]),
    ];
    assert_eq!(lines[..7], expected);
    let number = |line: &str, name: &str| line.strip_prefix(name).unwrap().parse::<u64>().unwrap();
    let metadata = number(lines[7], "Filesystem total metadata blocks: ");
    assert!((1..blocks).contains(&metadata));
    assert_eq!(number(lines[8], "Filesystem total deduplicated bytes (of source files): "), 300_000);
    assert_eq!(lines.len(), 9);

    for quiet in [&["--quiet", "-Elegacy-compress"][..], &["--quiet", "-d9", "--workers=999"]] {
        let output = place.run(&[quiet, &[&place.image, &place.src]].concat());
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
    }
    let output = place.run(&["-Elegacy-compress", "--workers=999", &place.image, &place.src]);
    let said = stderr(&output);
    assert!(said.lines().all(|line| line.starts_with("<W> erofs: ")), "{said}");
    assert!(said.contains("lz4_0padding") && said.contains("999 workers exceed"), "{said}");

    let version = String::from_utf8(place.run(&["-V"]).stdout).unwrap();
    assert!(version.starts_with("mkfs.erofs (kiln) 1.9.4\navailable compressors: lz4, lz4hc, lzma, "), "{version}");
    let help = place.run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(help.stdout.starts_with(b"Usage: mkfs.erofs [OPTIONS] FILE SOURCE"));
    // containerd asks in this way whether tar streams can be converted.
    assert!(String::from_utf8(help.stdout).unwrap().contains("--tar="));
}

#[test]
fn compression_is_as_asked_for() {
    let place = Place::new();
    for (args, algorithm) in [
        (&[][..], None),
        (&["-C65536"], None),
        (&["-zlz4"], Some("lz4")),
        (&["-zlzma,1", "-C1m"], Some("lzma")),
        (&["-zlibdeflate"], Some("deflate")),
        (&["-zzstd", "-E48bit"], Some("zstd")),
    ] {
        place.makes(args);
        let info = place.json(&["info"]);
        let algorithms = info["algorithms"].as_array().unwrap();
        assert_eq!(algorithms.first().and_then(|first| first["name"].as_str()), algorithm, "{args:?}: {info}");
        let has_48bit = info["features"].as_array().unwrap().iter().any(|one| one["name"] == "48-bit addresses");
        assert_eq!(has_48bit, args.contains(&"-E48bit"), "{args:?}");
        assert!(info["packed_nid"].is_null(), "{args:?}");
    }
    place.makes(&["-zzstd", "-Efragments"]);
    assert!(!place.json(&["info"])["packed_nid"].is_null());
    let size = |args: &[&str]| {
        place.makes(args);
        fs::metadata(&place.image).unwrap().len()
    };
    assert!(size(&["-zlz4", "-C64k"]) < size(&["-zlz4"]));
    assert!(size(&["-zlz4"]) < size(&[]));
}

/// The original makes such images for Linux 5.4, which phones have.
#[test]
fn old_defaults_make_images_for_old_kernels() {
    let place = Place::new();
    let sparse = fs::File::create(format!("{}/sparse", place.src)).unwrap();
    sparse.set_len(1 << 20).unwrap();
    for (args, names, oldest) in [
        (&[][..], &[][..], "5.4"),
        (&["-zlz4"], &["lz4"], "5.4"),
        (&["-zlz4hc", "-C4096"], &["lz4"], "5.4"),
        (&["-zlz4hc,12", "-C65536"], &["lz4", "big pclusters"], "5.13"),
        (&["-zlz4", "-Eztailpacking"], &["lz4", "compressed tail packing"], "5.17"),
        (&["-zlz4", "-Efragments"], &["lz4", "chunk-based files", "fragments or shared pclusters"], "6.1"),
        (&["--chunksize=4096"], &["chunk-based files"], "5.15"),
    ] {
        place.makes(args);
        let info = place.json(&["info"]);
        let found: Vec<_> =
            info["features"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!((&found[..], info["oldest_kernel"].as_str()), (names, Some(oldest)), "{args:?}");
        place.holds_the_tree();
    }
}

#[test]
fn metadata_and_directories_are_compressed_as_asked_for() {
    let place = Place::new();
    fs::create_dir(format!("{}/many", place.src)).unwrap();
    for idx in 0..1000 {
        fs::write(format!("{}/many/file-{idx}", place.src), text(idx, 20)).unwrap();
    }
    let features = |place: &Place| place.json(&["info"])["features"].to_string();
    let layout = |place: &Place| place.entry("many")["layout"].as_str().unwrap().to_owned();
    let plain = place.makes(&["-zzstd"]);
    let len = || fs::metadata(&place.image).unwrap().len();
    let plain_len = len();
    for (args, metabox, packed, algorithms) in [
        (&["-zzstd", "-m4096"][..], true, false, &["zstd"][..]),
        (&["-zzstd", "--zD"], false, true, &["zstd"]),
        (&["-zzstd", "-C64k", "-m64k:lz4hc,9", "--zD=1", "--MZ"], true, true, &["lz4", "zstd"]),
        (&["-zdeflate", "-m32k:deflate", "-E48bit"], true, false, &["deflate"]),
        (&["-m16k:lzma"], true, false, &["lzma"]),
        (&["-m16k", "--zD"], false, false, &[]),
    ] {
        let said = place.makes(args);
        assert_eq!(said.lines().count(), plain.lines().count());
        place.holds_the_tree();
        place.mounts();
        assert_eq!(features(&place).contains("compressed metadata"), metabox, "{args:?}");
        assert_eq!(layout(&place).starts_with("compressed"), packed, "{args:?}");
        let info = place.json(&["info"]);
        let names: Vec<_> = info["algorithms"].as_array().unwrap().iter().map(|found| found["name"].clone()).collect();
        assert_eq!(names, algorithms, "{args:?}");
        assert!(said.contains(&format!("Filesystem total inodes: {}\n", info["inodes"])), "{args:?}: {said}");
        let smaller = (metabox || packed) && args[0] == "-zzstd";
        assert!(!smaller || len() < plain_len, "{args:?}: {} from {plain_len}", len());
    }
    let output = place.run(&["-m4096", "--zD", &place.image, &place.src]);
    let said = stderr(&output);
    assert!(said.contains("<W> erofs: -m: nothing is compressed") && said.contains("--zD: nothing"), "{said}");
}

#[test]
fn descriptors_name_image_and_device() {
    let place = Place::new();
    let (file, blob) = (place.scratch.path("disk.vmdk"), place.scratch.path("blob"));
    let option = format!("--vmdk-desc={file}");
    place.makes(&[&option, "--chunksize=4096", &format!("--blobdev={blob}")]);
    let text = fs::read_to_string(&file).unwrap();
    let sectors = |path: &str| fs::metadata(path).unwrap().len() / 512;
    for path in [&place.image, &blob] {
        assert!(text.contains(&format!("\nRW {} FLAT \"{path}\" 0\n", sectors(path))), "{text}");
    }
    // With an offset the image begins later in its file.
    let output = place.run(&[&option, "--offset=8192", &place.image, &place.src]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(fs::read_to_string(&file).unwrap().contains(&format!("\"{}\" 16\n", place.image)));
    fs::remove_file(&place.image).unwrap();
    fs::remove_file(&file).unwrap();
    place.refuses(&[&format!("--vmdk-desc={}", place.image)], "a file of its own");
    place.refuses(&[&option, "-z", "nonsense"], "nonsense");
    assert!(!Path::new(&file).exists(), "a failed build leaves no descriptor");
}

#[test]
fn hints_choose_compressors_and_sizes() {
    let place = Place::new();
    fs::write(format!("{}/other", place.src), text(9, 300_000)).unwrap();
    let file = place.scratch.path("hints");
    let hints = format!("--compress-hints={file}");
    let write = |text: &str| fs::write(&file, text).unwrap();
    let extents = |path: &str| place.json(&["stat", "--extents", path])["extents"].as_array().unwrap().clone();
    let algorithm = |path: &str| extents(path)[0]["stored_as"].clone();
    write("# size, number, expression\n\n16384 1 ^text$\n0 text\n4096  2 ^dir/1\n0 other");
    for layout in ["-E^48bit", "-E48bit,fragments,dedupe"] {
        place.makes(&["-zlz4:zstd,5:lzma,1", "-C65536", layout, &hints]);
        assert_eq!(
            [algorithm("text"), algorithm("dir/11"), algorithm("again")],
            ["zstd", "lzma", "lz4"].map(Value::from)
        );
        assert!(
            extents("other").iter().all(|extent| extent["stored_as"] == "raw" || extent["stored_as"] == "inline"),
            "{:?}",
            extents("other")
        );
        let names: Vec<_> =
            place.json(&["info"])["algorithms"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        assert_eq!(names, ["lz4", "lzma", "zstd"]);
        place.holds_the_tree();
        place.mounts();
    }
    place.makes(&["-zlz4:zstd", "--compress-hints=/dev/null"]);
    assert_eq!(place.json(&["info"])["algorithms"].as_array().unwrap().len(), 1, "only what is used");
    fs::remove_file(&place.image).unwrap();
    for (text, words) in [
        ("4096\n", "cannot find a match pattern"),
        ("4096 3 x", "-z names no compressor 3"),
        ("4096 0 x y", "more than"),
        ("many x", "invalid physical clustersize many"),
        ("4096 (", "compress hint `4096 (`"),
    ] {
        write(text);
        place.refuses(&["-zlz4:zstd", &hints], words);
    }
    write("5000 text");
    let output = place.run(&["-zlz4", &hints, &place.image, &place.src]);
    assert!(stderr(&output).contains("invalid physical clustersize, use default 4096"), "{}", stderr(&output));
    place.holds_the_tree();
}

#[test]
fn metadata_is_as_asked_for() {
    let place = Place::new();
    let contexts = place.scratch.path("contexts");
    fs::write(&contexts, "/system(/.*)? u:object_r:system_file:s0\n").unwrap();
    let own = fs::metadata(&place.src).unwrap();
    let entry = |args: &[&str]| {
        place.makes(args);
        place.entry("text")
    };
    let (uid, gid) = (own.uid(), own.gid());
    for (args, expected) in [
        (&[][..], (uid, gid)),
        (&["--all-root"], (0, 0)),
        (&["--force-uid=1000", "--force-gid", "0x10"], (1000, 16)),
        (&["--force-uid=1000", "--uid-offset=5", "--all-root", "--gid-offset=7"], (5, 7)),
        (&["--force-uid=9", "--uid-offset=-5"], (4, gid)),
    ] {
        let text = entry(args);
        assert_eq!((&text["uid"], &text["gid"]), (&expected.0.into(), &expected.1.into()), "{args:?}");
    }
    let mtime = fs::metadata(format!("{}/text", place.src)).unwrap().mtime();
    for (args, expected) in [
        (&["-T100"][..], 100),
        (&["-T", "0", "--all-time"], 0),
        (&["-T-5"], -5),
        (&["-T100", "--mkfs-time"], mtime),
        (&["-T100", "--ignore-mtime"], 100),
    ] {
        assert_eq!(entry(args)["mtime"], expected, "{args:?}");
    }
    for args in [&["--ignore-mtime"][..], &["--all-time"], &["-Eforce-inode-compact"]] {
        assert!(entry(args)["mtime"].as_i64().unwrap() >= mtime);
        assert_eq!((&place.entry("dir")["mtime_nsec"], &place.entry("")["form"]), (&0.into(), &"compact".into()));
    }
    let labelled = entry(&["--file-contexts", &contexts, "--mount-point=/system"]);
    assert_eq!(labelled["xattrs"][0]["name"], "security.selinux");
    assert_eq!(entry(&["--file-contexts", &contexts])["xattrs"], Value::Array(Vec::new()));
    // Digests under a name that has a base are visible to all, and must not collide with another attribute.
    let digests = entry(&["--xattr-inode-digest=user.sum"]);
    assert_eq!((&digests["xattrs"][0]["name"], digests["xattrs"].as_array().unwrap().len()), (&"user.sum".into(), 1));
    assert_eq!(place.entry("dir/0")["xattrs"], Value::Array(Vec::new()));
    let clash = ["--xattr-inode-digest=security.selinux", "--file-contexts", &contexts, "--mount-point=/system"];
    fs::remove_file(&place.image).unwrap();
    place.refuses(&clash, "security.selinux: is there twice");
    assert_eq!(entry(&["--xattr-inode-digest"])["xattrs"], Value::Array(Vec::new()));

    place.makes(&["--exclude-path=dir/1", "--exclude-path=/dir/2/", "--exclude-regex=^dir/1[0-9]$"]);
    let listed = String::from_utf8(stdout(&["ls", &place.image, "dir"])).unwrap();
    let left: Vec<&str> = listed.lines().collect();
    assert_eq!(left, ["0", "3", "4", "5", "6", "7", "8", "9", "link", "linked", "sub"]);
    place.makes(&["-L", "name", "-Uclear"]);
    let info = place.json(&["info"]);
    assert_eq!((&info["label"], &info["uuid"]), (&"name".into(), &"00000000-0000-0000-0000-000000000000".into()));
    let random = || {
        place.makes(&["-Urandom"]);
        place.json(&["info"])["uuid"].as_str().unwrap().to_owned()
    };
    let (one, other) = (random(), random());
    assert!(one != other && one.as_bytes()[14] == b'4', "{one} {other}");
}

#[test]
fn source_date_epoch_overrides() {
    let place = Place::new();
    let mtime_of = |epoch: &str, args: &[&str]| {
        let output =
            place.command().env("SOURCE_DATE_EPOCH", epoch).args(args).args([&place.image, &place.src]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        place.entry("text")["mtime"].as_i64().unwrap()
    };
    let mtime = fs::metadata(format!("{}/text", place.src)).unwrap().mtime();
    assert_eq!(mtime_of("1000", &[]), 1000);
    assert_eq!(mtime_of("99999999999", &[]), mtime);
    assert_eq!(mtime_of("1000", &["-T7"]), 1000);
    assert_eq!(mtime_of("99999999999", &["--ignore-mtime"]), 99_999_999_999);
    let bad = place.command().env("SOURCE_DATE_EPOCH", "now").args([&place.image, &place.src]).output().unwrap();
    assert_eq!((bad.status.code(), stderr(&bad).contains("SOURCE_DATE_EPOCH")), (Some(1), true));
}

#[test]
fn marks_of_union_filesystems() {
    let place = Place::new();
    fs::write(format!("{}/dir/.wh.gone", place.src), "").unwrap();
    place.makes(&["--aufs"]);
    assert_eq!(place.entry("dir/gone")["type"], "character device");
    place.makes(&["--aufs", "--ovlfs-strip"]);
    let listed = stdout(&["ls", &place.image, "dir"]);
    assert!(!String::from_utf8(listed).unwrap().contains("gone"));
}

#[test]
fn files_are_replaced_when_the_image_is_complete() {
    let place = Place::new();
    let (real, link) = (place.scratch.path("real"), place.scratch.path("link"));
    fs::write(&real, "old").unwrap();
    symlink("real", &link).unwrap();
    let output = place.run(&["-zgzip", &link, &place.src]);
    assert_eq!((output.status.code(), fs::read(&real).unwrap()), (Some(1), b"old".to_vec()));
    assert_eq!(place.run(&["--quiet", &link, &place.src]).status.code(), Some(0));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(run(&["check", &real]).status.code(), Some(0));
    // The same input gives the same image, with another number of threads, too.
    place.makes(&["-zzstd", "--workers=1"]);
    let one = fs::read(&place.image).unwrap();
    place.makes(&["-zzstd", "--workers=5"]);
    assert!(one == fs::read(&place.image).unwrap());
}

#[test]
fn block_devices_are_written() {
    let place = Place::new();
    let (disk, small) = (place.scratch.path("disk"), place.scratch.path("small"));
    fs::write(&disk, vec![0xE5; 4 << 20]).unwrap();
    fs::write(&small, vec![0xE5; 64 << 10]).unwrap();
    let (true, Some(disk), Some(small)) = (geteuid().is_root(), LoopDevice::new(&disk), LoopDevice::new(&small)) else {
        return skip("block devices need root and loop devices");
    };
    let output = place.run(&["-zlz4", &disk.0, &place.src]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(run(&["check", &disk.0]).status.code(), Some(0));
    assert_eq!(run(&["diff", &place.src, &disk.0]).status.code(), Some(0));
    let output = place.run(&[&small.0, &place.src]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the device 65536"), "{}", stderr(&output));
    assert!(fs::read(&small.0).unwrap().iter().all(|&b| b == 0xE5), "nothing is written");
    // A mounted device is not touched.
    let dir = place.scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    let mounted = kiln().args(["mount", "--via", "kernel", &disk.0, &dir]).output().unwrap();
    if !mounted.status.success() {
        return skip("the kernel does not mount EROFS");
    }
    assert!(fs::read(format!("{dir}/text")).unwrap() == text(1, 300_000));
    let output = place.run(&[&disk.0, &place.src]);
    stdout(&["umount", &dir]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("busy"), "{}", stderr(&output));
}

#[test]
fn an_image_goes_to_standard_output_and_links_stay() {
    let place = Place::new();
    let said = place.makes(&["-Uclear"]);
    let whole = fs::read(&place.image).unwrap();
    let link = place.scratch.path("link");
    symlink("/dev/stdout", &link).unwrap();
    for name in ["/dev/stdout", &link] {
        let output = place.run(&["-Uclear", name, &place.src]);
        assert_eq!((output.status.code(), output.stdout == whole), (Some(0), true), "{}", stderr(&output));
        assert!(said.contains("Build completed") && stderr(&output).contains("Build completed"), "{}", stderr(&output));
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    fs::remove_file(&link).unwrap();
    symlink("image", &link).unwrap();
    fs::write(&place.image, "old").unwrap();
    assert_eq!(place.run(&["-Uclear", &link, &place.src]).status.code(), Some(0));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && fs::read(&place.image).unwrap() == whole);
}

#[test]
fn the_image_is_no_part_of_its_source() {
    let mut place = Place::new();
    place.makes(&[]);
    let whole = fs::read(&place.image).unwrap();
    let dir_time = fs::metadata(&place.src).unwrap().modified().unwrap();
    place.image = format!("{}/image", place.src);
    fs::write(&place.image, "old").unwrap();
    fs::File::open(&place.src).unwrap().set_modified(dir_time).unwrap();
    let output = place.run(&[&place.image, &place.src]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("image is left out, for it is what is being written"), "{}", stderr(&output));
    assert!(fs::read(&place.image).unwrap() == whole);
}
