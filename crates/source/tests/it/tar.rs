//! tar archives of programs, and hostile archives.

mod hostile;
mod programs;
pub(crate) mod records;

use crate::common::GOING;
use kiln_source::{ScanOptions, SourceError, SourceOptions, open};
use kiln_tests::temp::TempDir;
use kiln_tree::Tree;
use std::fs;
use std::path::Path;

/// Returns the tree of the archive at `path`, as opened by [`open`].
fn scan(path: &Path) -> Result<Tree, SourceError> {
    open(path, &SourceOptions::default())?.scan(&ScanOptions::new(&GOING)).map(|scan| scan.tree)
}

/// Returns the tree of the archive `bytes`.
fn scan_bytes(bytes: &[u8]) -> Result<Tree, SourceError> {
    let dir = TempDir::in_memory("tar").unwrap();
    fs::write(dir.join("a.tar"), bytes).unwrap();
    scan(&dir.join("a.tar"))
}

/// Returns the tree of the archive `bytes`, and the paths of left-out members.
fn scan_leaving_out(bytes: &[u8]) -> (Tree, Vec<String>) {
    let dir = TempDir::in_memory("tar").unwrap();
    let path = dir.join("a.tar");
    fs::write(&path, bytes).unwrap();
    let source = open(&path, &SourceOptions::default()).unwrap();
    let scan = source.scan(&ScanOptions { keep_going: true, ..ScanOptions::new(&GOING) }).unwrap();
    let in_archive =
        |left_out: &kiln_source::Unreadable| left_out.path.strip_prefix(&path).unwrap().to_str().unwrap().to_owned();
    (scan.tree, scan.skipped.iter().map(in_archive).collect())
}

/// Returns the error for the archive `bytes`, without its name.
fn error_of(bytes: &[u8]) -> String {
    let message = scan_bytes(bytes).map(drop).unwrap_err().to_string();
    message.split_once(": ").unwrap().1.to_owned()
}
