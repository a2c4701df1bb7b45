//! Names for a terminal. They are read by people only, so nothing reads these escapes back. Hot
//! lists have octal escapes instead, see `hotlist::path`.

use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Shows a name or path so that it can do nothing to a terminal: control characters, directions of
/// writing and bytes that are not UTF-8 are escaped, other letters of all scripts stay.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl<'a> Escaped<'a> {
    /// Escapes a path of the system.
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
