//! Rot: damage to stored contents that may leave them decodable. If an image has digests, no command may end with
//! exit code 0 and silently output wrong bytes: a tree or an archive is right, and damage in an image is found by
//! `kiln check`.

use crate::common::trees::{OLD, set_time, write};
use crate::common::{Scratch, json, number, run, stderr, stdout, text};
use kiln_read::{ExtentKind, Image, ImageOptions, Inode, MemorySource, Threads};
use kiln_tests::counted::Counted;
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Options of `kiln pack` other than those about digests.
const LAYOUTS: [&[&str]; 8] = [
    &[],
    &["--preset", "plain"],
    &["--preset", "fast"],
    &["--preset", "dataset"],
    &["--kernel", "6.15"],
    &["--preset", "plain", "--layout", "chunk-size=4k"],
    &["--fragments", "tails", "--dedupe", "files"],
    &["--preset", "archive", "-C", "64k"],
];

/// Makes a tree with contents that are stored in all ways, with times that increments trust.
fn tree(root: &Path, seed: u64) {
    fs::create_dir(root).unwrap();
    let noise = |seed: u64, len: usize| {
        let mut bytes = vec![0; len];
        Rng::new(seed).fill(&mut bytes);
        bytes
    };
    let long = text(seed, 400_000);
    let half = [&long[..200_000], &text(seed + 1, 150_000)].concat();
    let files = [
        ("long", long.clone()),
        ("half", half),
        ("same", long),
        ("noise", noise(seed, 90_000)),
        ("tail", noise(seed + 1, 8192 + 700)),
        ("small", text(seed + 2, 5000)),
        ("smaller", text(seed + 3, 900)),
        ("tiny", noise(seed + 2, 60)),
    ];
    files.into_iter().for_each(|(name, bytes)| write(root.join(name), bytes, OLD));
    let holes = File::create(root.join("holes")).unwrap();
    holes.set_len(600_000).unwrap();
    holes.write_all_at(&text(seed + 4, 70_000), 300_000).unwrap();
    drop(holes);
    fs::hard_link(root.join("small"), root.join("link")).unwrap();
    set_time(&root.join("holes"), OLD);
    write(root.join("late"), "the newest", OLD + 9);
    set_time(root, OLD);
}

/// Returns the ranges of an image in which it stores contents, in bytes.
fn stored(image: &Image) -> Vec<Range<usize>> {
    let root = image.inode(image.root_nid()).unwrap();
    let files = image.walk(&root, b"").map(|entry| entry.unwrap().inode).filter(Inode::is_file);
    let packed = image.superblock().packed_nid.map(|nid| image.inode(nid).unwrap());
    let mut ranges = Vec::new();
    for inode in files.chain(packed) {
        for extent in image.extents(&inode) {
            let extent = extent.unwrap();
            let (start, len) = match extent.kind {
                ExtentKind::Raw { pa, .. } => (pa, extent.llen),
                ExtentKind::Plain { pa, plen, .. } | ExtentKind::Encoded { pa, plen, .. } => (pa, plen.into()),
                ExtentKind::Meta { pa, .. } => (pa, extent.llen),
                _ => continue,
            };
            ranges.push(start as usize..(start + len) as usize);
        }
    }
    ranges
}

/// Number of kinds of damage.
const KINDS: u64 = 16;

/// Damages one of the ranges in a given way, and returns a description.
fn damage(bytes: &mut [u8], ranges: &[Range<usize>], kind: u64, rng: &mut Rng) -> String {
    let range = rng.pick(ranges).clone();
    let at = range.start + rng.below(range.len() as u64) as usize;
    // Damage stays within the range: metadata may follow it.
    let run = |len: usize| at..range.end.min(at + len);
    let mut other = rng.pick(ranges).clone();
    match kind {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = rng.word() as u8,
        2 => bytes[at] = bytes[at].wrapping_add(1),
        3 => bytes[range.start] ^= 0x80,
        4 => bytes[range.end - 1] ^= 1,
        5 => bytes.swap(at, range.start),
        6 => bytes[run(64)].fill(0),
        7 => bytes[run(64)].fill(0xFF),
        8 => rng.fill(&mut bytes[run(200)]),
        9 => bytes[run(512)].fill(0),
        10 => bytes[run(4096)].fill(0),
        11 => bytes[run(4096)].iter_mut().for_each(|byte| *byte |= 4),
        12 => bytes[run(4096)].rotate_right(1),
        13 => bytes[run(4096)].reverse(),
        _ => {
            let len = run(4096).len().min(other.len());
            other.end = other.start + len;
            let (one, two) = (bytes[at..at + len].to_vec(), bytes[other.clone()].to_vec());
            bytes[at..at + len].copy_from_slice(&two);
            if kind == 15 && (other.end <= at || at + len <= other.start) {
                bytes[other].copy_from_slice(&one);
            }
        }
    }
    format!("kind {kind} at byte {at} of {range:?}")
}

/// Trial of commands with a damaged image.
struct Trial<'a> {
    scratch: &'a Scratch,
    /// Description of the damage.
    what: String,
    /// Number of commands that ended with an error.
    refused: u64,
    /// Number of commands that succeeded.
    done: u64,
}

impl Trial<'_> {
    fn path(&self, name: &str) -> String {
        self.scratch.path(name)
    }

    /// Runs a command, and returns whether it succeeded.
    fn run(&mut self, args: &[&str]) -> bool {
        let output = run(args);
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 1 | 3 | 4)), "{}: {args:?}: {}", self.what, stderr(&output));
        let is_done = code == Some(0);
        (self.done, self.refused) = (self.done + u64::from(is_done), self.refused + u64::from(!is_done));
        is_done
    }

    /// Runs a command that makes an image: it has the tree, or `kiln check` finds the damage.
    fn image(&mut self, args: &[&str]) {
        let out = self.path("out.erofs");
        let _ = fs::remove_file(&out);
        if self.run(&[args, &[&out]].concat()) {
            self.see(&out, args);
        }
    }

    /// Checks an image that a command has made.
    fn see(&self, image: &str, args: &[&str]) {
        let checked = json(&run(&["check", "--json", image]).stdout);
        let is_found = number(&checked, "problem_count") > 0;
        let is_right = run(&["diff", image, &self.path("src")]).status.code() == Some(0);
        assert!(is_found || is_right, "{}: {args:?}: wrong bytes, and nothing tells", self.what);
        assert!(is_found || checked["digested_bytes"] == checked["file_bytes"], "{}: {args:?}: {checked}", self.what);
    }

    /// Runs a command that makes something other than an image: it has the tree.
    fn tree(&mut self, args: &[&str], name: &str) {
        let (out, src) = (self.path(name), self.path("src"));
        let _ = fs::remove_dir_all(&out).or_else(|_| fs::remove_file(&out));
        if !self.run(&[args, &[&out]].concat()) {
            return;
        }
        let image = self.path("image");
        let found = if Path::new(&out).is_dir() { &out } else { &image };
        if found == &image {
            stdout(&["pack", "--quiet", "--force", "--preset", "plain", &out, &image]);
        }
        let diff = run(&["diff", found, &src]);
        assert_eq!(diff.status.code(), Some(0), "{}: {args:?}: {}", self.what, stderr(&diff));
    }

    fn all(&mut self, layout: &[&str]) {
        let [rotten, good, src, copy] = ["rotten.erofs", "good.erofs", "src", "copy.erofs"].map(|name| self.path(name));
        self.image(&["relayout", "--quiet", &rotten]);
        self.image(&["relayout", "--quiet", "--keep-going", &rotten]);
        self.image(&["relayout", "--quiet", "--order", &self.path("order"), "--hot-as", "none", &rotten]);
        self.image(&[&["pack", "--quiet", &rotten][..], layout].concat());
        self.image(&["pack", "--quiet", "--keep-going", "--content-digests", &rotten]);
        self.image(&["convert", "--quiet", &rotten]);
        let with = |more| [layout, more].concat();
        let other = vec!["--preset", "plain", "--content-digests"];
        for options in [layout.to_vec(), with(&["--base-trust", "content"]), with(&["--content-digests"]), other] {
            self.image(&[&["pack", "--quiet", "--base", &rotten, &src][..], &options].concat());
        }
        let replace = format!("tiny={src}/tiny");
        for edit in [&["--replace", &replace][..], &[&*src], &["--base-trust", "content", &*src]] {
            fs::copy(&rotten, &copy).unwrap();
            if self.run(&[&["update", "--quiet", &copy][..], edit].concat()) {
                self.see(&copy, edit);
            }
        }
        self.tree(&["extract", "--quiet", &rotten], "out");
        self.tree(&["export", "--quiet", &rotten], "out.tar");
        self.tree(&["convert", "--quiet", &rotten], "out.tar.gz");
        let patch = self.path("patch");
        for [old, new] in [[&good, &rotten], [&rotten, &good]] {
            let _ = fs::remove_file(&patch);
            if self.run(&["patch", "make", "--quiet", old, new, &patch]) {
                self.image(&["patch", "apply", "--quiet", old, &patch]);
            }
        }
        for entry in fs::read_dir(&src).unwrap() {
            let path = entry.unwrap().path();
            let cat = run(&["cat", &rotten, path.file_name().unwrap().to_str().unwrap()]);
            let is_right = cat.stdout == fs::read(&path).unwrap();
            assert_eq!(cat.status.code() == Some(0), is_right, "{}: cat {path:?}: {}", self.what, stderr(&cat));
        }
    }
}

#[test]
fn rot_is_never_passed_on_without_a_word() {
    let rounds = rounds("KILN_ROT_ROUNDS", 1, 40);
    let seed = kiln_tests::rounds("KILN_ROT_SEED", 1, 1);
    let mut counts = [0; 3];
    for round in 0..rounds * KINDS {
        let kind = round % KINDS;
        // Over time all kinds meet all layouts.
        let layout = LAYOUTS[((round + round / KINDS) % LAYOUTS.len() as u64) as usize];
        let scratch = Scratch::new();
        let [src, good] = ["src", "good.erofs"].map(|name| scratch.path(name));
        tree(Path::new(&src), seed * 1000 + round);
        fs::write(scratch.path("order"), "/noise\n/small\n").unwrap();
        stdout(&[&["pack", "--quiet", "--content-digests", &src, &good][..], layout].concat());
        let image = Image::open_path(Path::new(&good), &[], &ImageOptions::default()).unwrap();
        let mut bytes = fs::read(&good).unwrap();
        let mut rng = Rng::new(seed * 10_000 + round);
        let what = format!(
            "round {round} of seed {seed}, {layout:?}: {}",
            damage(&mut bytes, &stored(&image), kind, &mut rng)
        );
        fs::write(scratch.path("rotten.erofs"), bytes).unwrap();
        let is_rotten = run(&["check", &scratch.path("rotten.erofs")]).status.code() == Some(4);
        let mut trial = Trial { scratch: &scratch, what, refused: 0, done: 0 };
        trial.all(layout);
        assert!(is_rotten || trial.refused == 0, "{}: refused, though nothing is wrong", trial.what);
        counts[0] += u64::from(is_rotten);
        counts[1] += trial.refused;
        counts[2] += trial.done;
    }
    println!("{counts:?} images rotten, commands refused, commands done");
    assert!(counts[0] > rounds * KINDS / 2 && counts[1] > 0 && counts[2] > 0, "{counts:?}");
}

/// Many small files are packed into one pcluster. Each of them has a digest, for which it would be decoded.
#[test]
fn a_damaged_pcluster_is_read_once_for_all_its_files() {
    let scratch = Scratch::new();
    let [src, good] = ["src", "good.erofs"].map(|name| scratch.path(name));
    fs::create_dir(&src).unwrap();
    for number in 0..400 {
        fs::write(format!("{src}/{number}"), text(number, 2000)).unwrap();
    }
    stdout(&["pack", "--quiet", "--content-digests", "-C", "64k", &src, &good]);
    let image = Image::open_path(Path::new(&good), &[], &ImageOptions::default()).unwrap();
    let mut bytes = fs::read(&good).unwrap();
    let range = stored(&image).into_iter().max_by_key(ExactSizeIterator::len).unwrap();
    let middle = range.start + range.len() / 2;
    bytes[middle..middle + 64].fill(0xFF);
    let len = bytes.len() as u64;
    let source = Arc::new(Counted::new(MemorySource::new(bytes)));
    let image = Image::open(source.clone(), Vec::new(), &ImageOptions::default()).unwrap();
    let report = image.check(Threads::at_least_one(2)).unwrap();
    assert!(report.problem_count > 0 && report.digested_bytes < report.file_bytes, "{report:?}");
    let (_, read) = source.counts();
    assert!(read < 4 * len, "{read} of {len} bytes");
}
