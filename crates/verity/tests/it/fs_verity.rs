//! fs-verity digests.

use crate::common::{has, pattern};
use kiln_tests::temp::TempDir;
use kiln_verity::Algorithm;
use kiln_verity::fsverity::FsVerity;
use std::fs;
use std::process::Command;

/// Lengths, and the digests that `fsverity digest` prints.
fn golden() -> Vec<(usize, &'static str, &'static str)> {
    let lines = include_str!("fs_verity.txt").lines().filter(|line| !line.starts_with('#'));
    let fields = lines.map(|line| line.split(' ').collect::<Vec<_>>());
    fields.map(|fields| (fields[0].parse().unwrap(), fields[1], fields[2])).collect()
}

fn digest(algorithm: Algorithm, bytes: &[u8], step: usize) -> String {
    let mut file = FsVerity::new(algorithm);
    bytes.chunks(step).for_each(|part| file.update(part));
    assert_eq!(file.len(), bytes.len() as u64);
    file.finish().to_string()
}

#[test]
fn digests_are_those_of_fsverity() {
    for (len, sha256, sha512) in golden() {
        let bytes = pattern(len);
        assert_eq!(digest(Algorithm::Sha256, &bytes, 1 << 20), sha256, "{len}");
        assert_eq!(digest(Algorithm::Sha512, &bytes, 4096), sha512, "{len}");
    }
}

#[test]
fn pieces_of_any_length_give_the_same_digest() {
    let bytes = pattern(600_000);
    let whole = digest(Algorithm::Sha256, &bytes, bytes.len());
    for step in [1, 7, 4095, 4096, 4097, 65_536] {
        assert_eq!(digest(Algorithm::Sha256, &bytes, step), whole, "{step}");
    }
}

#[test]
fn the_program_agrees() {
    if !has("fsverity") {
        return;
    }
    let scratch = TempDir::new("fs-verity").unwrap();
    let path = scratch.join("file");
    for (len, _, _) in golden().into_iter().chain([(300_000, "", "")]) {
        let bytes = pattern(len);
        fs::write(&path, &bytes).unwrap();
        for algorithm in Algorithm::ALL {
            let option = format!("--hash-alg={algorithm}");
            let run = Command::new("fsverity").args(["digest", "--compact", &option]).arg(&path).output().unwrap();
            let theirs = String::from_utf8(run.stdout).unwrap();
            assert_eq!(digest(algorithm, &bytes, 10_000), theirs.trim(), "{algorithm} {len}");
        }
    }
}
