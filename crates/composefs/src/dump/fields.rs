//! Fields of a line: separation, escapes, numbers.

use super::problem::DumpProblem;

/// Number of fields before the attributes.
pub(super) const FIXED: usize = 11;

/// Part of a line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Field<'l> {
    pub(super) bytes: &'l [u8],
    /// Offset in the line.
    pub(super) off: usize,
}

/// A problem, and its offset in the line.
pub(super) type Located<T> = Result<T, (usize, DumpProblem)>;

impl<'l> Field<'l> {
    /// Returns the error of this field.
    pub(super) fn error<T>(&self, problem: impl Into<DumpProblem>) -> Located<T> {
        Err((self.off, problem.into()))
    }

    /// Returns the field, or `None` for a dash.
    pub(super) fn given(self) -> Option<Self> {
        (self.bytes != b"-").then_some(self)
    }

    /// Parses a decimal number.
    pub(super) fn number<T: TryFrom<u64>>(&self, name: &'static str) -> Located<T> {
        match decimal(self.bytes).and_then(|number| T::try_from(number).ok()) {
            Some(number) => Ok(number),
            None => self.error(DumpProblem::Number(name)),
        }
    }
}

/// Parses digits; `None` for anything else, and from 2^64 on.
pub(super) fn decimal(bytes: &[u8]) -> Option<u64> {
    let digits = |number: u64, &byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    if bytes.is_empty() { None } else { bytes.iter().try_fold(0, digits) }
}

/// Splits a line into its fixed fields and the text of the attributes.
pub(super) fn split(line: &[u8]) -> Located<([Field<'_>; FIXED], Field<'_>)> {
    let mut fields = [Field::default(); FIXED];
    let mut off = 0;
    for (idx, field) in fields.iter_mut().enumerate() {
        let rest = line.get(off..).ok_or((line.len(), DumpProblem::MissingFields(idx)))?;
        let len = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        *field = Field { bytes: &rest[..len], off };
        off += len + 1;
    }
    let rest = line.get(off..).unwrap_or_default();
    Ok((fields, Field { bytes: rest, off: off.min(line.len()) }))
}

/// Zero bytes in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeros {
    Allowed,
    Refused,
}

/// Replaces the escapes of a field. A field without any is returned as it is; `scratch` gets others.
pub(super) fn unescape<'a>(field: Field<'a>, zeros: Zeros, scratch: &'a mut Vec<u8>) -> Located<&'a [u8]> {
    if !field.bytes.contains(&b'\\') {
        return Ok(field.bytes);
    }
    scratch.clear();
    let mut rest = field.bytes;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        let (plain, escape) = rest.split_at(at);
        scratch.extend_from_slice(plain);
        let error = |problem| Err((field.off + field.bytes.len() - escape.len(), problem));
        let (byte, len) = match *escape {
            [_, b'\\', ..] => (b'\\', 2),
            [_, b'n', ..] => (b'\n', 2),
            [_, b'r', ..] => (b'\r', 2),
            [_, b't', ..] => (b'\t', 2),
            [_, b'x', high, low, ..] => match (digit(high), digit(low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => return error(DumpProblem::BadEscape),
            },
            _ => return error(DumpProblem::BadEscape),
        };
        if byte == 0 && zeros == Zeros::Refused {
            return error(DumpProblem::EscapedZero);
        }
        scratch.push(byte);
        rest = &escape[len..];
    }
    scratch.extend_from_slice(rest);
    Ok(scratch)
}

/// Parses the digits of a digest of either length.
pub(super) fn digest(hex: &[u8]) -> Option<([u8; 64], usize)> {
    let mut bytes = [0; 64];
    let len = hex.len() / 2;
    if !matches!(hex.len(), 64 | 128) {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(hex.as_chunks().0) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some((bytes, len))
}

fn digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}
