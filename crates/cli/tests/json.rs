//! The documents of `--json` are those that JSON.md describes.

mod common;

use common::{Scratch, golden, json, stdout};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names of all fields in `value`.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                fields(value, found);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| fields(element, found)),
        _ => {}
    }
}

fn documented() -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("JSON.md")).unwrap();
    // What stands between backquotes.
    text.split('`').skip(1).step_by(2).map(String::from).collect()
}

/// Files that `pack` stores in all its ways.
fn files(scratch: &Scratch) {
    let root = scratch.path("files");
    fs::create_dir(&root).unwrap();
    let mut state = 1u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    })
    .take(5 << 20)
    .collect();
    fs::write(format!("{root}/random"), random).unwrap();
    for name in ["long", "again"] {
        fs::write(format!("{root}/{name}"), common::text(1, 300_000)).unwrap();
    }
    let late = std::time::UNIX_EPOCH + std::time::Duration::from_secs(2_000_000_000);
    fs::File::options().write(true).open(format!("{root}/long")).unwrap().set_modified(late).unwrap();
    fs::write(format!("{root}/small"), common::text(2, 3000)).unwrap();
    fs::File::create(format!("{root}/sparse")).unwrap().set_len(1 << 30).unwrap();
}

#[test]
fn every_field_is_documented() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("src")).unwrap();
    files(&scratch);
    let damaged = scratch.path("damaged");
    let mut bytes = fs::read(golden("lz4.erofs")).unwrap();
    bytes[1024 + 16] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let mut found = BTreeSet::new();
    for args in [
        &["ls", "-R", "--json", &golden("inline.erofs")][..],
        &["stat", "--json", &golden("xattrs.erofs"), "x/f00"],
        &["info", "--json", &golden("zstd-1m-frag.erofs")],
        &["info", "--stats", "--json", &golden("zstd-1m-frag.erofs")],
        &["stat", "--extents", "--json", &golden("zstd-1m-frag.erofs"), "big/text"],
        &["explain", "--json", &golden("zstd-1m-frag.erofs"), "big/text", "5-9"],
        &["du", "--json", &golden("inline.erofs")],
        &["extract", "--json", &golden("inline.erofs"), &scratch.path("out"), "big"],
        &["pack", "--json", &scratch.path("src"), &scratch.path("image")],
        &["pack", "--json", "--estimate", "--tail-packing", &scratch.path("files")],
        &["pack", "--json", "--explain", &scratch.path("files"), &scratch.path("explained")],
    ] {
        let document = json(&stdout(args));
        assert_eq!(document["schema"], 1, "{args:?}");
        fields(&document, &mut found);
    }
    let document = json(&common::run(&["check", "--json", &damaged]).stdout);
    assert_ne!(document["problem_count"], 0);
    fields(&document, &mut found);
    let documented = documented();
    let missing: Vec<_> = found.difference(&documented).collect();
    assert!(missing.is_empty(), "not in JSON.md: {missing:?}");
    let explained = ["duplicate_of", "packed_offset", "bits_per_byte", "chunk_bytes", "ratio", "extended_because"];
    let others =
        ["path_b64", "rdev", "target", "error", "since", "wall_secs", "unset_xattrs", "unpacked_because", "refused"];
    for name in others.into_iter().chain(explained) {
        assert!(found.contains(name), "{name} was not seen");
    }
}
