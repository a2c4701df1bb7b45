//! The documents of `--json` are those that JSON.md describes.

mod common;

use common::{Scratch, golden, stdout};
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

#[test]
fn every_field_is_documented() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("src")).unwrap();
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
    ] {
        let document: Value = serde_json::from_slice(&stdout(args)).unwrap();
        assert_eq!(document["schema"], 1, "{args:?}");
        fields(&document, &mut found);
    }
    let document: Value = serde_json::from_slice(&common::run(&["check", "--json", &damaged]).stdout).unwrap();
    assert_ne!(document["problem_count"], 0);
    fields(&document, &mut found);
    let documented = documented();
    let missing: Vec<_> = found.difference(&documented).collect();
    assert!(missing.is_empty(), "not in JSON.md: {missing:?}");
    for name in ["path_b64", "rdev", "target", "error", "since", "wall_secs", "unset_xattrs"] {
        assert!(found.contains(name), "{name} was not seen");
    }
}
