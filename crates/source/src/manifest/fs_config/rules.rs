//! Rules over paths, in the binary files that Android builds install.
//!
//! A file is a sequence of little-endian records: `len` of the whole record, `mode`, `uid` and
//! `gid` (16 bits each), `capabilities` (64 bits), and a pattern that ends with one or more zero
//! bytes: `fs_path_config_from_file` of AOSP's `private/fs_config.h`.

use regex::bytes::{Regex, RegexBuilder};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{Access, unreadable};
use crate::error::Unreadable;
use crate::filter::error::{FileError, SyntaxError, regex_reason};
use crate::filter::glob::{FLAGS, Slash, to_regex};
use crate::manifest::lines::ListError;

/// Partitions that may have rules, in the order of lookup.
const PARTITIONS: [&str; 6] = ["system", "vendor", "oem", "odm", "product", "system_ext"];

/// Directories whose paths may also be written without the enclosing partition, with the length of
/// that prefix in bytes.
const NESTED: [(&[u8], usize); 4] =
    [(b"system/product/", 7), (b"system/system_ext/", 7), (b"system/vendor/", 7), (b"vendor/odm/", 7)];

/// Maximum length in bytes of a file of rules. Those of devices have a few KiB.
const FILE_MAX_LEN: u64 = 4 << 20;
/// Length in bytes of a record before the pattern.
const HEADER_LEN: usize = 16;

/// Rules, in the order of lookup.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    files: Vec<Rule>,
    dirs: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    pattern: Regex,
    access: Access,
}

impl Rules {
    /// Reads the rules below `dir`, which is the output directory of a build or its `system`.
    ///
    /// # Errors
    /// Missing files; files that cannot be read or have invalid rules.
    pub(super) fn read(dir: &Path) -> Result<Self, ListError> {
        let dir = if dir.ends_with("system") { dir.parent().unwrap_or(dir) } else { dir };
        let (mut rules, mut found) = (Self::default(), false);
        for partition in PARTITIONS {
            for (name, list, is_dirs) in
                [("fs_config_files", &mut rules.files, false), ("fs_config_dirs", &mut rules.dirs, true)]
            {
                let path = dir.join(partition).join("etc").join(name);
                match read(&path) {
                    Ok(bytes) => {
                        found = true;
                        let name = path.to_string_lossy();
                        list.extend(parse(&bytes, is_dirs).map_err(|(idx, error)| at_record(&name, idx, error))?);
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
        Ok(rules)
    }

    /// Returns the metadata for the file or directory at `path`.
    pub(super) fn get(&self, path: &[u8], is_dir: bool) -> Option<Access> {
        let mut path = path.to_vec();
        if is_dir {
            path.push(b'/');
        }
        let inner = NESTED.iter().find(|(start, _)| path.starts_with(start)).map(|(_, len)| &path[*len..]);
        let rules = if is_dir { &self.dirs } else { &self.files };
        let matches =
            |rule: &&Rule| rule.pattern.is_match(&path) || inner.is_some_and(|inner| rule.pattern.is_match(inner));
        rules.iter().find(matches).map(|rule| rule.access)
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
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
fn parse(bytes: &[u8], is_dirs: bool) -> Result<Vec<Rule>, (usize, SyntaxError)> {
    let (mut rules, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (rule, tail) = record(rest, is_dirs).map_err(|error| (rules.len(), error))?;
        rules.push(rule);
        rest = tail;
    }
    Ok(rules)
}

fn record(bytes: &[u8], is_dirs: bool) -> Result<(Rule, &[u8]), SyntaxError> {
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
    Ok((Rule { pattern: compile(pattern, is_dirs)?, access }, tail))
}

/// Compiles a pattern of fnmatch(3), without escapes, in which a slash is an ordinary character.
/// The pattern of a directory also matches all directories below it.
fn compile(pattern: &[u8], is_dir: bool) -> Result<Regex, SyntaxError> {
    let refuse = |reason: &str| SyntaxError::new("prefix", pattern, reason);
    let mut glob: Vec<u8> = Vec::new();
    for byte in pattern.strip_prefix(b"/").unwrap_or(pattern) {
        glob.extend((*byte == b'\\').then_some(b'\\').into_iter().chain([*byte]));
    }
    if is_dir && !glob.ends_with(b"/*") {
        glob.extend_from_slice(if glob.ends_with(b"/") { b"*" } else { b"/*" });
    }
    let regex = to_regex(&glob, Slash::Ordinary).map_err(refuse)?;
    let regex = RegexBuilder::new(&format!("{FLAGS}^(?:{regex})$")).size_limit(1 << 20).build();
    regex.map_err(|error| refuse(&regex_reason(&error)))
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
    fn the_first_rule_that_matches_decides() {
        let rules = Rules {
            files: parse(
                &[
                    rule(0o700, 1, 1 << 36, "system/bin/special"),
                    rule(0o755, 2, 0, "system/bin/*"),
                    rule(0o640, 3, 0, "vendor/etc/*"),
                ]
                .concat(),
                false,
            )
            .unwrap(),
            dirs: parse(&[rule(0o751, 4, 0, "system/bin"), rule(0o755, 5, 0, "data/")].concat(), true).unwrap(),
        };
        let uid = |path: &str, is_dir| rules.get(path.as_bytes(), is_dir).map(|access| access.uid);
        assert_eq!(rules.get(b"system/bin/special", false).map(|access| access.capabilities), Some(1 << 36));
        assert_eq!((uid("system/bin/sh", false), uid("system/bin/d/sh", false)), (Some(2), Some(2)));
        assert_eq!((uid("system/bin", false), uid("system/binary", false)), (None, None));
        assert_eq!((uid("system/bin", true), uid("system/bin/d", true), uid("system", true)), (Some(4), Some(4), None));
        assert_eq!(uid("data/x", true), Some(5));
        assert_eq!(uid("system/vendor/etc/f", false), Some(3), "the partition may be a directory of system");
    }

    #[test]
    fn records_are_checked() {
        let whole = [rule(0o700, 1, 0, "a"), rule(0o700, 1, 0, "[a")].concat();
        assert_eq!(parse(&whole, false).unwrap_err().0, 1);
        let good = rule(0o700, 1, 0, "abc");
        for end in 1..good.len() {
            assert!(parse(&good[..end], false).is_err(), "{end}");
        }
        for (at, byte) in [(0, 16), (0, 0), (1, 1), (3, 0xFF)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(parse(&bad, false).is_err(), "{at}");
        }
        let mut unended = good.clone();
        unended[HEADER_LEN..].fill(b'x');
        assert!(parse(&unended, false).is_err());
    }
}
