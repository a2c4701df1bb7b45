//! Hash trees that commands write with their images, and those that no longer fit.

mod changed;
mod devices;
mod patched;
mod written;

use crate::common::{kiln, run, stderr, stdout, text};
use kiln_tests::without;
use std::fs;
use std::process::{Command, Output};

/// A salt, and a UUID for `veritysetup`.
const SALT: &str = "00112233445566778899aabbccddeeff0123456789abcdef0011223344556677";

/// Returns true if `veritysetup` is installed. The root hashes of [`written`] are those that it printed.
fn has_veritysetup() -> bool {
    let is_there = Command::new("veritysetup").arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        without("veritysetup");
    }
    is_there
}

/// Makes a directory with files of several lengths.
fn files(dir: &str) {
    fs::create_dir_all(format!("{dir}/below")).unwrap();
    for (at, len) in [0, 700, 5000, 70_000, 900_000].into_iter().enumerate() {
        fs::write(format!("{dir}/below/f{at}"), text(at as u64, len)).unwrap();
    }
}

/// Returns the root hash that `IMAGE.roothash` has.
fn root_hash(image: &str) -> String {
    fs::read_to_string(format!("{image}.roothash")).unwrap()
}

/// Verifies the image by the root hash beside it.
fn assert_verified(image: &str) {
    stdout(&["verity", "verify", "-q", image, "--root-hash", &root_hash(image)]);
}

/// Returns true if something of the image is not as the root hash beside it says, or there is no tree.
fn is_unverified(image: &str, root_hash: &str) -> bool {
    matches!(run(&["verity", "verify", "-q", image, "--root-hash", root_hash]).status.code(), Some(1 | 4))
}

/// Runs the command with bytes on standard input.
fn piped(args: &[&str], file: &str) -> Output {
    let output = kiln().args(args).stdin(fs::File::open(file).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}
