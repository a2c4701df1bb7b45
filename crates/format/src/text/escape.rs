//! Names and paths as text for a terminal. Only people read them: nothing parses these escapes.

use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Name or path, formatted so that it has no effect on a terminal: control characters, marks of the
/// direction of writing, and bytes that are not UTF-8 are escaped. Letters of all scripts stay.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl<'a> Escaped<'a> {
    /// Creates the text of a path of the host.
    pub fn path(path: &'a Path) -> Self {
        Self(path.as_os_str().as_bytes())
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => write!(f, "{}", c.escape_unicode())?,
                    c if c.is_control() => write!(f, "{}", c.escape_default())?,
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_get_no_control_characters() {
        let escape = |name: &[u8]| Escaped(name).to_string();
        assert_eq!(escape("grün ✓".as_bytes()), "grün ✓");
        assert_eq!(escape(b"a\x1b[31m\nb\\"), "a\\u{1b}[31m\\nb\\\\");
        assert_eq!(escape(b"\xff\xfe."), "\\xff\\xfe.");
        assert_eq!(escape("\u{202e}txt".as_bytes()), "\\u{202e}txt");
    }
}
