//! `--preset backup`: data to be restored is verified when it is packed, and no change is missed.

use crate::attributes;
use crate::common::trees::{OLD, set_time, settle, write};
use crate::common::{Scratch, fails, json, number, run, stderr, stdout, text};
use kiln_tests::without;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

fn tree(scratch: &Scratch) -> String {
    let src = scratch.path("src");
    fs::create_dir(&src).unwrap();
    write(format!("{src}/large"), text(1, 400_000), OLD);
    write(format!("{src}/small"), text(2, 3000), OLD);
    write(format!("{src}/late"), "late", OLD + 9);
    set_time(Path::new(&src), OLD);
    src
}

#[test]
fn backups_have_digests_and_stamps() {
    let scratch = Scratch::new();
    let src = tree(&scratch);
    let [one, two, tar] = ["one", "two", "src.tar"].map(|name| scratch.path(name));
    let [stamp, other] = ["one.stamp", "two.stamp"].map(|name| scratch.path(name));
    settle(&Path::new(&src).join("late"));
    let packed = run(&["pack", "--preset", "backup", &src, &one]);
    assert!(packed.status.success() && Path::new(&stamp).exists());
    let said = stderr(&packed);
    assert!(said.contains("contents: verifiable") && said.contains(&format!("stamps: {stamp}\n")), "{said}");
    stdout(&["pack", "--quiet", "--preset", "balanced", "--content-digests", &src, &two]);
    assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap() && !Path::new(&other).exists());
    fs::remove_file(&two).unwrap();
    // A change that preserves size and time.
    write(format!("{src}/small"), text(3, 3000), OLD);
    let packed = run(&["pack", "--preset", "backup", "--base", &one, &src, &two]);
    assert!(packed.status.success() && Path::new(&other).exists() && !stderr(&packed).contains("no stamps"));
    stdout(&["diff", &two, &src]);
    write(format!("{src}/small"), text(4, 3000), OLD);
    stdout(&["update", "--quiet", "--preset", "backup", &two, &src]);
    stdout(&["diff", &two, &src]);
    for image in [&one, &two] {
        let checked = json(&stdout(&["check", "--json", image]));
        assert_eq!(checked["digested_bytes"], checked["file_bytes"]);
    }
    // Archives have no stamps, and streams have no place for them.
    stdout(&["convert", "--quiet", &one, &tar]);
    stdout(&["pack", "--quiet", "--preset", "backup", "--no-content-digests", &tar, &scratch.path("three")]);
    let streamed = stdout(&["pack", "--quiet", "--preset", "backup", &src, "-"]);
    fs::write(scratch.path("four"), streamed).unwrap();
    assert_eq!(number(&json(&stdout(&["check", "--json", &scratch.path("three")])), "digested_bytes"), 0);
    assert!(["three.stamp", "four.stamp"].iter().all(|name| !Path::new(&scratch.path(name)).exists()));
    stdout(&["convert", "--quiet", "--preset", "backup", &tar, &scratch.path("five")]);
    let checked = json(&stdout(&["check", "--json", &scratch.path("five")]));
    assert_eq!(checked["digested_bytes"], checked["file_bytes"]);
}

#[test]
fn backups_refuse_attributes_that_would_be_left_out() {
    let scratch = Scratch::new();
    let [tar, image] = ["mac.tar", "image"].map(|name| scratch.path(name));
    fs::write(&tar, attributes::tar(&[("f", &[("SCHILY.xattr.com.apple.provenance", "v")])])).unwrap();
    let pack = ["pack", "--quiet", "--preset", "backup", &tar, &image];
    fails(&pack, 1, "f: extended attribute com.apple.provenance");
    stdout(&[&pack[..], &["--xattr-exclude", "com.apple.*"]].concat());
    fails(&["update", "--quiet", "--preset", "backup", &image, &tar], 1, "f: extended attribute com.apple.provenance");
    stdout(&["update", "--quiet", &image, &tar]);
}

#[test]
fn what_is_not_seen_without_stamps_is_said() {
    let scratch = Scratch::new();
    let src = tree(&scratch);
    let [one, two] = ["one", "two"].map(|name| scratch.path(name));
    let blind = "no stamps: changes that keep size and time are not seen";
    let said = |args: &[&str]| {
        let output = run(args);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    assert!(!said(&["pack", &src, &one]).contains("stamps"));
    assert!(said(&["pack", "--base", &one, &src, &two]).contains(blind));
    assert!(!said(&["pack", "--force", "--base", &one, "--base-trust", "content", &src, &two]).contains("stamps"));
    assert!(said(&["update", &two, &src]).contains(blind));
    let first = said(&["update", "--stamp", &two, &src]);
    assert!(first.contains("no stamps of the older image") && first.contains("two.stamp tells"), "{first}");
    let next = said(&["update", &two, &src]);
    assert!(!next.contains("no stamps") && next.contains("stamps: "), "{next}");
    assert!(!said(&["update", &two, "--remove", "small"]).contains("no stamps"));
}

/// Writes twice to a page of a mapped file, with or without a sync to disk in between.
const MAPPED: &str = "
import mmap, sys
with open(sys.argv[1], 'r+b') as file:
    pages = mmap.mmap(file.fileno(), 0)
for line in sys.stdin:
    pages[0:4] = line.strip().encode()
    print(flush=True)
";

/// Checks that a write to a mapped file changes its time if its page was on disk before. Without that a second
/// change of a page could be missed for ever.
#[test]
fn changes_of_mapped_files_are_seen() {
    let scratch = Scratch::new();
    let src = tree(&scratch);
    let [one, two] = ["one", "two"].map(|name| scratch.path(name));
    if rustix::fs::statfs(&*src).unwrap().f_type as u32 == 0x0102_1994 {
        return kiln_tests::skipped("nothing is written to a disk in tmpfs");
    }
    let mapped = format!("{src}/large");
    let python =
        Command::new("python3").args(["-c", MAPPED, &mapped]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut python) = python else { return without("python3") };
    let (mut stdin, mut stdout_of) = (python.stdin.take().unwrap(), BufReader::new(python.stdout.take().unwrap()));
    let mut change = |word: &str| {
        writeln!(stdin, "{word}").unwrap();
        stdout_of.read_line(&mut String::new()).unwrap();
    };
    change("AAAA");
    settle(Path::new(&mapped));
    stdout(&["pack", "--quiet", "--preset", "backup", &src, &one]);
    assert!(stdout(&["cat", &one, "large"]).starts_with(b"AAAA"));
    change("BBBB");
    drop(stdin);
    assert!(python.wait().unwrap().success());
    rustix::fs::sync();
    stdout(&["pack", "--quiet", "--preset", "backup", "--base", &one, &src, &two]);
    assert!(stdout(&["cat", &two, "large"]).starts_with(b"BBBB"));
    stdout(&["update", "--quiet", "--preset", "backup", &one, &src]);
    assert!(stdout(&["cat", &one, "large"]).starts_with(b"BBBB"));
}
