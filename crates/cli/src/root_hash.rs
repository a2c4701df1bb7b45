//! Root hashes by which a command verifies what it reads.

use crate::console::progress::Meter;
use crate::console::report::note;
use crate::console::size::Human;
use crate::exit::Failure;
use clap::builder::{OsStringValueParser, TypedValueParser};
use kiln_parallel::Threads;
use kiln_read::SourceLayer;
use kiln_verity::verify::Report;
use kiln_verity::{Control, Digest, RootHashes, TreeFile, UnverifiedTree, VerityError, read_superblock};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Longest file with a root hash.
const FILE_MAX_LEN: u64 = 4096;

/// Help of `--root-hash`.
pub const ROOT_HASH_HELP: &str = "Verify all that is read by this root hash (see `kiln help root-hash`)";

/// Help of `--hash-tree`.
pub const HASH_TREE_HELP: &str = "File with the hash tree; default: behind the image, then IMAGE.verity";

/// Root hashes of an image that a command reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct RootHashArgs {
    #[arg(long, value_name = "HEX|FILE", help = ROOT_HASH_HELP, value_delimiter = ',', value_parser = parser())]
    #[serde(with = "crate::process::request::texts")]
    pub root_hash: Vec<Digest>,

    #[arg(long, value_name = "FILE", help = HASH_TREE_HELP, requires = "root_hash")]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub hash_tree: Vec<PathBuf>,
}

impl RootHashArgs {
    /// Returns true if what is read is to be verified.
    pub fn is_given(&self) -> bool {
        !self.root_hash.is_empty()
    }

    /// Returns the root hashes for the library: none if none are given.
    pub fn root_hashes(&self) -> RootHashes {
        root_hashes(&self.root_hash, &self.hash_tree)
    }

    /// Returns the layer that verifies the image or archive at `path` and its devices, if that was asked for.
    ///
    /// # Errors
    /// Another number of root hashes than there are files.
    pub fn layer(&self, path: &Path, devices: &[PathBuf]) -> Result<Option<SourceLayer>, Failure> {
        layer(&self.root_hashes(), path, devices)
    }
}

/// Returns root hashes and trees as the library takes them.
pub fn root_hashes(hashes: &[Digest], trees: &[PathBuf]) -> RootHashes {
    RootHashes::new(hashes.to_vec()).with_trees(trees.iter().cloned().map(TreeFile::Path).collect())
}

/// Returns the layer that verifies the image or archive at `path` and its devices; `None` without root hashes.
///
/// # Errors
/// Another number of root hashes than there are files.
pub fn layer(hashes: &RootHashes, path: &Path, devices: &[PathBuf]) -> Result<Option<SourceLayer>, Failure> {
    match hashes.is_empty() {
        true => Ok(None),
        false => hashes.layer(path, devices).map(Some).map_err(|error| failure(path, error)),
    }
}

/// Returns an error about the hash tree of `path`.
pub fn failure(path: &Path, source: VerityError) -> Failure {
    match source {
        VerityError::Output(source) => source.into(),
        VerityError::RootHashCount { .. } => Failure::Usage(format!("--root-hash: {source}")),
        source => Failure::Verity { path: path.to_owned(), source: Box::new(source) },
    }
}

/// Returns the parser of root hashes: hexadecimal digits, or the name of a file with them.
pub fn parser() -> impl TypedValueParser<Value = Digest> {
    OsStringValueParser::new().try_map(|value: OsString| parse(&value))
}

/// Parses a root hash, or reads it from the file of this name.
///
/// # Errors
/// The reason why it is neither.
pub fn parse(value: &OsStr) -> Result<Digest, String> {
    if let Some(digest) = value.to_str().and_then(|digits| digits.parse().ok()) {
        return Ok(digest);
    }
    let read = || -> io::Result<String> {
        let mut text = String::new();
        File::open(value)?.take(FILE_MAX_LEN).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error| format!("neither 64 or 128 hexadecimal digits nor a file with them: {error}"))?;
    text.trim().parse().map_err(|reason| format!("no root hash in the file: {reason}"))
}

/// Compares all of an image and of its devices with their root hashes, and prints what is wrong.
///
/// # Errors
/// Files that cannot be read; trees that do not suit.
pub fn verify_all(
    trees: &[(PathBuf, UnverifiedTree)],
    threads: Threads,
    meter: &Meter,
) -> Result<Vec<Report>, Failure> {
    if meter.is_shown() {
        let len = |(_, tree): &(PathBuf, UnverifiedTree)| {
            let superblock = read_superblock(&tree.tree, tree.location.hash_off());
            superblock.map_or(0, |superblock| superblock.parameters.data_len())
        };
        meter.set(0, trees.iter().map(len).sum());
    }
    let progress = |bytes| meter.advance(bytes);
    let control = Control { threads, progress: &progress, ..Control::unwatched() };
    let verify = |(path, tree): &(PathBuf, UnverifiedTree)| tree.verify(&control).map_err(|error| failure(path, error));
    trees.iter().map(verify).collect()
}

/// Prints the result of a comparison of `path` with its root hash: only what is wrong if `quiet`.
pub fn tell(path: &Path, report: &Report, quiet: bool) {
    let path = path.display();
    for finding in &report.findings {
        note(format_args!("{path}: {finding}"));
    }
    let unlisted = report.finding_count - report.findings.len() as u64;
    if unlisted > 0 {
        note(format_args!("{path}: and {unlisted} problems more"));
    }
    if report.unverifiable > 0 {
        note(format_args!("{path}: {} below wrong hash blocks could not be verified", Human(report.unverifiable)));
    }
    if quiet {
        return;
    }
    if report.uncovered > 0 {
        note(format_args!("{path}: {} behind the data are not covered by the tree", Human(report.uncovered)));
    }
    let (len, count) = (Human(report.superblock.parameters.data_len()), report.finding_count);
    note(format_args!("{path}: {len} compared with the root hash: {count} problems"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_hashes_are_digits_or_files_with_them() {
        let scratch = kiln_tests::temp::TempDir::new("root-hash").unwrap();
        let (digits, path) = ("0aF5".repeat(16), scratch.join("file"));
        let expected: Digest = digits.parse().unwrap();
        assert_eq!(parse(digits.as_ref()), Ok(expected));
        for text in [digits.clone(), format!("{digits}\n"), format!(" {digits}\r\n")] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(parse(path.as_os_str()), Ok(expected));
        }
        std::fs::write(&path, &digits[1..]).unwrap();
        assert!(parse(path.as_os_str()).unwrap_err().contains("no root hash in the file"));
        assert!(parse(digits[1..].as_ref()).unwrap_err().contains("neither 64 or 128"));
    }
}
