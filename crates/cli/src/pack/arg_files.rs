//! Files that options name, and errors about values of options.

use crate::exit::Failure;
use kiln_source::filter::SyntaxError;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// A file's bytes.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|source| Failure::File { path: path.to_owned(), action: "read", source })
}

/// A file's bytes, or those of standard input.
pub fn read_or_stdin(path: &Path) -> Result<Vec<u8>, Failure> {
    if path != Path::new("-") {
        return read(path);
    }
    let mut text = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut text);
    read.map_err(|source| Failure::File { path: "standard input".into(), action: "read", source })?;
    Ok(text)
}

/// An error of the value of an option.
pub fn named(option: &str, error: &SyntaxError) -> Failure {
    Failure::Usage(format!("{option}: {error}"))
}

/// An error of what was given.
pub fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(error.to_string())
}
