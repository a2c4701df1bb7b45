//! `kiln pack --explain`: its output agrees with the image.

use crate::common::{Scratch, run, stderr, stdout, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Makes a tree with a file for each way to store one.
fn tree(scratch: &Scratch) -> String {
    let root = scratch.path("src");
    fs::create_dir(&root).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = format!("{root}/{name}");
        fs::write(&path, bytes).unwrap();
        // One file has a time of its own.
        let secs = if name == "late" { 2_000_000_000 } else { 1_000_000_000 };
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs);
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    };
    write("a-long", &text(1, 400_000));
    write("b-again", &text(1, 400_000));
    write("c-small", &text(2, 3000));
    write("d-small-random", &random(3, 3000));
    write("e-random", &random(4, 9 << 20));
    write("f-empty", b"");
    write("g-part", &[random(6, 5000), text(1, 400_000), text(7, 50_000)].concat());
    write("late", &text(8, 200_000));
    let mut sparse = File::create(format!("{root}/sparse")).unwrap();
    sparse.write_all(&text(9, 200_000)).unwrap();
    sparse.seek(SeekFrom::Start(1 << 20)).unwrap();
    sparse.write_all(&text(10, 100_000)).unwrap();
    File::create(format!("{root}/sparser")).unwrap().set_len(1 << 30).unwrap();
    root
}

/// Returns the explanations by path.
fn explained(args: &[&str]) -> BTreeMap<String, Value> {
    let document: Value = serde_json::from_slice(&stdout(args)).unwrap();
    assert_eq!(document["schema"], 2);
    assert!(document["image_bytes"].as_u64().unwrap() > 0, "the fields of the summary follow");
    let files = document["explained"].as_array().unwrap();
    files.iter().map(|file| (file["path"].as_str().unwrap().to_owned(), file.clone())).collect()
}

#[test]
fn each_file_has_its_reason() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    let files = explained(&["pack", "--json", "--explain", &root, &image]);
    assert_eq!(files.len(), 10);
    let stored_as = |name: &str| files[name]["stored_as"].as_str().unwrap();
    for (name, how) in [
        ("a-long", "compressed"),
        ("b-again", "duplicate"),
        ("c-small", "packed"),
        ("d-small-random", "flat"),
        ("e-random", "flat"),
        ("f-empty", "empty"),
        ("g-part", "compressed"),
        ("late", "compressed"),
        ("sparse", "compressed"),
        ("sparser", "chunks"),
    ] {
        assert_eq!(stored_as(name), how, "{name}: {}", files[name]);
    }
    assert_eq!(files["b-again"]["duplicate_of"], "a-long");
    assert_eq!(files["d-small-random"]["because"], "fits one block");
    assert_eq!(files["d-small-random"]["unpacked_because"], "its first bytes do not compress");
    assert_eq!(files["d-small-random"]["inline_bytes"], 3000);
    assert_eq!(files["e-random"]["because"], "samples do not compress");
    assert!(files["e-random"]["bits_per_byte"].as_f64().unwrap() > 7.9);
    assert_eq!(files["late"]["extended_because"], serde_json::json!(["mtime"]));
    assert!(files["a-long"].get("extended_because").is_none());
    assert!(files["g-part"]["referenced_bytes"].as_u64().unwrap() > 300_000);
    assert_eq!(files["sparse"]["hole_bytes"], (1 << 20) - 200_704);
    assert_eq!(files["sparser"]["hole_bytes"], 1u64 << 30);
    for (name, file) in files.iter().filter(|(_, file)| file["stored_as"] == "compressed") {
        let number = |field: &str| file[field].as_u64().unwrap();
        let parts = number("text_bytes") + number("referenced_bytes") + number("hole_bytes");
        assert_eq!(parts, number("bytes"), "{name}");
        assert!(number("stored_bytes") < number("text_bytes"), "{name}");
        // The answer of the image's reader.
        let stat: Value = serde_json::from_slice(&stdout(&["stat", "--extents", "--json", &image, name])).unwrap();
        assert_eq!(stat["extents"].as_array().unwrap().len() as u64, number("extent_count"), "{name}");
    }
    let stat: Value = serde_json::from_slice(&stdout(&["stat", "--extents", "--json", &image, "c-small"])).unwrap();
    assert_eq!(stat["extents"][0]["address"], files["c-small"]["packed_offset"]);
}

#[test]
fn other_choices_have_other_reasons() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let plain = explained(&["pack", "--json", "--explain", "--preset", "plain", &root, &scratch.path("plain")]);
    assert_eq!(plain["a-long"]["because"], "no file is compressed");
    assert!(plain["a-long"].get("unpacked_because").is_none(), "nothing is packed");
    assert_eq!(plain["sparse"]["stored_as"], "chunks");
    let chunks = ["--layout", "chunk-size=16k", "--layout=inodes=extended", &root, &scratch.path("chunks")];
    let chunks = explained(&[&["pack", "--json", "--explain", "-z", "lz4"], &chunks[..]].concat());
    let random = &chunks["e-random"];
    assert_eq!((&random["stored_as"], &random["chunk_bytes"]), (&"chunks".into(), &(16 << 10).into()));
    assert_eq!((&random["because"], random["hole_bytes"].as_u64()), (&"samples do not compress".into(), Some(0)));
    assert_eq!(random["extended_because"], serde_json::json!(["all are"]));
    assert_eq!(chunks["sparser"]["because"], "nearly all of it is hole");
    let dataset = explained(&["pack", "--json", "--explain", "--preset", "dataset", &root, &scratch.path("dataset")]);
    assert!(dataset["c-small"]["inline_bytes"].as_u64().unwrap() > 0);
    let encoded = &["pack", "--json", "--explain", "--layout", "extents=encoded", &root, &scratch.path("encoded")];
    let encoded = explained(encoded);
    assert!(encoded["g-part"]["referenced_bytes"].as_u64().unwrap() > 300_000);
    assert_eq!(encoded["a-long"]["extent_count"], 2);
}

#[test]
fn ways_of_their_own_are_told_with_who_decided() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let image = scratch.path("image");
    let args =
        ["pack", "--json", "--explain", "-z", "lz4", "--try", "zstd,9", "--try-budget", "100", "--fragments", "tails"];
    let args = [&args[..], &["--hint", "late=deflate,6:16K", "--hint", "g-part=none", &root, &image]].concat();
    let files = explained(&args);
    let way =
        |name: &str| ["algorithm", "level", "pcluster_bytes", "decided_by"].map(|field| files[name][field].clone());
    let late = ["deflate".into(), 6.into(), (16 << 10).into(), "hint".into()].map(|value: Value| value);
    assert_eq!(way("late"), late);
    assert_eq!(files["late"]["unpacked_because"], "too long");
    assert_eq!((&files["a-long"]["algorithm"], &files["a-long"]["decided_by"]), (&"zstd".into(), &"trial".into()));
    assert_eq!(
        (&files["c-small"]["stored_as"], &files["c-small"]["decided_by"]),
        (&"packed".into(), &"default".into())
    );
    assert_eq!((&files["g-part"]["stored_as"], &files["g-part"]["because"]), (&"flat".into(), &"a hint".into()));
    // Ends of files that are compressed like the packed inode.
    let args = ["pack", "--json", "--explain", "--fragments", "tails", "--dedupe", "off", &root, &scratch.path("ends")];
    let files = explained(&args);
    assert!(files["late"]["packed_bytes"].as_u64().unwrap() > 0, "{}", files["late"]);
    for name in ["a-long", "late"] {
        let number = |field: &str| files[name][field].as_u64().unwrap();
        assert_eq!(number("text_bytes") + number("packed_bytes"), number("bytes"), "{name}");
    }
    let people = run(&["pack", "--explain", "--dry-run", "-q", "--hint", "late=lzma", &root, &scratch.path("other")]);
    let lines = String::from_utf8(people.stdout).unwrap();
    assert!(
        lines.contains("; by a hint: lzma,6 in 64.0 KiB; not packed: too long; extended inode: mtime\n"),
        "{lines}"
    );
}

#[test]
fn people_read_one_line_a_file_and_a_dry_run_keeps_nothing() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    let output = run(&["pack", "--explain", "--dry-run", &root, &image]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("10 files"));
    let lines = String::from_utf8(output.stdout).unwrap();
    for line in [
        "b-again: the same as a-long\n",
        "c-small: packed, at byte 0\n",
        "f-empty: empty\n",
        "d-small-random: uncompressed: fits one block, 2.9 KiB inline; not packed: its first bytes do not compress\n",
    ] {
        assert!(lines.contains(line), "{line:?} is not in\n{lines}");
    }
    let late = lines.lines().find(|line| line.starts_with("late: compressed: 195.3 KiB to ")).expect("a line");
    assert!(late.ends_with("not packed: too long; extended inode: mtime"), "{late}");
    assert_eq!(lines.lines().count(), 10);
    assert_eq!(scratch.names(), ["src"], "nothing is left behind");
}
