//! fs-verity digests.

use kiln_digest::Algorithm;
use kiln_digest::fsverity::FsVerity;
use kiln_tests::temp::TempDir;
use std::fs;
use std::process::Command;

/// Returns bytes without a repeated block.
fn pattern(len: usize) -> Vec<u8> {
    let word = |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left((n % 61) as u32).to_le_bytes();
    let mut bytes: Vec<u8> = (0..len.div_ceil(8) as u64).flat_map(word).collect();
    bytes.truncate(len);
    bytes
}

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
    if !Command::new("fsverity").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return kiln_tests::without("fsverity");
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
