//! Parsers of numbers.

/// Parses the number in a header field: octal digits padded with spaces or zero bytes, or, if the
/// top bit of the first byte is set, two's complement in the remaining bits (GNU tar's base-256).
/// An empty field is 0.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    match field {
        [first, ..] if first & 0x80 != 0 => base_256(field),
        _ => octal(field),
    }
}

fn base_256(field: &[u8]) -> Option<i64> {
    // Sign-extend the lower 7 bits of the first byte.
    let first = i64::from((field[0] << 1) as i8 >> 1);
    field[1..].iter().try_fold(first, |number, &byte| number.checked_mul(256)?.checked_add(i64::from(byte)))
}

fn octal(field: &[u8]) -> Option<i64> {
    let start = field.iter().position(|byte| !matches!(byte, b' ' | 0)).unwrap_or(field.len());
    let digits = field[start..].split(|&byte| byte == 0).next().unwrap_or_default().trim_ascii_end();
    digits.iter().try_fold(0_i64, |number, &digit| {
        let digit = (b'0'..=b'7').contains(&digit).then(|| i64::from(digit - b'0'))?;
        number.checked_mul(8)?.checked_add(digit)
    })
}

/// Parses an unsigned decimal number of a PAX record.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Parses a time of a PAX record, in seconds since 1970 with a fraction. Returns seconds, rounded
/// down, and nanoseconds; digits after the ninth are ignored.
pub(super) fn time(text: &[u8]) -> Option<(i64, u32)> {
    let (is_negative, text) = text.strip_prefix(b"-").map_or((false, text), |text| (true, text));
    let dot = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
    let fraction = text.get(dot + 1..).unwrap_or_default();
    let seconds = i64::try_from(decimal(&text[..dot])?).ok()?;
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nsec = (0..9).fold(0, |nsec, at| nsec * 10 + u32::from(fraction.get(at).map_or(0, |digit| digit - b'0')));
    match (is_negative, nsec) {
        (false, _) => Some((seconds, nsec)),
        (true, 0) => Some((-seconds, 0)),
        (true, _) => Some((-seconds - 1, 1_000_000_000 - nsec)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_hold_octal_or_base_256() {
        let cases: [(&[u8], Option<i64>); 14] = [
            (b"0000644\0", Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"77777777", Some(0o77_777_777)),
            (b"\0\0\0\0", Some(0)),
            (b"", Some(0)),
            (b"12\0garbage", Some(0o12)),
            (b"12 x", None),
            (b"8", None),
            (b"-1", None),
            (b"0x10", None),
            (b"\x80\0\0\0\0\0\0\0\0\0\x01\x02", Some(0x102)),
            (&[0xFF; 12], Some(-1)),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"\xFF\xFF\xFF\xFF\x80\0\0\0\0\0\0\0", Some(i64::MIN)),
        ];
        for (field, expected) in cases {
            assert_eq!(number(field), expected, "{}", field.escape_ascii());
        }
        assert_eq!(number(&[0x80; 12]), None);
        assert_eq!(octal(b"777777777777777777777777"), None);
    }

    #[test]
    fn times_have_fractions_and_signs() {
        let cases = [
            ("1700000000", Some((1_700_000_000, 0))),
            ("1.5", Some((1, 500_000_000))),
            ("1.0000000019", Some((1, 1))),
            ("-1.25", Some((-2, 750_000_000))),
            ("-0.000000001", Some((-1, 999_999_999))),
            ("-7", Some((-7, 0))),
            ("9223372036854775807", Some((i64::MAX, 0))),
            ("9223372036854775808", None),
            (".5", None),
            ("1.x", None),
        ];
        for (text, expected) in cases {
            assert_eq!(time(text.as_bytes()), expected, "{text}");
        }
        assert_eq!((decimal(b""), decimal(b"+1"), decimal(b"18446744073709551616")), (None, None, None));
    }
}
