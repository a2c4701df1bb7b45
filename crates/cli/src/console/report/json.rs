//! JSON documents.

use super::{ErrorJson, Out, SCHEMA};
use crate::exit::Failure;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::cell::RefCell;
use std::io::{self, Write};

thread_local! {
    /// State of standard output.
    static PRINTED: RefCell<Printed> = const { RefCell::new(Printed::Nothing) };
}

enum Printed {
    Nothing,
    /// A document without its end.
    Begun,
    /// A document without its end, which will contain this error.
    Failing(Box<ErrorJson>),
    /// A complete document.
    Whole,
}

fn printed(now: Printed) -> Printed {
    PRINTED.replace(now)
}

/// Marks the document being printed as failed.
pub(super) fn fail(error: ErrorJson) {
    printed(Printed::Failing(Box::new(error)));
}

/// Bytes that are usually UTF-8: a field `NAME` for people, and a field `NAME_b64` with the exact bytes if they are
/// not UTF-8.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// Returns the text with replacement characters for invalid UTF-8.
    pub fn lossy(&self) -> String {
        String::from_utf8_lossy(self.0).into_owned()
    }

    /// Returns the Base64 form of all bytes, if they are not UTF-8.
    pub fn b64_if_lossy(&self) -> Option<String> {
        str::from_utf8(self.0).is_err().then(|| base64(self.0))
    }
}

/// Encodes bytes in Base64 (RFC 4648), with padding.
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
    #[serde(flatten)]
    end: End,
}

/// The error of a document that failed while its body was written, if it did: so it comes last.
struct End;

impl Serialize for End {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Printed::Failing(error) = printed(Printed::Begun) {
            map.serialize_entry("error", &*error)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct ErrorBody {
    error: ErrorJson,
}

/// Prints one document to standard output.
pub fn print_document(body: &impl Serialize) -> Result<(), Failure> {
    let mut out = Out::new();
    serde_json::to_writer_pretty(&mut out, &Document { schema: SCHEMA, body, end: End }).map_err(io::Error::from)?;
    writeln!(out)?;
    out.finish()?;
    printed(Printed::Whole);
    Ok(())
}

/// Prints the reason why the command failed, as a document of its own, or in an unfinished one. A complete document
/// stays as it is.
pub fn print_error(error: ErrorJson) -> Result<(), Failure> {
    let body = ErrorBody { error };
    match printed(Printed::Nothing) {
        Printed::Nothing => print_document(&body),
        Printed::Begun | Printed::Failing(_) => {
            let mut out = Out::new();
            let text = serde_json::to_string(&body).map_err(io::Error::from)?;
            writeln!(out, ",{}", text.trim_start_matches('{'))?;
            out.finish()
        }
        Printed::Whole => Ok(()),
    }
}

/// A document that is one list, printed item by item: `{"schema":2,"NAME":[...]}`, one element per line. If dropped
/// early it is closed, so that [`print_error`] can continue the document.
pub struct JsonList {
    out: Option<Out>,
    is_empty: bool,
}

impl JsonList {
    pub fn start(name: &str) -> Result<Self, Failure> {
        let mut out = Out::new();
        write!(out, "{{\"schema\":{SCHEMA},\"{name}\":[")?;
        printed(Printed::Begun);
        Ok(Self { out: Some(out), is_empty: true })
    }

    pub fn push(&mut self, element: &impl Serialize) -> Result<(), Failure> {
        let Some(out) = &mut self.out else { return Ok(()) };
        out.write_all(if self.is_empty { b"\n" } else { b",\n" })?;
        self.is_empty = false;
        serde_json::to_writer(out, element).map_err(io::Error::from)?;
        Ok(())
    }

    pub fn finish(self) -> Result<(), Failure> {
        self.end("}")
    }

    /// Ends the list; `rest`, an object with fields, follows it.
    pub fn finish_with(self, rest: &impl Serialize) -> Result<(), Failure> {
        let rest = serde_json::to_string(rest).map_err(io::Error::from)?;
        self.end(&format!(",{}", rest.trim_start_matches('{')))
    }

    fn end(mut self, rest: &str) -> Result<(), Failure> {
        let Some(mut out) = self.out.take() else { return Ok(()) };
        writeln!(out, "\n]{rest}")?;
        out.finish()?;
        printed(Printed::Whole);
        Ok(())
    }
}

impl Drop for JsonList {
    fn drop(&mut self) {
        if let Some(mut out) = self.out.take() {
            // The first error is the one to report.
            let _ = write!(out, "\n]").and_then(|()| out.flush());
        }
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
