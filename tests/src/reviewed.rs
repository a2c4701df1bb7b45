//! Tables of sizes and digests, for the review of changes.

use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;

/// Returns a line of a table: length in bytes and SHA-256 of an image, and its description.
pub fn line(image: &[u8], what: &str) -> String {
    let hex = Sha256::digest(image).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    format!("{:8} {hex} {what}\n", image.len())
}

/// Compares a table with the reviewed one at `path`. With `KILN_BLESS` in the environment, writes
/// it there first.
///
/// # Panics
/// If they differ, or the file cannot be read or written.
pub fn assert_reviewed(table: &str, path: &Path) {
    if std::env::var_os("KILN_BLESS").is_some() {
        fs::write(path, table).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let reviewed = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for (now, before) in table.lines().zip(reviewed.lines()) {
        assert_eq!(now, before);
    }
    assert_eq!(table.lines().count(), reviewed.lines().count());
}
