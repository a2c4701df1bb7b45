//! Escapes of vis(3) in names and targets.

/// Decodes the escapes in `text`. Returns `None` if an escape is unknown or incomplete.
///
/// Supported are up to three octal digits, `\s` and the escapes of C, `\^C` for control characters,
/// `\M-C` and `\M^C` for the same with the highest bit set, and a backslash before any character
/// that is neither a letter nor a digit.
pub(super) fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let (byte, tail) = if *first == b'\\' { escaped(tail)? } else { (*first, tail) };
        plain.push(byte);
        rest = tail;
    }
    Some(plain)
}

/// Decodes an escape. Returns its byte and the rest.
fn escaped(rest: &[u8]) -> Option<(u8, &[u8])> {
    let (first, tail) = rest.split_first()?;
    let byte = match first {
        b'0'..=b'7' => return octal(rest),
        b'M' => {
            return match tail {
                [b'-', byte, tail @ ..] => Some((byte | 0x80, tail)),
                [b'^', byte, tail @ ..] => Some((control(*byte) | 0x80, tail)),
                _ => None,
            };
        }
        b'^' => return tail.split_first().map(|(byte, tail)| (control(*byte), tail)),
        b's' => b' ',
        b't' => b'\t',
        b'n' => b'\n',
        b'r' => b'\r',
        b'a' => 0x07,
        b'b' => 0x08,
        b'v' => 0x0B,
        b'f' => 0x0C,
        b'E' => 0x1B,
        byte if !byte.is_ascii_alphanumeric() => *byte,
        _ => return None,
    };
    Some((byte, tail))
}

fn octal(rest: &[u8]) -> Option<(u8, &[u8])> {
    let len = rest.iter().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
    let value = rest[..len].iter().fold(0_u16, |value, digit| value * 8 + u16::from(digit - b'0'));
    Some((u8::try_from(value).ok()?, &rest[len..]))
}

fn control(byte: u8) -> u8 {
    if byte == b'?' { 0x7F } else { byte & 0x1F }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_bytes() {
        for (text, plain) in [
            (r"a\040b\043\134c", &b"a b#\\c"[..]),
            (r"a\sb\#\\c\t\n", b"a b#\\c\t\n"),
            (r"\M-C\M-<\303\274", b"\xC3\xBC\xC3\xBC"),
            (r"\^A\^?\M^A\M^?\E", b"\x01\x7F\x81\xFF\x1B"),
            (r"\0\01x\377", b"\0\x01x\xFF"),
            ("", b""),
        ] {
            assert_eq!(unescape(text.as_bytes()).as_deref(), Some(plain), "{text}");
        }
        for text in [r"\", r"a\q", r"\M", r"\M-", r"\Mx", r"\^", r"\777", r"\8"] {
            assert_eq!(unescape(text.as_bytes()), None, "{text}");
        }
    }
}
