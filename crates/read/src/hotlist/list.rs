//! The list and its text.

use super::error::{HotListError, Wrong};
use super::path::{self, Octal};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

/// The first line, without its version.
const MAGIC: &[u8] = b"#kiln-hotlist ";
const VERSION: &[u8] = b"1";
/// No file is longer: offsets of the system are signed.
const FILE_LEN_MAX: u64 = i64::MAX as u64;

/// A range of a file that was read, or an inode that was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotEntry {
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range; 0 is the inode alone, or a directory.
    pub len: u64,
    /// Time of the read in microseconds from the start of the recording.
    pub micros: u64,
    /// Path from the root on, without a slash in front; empty for the root.
    pub path: Vec<u8>,
}

impl HotEntry {
    /// Returns true if it stands for the inode or directory, and not for data.
    #[must_use]
    pub fn is_metadata(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of the file that it stands for.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.len)
    }
}

/// `OFFSET+LENGTH<TAB>MICROSECONDS<TAB>PATH`, as in a list.
impl fmt::Display for HotEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}\t{}\t{}", self.offset, self.len, self.micros, Octal(&self.path))
    }
}

/// Reads of a program in their order. The order of the entries counts, not their times: those of
/// several recordings are not comparable.
///
/// ```
/// use kiln_read::hotlist::HotList;
///
/// let list = HotList::parse(b"#kiln-hotlist 1\n0+0\t12\tetc\n0+4096\t80\tetc/fstab\n", "boot.list")?;
/// assert_eq!(list.files(), [b"etc/fstab"]);
/// assert_eq!(HotList::parse(list.to_string().as_bytes(), "again")?, list);
/// # Ok::<(), kiln_read::hotlist::HotListError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotList {
    entries: Vec<HotEntry>,
}

impl HotList {
    /// Returns a list of `entries`, in their order.
    #[must_use]
    pub fn new(entries: Vec<HotEntry>) -> Self {
        Self { entries }
    }

    /// Returns a list of whole files, at time 0. Of a path that leads nowhere its reader
    /// tells.
    pub fn of_files(paths: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let whole = |path| HotEntry { offset: 0, len: FILE_LEN_MAX, micros: 0, path };
        Self::new(paths.into_iter().map(whole).collect())
    }

    /// Returns true if a text begins as a hot list of any version does. Else it may be a list of
    /// paths.
    #[must_use]
    pub fn is_one(text: &[u8]) -> bool {
        text.starts_with(MAGIC)
    }

    /// Parses the list in a file called `name`. It takes at most some ten times the memory of
    /// `text`.
    ///
    /// # Errors
    /// Another first line, and lines that are no entries.
    pub fn parse(text: &[u8], name: &str) -> Result<Self, HotListError> {
        let mut lines = text.split(|&byte| byte == b'\n').enumerate();
        let first = lines.next().map_or(&b""[..], |(_, line)| line);
        match first.strip_prefix(MAGIC) {
            Some(VERSION) => {}
            Some(version) => {
                let reason = "this kiln reads version 1";
                return Err(Wrong { field: "version", value: version, reason }.at(name, 0));
            }
            None => {
                let reason = "a hot list begins with `#kiln-hotlist 1`";
                return Err(Wrong { field: "first line", value: first, reason }.at(name, 0));
            }
        }
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"));
        let entries = lines.map(|(idx, line)| entry(line).map_err(|wrong| wrong.at(name, idx)));
        Ok(Self { entries: entries.collect::<Result<_, _>>()? })
    }

    /// Returns the entries in the order in which they were read.
    #[must_use]
    pub fn entries(&self) -> &[HotEntry] {
        &self.entries
    }

    /// Returns the paths of files of which data was read, each once, in the order of their first
    /// data.
    #[must_use]
    pub fn files(&self) -> Vec<&[u8]> {
        let mut seen = HashSet::new();
        let data = self.entries.iter().filter(|entry| !entry.is_metadata());
        data.map(|entry| &entry.path[..]).filter(|path| seen.insert(*path)).collect()
    }
}

/// As a file has it.
impl fmt::Display for HotList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "#kiln-hotlist 1")?;
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

fn entry(line: &[u8]) -> Result<HotEntry, Wrong<'_>> {
    let mut fields = line.splitn(3, |&byte| byte == b'\t');
    let (Some(range), Some(micros), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(Wrong {
            field: "line",
            value: line,
            reason: "write it as OFFSET+LENGTH<TAB>MICROSECONDS<TAB>PATH",
        });
    };
    let wrong = |field, value, reason| Wrong { field, value, reason };
    let plus = range.iter().position(|&byte| byte == b'+');
    let plus = plus.ok_or(wrong("range", range, "write it as OFFSET+LENGTH, in bytes"))?;
    let (offset, len) = (number("offset", &range[..plus])?, number("length", &range[plus + 1..])?);
    if offset.checked_add(len).is_none_or(|end| end > FILE_LEN_MAX) {
        return Err(wrong("range", range, "it ends behind the last byte that a file can have"));
    }
    if len == 0 && offset != 0 {
        return Err(wrong("range", range, "a length of 0 stands for the inode: its offset is 0"));
    }
    let micros = number("microseconds", micros)?;
    let path = path::parse(path).map_err(|reason| wrong("path", path, reason))?;
    Ok(HotEntry { offset, len, micros, path })
}

fn number<'a>(field: &'static str, value: &'a [u8]) -> Result<u64, Wrong<'a>> {
    let digits = str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or(Wrong { field, value, reason: "use a decimal number below 2^64" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let text = "#kiln-hotlist 1\n0+0\t0\t.\n0+0\t5\tusr\n4096+131072\t70\tusr/a\\011b\n0+1\t60\tusr/a\\011b\n";
        let list = HotList::parse(text.as_bytes(), "list").unwrap();
        assert_eq!(list.entries().len(), 4);
        assert_eq!(list.entries()[2].path, b"usr/a\tb");
        assert_eq!(list.entries()[2].range(), 4096..135168);
        assert_eq!(list.to_string(), text);
        assert_eq!(list.files(), [b"usr/a\tb"]);
        // Comments and empty lines; no line feed at the end.
        let same =
            "#kiln-hotlist 1\n# the root\n0+0\t0\t/\n\n0+0\t5\t/usr/\n4096+131072\t70\t./usr//a\tb\n0+1\t60\tusr/a\tb";
        assert_eq!(HotList::parse(same.as_bytes(), "list"), Ok(list));
        assert_eq!(HotList::parse(b"#kiln-hotlist 1", "list"), Ok(HotList::default()));
    }

    #[test]
    fn files_come_by_their_first_data() {
        let text = b"#kiln-hotlist 1\n0+0\t1\tb\n0+9\t9\tc\n0+9\t8\ta\n9+9\t7\tc\n0+0\t1\td\n0+1\t1\tb\n";
        assert_eq!(HotList::parse(text, "list").unwrap().files(), [b"c", b"a", b"b"]);
        let whole = HotList::of_files([b"x".to_vec()]);
        assert_eq!((whole.files(), whole.entries()[0].range()), (vec![&b"x"[..]], 0..i64::MAX as u64));
    }

    #[test]
    fn errors_name_line_field_and_value() {
        for (lines, message) in [
            ("", "list, line 1: first line ``: a hot list begins with `#kiln-hotlist 1`"),
            ("usr/bin/ls\n", "list, line 1: first line `usr/bin/ls`: a hot list begins with"),
            ("#kiln-hotlist 2\n", "list, line 1: version `2`: this kiln reads version 1"),
            ("#kiln-hotlist 1\r\n", "list, line 1: version `1\\r`: this kiln reads version 1"),
            ("#kiln-hotlist 1\n\n0+1\ta\n", "list, line 3: line `0+1\\ta`: write it as OFFSET+LENGTH<TAB>"),
            ("#kiln-hotlist 1\n1\t2\ta\n", "list, line 2: range `1`: write it as OFFSET+LENGTH"),
            ("#kiln-hotlist 1\n-1+2\t2\ta\n", "list, line 2: offset `-1`: use a decimal number"),
            ("#kiln-hotlist 1\n1++2\t2\ta\n", "list, line 2: length `+2`: use a decimal number"),
            ("#kiln-hotlist 1\n1+\t2\ta\n", "list, line 2: length ``: use a decimal number"),
            (
                "#kiln-hotlist 1\n18446744073709551616+1\t2\ta\n",
                "list, line 2: offset `18446744073709551616`: use a decimal number below 2^64",
            ),
            ("#kiln-hotlist 1\n18446744073709551615+1\t2\ta\n", "it ends behind the last byte that a file can have"),
            ("#kiln-hotlist 1\n9223372036854775807+1\t2\ta\n", "list, line 2: range `9223372036854775807+1`: it ends"),
            ("#kiln-hotlist 1\n5+0\t2\ta\n", "list, line 2: range `5+0`: a length of 0 stands for the inode"),
            ("#kiln-hotlist 1\n5+1\t2s\ta\n", "list, line 2: microseconds `2s`: use a decimal number"),
            ("#kiln-hotlist 1\n5+1\t2\t\n", "list, line 2: path ``: empty: write the root as `.`"),
            ("#kiln-hotlist 1\n5+1\t2\t../a\n", "list, line 2: path `../a`: `..` has no meaning here"),
            ("#kiln-hotlist 1\n5+1\t2\ta\\x\n", "list, line 2: path `a\\\\x`: three octal digits"),
        ] {
            let error = HotList::parse(lines.as_bytes(), "list").unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let long = format!("#kiln-hotlist 1\n0+1\t{}\ta", "9".repeat(1000));
        assert!(HotList::parse(long.as_bytes(), "list").unwrap_err().to_string().len() < 250);
        assert!(HotList::is_one(b"#kiln-hotlist 7") && !HotList::is_one(b"# kiln-hotlist 1") && !HotList::is_one(b""));
    }
}
