//! Files that options name, and errors about values of options.

use crate::exit::Failure;
use kiln_tree::SyntaxError;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// Reads a file.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|source| Failure::File { path: path.to_owned(), action: "read", source })
}

/// Reads a file, or standard input.
pub fn read_or_stdin(path: &Path) -> Result<Vec<u8>, Failure> {
    if path != Path::new("-") {
        return read(path);
    }
    let mut text = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut text);
    read.map_err(|source| Failure::File { path: "standard input".into(), action: "read", source })?;
    Ok(text)
}

/// Returns the failure of the value of an option.
pub fn named(option: &str, error: &SyntaxError) -> Failure {
    Failure::Usage(format!("{option}: {error}"))
}

/// Returns the failure of an argument.
pub fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(error.to_string())
}
