//! Code page 437, the encoding of names in zip archives without another declared encoding.

use std::borrow::Cow;

/// Upper half of the code page; the lower half is ASCII.
const UPPER: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀\
                     αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{A0}";

/// Returns `name` converted to UTF-8, or unchanged if it is valid UTF-8.
pub(super) fn to_utf8(name: &[u8]) -> Cow<'_, [u8]> {
    if str::from_utf8(name).is_ok() {
        return Cow::Borrowed(name);
    }
    let char = |&byte: &u8| match byte {
        ..0x80 => char::from(byte),
        _ => UPPER.chars().nth(usize::from(byte - 0x80)).unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    Cow::Owned(name.iter().map(char).collect::<String>().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_utf_8() {
        assert_eq!(UPPER.chars().count(), 128);
        assert_eq!(to_utf8(b"caf\x82/\x9A\xE1\xFF"), "café/Üß\u{A0}".as_bytes());
        for same in ["plain", "r\u{E4}w", ""] {
            assert_eq!(to_utf8(same.as_bytes()), same.as_bytes());
        }
    }
}
