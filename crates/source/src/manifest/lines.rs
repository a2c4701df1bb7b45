//! Reader of the lines of a definition file, of limited length, with their numbers.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::error::Unreadable;
use kiln_tree::{FileError, SyntaxError};

/// Maximum length in bytes of a line including its continuation lines. A path has at most 4096, and
/// escapes take four times as many.
pub(super) const LINE_MAX_LEN: usize = 1 << 16;

/// Error of reading a definition file.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// An invalid line.
    #[error(transparent)]
    Line(#[from] FileError),
    /// The file, or a file that it names, cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// A line, with its continuation lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Index of the first of these lines in the file.
    pub idx: usize,
    pub text: Vec<u8>,
}

/// Reader of the lines of a file.
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    path: PathBuf,
    /// Index of the next line.
    idx: usize,
    /// Offset of the end of the last line in bytes.
    offset: u64,
}

impl<R: Read> Lines<R> {
    /// Creates a reader for the lines of the file at `path`, which `reader` reads.
    pub(super) fn new(reader: R, path: &Path) -> Self {
        Self { reader: BufReader::new(reader), path: path.to_owned(), idx: 0, offset: 0 }
    }

    /// Returns the number of bytes read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns an error for the line at index `idx`.
    pub(super) fn error(&self, idx: usize, error: SyntaxError) -> FileError {
        error.at(&self.path.to_string_lossy(), idx)
    }

    /// Returns the next line, without its end.
    ///
    /// # Errors
    /// Read errors; a line that is too long.
    pub(super) fn next(&mut self) -> Result<Option<Line>, ListError> {
        let idx = self.idx;
        let mut text = Vec::new();
        Ok(self.append(&mut text)?.then_some(Line { idx, text }))
    }

    /// Returns the next line like [`Lines::next`], joined with the following one if it ends with a
    /// backslash.
    ///
    /// # Errors
    /// Those of [`Lines::next`].
    pub(super) fn next_joined(&mut self) -> Result<Option<Line>, ListError> {
        let Some(mut line) = self.next()? else { return Ok(None) };
        // Comments have no continuation lines.
        while !line.text.trim_ascii_start().starts_with(b"#") && ends_open(&line.text) {
            line.text.pop();
            if !self.append(&mut line.text)? {
                break;
            }
        }
        Ok(Some(line))
    }

    /// Appends the next line to `text`. Returns false if there is none.
    fn append(&mut self, text: &mut Vec<u8>) -> Result<bool, ListError> {
        let start = text.len();
        let room = (LINE_MAX_LEN + 1).saturating_sub(start) as u64;
        let read = self.reader.by_ref().take(room).read_until(b'\n', text);
        let len = read.map_err(|source: io::Error| Unreadable { path: self.path.clone(), source })?;
        self.offset += len as u64;
        if len == 0 && room > 0 {
            return Ok(false);
        }
        if text.last() == Some(&b'\n') && len > 0 {
            text.pop();
        } else if text.len() > LINE_MAX_LEN {
            let reason = format!("longer than {LINE_MAX_LEN} bytes");
            return Err(self.error(self.idx, SyntaxError::new("line", &text[start..], reason)).into());
        }
        if text.len() > start && text.last() == Some(&b'\r') {
            text.pop();
        }
        self.idx += 1;
        Ok(true)
    }
}

/// Returns true if a line ends with an unescaped backslash.
fn ends_open(line: &[u8]) -> bool {
    line.iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Result<Vec<(usize, String)>, String> {
        let mut lines = Lines::new(text, Path::new("f"));
        let mut all = Vec::new();
        while let Some(line) = lines.next_joined().map_err(|error| error.to_string())? {
            all.push((line.idx, line.text.escape_ascii().to_string()));
        }
        Ok(all)
    }

    #[test]
    fn lines_are_joined_where_they_end_open() {
        let found = lines(b"a\\\n b\nc\\\\\n\nd\r\n#e\\\nf\\").unwrap();
        let expected = [(0, "a b"), (2, "c\\\\\\\\"), (3, ""), (4, "d"), (5, "#e\\\\"), (6, "f")];
        assert_eq!(found, expected.map(|(idx, text)| (idx, text.to_owned())));
        assert_eq!(lines(b"").unwrap(), []);
    }

    #[test]
    fn lines_are_bounded() {
        assert_eq!(lines(&[b'x'; LINE_MAX_LEN]).unwrap().len(), 1);
        let fits = [&[b'x'; LINE_MAX_LEN][..], b"\ny"].concat();
        assert_eq!(lines(&fits).unwrap().len(), 2);
        assert!(lines(&[b'x'; LINE_MAX_LEN + 1]).unwrap_err().starts_with("f, line 1: line `xxx"));
        let joined = b"xxxxxxx\\\n".repeat(LINE_MAX_LEN / 7 + 1);
        assert!(lines(&joined).unwrap_err().ends_with("longer than 65536 bytes"));
        assert!(lines(&b"\\\n".repeat(100_000)).is_ok_and(|lines| lines.len() == 1));
    }
}
