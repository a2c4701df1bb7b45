//! Paths in hot lists: bytes that could be taken for syntax are octal escapes of three digits.
//!
//! This is a grammar of its own. Names for a terminal (`escape`) are not read back; mtree manifests
//! escape as vis(3) does, which also escapes glob characters and `=`, and whose readers know many
//! more escapes; the kernel's mount table leaves bytes alone that are not UTF-8.

use std::fmt::{self, Write};

/// Shows a path in UTF-8 and on one line: `\`, control characters and bytes that are not UTF-8 are
/// `\` with three octal digits. The path of the root, which is empty, is `.`.
pub struct Octal<'a>(pub &'a [u8]);

impl fmt::Display for Octal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' | '\0'..='\x1f' | '\x7f' => write!(f, "\\{:03o}", u32::from(c))?,
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\{byte:03o}")?;
            }
        }
        Ok(())
    }
}

/// Parses the path in `field`, from the root on: without slashes in front, and empty
/// for the root itself.
///
/// # Errors
/// Reason why it is wrong.
pub fn parse(field: &[u8]) -> Result<Vec<u8>, &'static str> {
    if field.is_empty() {
        return Err("empty: write the root as `.`");
    }
    let bytes = unescape(field)?;
    if bytes.contains(&0) {
        return Err("no path has a zero byte");
    }
    let names: Vec<&[u8]> = bytes.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    match names.contains(&&b".."[..]) {
        true => Err("`..` has no meaning here"),
        false => Ok(names.join(&b'/')),
    }
}

fn unescape(field: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let (byte, behind) = match (first, behind) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), behind)
            }
            (b'\\', _) => return Err("three octal digits, up to 377, follow a `\\`, which itself is `\\134`"),
            _ => (*first, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_survives() {
        for (path, text) in [
            (&b"usr/bin/python3"[..], "usr/bin/python3"),
            (b"", "."),
            ("grün ✓ #".as_bytes(), "grün ✓ #"),
            (b"a\nb\tc\\d\x7f", "a\\012b\\011c\\134d\\177"),
            (b"\xff\xfe.\\012", "\\377\\376.\\134012"),
        ] {
            assert_eq!(Octal(path).to_string(), text);
            assert_eq!(parse(text.as_bytes()), Ok(path.to_vec()));
        }
        for byte in 1..=255u8 {
            let path = [b'x', byte, b'y'];
            let text = Octal(&path).to_string();
            let parsed = parse(text.as_bytes()).unwrap();
            assert_eq!(parsed, path, "{text}");
        }
    }

    #[test]
    fn paths_begin_at_the_root_and_never_leave_it() {
        for (text, path) in [("/usr//bin/./ls", "usr/bin/ls"), ("/", ""), ("./", ""), ("..a/b..", "..a/b..")] {
            assert_eq!(parse(text.as_bytes()), Ok(path.into()), "{text}");
        }
        for text in ["", "..", "a/../b", "a/\\056\\056", "\\", "a\\12", "a\\400", "a\\n", "a\\000b", "\\8", "\\377\\"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
