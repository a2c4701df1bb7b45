//! Decoders of attribute names (`%XX`) and values (base64) in PAX records.

/// Decodes a name as libarchive writes it, also in records of other programs: any byte may be
/// written as `%XX`. A percent sign without two hexadecimal digits stands for itself.
pub(super) fn percent_decoded(text: &[u8]) -> Vec<u8> {
    decoded(text, |[high, low]| {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        Some((digit(high)? << 4 | digit(low)?) as u8)
    })
}

/// Decodes a name as GNU tar writes it: `=`, which ends a keyword, is `%3D` and the percent sign is
/// `%25`. Everything else stands for itself.
pub(super) fn keyword_decoded(text: &[u8]) -> Vec<u8> {
    decoded(text, |digits| match &digits {
        b"3D" => Some(b'='),
        b"25" => Some(b'%'),
        _ => None,
    })
}

/// Returns `text` with each percent sign and the two bytes after it replaced by the byte that
/// `byte` returns for them.
fn decoded(text: &[u8], byte: impl Fn([u8; 2]) -> Option<u8>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let escaped = after.first_chunk().filter(|_| *first == b'%').and_then(|digits| byte(*digits));
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    bytes
}

/// Decodes base64, with or without padding. Returns `None` if it is invalid.
pub(super) fn base64_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.trim_ascii_end();
    let padding = digits.iter().rev().take_while(|&&byte| byte == b'=').count();
    let digits = &digits[..digits.len() - padding];
    if padding > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let bits = group.iter().try_fold(0_u32, |bits, &digit| Some(bits << 6 | u32::from(base64_digit(digit)?)))?;
        let bits = bits << (6 * (4 - group.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

fn base64_digit(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        let cases: [(&str, Option<&[u8]>); 11] = [
            ("", Some(b"")),
            ("YQ", Some(b"a")),
            ("YQ==", Some(b"a")),
            ("YQpi", Some(b"a\nb")),
            ("AP+/", Some(b"\0\xFF\xBF")),
            ("YWI=\n", Some(b"ab")),
            ("YWJjZA", Some(b"abcd")),
            ("Y", None),
            ("YQ===", None),
            ("Y*==", None),
            ("YQ==YQ==", None),
        ];
        for (text, expected) in cases {
            assert_eq!(base64_decoded(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn names_are_decoded() {
        for (text, expected) in
            [("user.x", &b"user.x"[..]), ("a%3Db%ff%", b"a=b\xFF%"), ("%4", b"%4"), ("%%41%zz", b"%A%zz")]
        {
            assert_eq!(percent_decoded(text.as_bytes()), expected, "{text}");
        }
        for (text, expected) in
            [("user.a%3Db%25", "user.a=b%"), ("%253D%2525", "%3D%25"), ("%3d%20%", "%3d%20%"), ("%%3D%2", "%=%2")]
        {
            assert_eq!(keyword_decoded(text.as_bytes()), expected.as_bytes(), "{text}");
        }
    }
}
