//! `kiln pack --base`: increments, which reuse stored data of an older image.

use crate::common::readers::has_tree;
use crate::common::trees::{OLD, edit, make, set_time, settle, write};
use crate::common::{Scratch, fails, golden, json, number, run, stderr, stdout, text};
use kiln_tests::rng::Rng;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes an increment, checks that all readers find the tree, and returns the command's report.
fn increment(scratch: &Scratch, options: &[&str], [old, new]: [&str; 2]) -> Value {
    let [src, old, new, again] = ["src", old, new, "again.erofs"].map(|name| scratch.path(name));
    let pack = |more: &[&str]| stdout(&[&["pack", "--quiet", "--base", &old, &src][..], more, options].concat());
    let told = json(&pack(&[&new, "--json"]));
    pack(&[&again, "--threads", "1", "--force"]);
    assert!(fs::read(&new).unwrap() == fs::read(&again).unwrap(), "{options:?}: the same bytes every time");
    has_tree(&new, &src);
    told
}

#[test]
fn increments_have_the_tree() {
    let options = [
        &["--preset", "balanced"][..],
        &["--preset", "plain"],
        &["--preset", "fast"],
        &["--preset", "archive", "-C", "64k"],
        &["--preset", "dataset"],
        &["--preset", "fast", "--kernel", "5.4"],
        &["--kernel", "6.15"],
        &["--kernel", "6.15", "-z", "deflate", "--fragments", "all"],
        &["--kernel", "6.17"],
        &["--fragments", "tails", "--layout=compress-dirs", "-z", "lz4"],
    ];
    for (seed, options) in (0..).zip(options) {
        let (scratch, src) = make(seed);
        stdout(&[&["pack", "--quiet", &scratch.path("src"), &scratch.path("0.erofs")], options].concat());
        edit(&src, 1);
        let told = increment(&scratch, options, ["0.erofs", "1.erofs"]);
        assert!(number(&told, "reused_files") > 0, "{options:?}: {told}");
        // An increment is a base, too.
        edit(&src, 2);
        let told = increment(&scratch, options, ["1.erofs", "2.erofs"]);
        assert!(number(&told, "reused_bytes") > number(&told, "bytes_in") / 3, "{options:?}: {told}");
    }
}

#[test]
fn a_base_may_have_another_preset() {
    let presets = [
        &["--preset", "fast"][..],
        &["--preset", "plain"],
        &["--preset", "balanced"],
        &["--kernel", "6.15"],
        &["--kernel", "6.17"],
        &["--fragments", "tails"],
    ];
    let (scratch, _) = make(99);
    for (at, old) in presets.iter().enumerate() {
        let image = format!("old-{at}.erofs");
        stdout(&[&["pack", "--quiet", &scratch.path("src"), &scratch.path(&image)], *old].concat());
        for (other, new) in presets.iter().enumerate().filter(|(other, _)| *other != at) {
            increment(&scratch, new, [&image, &format!("{at}-{other}.erofs")]);
        }
    }
}

#[test]
fn images_of_mkfs_are_bases() {
    for name in ["lz4", "lz4-frag", "lz4-dedupe", "zstd", "lzma", "deflate", "flat", "inline", "48bit-zstd", "metabox"]
    {
        let scratch = Scratch::new();
        let (old, src) = (golden(&format!("{name}.erofs")), scratch.path("src"));
        stdout(&["extract", "--quiet", &old, &src]);
        write(Path::new(&src).join("new"), text(3, 50_000), OLD);
        fs::copy(&old, scratch.path("old.erofs")).unwrap();
        for options in [&["--preset", "balanced"][..], &["--kernel", "6.15"]] {
            increment(&scratch, options, ["old.erofs", &format!("{}.erofs", options[1])]);
        }
    }
}

/// Makes a tree of files of `OLD`, and of some that were changed when the image was made.
fn small_tree() -> Scratch {
    let scratch = Scratch::new();
    let src = PathBuf::from(scratch.path("src"));
    fs::create_dir(&src).unwrap();
    write(src.join("large"), text(1, 500_000), OLD);
    write(src.join("small"), text(2, 9000), OLD);
    write(src.join("late"), text(3, 900), OLD + 99);
    set_time(&src, OLD + 100);
    stdout(&["pack", "--quiet", &scratch.path("src"), &scratch.path("old.erofs")]);
    scratch
}

#[test]
fn what_is_taken_over_is_not_read() {
    let scratch = small_tree();
    let [src, old, new] = ["src", "old.erofs", "new.erofs"].map(|name| scratch.path(name));
    let src = Path::new(&src);
    // Without reading them, nothing shows that these have other contents, except for the one whose change may have
    // been missed.
    write(src.join("large"), text(11, 500_000), OLD);
    write(src.join("small"), text(12, 9000), OLD);
    write(src.join("late"), text(13, 900), OLD + 99);
    set_time(src, OLD + 100);
    let told = json(&stdout(&["pack", "--quiet", "--json", "--base", &old, &scratch.path("src"), &new]));
    assert_eq!(["reused_files", "reused_bytes"].map(|key| number(&told, key)), [2, 509_000]);
    for (name, seed, len) in [("large", 1, 500_000), ("small", 2, 9000), ("late", 13, 900)] {
        assert!(stdout(&["cat", &new, &format!("/{name}")]) == text(seed, len), "{name}");
    }
}

#[test]
fn times_and_sizes_tell_what_has_changed() {
    let scratch = small_tree();
    let [src, old, new] = ["src", "old.erofs", "new.erofs"].map(|name| scratch.path(name));
    let path = Path::new(&src);
    write(path.join("large"), text(11, 500_000), OLD - 1);
    write(path.join("small"), text(12, 9001), OLD);
    let told = json(&stdout(&["pack", "--quiet", "--json", "--base", &old, &src, &new]));
    assert_eq!(number(&told, "reused_files"), 0);
    assert_eq!(number(&told, "copied_bytes"), 0);
    stdout(&["diff", &new, &src]);
}

#[test]
fn what_times_do_not_tell_is_compared() {
    let scratch = small_tree();
    let [src, old, new] = ["src", "old.erofs", "new.erofs"].map(|name| scratch.path(name));
    let path = Path::new(&src);
    // All times in the base are equal, so they distinguish no files.
    stdout(&["pack", "--quiet", "--force", "--mtime", "0", &src, &old]);
    let told = json(&stdout(&["pack", "--quiet", "--json", "--base", &old, &src, &new]));
    assert_eq!(number(&told, "reused_files"), 3);
    assert!(number(&told, "copied_bytes") > 0);
    stdout(&["diff", &new, &src]);
    write(path.join("large"), [text(1, 499_999), b"x".into()].concat(), OLD + 1);
    let told = json(&stdout(&["pack", "--quiet", "--json", "--force", "--base", &old, &src, &new]));
    assert_eq!(number(&told, "reused_files"), 2);
    stdout(&["diff", &new, &src]);
    // Contents are trusted where times are not.
    stdout(&["pack", "--quiet", "--force", &src, &old]);
    write(path.join("large"), text(11, 500_000), OLD + 1);
    set_time(path, OLD + 100);
    let told = json(&stdout(&["pack", "--quiet", "--json", "--force", "--base", &old, &src, &new]));
    assert_eq!(number(&told, "reused_files"), 3, "the time is the same");
    let content = ["--base-trust", "content"];
    let command = [&["pack", "--quiet", "--json", "--force", "--base", &old, &src, &new][..], &content].concat();
    assert_eq!(number(&json(&stdout(&command)), "reused_files"), 2);
    stdout(&["diff", &new, &src]);
}

/// Two names of one new file had separate files before.
#[test]
fn a_file_is_compared_with_the_file_whose_parts_it_takes_over() {
    let scratch = Scratch::new();
    let [src, old, new] = ["src", "old.erofs", "new.erofs"].map(|name| scratch.path(name));
    let path = Path::new(&src);
    fs::create_dir(path).unwrap();
    let changed = |places: &[usize]| {
        let mut bytes = text(1, 2_000_000);
        places.iter().for_each(|&at| bytes[at..at + 100].fill(b'!'));
        bytes
    };
    for (at, places) in [[300_000], [900_000], [1_500_000]].iter().enumerate() {
        write(path.join(format!("name-{at}")), changed(places), OLD);
    }
    stdout(&["pack", "--quiet", "-z", "zstd", "-C", "65536", &src, &old]);
    for at in 0..3 {
        fs::remove_file(path.join(format!("name-{at}"))).unwrap();
    }
    write(path.join("name-0"), changed(&[600_000]), OLD + 1);
    for at in 1..3 {
        fs::hard_link(path.join("name-0"), path.join(format!("name-{at}"))).unwrap();
    }
    stdout(&["pack", "--quiet", "-z", "zstd", "-C", "65536", "--base", &old, &src, &new]);
    stdout(&["diff", &new, &src]);
    assert!(stdout(&["cat", &new, "/name-0"]) == changed(&[600_000]));
}

/// New data follows the packed inode of the base, which may end anywhere in a block.
#[test]
fn new_packed_files_share_text_behind_those_of_the_base() {
    let mut kept = 0;
    for seed in 0..12 {
        let scratch = Scratch::new();
        let [src, old, new] = ["src", "old.erofs", "new.erofs"].map(|name| scratch.path(name));
        let path = Path::new(&src);
        fs::create_dir(path).unwrap();
        write(path.join("kept"), text(seed, 160_000 + 700 * seed as usize), OLD);
        write(path.join("late"), b"late", OLD + 9000);
        set_time(path, OLD + 9900);
        let options = ["--fragments", "all", "-z", "zstd", "-C", "4096"];
        stdout(&[&["pack", "--quiet", &src, &old], &options[..]].concat());
        let mut shared = vec![0; 40_000];
        Rng::new(seed).fill(&mut shared);
        for at in 0..8 {
            let around = [50_000 + 700 * at, 50_000 + 300 * at].map(|len| text(seed * 100 + at as u64, len));
            let bytes = [&around[0], &shared[..20_000 + 1777 * at], &around[1]].concat();
            write(path.join(format!("new-{at}")), bytes, OLD + 9901);
        }
        let command = [&["pack", "--quiet", "--json", "--base", &old, &src, &new], &options[..]].concat();
        kept += number(&json(&stdout(&command)), "reused_files");
        has_tree(&new, &src);
    }
    assert!(kept > 0);
}

/// Definitions change the tree around a file of which most has not changed.
#[test]
fn definitions_lose_nothing_of_what_is_reused() {
    let scratch = Scratch::new();
    let [src, old, new, updated, defs] =
        ["src", "old.erofs", "new.erofs", "updated.erofs", "defs"].map(|name| scratch.path(name));
    fs::create_dir(&src).unwrap();
    let long = Path::new(&src).join("long");
    let mut bytes = text(1, 4_000_000);
    write(&long, &bytes, OLD);
    stdout(&["pack", "--quiet", &src, &old]);
    bytes[2_000_000..2_000_012].copy_from_slice(b"ABCDEFGHIJKL");
    write(&long, &bytes, OLD + 1);
    fs::write(&defs, "/dev d 755 0 0\n").unwrap();
    fs::copy(&old, &updated).unwrap();
    let told = json(&stdout(&["update", "--quiet", "--json", "--edit", &format!("pseudo:{defs}"), &updated, &src]));
    assert!(number(&told, "reused_bytes") > 3_000_000, "{told}");
    let told =
        json(&stdout(&["pack", "--quiet", "--json", "--base", &old, "--edit", &format!("pseudo:{defs}"), &src, &new]));
    assert!(number(&told, "reused_bytes") > 3_000_000, "{told}");
    for image in [&new, &updated] {
        assert!(stdout(&["cat", image, "/long"]) == bytes);
        stdout(&["check", image]);
    }
}

#[test]
fn stamps_tell_what_times_do_not() {
    let scratch = small_tree();
    let [src, old, new] = ["src", "old.erofs", "new.erofs"].map(|name| scratch.path(name));
    let path = Path::new(&src);
    let stamps = format!("{old}.stamp");
    // A file that was changed only now has no stamp.
    stdout(&["pack", "--quiet", "--force", "--stamp", &src, &old]);
    assert_eq!(fs::read_to_string(&stamps).unwrap().lines().count(), 1);
    settle(&path.join("late"));
    stdout(&["pack", "--quiet", "--force", "--stamp", &src, &old]);
    let text_of_stamps = fs::read_to_string(&stamps).unwrap();
    assert_eq!(text_of_stamps.lines().count(), 4, "{text_of_stamps}");
    write(path.join("large"), text(11, 500_000), OLD);
    let told = json(&stdout(&["pack", "--quiet", "--json", "--base", &old, &src, &new]));
    assert_eq!(number(&told, "reused_files"), 2);
    stdout(&["diff", &new, &src]);
    // Stamps of another image are useless, and damaged ones are refused.
    stdout(&["pack", "--quiet", "--force", "--label", "other", &src, &old]);
    let output = run(&["pack", "--quiet", "--force", "--base", &old, &src, &new]);
    assert!(output.status.success() && stderr(&output).contains("old.erofs.stamp: not of "), "{}", stderr(&output));
    let first = text_of_stamps.lines().next().unwrap();
    stdout(&["pack", "--quiet", "--force", "--stamp", &src, &old]);
    let first_now = fs::read_to_string(&stamps).unwrap().lines().next().unwrap().to_owned();
    assert_ne!(first, first_now);
    fs::write(&stamps, format!("{first_now}\nno stamp\n")).unwrap();
    fails(&["pack", "--force", "--base", &old, &src, &new], 1, "old.erofs.stamp, line 2: stamp `no stamp`");
    fails(&["pack", "--stamp", &src, "-"], 2, "--stamp: the image needs a name");
    // No command accepts an image behind other bytes as a base.
    fails(&["pack", "--stamp", "--offset", "4096", &src, &scratch.path("part")], 2, "--offset");
    // Existing stamps belong to another file: that is reported before an image is made.
    let other = scratch.path("other");
    fs::write(format!("{other}.stamp"), "of something else").unwrap();
    fails(&["pack", "--stamp", &src, &other], 1, "other.stamp");
    assert!(!Path::new(&other).exists());
    assert!(!Path::new(&scratch.path("part")).exists());
    stdout(&["pack", "--quiet", "--force", "--base", &old, "--base-trust", "content", &src, &new]);
}

#[test]
fn the_command_says_what_it_took_over() {
    let scratch = small_tree();
    let [src, old, new] = ["src", "old.erofs", "new.erofs"].map(|name| scratch.path(name));
    write(Path::new(&src).join("late"), text(13, 900), OLD + 99);
    let output = run(&["pack", "--explain", "--base", &old, &src, &new]);
    assert!(stderr(&output).contains("reused from the base: 2 files, 497.1 KiB stored as "), "{}", stderr(&output));
    assert!(stderr(&output).contains("the others: 1 files, 900"), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("as the base stores it"));
}

#[test]
fn bases_that_cannot_be_had_are_refused() {
    let scratch = small_tree();
    let [src, old, new] = ["src", "old.erofs", "new.erofs"].map(|name| scratch.path(name));
    let before = fs::read(&old).unwrap();
    fails(&["pack", "--force", "--base", &old, &src, &old], 2, "the output cannot also be the source");
    fails(&["pack", "--base", &old, "--block-size", "16k", &src, &new], 1, "--block-size 4096");
    fails(&["pack", "--base", &golden("blobdev.erofs"), &src, &new], 1, "1 extra devices");
    fails(&["pack", "--base", &scratch.path("src/small"), &src, &new], 1, "small");
    fails(&["pack", "--base", &scratch.path("nothing"), &src, &new], 1, "nothing");
    // A base that is cut off within the reused data: the metadata lies behind it.
    let mut cut = before.clone();
    cut.truncate(8192);
    fs::write(scratch.path("cut.erofs"), cut).unwrap();
    fails(&["pack", "--base", &scratch.path("cut.erofs"), &src, &new], 1, "cut.erofs");
    assert!(fs::read(&old).unwrap() == before);
    assert!(!Path::new(&new).exists());
}
