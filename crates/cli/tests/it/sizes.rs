//! Size and SHA-256 of the image that `kiln pack` makes of one directory, by options: `sizes.txt` lists them, so
//! that a reviewer sees how a change affects images. `KILN_BLESS=1 cargo test -p kiln-command --test it sizes`
//! writes it again.

use crate::common::{Scratch, stdout};
use kiln_tests::reviewed::{assert_reviewed, line};
use std::fs;
use std::path::Path;

/// Makes a directory that is the same on every file system.
pub fn make(dir: &Path) {
    let words = ["clay", "fire", "kiln", "glaze", "of", "the", "block", "extent", "return", "\n"];
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for (number, len) in [0, 40, 700, 5000, 9000, 70_000, 300_000, 1_200_000].into_iter().enumerate() {
        let mut text = String::new();
        while text.len() < len {
            text += words[next() % words.len()];
            text += [" ", "_", ", "][next() % 3];
        }
        let noise: Vec<u8> = (0..len / 7).map(|_| next() as u8).collect();
        let sub = dir.join(format!("d{}/sub", number % 3));
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join(format!("text-{number}")), &text).unwrap();
        fs::write(sub.join(format!("again-{number}")), &text[text.len() / 9..]).unwrap();
        fs::write(sub.join(format!("noise-{number}")), &noise).unwrap();
        fs::write(sub.join(format!("both-{number}")), [&noise, text.as_bytes()].concat()).unwrap();
    }
    for number in 0..300 {
        fs::write(dir.join(format!("d1/small file {number}")), "settings = 1\n".repeat(number % 50)).unwrap();
    }
    std::os::unix::fs::symlink("d1/sub", dir.join("link")).unwrap();
    fs::hard_link(dir.join("link/text-4"), dir.join("d0/linked")).unwrap();
}

/// Options in addition to `--all-root --mtime 7`.
const OPTIONS: &[&str] = &[
    "",
    "--preset plain",
    "--preset fast",
    "--preset archive",
    "--preset dataset",
    "--kernel 5.4",
    "--kernel 5.10 -z lz4hc",
    "--kernel 5.15",
    "--kernel 6.1",
    "--kernel 6.6 --preset archive",
    "--kernel 6.10 --preset dataset",
    "--kernel 6.12",
    "--kernel 6.18",
    "--kernel 6.18 --preset archive",
    "--kernel 6.18 --layout metadata=off",
    "--kernel 6.18 --layout metadata --preset dataset",
    "--kernel 5.4 --preset plain",
    "--kernel 6.6 --preset plain --layout chunk-size=16k",
    "--kernel 6.6 --preset plain --layout align=64k --layout inline-data=off",
    "-z deflate,9 -C 32k --fragments tails",
    "-z lzma -C 256k --fragments all --layout compress-dirs",
    "-z zstd,19,dictsize=64k -C 128k --dedupe off",
    "-z none --layout metadata=32k:lz4 --kernel 6.18",
    "--layout extents=encoded --try lz4hc,lzma,1",
    "--layout tail-packing -z lz4hc,12 -C 16k --dedupe files",
    "--content-digests --preset fast",
    "--block-size 1k -C 16k",
    "--hint *text*=none --hint *small*=lz4:8k",
    "--layout max-extent=100k --layout packed-cluster=4k",
];

#[test]
fn images_are_those_of_the_table() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.path("source"), scratch.path("image.erofs"));
    make(Path::new(&source));
    let mut table = String::new();
    for options in OPTIONS {
        let chosen = options.split_whitespace();
        let args = ["pack", "-q", "--force", "--all-root", "--mtime", "7", &source, &image];
        stdout(&args.into_iter().chain(chosen).collect::<Vec<_>>());
        table += &line(&fs::read(&image).unwrap(), options);
    }
    assert_reviewed(&table, &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sizes.txt"));
}
