//! Files that were moved since the image was made: `kiln pack --base` and `kiln update` find them.

use crate::common::readers::has_tree;
use crate::common::trees::{OLD, settle, write};
use crate::common::{Scratch, json, number, stdout, text};
use kiln_tests::rng::Rng;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Options of `kiln pack` for images that store files in all ways.
const OPTIONS: [&[&str]; 5] = [
    &["--preset", "balanced"],
    &["--preset", "plain", "--layout=inline-data=off"],
    &["--preset", "fast"],
    &["--kernel", "6.15"],
    &["--preset", "archive", "-C", "64k"],
];

/// Makes a tree with directories of files of all sizes, and its image.
fn tree(options: &[&str]) -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let src = PathBuf::from(scratch.path("src"));
    fs::create_dir_all(src.join("dir/below")).unwrap();
    fs::create_dir(src.join("other")).unwrap();
    for (at, len) in [10, 4096, 9000, 70_001, 400_000].into_iter().enumerate() {
        write(src.join(format!("dir/{at}")), text(at as u64, len), OLD + at as u64);
        write(src.join(format!("dir/below/{at}")), text(10 + at as u64, len), OLD);
        write(src.join(format!("other/{at}")), text(20 + at as u64, len), OLD + at as u64);
    }
    let mut noise = vec![0; 300_000];
    Rng::new(1).fill(&mut noise);
    write(src.join("noise"), noise, OLD);
    stdout(&[&["pack", "--quiet", &scratch.path("src"), &scratch.path("old.erofs")], options].concat());
    (scratch, src)
}

/// Updates a copy of the image, and makes an increment over it. Returns both reports.
fn both(scratch: &Scratch, options: &[&str]) -> [Value; 2] {
    let [src, old, updated, new, again] =
        ["src", "old.erofs", "updated.erofs", "new.erofs", "again.erofs"].map(|name| scratch.path(name));
    fs::copy(&old, &updated).unwrap();
    let update = json(&stdout(&["update", "--quiet", "--json", &updated, &src]));
    has_tree(&updated, &src);
    let pack = |image: &str, more: &[&str]| {
        let args = ["pack", "--quiet", "--json", "--force", "--base", &old, &src, image];
        json(&stdout(&[&args[..], options, more].concat()))
    };
    let told = pack(&new, &[]);
    has_tree(&new, &src);
    pack(&again, &["--threads", "1"]);
    assert!(fs::read(&new).unwrap() == fs::read(&again).unwrap(), "{options:?}");
    [update, told]
}

#[test]
fn moved_and_renamed_files_are_not_stored_again() {
    for options in OPTIONS {
        let (scratch, src) = tree(options);
        fs::rename(src.join("dir"), src.join("other/moved")).unwrap();
        fs::rename(src.join("noise"), src.join("renamed")).unwrap();
        for name in ["0", "4"] {
            fs::rename(src.join("other").join(name), src.join(format!("x{name}"))).unwrap();
        }
        for told in both(&scratch, options) {
            assert_eq!(number(&told, "reused_bytes"), number(&told, "bytes_in"), "{options:?}: {told}");
        }
    }
}

#[test]
fn another_file_of_the_same_size_time_and_name_is_stored() {
    let (scratch, src) = tree(&[]);
    fs::remove_file(src.join("dir/3")).unwrap();
    fs::remove_file(src.join("dir/4")).unwrap();
    write(src.join("3"), text(99, 70_001), OLD + 3);
    // Only its last byte differs.
    let mut bytes = text(4, 400_000);
    *bytes.last_mut().unwrap() ^= 1;
    write(src.join("4"), bytes, OLD + 4);
    for told in both(&scratch, &[]) {
        assert_eq!(number(&told, "reused_bytes"), number(&told, "bytes_in") - 470_001, "{told}");
    }
}

#[test]
fn rotated_logs_cost_what_is_new() {
    let scratch = Scratch::new();
    let [src, image] = ["src", "image.erofs"].map(|name| scratch.path(name));
    let log = |at: usize| Path::new(&src).join(if at == 0 { "log".to_owned() } else { format!("log.{at}") });
    fs::create_dir(&src).unwrap();
    for at in 0..4 {
        write(log(at), text(at as u64, 2_000_000 + at * 1000), OLD - 1000 * at as u64);
    }
    fs::hard_link(log(1), Path::new(&src).join("linked")).unwrap();
    settle(&log(1));
    stdout(&["pack", "--quiet", "--stamp", &src, &image]);
    for night in 1..3 {
        // The log grows, and is then rotated.
        let grown = [fs::read(log(0)).unwrap(), text(50 + night, 3000)].concat();
        fs::write(log(0), grown).unwrap();
        fs::remove_file(log(3)).unwrap();
        (0..3).rev().for_each(|at| fs::rename(log(at), log(at + 1)).unwrap());
        write(log(0), text(100 + night, 300_000), OLD + 10 * night);
        settle(&log(0));
        let told = json(&stdout(&["update", "--quiet", "--json", &image, &src]));
        has_tree(&image, &src);
        // The new log, and the last extent of the previous one.
        assert!(number(&told, "reused_bytes") + 800_000 > number(&told, "bytes_in"), "night {night}: {told}");
    }
}
