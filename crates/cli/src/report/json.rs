//! JSON documents.

use super::{Out, SCHEMA};
use crate::exit::Failure;
use serde::Serialize;
use std::io::{self, Write};

/// Bytes that are most often UTF-8, as a field `NAME` for people, and a field `NAME_b64` with the exact bytes where they are not.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// With replacement characters for what is not UTF-8.
    pub fn lossy(&self) -> String {
        String::from_utf8_lossy(self.0).into_owned()
    }

    /// Base64 of all bytes, if they are not UTF-8.
    pub fn b64_if_lossy(&self) -> Option<String> {
        str::from_utf8(self.0).is_err().then(|| base64(self.0))
    }
}

/// RFC 4648, with padding.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(word);
        for digit in 0..4 {
            match digit <= group.len() {
                true => text.push(char::from(DIGITS[(word >> (18 - 6 * digit) & 63) as usize])),
                false => text.push('='),
            }
        }
    }
    text
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// Print one document to standard output.
pub fn print_document(body: &impl Serialize) -> Result<(), Failure> {
    let mut out = Out::new();
    serde_json::to_writer_pretty(&mut out, &Document { schema: SCHEMA, body }).map_err(io::Error::from)?;
    writeln!(out)?;
    out.finish()
}

/// A document that is one list, printed as it is found: `{"schema":1,"NAME":[...]}`, one element a line.
pub struct JsonList {
    out: Out,
    is_empty: bool,
}

impl JsonList {
    pub fn start(name: &str) -> Result<Self, Failure> {
        let mut out = Out::new();
        write!(out, "{{\"schema\":{SCHEMA},\"{name}\":[")?;
        Ok(Self { out, is_empty: true })
    }

    pub fn push(&mut self, element: &impl Serialize) -> Result<(), Failure> {
        self.out.write_all(if self.is_empty { b"\n" } else { b",\n" })?;
        self.is_empty = false;
        serde_json::to_writer(&mut self.out, element).map_err(io::Error::from)?;
        Ok(())
    }

    pub fn finish(mut self) -> Result<(), Failure> {
        writeln!(self.out, "\n]}}")?;
        self.out.finish()
    }

    /// End the list; `rest`, an object with fields, goes on behind it.
    pub fn finish_with(mut self, rest: &impl Serialize) -> Result<(), Failure> {
        let rest = serde_json::to_string(rest).map_err(io::Error::from)?;
        writeln!(self.out, "\n],{}", rest.trim_start_matches('{'))?;
        self.out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0x3f]), "//4/");
    }

    #[test]
    fn only_bytes_that_need_it_are_encoded() {
        assert_eq!((Bytes(b"a").lossy(), Bytes(b"a").b64_if_lossy()), ("a".into(), None));
        assert_eq!((Bytes(b"\xff").lossy(), Bytes(b"\xff").b64_if_lossy()), ("\u{fffd}".into(), Some("/w==".into())));
    }
}
