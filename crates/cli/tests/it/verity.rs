//! `kiln verity` and `kiln digest`.

use crate::common::{Scratch, fails, golden, json, number, run, stderr, stdout};
use std::fs;

fn text(args: &[&str]) -> String {
    String::from_utf8(stdout(args)).unwrap().trim().to_owned()
}

#[test]
fn a_tree_is_appended_verified_shown_and_replaced() {
    let scratch = Scratch::new();
    let (image, file) = (scratch.path("image.erofs"), scratch.path("roothash"));
    fs::copy(golden("zstd.erofs"), &image).unwrap();
    let data = fs::read(&image).unwrap();
    fails(&["verity", "show", &image], 1, "no hash tree");
    fails(&["verity", "verify", &image, "--root-hash", &"00".repeat(32)], 1, "no hash tree");
    let root_hash = text(&["verity", "format", "-q", &image, "--root-hash-file", &file, "--sidecar"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), root_hash);
    let with_tree = fs::read(&image).unwrap();
    assert!(with_tree.starts_with(&data), "the data are as they were");
    let shown = json(&stdout(&["verity", "show", "--json", &image]));
    assert_eq!(number(&shown, "hash_offset"), (data.len() as u64).next_multiple_of(4096));
    assert_eq!(shown["root_hash"], *root_hash);
    assert!(text(&["verity", "show", &image]).contains("sha256"));
    for given in [&root_hash, &file] {
        stdout(&["verity", "verify", &image, "--root-hash", given]);
    }
    stdout(&["check", &image]);

    fails(&["verity", "format", &image], 1, "has a hash tree already");
    assert_eq!(fs::read(&image).unwrap(), with_tree);
    let salted = text(&["verity", "format", "-q", "--force", &image, "--salt", "content", "--algorithm", "sha512"]);
    assert_eq!(salted.len(), 128);
    let again = text(&["verity", "format", "-q", "--force", &image]);
    assert_eq!((again, fs::read(&image).unwrap()), (root_hash.clone(), with_tree.clone()));

    let mut wrong = with_tree;
    wrong[5000] ^= 1;
    fs::write(&image, &wrong).unwrap();
    let output = run(&["verity", "verify", "--json", &image, "--root-hash", &root_hash]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let report = json(&output.stdout);
    assert_eq!((number(&report, "problem_count"), number(&report["problems"][0], "offset")), (1, 4096));
    assert!(stderr(&output).contains("data block at byte 4096: wrong digest"), "{}", stderr(&output));
    for document in [&report, &shown, &json(&stdout(&["verity", "format", "--json", "--force", &image]))] {
        assert_eq!(crate::json::undocumented(document), [""; 0]);
    }
}

#[test]
fn a_tree_may_lie_beside_any_file() {
    let scratch = Scratch::new();
    let (file, tree) = (scratch.path("file"), scratch.path("file.verity"));
    fs::write(&file, vec![3; 5 * 4096]).unwrap();
    let root_hash = text(&[
        "verity",
        "format",
        "-q",
        &file,
        &tree,
        "--salt",
        "00ff",
        "--uuid",
        "6a64ad01-5d21-4f2b-9a4b-2d0c1e0f7788",
    ]);
    assert_eq!(fs::read(&file).unwrap(), vec![3; 5 * 4096]);
    fails(&["verity", "format", &file, &tree], 1, "exists already");
    stdout(&["verity", "verify", &file, "--root-hash", &root_hash]);
    stdout(&["verity", "verify", &file, &tree, "--root-hash", &root_hash]);
    let shown = json(&stdout(&["verity", "show", "--json", &tree]));
    assert_eq!((shown["salt"].as_str(), shown["data_blocks"].as_u64()), (Some("00ff"), Some(5)));
    fails(&["verity", "format", "--salt", "content", &scratch.path("file")], 2, "--salt content needs an EROFS image");
    fs::write(&file, vec![3; 5000]).unwrap();
    fails(&["verity", "format", "--force", &file, &tree], 2, "no multiple of the block size");
    fails(&["verity", "format", "--data-block-size", "5000", &file], 2, "--data-block-size: not a power of two");
    text(&["verity", "format", "-q", &file]);
    assert_eq!(fs::metadata(&file).unwrap().len(), 2 * 4096 + 2 * 4096);
}

#[test]
fn digests_are_those_of_fs_verity() {
    let scratch = Scratch::new();
    let empty = scratch.path("empty");
    fs::write(&empty, "").unwrap();
    let sha256 = "3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95";
    assert_eq!(text(&["digest", &empty]), format!("sha256:{sha256} {empty}"));
    let list = json(&stdout(&["digest", "--json", "--algorithm", "sha512", &empty, &empty]));
    assert_eq!((list["digests"].as_array().unwrap().len(), list["digests"][1]["bytes"].as_u64()), (2, Some(0)));
    assert_eq!(crate::json::undocumented(&list), [""; 0]);
    fails(&["digest", &scratch.path("none")], 1, "none: cannot open");
}
