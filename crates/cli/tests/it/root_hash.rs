//! `--root-hash`: commands verify what they read.

use crate::common::{Scratch, fails, golden, json, number, run, skip, stderr, stdout, text};
use crate::mount::{Place, has_fuse};
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Commands that read an image, with the options that have the root hash. `OUT` is a name that does not exist.
const READERS: [&[&str]; 15] = [
    &["cat", "IMAGE", "/text"],
    &["check", "IMAGE"],
    &["convert", "IMAGE", "OUT.tar"],
    &["convert", "IMAGE", "OUT.erofs"],
    &["du", "IMAGE"],
    &["explain", "IMAGE", "/text"],
    &["export", "IMAGE", "OUT.tar"],
    &["extract", "IMAGE", "OUT"],
    &["info", "IMAGE"],
    &["log", "IMAGE"],
    &["ls", "-R", "IMAGE"],
    &["pack", "IMAGE", "OUT"],
    &["pack", "--estimate", "IMAGE"],
    &["stat", "IMAGE", "/text"],
    &["tree", "IMAGE"],
];

/// An image with its hash tree behind it.
struct Sealed {
    scratch: Scratch,
    image: String,
    root_hash: String,
    /// File with the root hash.
    file: String,
}

/// Packs a text, noise and an empty directory, and appends a hash tree.
fn sealed(options: &[&str]) -> Sealed {
    let scratch = Scratch::new();
    let (src, image, file) = (scratch.path("src"), scratch.path("image.erofs"), scratch.path("image.roothash"));
    fs::create_dir_all(format!("{src}/dir")).unwrap();
    fs::write(format!("{src}/text"), text(1, 600_000)).unwrap();
    let mut noise = vec![0; 700_000];
    Rng::new(1).fill(&mut noise);
    fs::write(format!("{src}/noise"), noise).unwrap();
    stdout(&[&["pack", "--quiet"], options, &[&src, &image]].concat());
    let root_hash = format(&image, &["--root-hash-file", &file]);
    Sealed { scratch, image, root_hash, file }
}

/// Makes a hash tree, and returns the root hash.
fn format(image: &str, options: &[&str]) -> String {
    let told = stdout(&[&["verity", "format", "--quiet", image], options].concat());
    String::from_utf8(told).unwrap().trim().to_owned()
}

impl Sealed {
    /// Returns the arguments of a command with these options, whose output does not exist.
    fn args(&self, command: &[&str], options: &[&str]) -> Vec<String> {
        for name in ["out", "out.tar", "out.erofs"] {
            let path = self.scratch.path(name);
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
        let out = self.scratch.path("out");
        let word = |word: &&str| word.replace("IMAGE", &self.image).replace("OUT", &out);
        let words = [&command[..1], options, &command[1..]].concat();
        words.iter().map(word).collect()
    }

    fn flip(&self, at: u64) {
        flip(&self.image, at);
    }
}

/// Flips a bit of a file.
fn flip(path: &str, at: u64) {
    let (file, mut byte) = (File::options().read(true).write(true).open(path).unwrap(), [0]);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn every_reading_command_verifies() {
    let sealed = sealed(&[]);
    let wrong = "5a".repeat(32);
    for command in READERS {
        for right in [&sealed.root_hash, &sealed.file] {
            let args = sealed.args(command, &["--root-hash", right]);
            let output = run(&args);
            assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        }
        let args = sealed.args(command, &["--root-hash", &wrong]);
        let output = run(&args);
        assert!(!output.status.success(), "{args:?}");
        let message = stderr(&output);
        assert!(message.contains("wrong digest") && message.contains(&wrong), "{args:?}: {message}");
        assert!(!Path::new(&sealed.scratch.path("out")).exists(), "{args:?}");
    }
    let other = golden("lz4.erofs");
    for (option, a, b) in [("--root-hash-a", &sealed.image, &other), ("--root-hash-b", &other, &sealed.image)] {
        assert_eq!(run(&["diff", "-q", option, &sealed.file, a, b]).status.code(), Some(1));
        fails(&["diff", "-q", option, &wrong, a, b], 2, "wrong digest");
    }
}

#[test]
fn a_wrong_superblock_is_not_parsed() {
    let sealed = sealed(&[]);
    // The kind of the image is looked for in its first bytes.
    sealed.flip(1024 + 16);
    for command in READERS {
        let args = sealed.args(command, &["--root-hash", &sealed.file]);
        let output = run(&args);
        assert!(!output.status.success(), "{args:?}");
        assert!(stderr(&output).contains("data block at byte 0: wrong digest"), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn trees_are_found_beside_images_and_at_offsets() {
    let sealed = sealed(&[]);
    let (image, tree) = (sealed.scratch.path("plain.erofs"), sealed.scratch.path("tree"));
    stdout(&["pack", "--quiet", &sealed.scratch.path("src"), &image]);
    let root_hash = format(&image, &[&tree, "--salt", "content"]);
    let cat = |options: &[&str]| stdout(&[&["cat", &image, "/text", "--root-hash", &root_hash], options].concat());
    fails(&["cat", &image, "/text", "--root-hash", &root_hash], 1, "no hash tree, neither behind nor beside it");
    fails(&["cat", &image, "/text", "--hash-tree", &tree], 2, "--root-hash");
    assert!(cat(&["--hash-tree", &tree]) == text(1, 600_000));
    fs::copy(&tree, format!("{image}.verity")).unwrap();
    assert!(cat(&[]) == text(1, 600_000));
    // The image and its tree inside another file.
    for offset in [512, 4096, 1_000_000] {
        let disk = sealed.scratch.path("disk");
        fs::write(&disk, [vec![7; offset], fs::read(&sealed.image).unwrap()].concat()).unwrap();
        let offset = offset.to_string();
        let args = ["--offset", &offset, "--root-hash", &sealed.file];
        assert!(stdout(&[&["cat", &disk, "/text"], &args[..]].concat()) == text(1, 600_000));
        stdout(&[&["check", &disk], &args[..]].concat());
    }
}

#[test]
fn each_device_has_a_root_hash() {
    let scratch = Scratch::new();
    let (image, blob) = (scratch.path("image"), scratch.path("blob"));
    fs::copy(golden("blobdev.erofs"), &image).unwrap();
    fs::copy(golden("blobdev.blob"), &blob).unwrap();
    // Exit code 3: a tar archive has no sockets.
    let plain = run(&["export", &image, "--device", &blob, "-"]).stdout;
    let trees = [&image, &blob].map(|path| format!("{path}.tree"));
    let hashes = [format(&image, &[&trees[0]]), format(&blob, &[])].join(",");
    let device = ["--device", &blob[..], "--hash-tree", &trees[0], "--root-hash"];
    let with = |hashes: &str, command: &[&str]| run(&[command, &device, &[hashes]].concat());
    let export = ["export", &image, "-"];
    assert!(with(&hashes, &export).stdout == plain, "{}", stderr(&with(&hashes, &export)));
    assert_eq!(with(&hashes, &["check", &image]).status.code(), Some(0));
    let (first, second) = hashes.split_once(',').unwrap();
    let message = "1 root hash and 1 hash tree for an image and 1 extra device: 2 root hashes are needed";
    fails(&[&export, &device[..], &[first]].concat(), 2, message);
    fails(&[&export, &device[..], &[&[second, first].join(",")[..]]].concat(), 1, "wrong digest");
    flip(&blob, 0);
    assert!(!with(&hashes, &export).status.success());
    let checked = with(&hashes, &["check", "--json", &image]);
    assert_eq!(checked.status.code(), Some(4));
    let told = json(&checked.stdout);
    assert_eq!((number(&told["verified"][0], "problem_count"), number(&told["verified"][1], "problem_count")), (0, 1));
    assert_eq!(crate::json::undocumented(&told), [""; 0]);
}

#[test]
fn lies_about_lengths_are_found() {
    let sealed = sealed(&["--preset", "plain"]);
    let good = fs::read(&sealed.image).unwrap();
    let shown = json(&stdout(&["verity", "show", "--json", &sealed.image]));
    let hash_off = number(&shown, "hash_offset") as usize;
    let check = |bytes: &[u8], code: i32, words: &str| {
        fs::write(&sealed.image, bytes).unwrap();
        fails(&["check", &sealed.image, "--root-hash", &sealed.file], code, words);
        fails(&["cat", &sealed.image, "/text", "--root-hash", &sealed.file], 1, words);
    };
    check(&good[..good.len() - 4096], 4, "it was cut");
    check(&good[..hash_off], 8, "no hash tree");
    let mut lie = good.clone();
    lie[hash_off + 72] ^= 1; // one data block less or more
    check(&lie, 4, "");
    let mut lie = good.clone();
    lie[hash_off + 12] = 0; // the hash type
    check(&lie, 4, "hash_type");
    fs::write(&sealed.image, &good).unwrap();
    fails(&["ls", &sealed.image, "--root-hash", &"5a".repeat(64)], 1, "root hash has 64 bytes");

    // The tree covers the front of the image alone, without its metadata.
    let (front, tree) = (sealed.scratch.path("front"), sealed.scratch.path("tree"));
    fs::write(&front, &good[..hash_off - 8 * 4096]).unwrap();
    let root_hash = format(&front, &[&tree]);
    fs::write(&sealed.image, &good[..hash_off]).unwrap();
    let args = ["--root-hash", &root_hash, "--hash-tree", &tree];
    fails(&[&["ls", "-R", &sealed.image], &args[..]].concat(), 1, "is the image cut off?");
    fails(&[&["check", &sealed.image], &args[..]].concat(), 4, "its superblock counts");
}

#[test]
fn every_flipped_bit_is_found_by_a_check() {
    let flips = rounds("KILN_FLIPS", 300, 3000);
    for (seed, options) in [&["--preset", "plain"][..], &[], &["--preset", "fast"]].into_iter().enumerate() {
        let sealed = sealed(options);
        let len = fs::metadata(&sealed.image).unwrap().len();
        let hash_off = number(&json(&stdout(&["verity", "show", "--json", &sealed.image])), "hash_offset");
        let mut rng = Rng::new(seed as u64);
        let file = File::options().read(true).write(true).open(&sealed.image).unwrap();
        for _ in 0..flips / 3 {
            // Half of them in the tree, which is short.
            let at = if rng.below(2) == 0 { rng.below(hash_off) } else { hash_off + rng.below(len - hash_off) };
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << rng.below(8)], at).unwrap();
            let code = run(&["check", &sealed.image, "--root-hash", &sealed.root_hash]).status.code();
            // 8: there is no tree any more.
            assert!(matches!(code, Some(4 | 8)), "byte {at} of {len}, tree from {hash_off}: {code:?}");
            file.write_all_at(&byte, at).unwrap();
        }
        stdout(&["check", &sealed.image, "--root-hash", &sealed.root_hash]);
    }
}

#[test]
fn a_check_says_what_it_has_compared() {
    let sealed = sealed(&[]);
    let told = stderr(&run(&["check", &sealed.image, "--root-hash", &sealed.file]));
    assert!(told.contains("compared with the root hash: 0 problems"), "{told}");
    assert!(told.contains("all of it is what the root hash names"), "{told}");
    let document = json(&stdout(&["check", "--json", &sealed.image, "--root-hash", &sealed.file]));
    assert_eq!(number(&document, "problem_count"), 0);
    assert_eq!(number(&document["verified"][0], "problem_count"), 0);
    assert_eq!(crate::json::undocumented(&document), [""; 0]);
    assert!(json(&stdout(&["check", "--json", &sealed.image])).get("verified").is_none());
}

#[test]
fn of_several_sources_none_has_the_root_hash() {
    let sealed = sealed(&[]);
    let (src, out) = (sealed.scratch.path("src"), sealed.scratch.path("out"));
    let words = "--root-hash: of several sources it is not clear which has it";
    fails(&["pack", &src, &sealed.image, "-o", &out, "--root-hash", &sealed.file], 2, words);
    let words = "a root hash is for an image or an archive in a file or on a block device";
    fails(&["pack", &src, &out, "--root-hash", &sealed.file], 2, words);
    // An archive may have a tree, too.
    let tar = sealed.scratch.path("a.tar");
    stdout(&["export", "--quiet", &sealed.image, &tar]);
    let root_hash = format(&tar, &[]);
    stdout(&["pack", "--quiet", &tar, &out, "--root-hash", &root_hash]);
    flip(&tar, 600_000);
    fails(&["pack", "--quiet", "--force", &tar, &out, "--root-hash", &root_hash], 1, "wrong digest");
}

#[test]
fn a_mount_gives_errors_and_no_wrong_byte() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let sealed = sealed(&["--preset", "plain"]);
    let (dir, log) = (sealed.scratch.path("mnt"), sealed.scratch.path("log"));
    fs::create_dir(&dir).unwrap();
    let mount = |options: &[&str]| run(&[&["mount"], options, &[&sealed.image, &dir]].concat());
    let wrong = "5a".repeat(32);
    for options in [&["--root-hash", &wrong[..]][..], &["--via", "kernel", "--root-hash", &wrong]] {
        let output = mount(options);
        assert!(!output.status.success() && stderr(&output).contains("wrong digest"), "{}", stderr(&output));
    }
    let noise = fs::read(sealed.scratch.path("src/noise")).unwrap();
    let _place = Place(&dir);
    {
        let output = mount(&["--root-hash", &sealed.file, "--log", &log]);
        assert!(stderr(&output).contains("by FUSE"), "{}", stderr(&output));
        assert!(fs::read(format!("{dir}/noise")).unwrap() == noise);
        stdout(&["umount", &dir]);
    }
    // A byte of the noise that lies in a block of its own.
    let image = fs::read(&sealed.image).unwrap();
    let place = image.windows(64).position(|bytes| *bytes == noise[300_000..300_064]).unwrap() as u64;
    sealed.flip(place);
    let output = mount(&["--root-hash", &sealed.file, "--log", &log]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let file = File::open(format!("{dir}/noise")).unwrap();
    let mut errors = 0;
    for (off, expected) in (0..).step_by(4096).zip(noise.chunks(4096)) {
        let mut bytes = vec![0; expected.len()];
        match file.read_exact_at(&mut bytes, off) {
            Ok(()) => assert!(bytes == expected, "byte {off}"),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(5), "EIO");
                errors += 1;
            }
        }
    }
    assert!((1..=64).contains(&errors), "{errors}");
    assert!(fs::read(format!("{dir}/text")).unwrap() == text(1, 600_000));
    drop(file);
    stdout(&["umount", &dir]);
    assert!(fs::read_to_string(&log).unwrap().contains("wrong digest: expected"));

    let output = mount(&["--via", "kernel", "--root-hash", &sealed.file]);
    assert!(stderr(&output).contains("not the image of this root hash: 1 problems"), "{}", stderr(&output));
    sealed.flip(place);
    let output = mount(&["--via", "kernel", "--root-hash", &sealed.file]);
    if !output.status.success() {
        return skip(&stderr(&output));
    }
    assert!(stderr(&output).contains("later changes of the image are not noticed"), "{}", stderr(&output));
    assert!(fs::read(format!("{dir}/noise")).unwrap() == noise);
    stdout(&["umount", &dir]);
}
