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
    stdout(&["verity", "verify", &file, "--hash-tree", &tree, "--root-hash", &root_hash]);
    fails(&["verity", "verify", &file, &tree, "--hash-tree", &tree, "--root-hash", &root_hash], 2, "--hash-tree");
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

/// Returns the path of a key or certificate of the tests of signatures.
fn key(name: &str) -> String {
    format!("{}/../signature/tests/it/keys/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_root_hash_is_signed_and_an_image_verified_by_the_signature() {
    let scratch = Scratch::new();
    let (image, file) = (scratch.path("image.erofs"), scratch.path("image.roothash"));
    fs::copy(golden("zstd.erofs"), &image).unwrap();
    let root_hash = text(&["verity", "format", "-q", &image, "--root-hash-file", &file]);
    let signer = ["--key", &key("rsa.key"), "--certificate", &key("rsa.crt")];
    let partition = scratch.path("partition");
    stdout(&[&["verity", "sign", "-q", &file, "--partition-file", &partition][..], &signer].concat());
    let signature = format!("{file}.p7s");
    assert_eq!(fs::read(&partition).unwrap().len(), 16384);
    fails(&[&["verity", "sign", &file][..], &signer].concat(), 1, "exists already");

    let certificate = key("rsa.crt");
    for signature in [&signature, &partition] {
        let args = ["verity", "verify", "--json", &image, "--root-hash", &file, "--signature", signature];
        let report = json(&stdout(&[&args[..], &["--certificate", &certificate]].concat()));
        assert_eq!(report["signature"]["subject"], "CN=rsa of tests,O=kiln");
        assert_eq!(crate::json::undocumented(&report), [""; 0]);
        let other = key("other.crt");
        fails(&[&args[..], &["--certificate", &other]].concat(), 1, "signed by another certificate");
    }
    // The signature is verified before anything is read.
    let other = "00".repeat(32);
    let args = ["verity", "verify", &image, "--certificate", &certificate, "--root-hash", &other, "--signature"];
    fails(&[&args[..], &[&signature]].concat(), 1, "not one of these contents");
    fails(&[&args[..], &[&partition]].concat(), 1, "it is for another root hash");
    fails(&["verity", "verify", &image, "--root-hash", &file, "--signature", &signature], 2, "--certificate");

    let command = text(&[&["verity", "sign", "--print-command", &file][..], &signer].concat());
    assert!(command.starts_with(&format!("printf %s {root_hash} | openssl smime -sign -noattr ")), "{command}");
    fails(&[&["verity", "sign", &root_hash][..], &signer].concat(), 2, "--output");
    let wrong = ["verity", "sign", "--force", &file, "--key", &key("ed.key"), "--certificate", &key("ed.crt")];
    fails(&wrong, 1, "ed.key: private key 1.3.101.112: not supported");
}

#[test]
fn the_printed_command_makes_the_same_signature() {
    if std::process::Command::new("openssl").arg("version").output().is_err() {
        return kiln_tests::without("openssl");
    }
    let scratch = Scratch::new();
    let (theirs, ours) = (scratch.path("it's"), scratch.path("ours"));
    let args = ["--key", &key("rsa.key"), "--certificate", &key("rsa.crt"), "--output"];
    let root_hash = "5a".repeat(32);
    let sign = [&["verity", "sign", "-q", &root_hash][..], &args].concat();
    stdout(&[&sign[..], &[&ours]].concat());
    let command = text(&[&sign[..], &[&theirs, "--print-command"]].concat());
    assert!(std::process::Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
    assert_eq!(fs::read(&theirs).unwrap(), fs::read(&ours).unwrap());
}
