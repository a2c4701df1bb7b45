//! Pages and pictures: files of HTML or SVG that a command makes.

use crate::exit::Failure;
use kiln_output::{AtomicFile, Existing};
use std::io::Write;
use std::path::Path;

/// A page or a picture that is being made. Its name has it only when it is whole.
pub struct Document<'a> {
    path: &'a Path,
    file: AtomicFile,
}

impl<'a> Document<'a> {
    /// Creates a file, before the work that its text costs. A file that is there is an error, unless `replace` says that
    /// it goes.
    pub fn create(path: &'a Path, replace: bool) -> Result<Self, Failure> {
        let existing = if replace { Existing::Replace } else { Existing::Keep };
        Ok(Self { path, file: AtomicFile::create(path, existing)? })
    }

    /// Writes the text of the whole file, and gives it its name.
    pub fn finish(self, text: &str) -> Result<(), Failure> {
        let written = self.file.file().write_all(text.as_bytes());
        written.map_err(|source| Failure::File { path: self.path.to_path_buf(), action: "write", source })?;
        Ok(self.file.commit()?)
    }
}

/// Returns text for HTML and SVG. XML has no control characters: each becomes U+FFFD.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_and_control_characters_are_escaped() {
        assert_eq!(escape("a<b> & \"c\"\n\u{1b}é"), "a&lt;b&gt; &amp; &quot;c&quot;\u{fffd}\u{fffd}é");
    }
}
