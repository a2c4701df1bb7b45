//! SquashFS images made by mksquashfs as sources, compared with what the kernel reads.
//!
//! Small images of one tree, with each compressor, are in `tests/squashfs`. With `KILN_BLESS=1` and
//! mksquashfs in the `PATH` the tests make them again with the commands in [`FIXTURES`], together
//! with `tree.txt`, which describes the tree on disk.

use crate::common::{GOING, read_at_random, text};
use kiln_format::inode::FileType;
use kiln_source::{ScanOptions, SourceError, SourceOptions, open};
use kiln_tests::damage::Damager;
use kiln_tests::generator::{Scale, make};
use kiln_tests::mnt::Mount;
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tests::{has_mksquashfs, require, rounds};
use kiln_tree::{Kind, NodeId, Tree};
use rustix::fs::{AtFlags, CWD, FileType as NodeType, Mode, Timespec, Timestamps, XattrFlags};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Names of images in `tests/squashfs`, and the options of `mksquashfs TREE IMAGE -b 4096
/// -mkfs-time 0 -noappend` that made them.
const FIXTURES: [(&str, &[&str]); 7] = [
    ("gzip", &["-comp", "gzip"]),
    ("lzo", &["-comp", "lzo"]),
    ("lzma", &["-comp", "lzma"]),
    ("xz", &["-comp", "xz", "-Xbcj", "x86,arm"]),
    ("lz4", &["-comp", "lz4", "-Xhc"]),
    ("zstd", &["-comp", "zstd", "-tailends"]),
    ("plain", &["-comp", "gzip", "-noI", "-noId", "-noD", "-noF", "-noX"]),
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/squashfs").join(name)
}

fn scan(image: &Path, offset: u64) -> Result<Tree, SourceError> {
    let source = open(image, &SourceOptions { offset, ..SourceOptions::default() })?;
    source.scan(&ScanOptions::new(&GOING)).map(|scan| scan.tree)
}

/// Makes an image. Returns `None` if the program is not installed.
fn mksquashfs(tree: &Path, image: &Path, options: &[&str]) -> Option<()> {
    if !has_mksquashfs() {
        return None;
    }
    let quiet = ["-mkfs-time", "0", "-noappend", "-no-progress", "-quiet", "-processors", "2"];
    let output = Command::new("mksquashfs").arg(tree).arg(image).args(quiet).args(options).output();
    let output = output.unwrap();
    assert!(output.status.success(), "mksquashfs {options:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// Removes what SquashFS does not store: fractions of seconds. Link counts of directories depend on
/// the filesystem.
fn comparable(mut snapshot: Snapshot) -> Snapshot {
    for record in snapshot.values_mut() {
        record.mtime.1 = 0;
        if record.file_type == FileType::Directory {
            record.nlink = 0;
        }
    }
    snapshot
}

/// Makes a small tree with everything that the format can hold.
fn make_tree(root: &Path) {
    let (mut rng, at) = (Rng::new(5), |name: &str| root.join(name));
    let lines: String = (0..400).map(|line| format!("line {line} of some text\n")).collect();
    let mut noise = vec![0; 5000];
    rng.fill(&mut noise);
    fs::create_dir_all(at("empty/below")).unwrap();
    fs::create_dir(at("many")).unwrap();
    let files: [(&str, &[u8]); 8] = [
        ("text", lines.as_bytes()),
        ("block", &lines.as_bytes()[..4096]),
        ("noise", &noise),
        ("nothing", b""),
        ("small", b"one"),
        ("small too", b"another one"),
        (&"n".repeat(255), b"a long name"),
        ("many/0", b"of many names"),
    ];
    files.iter().for_each(|(name, data)| fs::write(at(name), data).unwrap());
    (1..400).for_each(|name| fs::hard_link(at("many/0"), at(&format!("many/{name}"))).unwrap());
    let sparse = File::create(at("sparse")).unwrap();
    sparse.write_all_at(b"data", 40_000).unwrap();
    sparse.write_all_at(lines.as_bytes(), 60_000).unwrap();
    sparse.set_len(90_000).unwrap();
    symlink("text", at("link")).unwrap();
    fs::hard_link(at("link"), at("link too")).unwrap();
    symlink("t".repeat(2000), at("long link")).unwrap();
    let nodes = [
        ("char", NodeType::CharacterDevice, (5, 1)),
        ("block device", NodeType::BlockDevice, (259, 70_000)),
        ("fifo", NodeType::Fifo, (0, 0)),
        ("socket", NodeType::Socket, (0, 0)),
    ];
    for (name, kind, (major, minor)) in nodes {
        rustix::fs::mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o620), rustix::fs::makedev(major, minor))
            .unwrap();
    }
    let value = "a value that several files have, which is stored once ".repeat(3);
    for name in ["text", "noise", "empty", "many", "link", "char", "fifo"] {
        let set = |xattr: &str, value: &[u8]| {
            rustix::fs::lsetxattr(at(name), xattr, value, XattrFlags::empty()).unwrap();
        };
        set("trusted.shared", value.as_bytes());
        set("security.own", name.as_bytes());
        if ["text", "empty"].contains(&name) {
            set("user.none", b"");
            set("user.shared", value.as_bytes());
        }
    }
    std::os::unix::fs::chown(at("small"), Some(70_000), Some(4_000_000_000)).unwrap();
    fs::set_permissions(at("small"), std::os::unix::fs::PermissionsExt::from_mode(0o4751)).unwrap();
    let set_mtime = |path: &Path, secs: i64| {
        let time = Timespec { tv_sec: secs, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    let names: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.iter().for_each(|path| set_mtime(path, 1_000_000_000));
    set_mtime(&at("small"), (1 << 31) + 5);
    set_mtime(&at("small too"), 0);
    set_mtime(&at("many/0"), u32::MAX.into());
    [at("empty/below"), root.to_owned()].iter().for_each(|path| set_mtime(path, 1_234_567_890));
}

/// Makes the images again.
fn bless() {
    let dir = TempDir::new("squashfs").unwrap();
    let tree = dir.dir("tree");
    make_tree(&tree);
    fs::create_dir_all(fixture("")).unwrap();
    fs::write(fixture("tree.txt"), text(&comparable(of_dir(&tree).unwrap()))).unwrap();
    for (name, options) in FIXTURES {
        let options = [&["-b", "4096"], options].concat();
        mksquashfs(&tree, &fixture(&format!("{name}.squashfs")), &options).unwrap();
    }
}

#[test]
fn images_of_each_compressor_are_the_tree_they_were_made_of() {
    if std::env::var_os("KILN_BLESS").is_some_and(|bless| bless == "1") {
        bless();
    }
    let expected = fs::read_to_string(fixture("tree.txt")).unwrap();
    assert!(expected.lines().count() > 400);
    for (name, _) in FIXTURES {
        let tree = scan(&fixture(&format!("{name}.squashfs")), 0).unwrap_or_else(|error| panic!("{error}"));
        let actual = text(&comparable(of_tree(&tree).unwrap()));
        for (expected, actual) in expected.lines().zip(actual.lines()) {
            assert_eq!(expected, actual, "{name}");
        }
        assert_eq!(expected.len(), actual.len(), "{name}");
    }
}

#[test]
fn files_are_read_at_any_offset_and_holes_are_known() {
    for (name, _) in FIXTURES {
        let tree = scan(&fixture(&format!("{name}.squashfs")), 0).unwrap();
        for path in [&b"text"[..], b"sparse", b"noise"] {
            let node = tree.find([path]).unwrap();
            let Kind::File { sparse, .. } = tree.node(node).kind else { panic!("{name}") };
            assert_eq!(sparse, path == b"sparse", "{name}");
            read_at_random(&tree, node, name);
        }
        let mut content = tree.open(tree.find([&b"sparse"[..]]).unwrap()).unwrap();
        let (mut off, mut runs) = (0, Vec::new());
        while let Some(run) = content.next_data(off).unwrap() {
            off = run.end;
            runs.push(run);
        }
        assert_eq!((runs.len(), runs[0].clone()), (2, 36_864..40_960), "{name}: {runs:?}");
        assert_eq!(runs[1], 57_344..69_632, "{name}");
        assert_eq!(content.next_data(50_000).unwrap(), Some(runs[1].clone()), "{name}");
        assert_eq!(content.next_data(65_000).unwrap(), Some(65_000..runs[1].end), "{name}");
    }
}

#[test]
fn contents_do_not_depend_on_the_memory_for_them() {
    let image = fixture("zstd.squashfs");
    let expected = of_tree(&scan(&image, 0).unwrap()).unwrap();
    for cache_bytes in [0, 4096, 1 << 40] {
        let options = SourceOptions { cache_bytes: Some(cache_bytes), ..SourceOptions::default() };
        let scan = open(&image, &options).unwrap().scan(&ScanOptions::new(&GOING)).unwrap();
        assert_same(&expected, &of_tree(&scan.tree).unwrap(), &format!("{cache_bytes} bytes"));
    }
}

#[test]
fn an_image_may_begin_anywhere_in_its_file() {
    let dir = TempDir::new("squashfs").unwrap();
    let inner = fs::read(fixture("zstd.squashfs")).unwrap();
    fs::write(dir.join("disk"), [&[0xA5; 1000][..], &inner, &[0xA5; 5000]].concat()).unwrap();
    let expected = of_tree(&scan(&fixture("zstd.squashfs"), 0).unwrap()).unwrap();
    assert_same(&expected, &of_tree(&scan(&dir.join("disk"), 1000).unwrap()).unwrap(), "inner");
}

#[test]
fn the_kernel_reads_the_same() {
    let dir = TempDir::new("squashfs").unwrap();
    let tree = dir.dir("tree");
    let left_out = make(&tree, 3, Scale::Small).unwrap();
    assert!(left_out.is_empty(), "{left_out:?}");
    // The kernel does not decode lzma; the result must equal what it reads from the gzip image.
    let choices: [&[&str]; 9] = [
        &["-comp", "gzip", "-Xcompression-level", "1", "-b", "4096"],
        &["-comp", "lzma"],
        &["-comp", "lzo", "-b", "8192"],
        &["-comp", "lzo", "-Xalgorithm", "lzo1x_1"],
        &["-comp", "xz", "-Xdict-size", "50%"],
        &["-comp", "lz4", "-b", "1M"],
        &["-comp", "zstd", "-tailends", "-b", "64k"],
        &["-comp", "zstd", "-no-fragments", "-no-duplicates"],
        &["-comp", "gzip", "-noI", "-noId", "-noD", "-noF", "-noX", "-b", "64k"],
    ];
    let mut first: Option<Snapshot> = None;
    for options in choices {
        let image = dir.join("image");
        let Some(()) = mksquashfs(&tree, &image, options) else { return };
        let ours = comparable(of_tree(&scan(&image, 0).unwrap_or_else(|error| panic!("{error}"))).unwrap());
        let what = format!("{options:?}");
        if !options.contains(&"lzma") {
            let mount = require!(Mount::by_loop_as(&image, "squashfs"));
            assert_same(&comparable(of_dir(mount.path()).unwrap()), &ours, &what);
        }
        assert_same(first.get_or_insert_with(|| ours.clone()), &ours, &what);
    }
}

#[test]
fn programs_compressed_with_filters_of_xz_are_read() {
    let dir = TempDir::in_memory("squashfs").unwrap();
    let (tree, mut program) = (dir.dir("tree"), vec![0; 1 << 20]);
    File::open(std::env::current_exe().unwrap()).unwrap().read_exact_at(&mut program, 4 << 20).unwrap();
    fs::write(tree.join("program"), program).unwrap();
    let expected = comparable(of_dir(&tree).unwrap());
    // The kernel may lack filters. A filter for another processor is used if it compresses better,
    // and mksquashfs tries all.
    for filters in ["x86", "powerpc", "ia64", "arm", "armthumb", "sparc", "x86,powerpc,ia64,arm,armthumb,sparc"] {
        let image = dir.join("image");
        let Some(()) = mksquashfs(&tree, &image, &["-comp", "xz", "-Xbcj", filters]) else { return };
        assert_same(&expected, &comparable(of_tree(&scan(&image, 0).unwrap()).unwrap()), filters);
        // The second byte of a block's header is the number of filters less one; LZMA2 is one of
        // them.
        let is_filtered = |stream: &[u8]| stream.starts_with(b"\xFD7zXZ\0") && stream[13] & 3 == 1;
        let uses_filters = fs::read(&image).unwrap().windows(14).any(is_filtered);
        assert!(uses_filters || !cfg!(target_arch = "x86_64") || !filters.contains("x86"), "{filters}");
    }
}

#[test]
fn a_directory_with_thousands_of_entries_is_read_whole() {
    let dir = TempDir::in_memory("squashfs").unwrap();
    let tree = dir.dir("tree");
    // Names of each length; a listing far longer than 64 KiB, with an index.
    for idx in 0..5000 {
        fs::write(tree.join(format!("{idx:0len$}", len = 4 + idx % 250)), idx.to_string()).unwrap();
    }
    let Some(()) = mksquashfs(&tree, &dir.join("image"), &["-comp", "zstd", "-b", "4096"]) else { return };
    let scanned = scan(&dir.join("image"), 0).unwrap();
    assert_eq!(scanned.entries(NodeId::ROOT).len(), 5000);
    assert_same(&comparable(of_dir(&tree).unwrap()), &comparable(of_tree(&scanned).unwrap()), "names");
}

/// Returns the error for the uncompressed image after a change.
fn refusal(dir: &TempDir, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = fs::read(fixture("plain.squashfs")).unwrap();
    change(&mut bytes);
    let path = dir.join("image");
    fs::write(&path, bytes).unwrap();
    scan(&path, 0).map(drop).unwrap_err().to_string()
}

#[test]
fn other_images_are_refused_by_name() {
    let dir = TempDir::in_memory("squashfs").unwrap();
    let old = refusal(&dir, |bytes| (bytes[28], bytes[30]) = (3, 1));
    assert!(old.contains("SquashFS version 3.1, little endian") && old.contains("unsquashfs"), "{old}");
    let big = refusal(&dir, |bytes| {
        bytes[..4].copy_from_slice(b"sqsh");
        bytes[28..32].copy_from_slice(&[0, 2, 0, 1]);
    });
    assert!(big.contains("SquashFS version 2.1, big endian"), "{big}");
    assert!(refusal(&dir, |bytes| bytes[20] = 9).contains("compressor 9"));
    assert!(refusal(&dir, |bytes| bytes.truncate(5000)).contains("at byte 40: bytes_used = "));
    assert!(refusal(&dir, |bytes| bytes.truncate(50)).contains("a superblock of 50 bytes instead of 96"));
}

/// Returns the position of the listing entry of `name` in the uncompressed image.
fn entry_of(bytes: &[u8], name: &[u8]) -> usize {
    let is_entry = |at: &usize| {
        bytes[at + 8..].starts_with(name) && bytes[at + 6..at + 8] == (name.len() as u16 - 1).to_le_bytes()
    };
    (96..bytes.len() - 8 - name.len()).find(is_entry).expect("an entry")
}

#[test]
fn directories_have_one_name() {
    let dir = TempDir::in_memory("squashfs").unwrap();
    // Make `many` another name of `empty`, and `below` one of the root, which then contains itself.
    let twice = refusal(&dir, |bytes| {
        let (from, to) = (entry_of(bytes, b"empty"), entry_of(bytes, b"many"));
        bytes.copy_within(from..from + 6, to);
    });
    assert!(twice.contains("a second name of a directory"), "{twice}");
    let looped = refusal(&dir, |bytes| {
        let root = u64::from_le_bytes(bytes[32..40].try_into().unwrap());
        let at = entry_of(bytes, b"below");
        bytes[at..at + 2].copy_from_slice(&(root as u16).to_le_bytes());
        bytes[at - 8..at - 4].copy_from_slice(&((root >> 16) as u32).to_le_bytes());
    });
    assert!(looped.contains("a second name of a directory"), "{looped}");
}

#[test]
fn errors_name_the_file_and_the_place() {
    let dir = TempDir::in_memory("squashfs").unwrap();
    let inode = refusal(&dir, |bytes| {
        let at = entry_of(bytes, b"below");
        bytes[at..at + 2].copy_from_slice(&0xFFFF_u16.to_le_bytes());
    });
    assert!(inode.contains("empty/below: a reference to byte 65535 of a metadata block"), "{inode}");
}

#[test]
fn damaged_images_give_trees_or_errors() {
    let dir = TempDir::in_memory("squashfs").unwrap();
    let path = dir.join("image");
    let (mut trees, mut errors, mut whole) = (0, 0, 0);
    for (seed, (name, _)) in FIXTURES.iter().enumerate() {
        let bytes = fs::read(fixture(&format!("{name}.squashfs"))).unwrap();
        let table = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let used = table(40);
        // The superblock, then inodes and all that follows.
        let mut damager = Damager::new(seed as u64, vec![0..96, table(64)..used, table(64)..used], 4096);
        let count = if *name == "plain" { 8 } else { 1 } * rounds("KILN_MUTATIONS", 60, 3000);
        for _ in 0..count {
            let mut damaged = bytes.clone();
            let what = damager.damage(&mut damaged, &bytes);
            fs::write(&path, damaged).unwrap();
            match scan(&path, 0) {
                Ok(tree) => {
                    trees += 1;
                    whole += u32::from(of_tree(&tree).is_ok());
                }
                Err(SourceError::Unreadable(error)) => panic!("{name}: {what}: {error}"),
                Err(_) => errors += 1,
            }
        }
    }
    assert!(trees > 20 && errors > 100 && whole > 10, "{trees} trees, {whole} of them whole, {errors} errors");
}

#[test]
fn an_interruption_is_one() {
    let source = open(&fixture("gzip.squashfs"), &SourceOptions::default()).unwrap();
    assert!(matches!(source.scan(&ScanOptions::new(&AtomicBool::new(true))), Err(SourceError::Interrupted)));
}
