//! The documents of `--json` match their description in JSON.md.

use crate::common::{Scratch, golden, json, run, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Collects the names of all fields in `value`.
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
    // The words between backquotes.
    text.split('`').skip(1).step_by(2).map(String::from).collect()
}

/// Returns the fields of a document that JSON.md does not describe.
pub fn undocumented(document: &Value) -> Vec<String> {
    let mut found = BTreeSet::new();
    fields(document, &mut found);
    found.difference(&documented()).cloned().collect()
}

/// Makes files that `pack` stores in all its ways.
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
        fs::write(format!("{root}/{name}"), crate::common::text(1, 300_000)).unwrap();
    }
    let late = std::time::UNIX_EPOCH + std::time::Duration::from_secs(2_000_000_000);
    fs::File::options().write(true).open(format!("{root}/long")).unwrap().set_modified(late).unwrap();
    fs::write(format!("{root}/small"), crate::common::text(2, 3000)).unwrap();
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
        &["doctor", "--json"],
        &["patch", "make", "--json", &golden("lz4.erofs"), &golden("zstd.erofs"), &scratch.path("patch")],
        &["patch", "apply", "--in-place", "--status", "--json", &golden("zstd.erofs"), &scratch.path("patch")],
        &["patch", "apply", "--json", &golden("lz4.erofs"), &scratch.path("patch"), &scratch.path("applied")],
        &["extract", "--json", &golden("inline.erofs"), &scratch.path("out"), "big"],
        &["pack", "--json", &scratch.path("src"), &scratch.path("image")],
        &["update", "--json", &scratch.path("image"), &scratch.path("src")],
        &["log", "--json", &scratch.path("image")],
        &["convert", "--json", &scratch.path("src"), &scratch.path("converted")],
        &["convert", "--json", &scratch.path("src"), &scratch.path("converted.tar")],
        &["oci", "pack", "--json", &scratch.path("files"), &scratch.path("layout")],
        &["oci", "convert", "--json", &scratch.path("layout"), &scratch.path("layout2")],
        &["composefs", "create", "--json", &scratch.path("files"), &scratch.path("composefs")],
        &["pack", "--json", "--estimate", "--layout=tail-packing", &scratch.path("files")],
        &["pack", "--json", "--explain", &scratch.path("files"), &scratch.path("explained")],
        &["verity", "format", "--json", "--sidecar", &scratch.path("applied")],
        &["verity", "show", "--json", &scratch.path("applied")],
        &["digest", "--json", &golden("lz4.erofs")],
    ] {
        let document = json(&stdout(args));
        assert_eq!(document["schema"], 2, "{args:?}");
        fields(&document, &mut found);
    }
    let document = json(&crate::common::run(&["check", "--json", &damaged]).stdout);
    assert_ne!(document["problem_count"], 0);
    fields(&document, &mut found);
    let archive = scratch.path("archive.cpio");
    let document = json(&crate::common::run(&["export", "--json", &golden("xattrs.erofs"), &archive]).stdout);
    assert_eq!(document["losses"][0]["loss"], "xattrs");
    fields(&document, &mut found);
    let (hashed, wrong) = (scratch.path("applied"), "00".repeat(32));
    let document = json(&run(&["verity", "verify", "--json", &hashed, "--root-hash", &wrong]).stdout);
    assert_eq!(document["problems"][0]["part"], "tree");
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

/// Returns the document of a command that fails with `code`.
fn failed(args: &[&str], code: i32) -> Value {
    let output = run(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{args:?}: {error}: {}", String::from_utf8_lossy(&output.stdout)));
    assert_eq!(
        (&document["schema"], &document["error"]["exit_code"]),
        (&2.into(), &code.into()),
        "{args:?}: {document}"
    );
    let message = document["error"]["message"].as_str().unwrap();
    assert!(stderr(&output).contains(message), "{message}");
    document
}

#[test]
fn a_failure_is_a_document_too() {
    let scratch = Scratch::new();
    let (none, src, image) = (scratch.path("none"), scratch.path("src"), scratch.path("image"));
    fs::create_dir(&src).unwrap();
    stdout(&["pack", &src, &image]);
    for (args, code, kind, path) in [
        (&["ls", "--json", &none][..], 1, "io", Some(&none[..])),
        (&["check", "--json", &none], 8, "io", Some(&none)),
        (&["diff", "--json", &none, &src], 2, "io", Some(&none)),
        (&["pack", "--json", &none, &scratch.path("other")], 1, "io", Some(&none)),
        (&["pack", "--json", &src, &image], 1, "exists", Some(&image)),
        (&["pack", "--json", "-C", "5000", &src, &none], 2, "usage", None),
        (&["pack", "--json", &src, "-"], 2, "usage", None),
        (&["ls", "--json"], 2, "usage", None),
        (&["check", "--json"], 16, "usage", None),
        (&["stat", "--json", &image, "missing"], 1, "not_found", Some("missing")),
        (&["du", "--json", &image, "missing"], 1, "not_found", Some("missing")),
        (&["explain", "--json", &image, "missing"], 1, "not_found", Some("missing")),
        (&["extract", "--json", &image, &src, "missing"], 1, "not_found", Some("missing")),
        (&["info", "--json", &src], 1, "io", Some(&src)),
    ] {
        let document = failed(args, code);
        assert_eq!((&document["error"]["kind"], document["error"]["path"].as_str()), (&kind.into(), path), "{args:?}");
    }
    let mut bytes = fs::read(golden("lz4.erofs")).unwrap();
    bytes[1024] ^= 1;
    fs::write(&image, bytes).unwrap();
    let error = &failed(&["info", "--json", &image], 1)["error"];
    assert_eq!(
        (&error["record"], &error["field"], &error["offset"]),
        (&"erofs_super_block".into(), &"magic".into(), &1024.into())
    );
    assert_eq!(error["value"], 0xE0F5_E1E2u32 ^ 1);
    let mut found = BTreeSet::new();
    fields(error, &mut found);
    assert!(found.is_subset(&documented()), "{found:?}");
}

#[test]
fn a_list_that_was_begun_is_closed_before_the_failure() {
    let scratch = Scratch::new();
    let image = scratch.path("image");
    let good = golden("lz4.erofs");
    let bytes = fs::read(&good).unwrap();
    let json = |args: &[&str]| serde_json::from_slice::<Value>(&stdout(args)).unwrap();
    let meta = json(&["info", "--json", &good])["meta_blkaddr"].as_u64().unwrap() * 4096;
    let inode_off = |path: &str| (meta + json(&["stat", "--json", &good, path])["nid"].as_u64().unwrap() * 32) as usize;
    // No checksum of the superblock covers the following bytes.
    let damaged = |off: usize, len: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[off..off + len].fill(byte);
        fs::write(&image, bytes).unwrap();
    };
    damaged(inode_off("big/text"), 2, 0xFF);
    let listed = failed(&["ls", "-R", "--json", &image], 1);
    assert_eq!(listed["error"]["kind"], "incomplete");
    assert!(listed["entries"].as_array().unwrap().len() > 3, "{listed}");
    let sums = failed(&["du", "--json", &image], 1);
    assert!(
        sums["directories"].is_array() && sums["error"]["record"] == "erofs_inode_compact"
            || sums["error"]["record"].is_string(),
        "{sums}"
    );
    let mut begun = 0;
    for off in (80..160).step_by(6) {
        // In the index, which lies behind the inode.
        damaged(inode_off("big/text") + off, 8, 0xF0);
        for args in
            [&["stat", "--extents", "--json", &image, "big/text"][..], &["explain", "--json", &image, "big/text"]]
        {
            if run(args).status.code() == Some(1) {
                let document = failed(args, 1);
                let list = &document[if args[0] == "stat" { "extents" } else { "pieces" }];
                begun += u32::from(list.as_array().is_some_and(|list| !list.is_empty()));
            }
        }
    }
    assert!(begun > 0);
}
