//! Files with hot lists or paths.

use crate::exit::Failure;
use kiln_read::hotlist::HotList;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// More than a list of all ranges of all files that a program reads: a file that is no list at all must not fill the
/// memory.
const LEN_MAX: u64 = 256 << 20;

/// Reads the hot list in a file; `-` is standard input.
pub fn hot(path: &Path) -> Result<HotList, Failure> {
    parse(path, &read(path)?)
}

/// Reads a hot list, or files as a whole: paths, one per line.
pub fn hot_or_plain(path: &Path) -> Result<HotList, Failure> {
    parse_any(path, &read(path)?)
}

/// Reads the same from a file, whatever its name is.
pub fn hot_or_plain_file(path: &Path) -> Result<HotList, Failure> {
    parse_any(path, &read_file(path)?)
}

fn parse_any(path: &Path, text: &[u8]) -> Result<HotList, Failure> {
    if HotList::is_one(text) {
        return parse(path, text);
    }
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    Ok(HotList::of_files(lines.map(<[u8]>::to_vec)))
}

fn parse(path: &Path, text: &[u8]) -> Result<HotList, Failure> {
    HotList::parse(text, &path.to_string_lossy()).map_err(|error| Failure::Usage(error.to_string()))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    match path == Path::new("-") {
        true => read_all(Path::new("standard input"), io::stdin().lock()),
        false => read_file(path),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let file = File::open(path).map_err(|source| Failure::File { path: path.to_owned(), action: "read", source })?;
    read_all(path, file)
}

fn read_all(name: &Path, from: impl Read) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let len = from.take(LEN_MAX + 1).read_to_end(&mut text);
    let len = len.map_err(|source| Failure::File { path: name.to_owned(), action: "read", source })?;
    match len as u64 > LEN_MAX {
        true => Err(Failure::Usage(format!("{}: no list is longer than {LEN_MAX} bytes", name.display()))),
        false => Ok(text),
    }
}
