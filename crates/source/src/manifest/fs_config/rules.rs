//! Rules over paths, in the binary files that Android builds install.
//!
//! A file is a sequence of little-endian records: `len` of the whole record, `mode`, `uid` and
//! `gid` (16 bits each), `capabilities` (64 bits), and a pattern that ends with one or more zero
//! bytes: `fs_path_config_from_file` of AOSP's `private/fs_config.h`.

use kiln_tree::policy::{Access, AccessRule};
use kiln_tree::{FileError, SyntaxError};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::unreadable;
use crate::error::Unreadable;
use crate::manifest::lines::ListError;

/// Partitions that may have rules, in the order of lookup.
const PARTITIONS: [&str; 6] = ["system", "vendor", "oem", "odm", "product", "system_ext"];

/// Maximum length in bytes of a file of rules. Those of devices have a few KiB.
const FILE_MAX_LEN: u64 = 4 << 20;
/// Length in bytes of a record before the pattern.
const HEADER_LEN: usize = 16;

/// Constructor of a rule, for files or for directories.
type NewRule = fn(&[u8], Access) -> Result<AccessRule, SyntaxError>;

/// Reads the rules below `dir`, which is the output directory of a build or its `system`: those for
/// files, and those for directories, in the order of lookup.
///
/// # Errors
/// Missing files; files that cannot be read or have invalid rules.
pub(super) fn read(dir: &Path) -> Result<[Vec<AccessRule>; 2], ListError> {
    let dir = if dir.ends_with("system") { dir.parent().unwrap_or(dir) } else { dir };
    let (mut files, mut dirs, mut found) = (Vec::new(), Vec::new(), false);
    for partition in PARTITIONS {
        for (name, list, rule) in [
            ("fs_config_files", &mut files, AccessRule::files as NewRule),
            ("fs_config_dirs", &mut dirs, AccessRule::dirs),
        ] {
            let path = dir.join(partition).join("etc").join(name);
            match read_file(&path) {
                Ok(bytes) => {
                    found = true;
                    let name = path.to_string_lossy();
                    list.extend(parse(&bytes, rule).map_err(|(idx, error)| at_record(&name, idx, error))?);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(&path, error).into()),
            }
        }
    }
    if !found {
        let source = io::Error::new(io::ErrorKind::NotFound, "it has no system/etc/fs_config_files or other rules");
        return Err(Unreadable { path: dir.to_owned(), source }.into());
    }
    Ok([files, dirs])
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX_LEN + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > FILE_MAX_LEN {
        true => Err(io::Error::other("longer than 4 MiB, so not a file of rules")),
        false => Ok(bytes),
    }
}

/// Records are numbered like lines.
fn at_record(name: &str, idx: usize, error: SyntaxError) -> FileError {
    error.at(&format!("{name} (records)"), idx)
}

/// Parses the rules of a file. The error has the index of the first invalid record.
fn parse(bytes: &[u8], rule: NewRule) -> Result<Vec<AccessRule>, (usize, SyntaxError)> {
    let (mut rules, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let at = |error| (rules.len(), error);
        let (pattern, access, tail) = record(rest).map_err(at)?;
        let parsed = rule(pattern, access).map_err(at)?;
        rules.push(parsed);
        rest = tail;
    }
    Ok(rules)
}

/// Parses the first record of `bytes`: returns its pattern, the metadata, and the rest.
fn record(bytes: &[u8]) -> Result<(&[u8], Access, &[u8]), SyntaxError> {
    let truncated = || SyntaxError::new("record", &bytes[..bytes.len().min(HEADER_LEN)], "truncated");
    let (header, _) = bytes.split_first_chunk::<HEADER_LEN>().ok_or_else(truncated)?;
    let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let len = usize::from(word(0));
    let refuse_len = |reason: String| SyntaxError::new("len", len.to_string().as_bytes(), reason);
    if len <= HEADER_LEN || len > bytes.len() {
        return Err(refuse_len(format!("not in {}..={}", HEADER_LEN + 1, bytes.len())));
    }
    let (record, tail) = bytes.split_at(len);
    let pattern = record[HEADER_LEN..].split(|&b| b == 0).next().unwrap_or_default();
    if pattern.len() == len - HEADER_LEN {
        return Err(SyntaxError::new("prefix", pattern, "not terminated by a zero byte"));
    }
    if word(2) > 0o7777 {
        return Err(SyntaxError::new("mode", format!("{:o}", word(2)).as_bytes(), "over 7777"));
    }
    let capabilities = header[8..].iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    let access = Access { permissions: word(2), uid: word(4).into(), gid: word(6).into(), capabilities };
    Ok((pattern, access, tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(mode: u16, uid: u16, capabilities: u64, pattern: &str) -> Vec<u8> {
        let padded = (pattern.len() + 1).next_multiple_of(8);
        let mut bytes: Vec<u8> = [(HEADER_LEN + padded) as u16, mode, uid, 7].map(u16::to_le_bytes).concat();
        bytes.extend(capabilities.to_le_bytes());
        bytes.extend(pattern.as_bytes());
        bytes.resize(HEADER_LEN + padded, 0);
        bytes
    }

    #[test]
    fn records_are_little_endian() {
        let bytes = [rule(0o700, 1, 1 << 36, "system/bin/*"), b"rest".to_vec()].concat();
        let access = Access { uid: 1, gid: 7, permissions: 0o700, capabilities: 1 << 36 };
        assert_eq!(record(&bytes).unwrap(), (&b"system/bin/*"[..], access, &b"rest"[..]));
    }

    #[test]
    fn records_are_checked() {
        let whole = [rule(0o700, 1, 0, "a"), rule(0o700, 1, 0, "[a")].concat();
        assert_eq!(parse(&whole, AccessRule::files).unwrap_err().0, 1);
        let good = rule(0o700, 1, 0, "abc");
        for end in 1..good.len() {
            assert!(parse(&good[..end], AccessRule::files).is_err(), "{end}");
        }
        for (at, byte) in [(0, 16), (0, 0), (1, 1), (3, 0xFF)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(parse(&bad, AccessRule::files).is_err(), "{at}");
        }
        let mut unended = good.clone();
        unended[HEADER_LEN..].fill(b'x');
        assert!(parse(&unended, AccessRule::files).is_err());
    }
}
