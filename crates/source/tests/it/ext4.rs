//! Images of ext2, ext3 and ext4 as sources, compared with what the kernel shows.

use crate::common::{GOING, exercise};
use kiln_source::{Scan, ScanOptions, SourceError, SourceOptions, open};
use kiln_tests::generator::{Scale, make};
use kiln_tests::mnt::wait_until;
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tree::{Kind, Tree};
use rustix::fs::{CWD, XattrFlags, setxattr};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a program that a test needs.
fn run(program: &str, args: &[&OsStr]) {
    let output = Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a filesystem of `mib` MiB in `dir`, with the options `options` of mkfs.ext4 and the files
/// below `root`.
fn mkfs(dir: &TempDir, options: &str, mib: u64, root: Option<&Path>) -> PathBuf {
    let image = dir.path().join("image");
    drop(fs::remove_file(&image));
    File::create(&image).unwrap().set_len(mib << 20).unwrap();
    let mut args: Vec<&OsStr> = ["-q", "-F"].iter().map(OsStr::new).collect();
    args.extend(options.split_whitespace().map(OsStr::new));
    if let Some(root) = root {
        args.extend([OsStr::new("-d"), root.as_os_str()]);
    }
    args.push(image.as_os_str());
    run("mkfs.ext4", &args);
    image
}

/// A mounted image, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(dir: &TempDir, image: &Path, options: &str) -> Self {
        let at = dir.path().join("mounted");
        fs::create_dir_all(&at).unwrap();
        run("mount", &[OsStr::new("-o"), OsStr::new(options), image.as_os_str(), at.as_os_str()]);
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A program just started by another test may briefly hold descriptors that this one had
        // open below the mount.
        wait_until(|| Command::new("umount").arg(&self.0).output().is_ok_and(|output| output.status.success()));
    }
}

fn scan(image: &Path) -> Result<Scan, SourceError> {
    open(image, &SourceOptions::default())?.scan(&ScanOptions::new(&GOING))
}

fn tree(image: &Path) -> Tree {
    scan(image).unwrap_or_else(|error| panic!("{error}")).tree
}

/// Returns what the kernel shows of an image.
fn by_kernel(dir: &TempDir, image: &Path) -> Snapshot {
    of_dir(&Mounted::new(dir, image, "loop,ro").0).unwrap()
}

/// Makes files with indirect blocks of all levels (with blocks of 1 KiB), or extents.
fn fill(root: &Path) {
    fs::create_dir_all(root.join("d/e")).unwrap();
    fs::write(root.join("small"), b"in an inode, if these can have contents").unwrap();
    fs::write(root.join("middle"), b"behind the block map of an inode. ".repeat(3)).unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("d/large"), (0..700_000_u32).flat_map(|at| (at / 100).to_le_bytes()).collect::<Vec<_>>())
        .unwrap();
    let sparse = File::create(root.join("d/sparse")).unwrap();
    for off in [0, 11 << 10, 20 << 10, 300 << 10, 5 << 20, 66 << 20, 100 << 20] {
        sparse.write_all_at(&[off as u8 | 1; 1500], off).unwrap();
    }
    sparse.set_len(200 << 20).unwrap();
    for (name, len) in [("short", 10), ("fast", 59), ("slow", 60), ("long", 1000)] {
        symlink("t".repeat(len), root.join(name)).unwrap();
    }
    fs::hard_link(root.join("middle"), root.join("d/e/other")).unwrap();
    (0..30).for_each(|idx| fs::write(root.join(format!("d/e/{idx}-{}", "x".repeat(200))), [idx]).unwrap());
    let _ = setxattr(root.join("small"), "user.note", b"value", XattrFlags::empty());
}

#[test]
fn images_of_all_layouts_are_what_the_kernel_shows() {
    let dir = TempDir::new("ext4").unwrap();
    let root = dir.path().join("tree");
    fs::create_dir(&root).unwrap();
    fill(&root);
    let layouts = [
        "-b 1024",
        "-b 2048",
        "-b 4096",
        "-t ext2 -b 1024",
        "-t ext2 -b 4096 -I 128",
        "-t ext3 -b 1024",
        "-t ext2 -r 0 -b 1024",
        "-b 4096 -O inline_data -I 256",
        "-b 1024 -O inline_data -I 512",
        "-b 4096 -O ^64bit",
        "-b 1024 -O meta_bg,^resize_inode",
        "-b 1024 -O ^flex_bg,^sparse_super,^resize_inode -g 1024",
        "-b 1024 -O meta_bg,^resize_inode,^64bit -g 256",
        "-b 1024 -O sparse_super2,meta_bg,^resize_inode -g 256",
        "-b 4096 -O bigalloc -C 65536",
        "-b 4096 -O ^metadata_csum,^dir_index",
    ];
    for options in layouts {
        let image = mkfs(&dir, options, 48, Some(&root));
        let found = of_tree(&tree(&image)).unwrap();
        assert_same(&by_kernel(&dir, &image), &found, options);
        assert!(found.contains_key(&b"d/e/other"[..]), "{options}");
    }
}

/// Lets the kernel write attributes in all places, ACLs, indexed directories, devices and late
/// times.
fn fill_by_kernel(root: &Path) {
    fill(root);
    let attributes: [(&str, &str, usize); 7] = [
        ("small", "user.a", 10),
        ("small", "trusted.b", 30),
        ("small", "user.large", 3000),
        ("middle", "security.c", 200),
        ("middle", "user.empty", 0),
        ("d", "user.d", 100),
        ("d/e", "user.e", 1000),
    ];
    for (path, name, len) in attributes {
        let value: Vec<u8> = (0..len).map(|at| at as u8).collect();
        setxattr(root.join(path), name, &value, XattrFlags::empty()).unwrap();
    }
    // Version, then tag, permissions and id of each entry: owner, a user, group, mask, others.
    let entries =
        [(1, 7, u32::MAX), (2, 6, 1234), (4, 5, u32::MAX), (8, 4, 70_000), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, allowed, id) in entries {
        acl.extend([u32::from(tag as u16) | (allowed as u32) << 16, id].iter().flat_map(|word| word.to_le_bytes()));
    }
    setxattr(root.join("small"), "system.posix_acl_access", &acl, XattrFlags::empty()).unwrap();
    setxattr(root.join("d"), "system.posix_acl_default", &acl, XattrFlags::empty()).unwrap();
    for idx in 0..2500 {
        File::create(root.join(format!("d/e/a-rather-long-name-of-file-number-{idx}"))).unwrap();
    }
    for idx in 0..40 {
        fs::remove_file(root.join(format!("d/e/a-rather-long-name-of-file-number-{}", idx * 50))).unwrap();
    }
    for (name, major, minor) in [("null", 1, 3), ("wide", 300, 70_000)] {
        let dev = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, root.join(name), rustix::fs::FileType::CharacterDevice, 0o620.into(), dev).unwrap();
    }
    rustix::fs::mkfifoat(CWD, root.join("fifo"), 0o600.into()).unwrap();
    let times = ["1901-12-14", "1969-12-31 23:59:59.5", "2038-01-19 03:14:08.123456789", "2445-01-01"];
    for (idx, time) in times.into_iter().enumerate() {
        let file = root.join(format!("time{idx}"));
        fs::write(&file, b"").unwrap();
        run("touch", &["-d".as_ref(), time.as_ref(), file.as_os_str()]);
    }
    std::os::unix::fs::chown(root.join("time0"), Some(100_000), Some(4_000_000_000)).unwrap();
    let reserved = File::create(root.join("reserved")).unwrap();
    rustix::fs::fallocate(&reserved, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
    reserved.write_all_at(b"written", 300_000).unwrap();
    // So many extents that they form a tree.
    let holes = File::create(root.join("holes")).unwrap();
    (0..1500).for_each(|idx| holes.write_all_at(&[1; 4096], idx * 12288).unwrap());
}

#[test]
fn images_written_by_the_kernel_are_read() {
    let dir = TempDir::new("ext4").unwrap();
    for options in ["-b 4096 -O ea_inode", "-b 1024 -O ^ea_inode -I 128", "-b 2048 -O inline_data,ea_inode -I 512"] {
        let image = mkfs(&dir, options, 64, None);
        {
            let mounted = Mounted::new(&dir, &image, "loop");
            let small = !options.contains("ea_inode") || options.contains("^ea_inode");
            if small {
                fill(&mounted.0);
            } else {
                fill_by_kernel(&mounted.0);
            }
        }
        assert_same(&by_kernel(&dir, &image), &of_tree(&tree(&image)).unwrap(), options);
    }
}

#[test]
fn every_oddity_of_a_tree_is_read() {
    let dir = TempDir::new("ext4").unwrap();
    let image = mkfs(&dir, "-b 4096", 256, None);
    make(&Mounted::new(&dir, &image, "loop").0, 5, Scale::Small).unwrap();
    let found = of_tree(&tree(&image)).unwrap();
    assert!(found.len() > 100);
    assert_same(&by_kernel(&dir, &image), &found, "generated");
}

#[test]
fn holes_stay_holes() {
    let dir = TempDir::new("ext4").unwrap();
    let image = mkfs(&dir, "-b 4096", 64, None);
    fill(&Mounted::new(&dir, &image, "loop").0);
    let tree = tree(&image);
    let id = tree.find([&b"d"[..], b"sparse"]).unwrap();
    let mut content = tree.open(id).unwrap();
    let (mut off, mut data_len) = (0, 0);
    while let Some(run) = content.next_data(off).unwrap() {
        data_len += run.end - run.start;
        off = run.end;
    }
    assert!((7 * 1500..100_000).contains(&data_len), "{data_len} bytes of data");
    assert!(matches!(tree.node(id).kind, Kind::File { sparse: true, len: 209_715_200, .. }));
}

#[test]
fn a_journal_with_changes_is_refused_with_what_to_do() {
    let dir = TempDir::new("ext4").unwrap();
    let image = mkfs(&dir, "-b 4096", 32, None);
    let copy = dir.path().join("copy");
    {
        let mounted = Mounted::new(&dir, &image, "loop");
        fill(&mounted.0);
        File::open(mounted.0.join("small")).unwrap().sync_all().unwrap();
        fs::copy(&image, &copy).unwrap();
    }
    let error = scan(&copy).map(drop).unwrap_err();
    assert!(matches!(error, SourceError::Unsupported { .. }));
    assert!(error.to_string().contains("e2fsck -p"), "{error}");
    // As the message says.
    let status = Command::new("e2fsck").arg("-p").arg(&copy).output().unwrap().status;
    assert!(matches!(status.code(), Some(0 | 1)), "{status}");
    assert_same(&by_kernel(&dir, &copy), &of_tree(&tree(&copy)).unwrap(), "after e2fsck");
}

/// Changes a field of an inode.
fn set_field(image: &Path, path: &str, field: &str, value: &str) {
    let request = format!("set_inode_field {path} {field} {value}");
    run("debugfs", &["-w".as_ref(), "-R".as_ref(), request.as_ref(), image.as_os_str()]);
}

#[test]
fn files_that_cannot_be_read_are_named_and_can_be_left_out() {
    let dir = TempDir::new("ext4").unwrap();
    let root = dir.path().join("tree");
    fs::create_dir(&root).unwrap();
    fill(&root);
    let cases = [
        ("flags", "0x80800", "d/large: it is encrypted (fscrypt)"),
        ("mode", "0170644", "d/large: inode "),
        ("block[0]", "0x1FFFF", "d/large: eh_magic = 0xffff"),
        ("flags", "0", "d/large: "),
        ("file_acl", "4000000", "d/large: 4096 bytes at byte 16384000000 of an image of 50331648"),
    ];
    for (field, value, reason) in cases {
        let image = mkfs(&dir, "-b 4096", 48, Some(&root));
        let mut expected = of_tree(&tree(&image)).unwrap();
        set_field(&image, "d/large", field, value);
        let error = scan(&image).map(drop).expect_err(field).to_string();
        assert!(error.contains(reason) && error.contains("at byte "), "{field}: {error}\nnot {reason}");
        let source = open(&image, &SourceOptions::default()).unwrap();
        let kept = source.scan(&ScanOptions { keep_going: true, ..ScanOptions::new(&GOING) }).unwrap();
        assert_eq!(kept.skipped.len(), 1);
        assert_eq!(kept.skipped[0].path, image.join("d/large"));
        match field {
            // Damaged attributes do not remove the file.
            "file_acl" => expected.get_mut(&b"d/large"[..]).unwrap().xattrs.clear(),
            _ => drop(expected.remove(&b"d/large"[..])),
        }
        assert_same(&expected, &of_tree(&kept.tree).unwrap(), field);
    }
}

#[test]
fn features_that_are_not_read_are_refused() {
    let dir = TempDir::new("ext4").unwrap();
    let image = mkfs(&dir, "-b 4096", 16, None);
    let bytes = fs::read(&image).unwrap();
    for (incompat, reason) in [
        (0x1_u32, "0x1 is not supported"),
        (0x8, "the external journal of an ext4 filesystem"),
        (0x8000_0000, "is not supported"),
    ] {
        let mut other = bytes.clone();
        other[1024 + 0x60..][..4].iter_mut().zip(incompat.to_le_bytes()).for_each(|(byte, bits)| *byte |= bits);
        fs::write(&image, other).unwrap();
        let error = scan(&image).map(drop).unwrap_err();
        assert!(matches!(error, SourceError::Unsupported { .. }) && error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn damage_is_an_error_or_another_tree_but_no_panic() {
    let dir = TempDir::in_memory("ext4").unwrap();
    let root = dir.path().join("tree");
    fs::create_dir(&root).unwrap();
    fill(&root);
    for options in ["-b 1024 -N 64", "-t ext2 -b 1024 -N 64", "-b 1024 -O inline_data -I 256 -N 64"] {
        let image = mkfs(&dir, options, 6, Some(&root));
        let bytes = fs::read(&image).unwrap();
        let file = File::options().write(true).open(&image).unwrap();
        // The superblock, descriptors, inodes and everything else that is not zero.
        let places: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0 && at < 1 << 20).collect();
        let mut rng = Rng::new(7);
        for _ in 0..rounds("KILN_MUTATIONS", 300, 20_000) {
            let hits: Vec<usize> = (0..4).map(|_| places[rng.below(places.len() as u64) as usize]).collect();
            for &at in &hits {
                file.write_all_at(&[rng.below(256) as u8], at as u64).unwrap();
            }
            exercise(&image);
            hits.iter().for_each(|&at| file.write_all_at(&bytes[at..=at], at as u64).unwrap());
        }
        for at in (0..1200).chain((1200..bytes.len()).step_by(100_003)) {
            fs::write(dir.path().join("cut"), &bytes[..at]).unwrap();
            exercise(&dir.path().join("cut"));
        }
    }
}

/// A file that mke2fs copies from a directory: its inode has the flag for inline data, and no data.
#[test]
fn a_file_that_is_one_hole_may_be_in_its_inode() {
    let dir = TempDir::new("ext4").unwrap();
    let root = dir.join("root");
    fs::create_dir(&root).unwrap();
    for (name, len) in [("hole", 1 << 20), ("short", 40), ("inode", 100)] {
        File::create(root.join(name)).unwrap().set_len(len).unwrap();
    }
    let image = mkfs(&dir, "-t ext4 -O inline_data", 32, Some(&root));
    let tree = tree(&image);
    assert_same(&by_kernel(&dir, &image), &of_tree(&tree).unwrap(), "holes");
    let hole = tree.find([&b"hole"[..]]).unwrap();
    assert_eq!(tree.open(hole).unwrap().next_data(0).unwrap(), None, "a hole");
}
