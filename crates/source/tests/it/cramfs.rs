//! cramfs images made by mkfs.cramfs (util-linux) as sources, compared with the packed tree.
//!
//! Small images of one tree are in `tests/cramfs`. With `KILN_BLESS=1` and mkfs.cramfs in the
//! `PATH` the tests make them again with the commands in [`FIXTURES`], together with `tree.txt`,
//! which describes the tree on disk.

use crate::common::{GOING, exercise, read_at_random, text};
use kiln_format::inode::FileType;
use kiln_source::{Scan, ScanOptions, SourceError, SourceOptions, open};
use kiln_tests::damage::Damager;
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tests::{rounds, without};
use kiln_tree::{Kind, Tree};
use rustix::fs::{CWD, FileType as NodeType, Mode};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of images in `tests/cramfs`, and the options of `mkfs.cramfs TREE IMAGE` that made them.
const FIXTURES: [(&str, &[&str]); 3] =
    [("little", &["-N", "little"]), ("big", &["-N", "big", "-z"]), ("padded", &["-N", "little", "-z", "-p"])];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cramfs").join(name)
}

fn image(name: &str) -> Vec<u8> {
    fs::read(fixture(&format!("{name}.cramfs"))).unwrap()
}

fn scan(image: &Path) -> Result<Scan, SourceError> {
    open(image, &SourceOptions::default())?.scan(&ScanOptions::new(&GOING))
}

fn tree(image: &Path) -> Tree {
    scan(image).unwrap_or_else(|error| panic!("{error}")).tree
}

/// Makes an image. Returns `None` if the program is not installed.
fn mkfs(tree: &Path, image: &Path, options: &[&str]) -> Option<()> {
    let output = match Command::new("mkfs.cramfs").args(options).args([tree, image]).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            without("mkfs.cramfs");
            return None;
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "mkfs.cramfs {options:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// Removes what cramfs does not store: times, the upper bits of ids, attributes, hard links, link
/// counts of directories.
fn comparable(mut snapshot: Snapshot) -> Snapshot {
    for (path, record) in &mut snapshot {
        (record.mtime, record.uid, record.gid) = ((0, 0), record.uid & 0xFFFF, record.gid & 0xFF);
        record.nlink = u32::from(record.file_type != FileType::Directory);
        record.xattrs.clear();
        record.first_name.clone_from(path);
    }
    snapshot
}

/// Makes a small tree with everything that the format can hold.
fn make_tree(root: &Path) {
    let (mut rng, at) = (Rng::new(5), |name: &str| root.join(name));
    let lines: String = (0..500).map(|line| format!("line {line} of some text\n")).collect();
    let mut noise = vec![0; 4200];
    rng.fill(&mut noise);
    let holes = [&[0; 8192][..], &lines.as_bytes()[..4096], &[0; 4096], b"end"].concat();
    fs::create_dir_all(at("empty/below")).unwrap();
    fs::create_dir_all(at("deep/er/still")).unwrap();
    let files: [(&str, &[u8]); 11] = [
        ("text", lines.as_bytes()),
        ("the same text", lines.as_bytes()),
        ("block", &lines.as_bytes()[..4096]),
        ("noise", &noise),
        ("holes", &holes),
        ("a hole", &[0; 10_000]),
        ("nothing", b""),
        ("one", b"1"),
        (&"n".repeat(251), b"a long name"),
        (&"nn".repeat(126), b"the longest"),
        ("deep/er/still/four", b"a name of one word"),
    ];
    files.iter().for_each(|(name, data)| fs::write(at(name), data).unwrap());
    symlink("text", at("link")).unwrap();
    symlink("t".repeat(4095), at("deep/long link")).unwrap();
    let nodes = [
        ("char", NodeType::CharacterDevice, (5, 1)),
        ("block device", NodeType::BlockDevice, (8, 0xC12)),
        ("fifo", NodeType::Fifo, (0, 0)),
        ("socket", NodeType::Socket, (0, 0)),
    ];
    for (name, kind, (major, minor)) in nodes {
        let dev = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o620), dev).unwrap();
    }
    chown(at("one"), Some(65_000), Some(200)).unwrap();
    chown(at("empty"), Some(1000), Some(0x1FE)).unwrap();
    fs::set_permissions(at("one"), PermissionsExt::from_mode(0o6751)).unwrap();
    fs::set_permissions(at("deep"), PermissionsExt::from_mode(0o1777)).unwrap();
}

/// Makes the images again.
fn bless() {
    let dir = TempDir::new("cramfs").unwrap();
    let tree = dir.dir("tree");
    make_tree(&tree);
    fs::create_dir_all(fixture("")).unwrap();
    fs::write(fixture("tree.txt"), text(&comparable(of_dir(&tree).unwrap()))).unwrap();
    for (name, options) in FIXTURES {
        mkfs(&tree, &fixture(&format!("{name}.cramfs")), options).unwrap();
    }
}

#[test]
fn images_of_each_form_are_the_tree_they_were_made_of() {
    if std::env::var_os("KILN_BLESS").is_some_and(|bless| bless == "1") {
        bless();
    }
    let expected = fs::read_to_string(fixture("tree.txt")).unwrap();
    assert!(expected.lines().count() > 20);
    for (name, _) in FIXTURES {
        let actual = text(&comparable(of_tree(&tree(&fixture(&format!("{name}.cramfs")))).unwrap()));
        for (expected, actual) in expected.lines().zip(actual.lines()) {
            assert_eq!(expected, actual, "{name}");
        }
        assert_eq!(expected.len(), actual.len(), "{name}");
    }
}

#[test]
fn times_are_zero_and_equal_files_are_not_one() {
    let found = of_tree(&tree(&fixture("little.cramfs"))).unwrap();
    assert!(found.values().all(|record| record.mtime == (0, 0)));
    assert_eq!(found[&b"the same text"[..]].nlink, 1);
}

/// Makes files with lengths around multiples of the block size, some with holes, in a tree of
/// several levels.
fn fill(root: &Path) {
    make_tree(root);
    let mut rng = Rng::new(9);
    for idx in 0..300_usize {
        let dir = root.join(format!("filled/{}/{}", idx % 7, idx % 3));
        fs::create_dir_all(&dir).unwrap();
        let len = (rng.below(40) * 4096 + rng.below(3)).saturating_sub(1) as usize;
        let mut data = vec![0; len];
        for block in data.chunks_mut(4096) {
            match rng.below(4) {
                0 => {}
                1 => rng.fill(block),
                _ => block.fill(rng.below(256) as u8),
            }
        }
        fs::write(dir.join(format!("{idx:0len$}", len = 3 + idx % 200)), data).unwrap();
    }
    // The longest file that an image can have.
    fs::write(root.join("longest"), b"sixteen".repeat((16 << 20) / 7 + 1).split_at((16 << 20) - 1).0).unwrap();
}

#[test]
fn large_trees_are_read_in_each_form() {
    let dir = TempDir::in_memory("cramfs").unwrap();
    let root = dir.dir("tree");
    fill(&root);
    let expected = comparable(of_dir(&root).unwrap());
    assert!(expected.len() > 300);
    for options in [&[][..], &["-z"], &["-N", "big"], &["-N", "big", "-p", "-z", "-n", "a name", "-e", "7"]] {
        let Some(()) = mkfs(&root, &dir.join("image"), options) else { return };
        let found = comparable(of_tree(&tree(&dir.join("image"))).unwrap());
        assert_same(&expected, &found, &format!("{options:?}"));
    }
}

#[test]
fn files_are_read_at_any_offset_and_holes_are_known() {
    for (name, options) in FIXTURES {
        let has_holes = options.contains(&"-z");
        let tree = tree(&fixture(&format!("{name}.cramfs")));
        for path in [&b"text"[..], b"noise", b"holes", b"a hole"] {
            let node = tree.find([path]).unwrap();
            let Kind::File { sparse, .. } = tree.node(node).kind else { panic!("{name}") };
            assert_eq!(sparse, has_holes && path.ends_with(b"hole") | path.ends_with(b"holes"), "{name}");
            read_at_random(&tree, node, name);
        }
        let runs = |path: &[u8], off| tree.open(tree.find([path]).unwrap()).unwrap().next_data(off).unwrap();
        if has_holes {
            assert_eq!(runs(b"holes", 0), Some(8192..12_288), "{name}");
            assert_eq!(runs(b"holes", 9000), Some(9000..12_288), "{name}");
            assert_eq!(runs(b"holes", 12_288), Some(16_384..16_387), "{name}");
            assert_eq!(runs(b"a hole", 0), None, "{name}");
        }
        assert_eq!(runs(b"text", 100), Some(100..runs(b"text", 0).unwrap().end), "{name}");
        assert_eq!(runs(b"nothing", 0), None, "{name}");
    }
}

#[test]
fn an_image_may_begin_anywhere_in_its_file() {
    let dir = TempDir::in_memory("cramfs").unwrap();
    for (name, _) in FIXTURES {
        fs::write(dir.join("disk"), [&[0xA5; 1000][..], &image(name), &[0xA5; 5000]].concat()).unwrap();
        let source = open(&dir.join("disk"), &SourceOptions { offset: 1000, ..SourceOptions::default() }).unwrap();
        let found = of_tree(&source.scan(&ScanOptions::new(&GOING)).unwrap().tree).unwrap();
        assert_same(&of_tree(&tree(&fixture(&format!("{name}.cramfs")))).unwrap(), &found, name);
    }
}

/// Returns the image `name` after a change, without a CRC, so that the scan gets to the changed
/// part.
fn without_crc(name: &str) -> Vec<u8> {
    let mut bytes = image(name);
    let (off, byte) = match name {
        "little" => (0, 8),
        "big" => (0, 11),
        _ => (512, 8),
    };
    assert_eq!(bytes[off + byte] & 1, 1);
    bytes[off + byte] &= !1;
    bytes
}

/// Returns the error for an image.
fn refusal(bytes: &[u8]) -> SourceError {
    let dir = TempDir::in_memory("cramfs").unwrap();
    fs::write(dir.join("image"), bytes).unwrap();
    scan(&dir.join("image")).map(drop).unwrap_err()
}

#[test]
fn other_and_damaged_images_are_refused_by_name() {
    let change = |at: usize, byte: u8| {
        let mut bytes = image("little");
        assert_ne!(bytes[at], byte);
        bytes[at] = byte;
        refusal(&bytes)
    };
    for (flags, bits) in [(0x8, "0x800 (extended block pointers) are"), (0x2, "0x200 are"), (0x80, "0x8000 are")] {
        let error = change(9, flags);
        assert!(matches!(error, SourceError::Unsupported { .. }) && error.to_string().contains(bits), "{error}");
    }
    assert!(change(20, b'_').to_string().contains("at byte 16: the superblock: signature = \"Comp_essed ROMFS\""));
    assert!(change(6, 0xFF).to_string().contains("at byte 4: the superblock: size = "));
    // Change one byte anywhere.
    for at in [36, 48, 64, 100, 5000] {
        let error = change(at, 0xA7).to_string();
        assert!(error.contains("at byte 32: the superblock: crc = 0x"), "{at}: {error}");
    }
    assert!(refusal(&image("padded")[..5000]).to_string().contains("at byte 516: the superblock: size = "));
    assert!(refusal(&image("big")[..40]).to_string().contains("a superblock of 40 bytes"));
}

#[test]
fn blocks_of_another_length_are_reported() {
    let dir = TempDir::in_memory("cramfs").unwrap();
    make_tree(&dir.dir("tree"));
    let Some(()) = mkfs(&dir.join("tree"), &dir.join("image"), &["-b", "8192"]) else { return };
    let error = scan(&dir.join("image")).map(drop).unwrap_err().to_string();
    assert!(error.contains("its block size is not 4096 bytes"), "{error}");
}

/// Returns the position of the inode of the entry `name` in `bytes`.
fn inode_of(bytes: &[u8], name: &[u8]) -> usize {
    bytes.windows(name.len()).position(|window| window == name).expect("an entry") - 12
}

#[test]
fn directories_have_one_name_and_no_way_back() {
    let plain = without_crc("little");
    let (empty, deep) = (inode_of(&plain, b"empty"), inode_of(&plain, b"deep"));
    // Make `empty` another name of `deep`, and `er`, which is in `deep`, one of the root and of
    // parts of it.
    let mut twice = plain.clone();
    twice.copy_within(deep + 4..deep + 7, empty + 4);
    let offs = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
    let off = offs(&plain, empty) & 0x3F | offs(&plain, deep) & !0x3F;
    twice[empty + 8..empty + 12].copy_from_slice(&off.to_le_bytes());
    let error = refusal(&twice).to_string();
    assert!(error.contains("has several names"), "{error}");
    let mut looped = plain.clone();
    let below = inode_of(&plain, b"er\0\0");
    looped.copy_within(68..71, below + 4);
    let off = offs(&plain, below) & 0x3F | offs(&plain, 64) & !0x3F;
    looped[below + 8..below + 12].copy_from_slice(&off.to_le_bytes());
    let error = refusal(&looped).to_string();
    assert!(error.contains("deep/er: the directory at byte 76 has several names"), "{error}");
    looped[below + 4] -= 4;
    let error = refusal(&looped).to_string();
    assert!(error.contains("overlap a directory at bytes 76 to "), "{error}");
}

#[test]
fn unreadable_entries_can_be_left_out() {
    let plain = without_crc("little");
    let changes: [(&str, usize, u8, &str); 4] = [
        ("text", 1, 0x71, "mode = 0"),
        ("text", 11, 0xFF, "are not within 64 to"),
        ("text", 12, b'/', "not a valid file name"),
        ("link", 5, 0x20, "a symbolic link with a target of "),
    ];
    let dir = TempDir::in_memory("cramfs").unwrap();
    for (name, at, byte, reason) in changes {
        let mut bytes = plain.clone();
        bytes[inode_of(&plain, name.as_bytes()) + at] = byte;
        let error = refusal(&bytes).to_string();
        assert!(error.contains(reason), "{error}");
        fs::write(dir.join("image"), &bytes).unwrap();
        let source = open(&dir.join("image"), &SourceOptions::default()).unwrap();
        let kept = source.scan(&ScanOptions { keep_going: true, ..ScanOptions::new(&GOING) }).unwrap();
        assert_eq!(kept.skipped.len(), 1, "{name} {at}");
        let mut expected = of_tree(&tree(&fixture("little.cramfs"))).unwrap();
        expected.remove(name.as_bytes());
        assert_same(&expected, &of_tree(&kept.tree).unwrap(), name);
    }
}

#[test]
fn damage_is_an_error_or_another_tree_but_no_panic() {
    let dir = TempDir::in_memory("cramfs").unwrap();
    for (name, _) in FIXTURES {
        let plain = without_crc(name);
        let other = without_crc(if name == "big" { "little" } else { "big" });
        let start = if name == "padded" { 512 } else { 0 };
        let mut damager = Damager::new(7, vec![start..start + 2600, start + 64..start + 200], 4);
        for _ in 0..rounds("KILN_MUTATIONS", 1500, 100_000) {
            let mut bytes = plain.clone();
            damager.damage(&mut bytes, &other);
            fs::write(dir.join("image"), &bytes).unwrap();
            exercise(&dir.join("image"));
        }
        for len in (0..700).chain((700..plain.len()).step_by(97)) {
            fs::write(dir.join("image"), &plain[..len]).unwrap();
            exercise(&dir.join("image"));
        }
    }
}
