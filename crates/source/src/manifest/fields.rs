//! Parsers of fields that several formats of definitions share.

use kiln_format::inode::Rdev;
use kiln_tree::SyntaxError;

/// Parses an unsigned decimal number.
pub(super) fn number<N: TryFrom<u64>>(field: &'static str, text: &[u8]) -> Result<N, SyntaxError> {
    in_radix(field, text, 10, "not a decimal number")
}

/// Parses an octal number up to 7777.
pub(super) fn mode(text: &[u8]) -> Result<u16, SyntaxError> {
    let mode: u16 = in_radix("mode", text, 8, "not an octal number")?;
    if mode > 0o7777 {
        return Err(SyntaxError::new("mode", text, "over 7777"));
    }
    Ok(mode)
}

/// Parses a user or group: a number, or `root`. Other names have a different number on each
/// machine.
pub(super) fn id(field: &'static str, text: &[u8]) -> Result<u32, SyntaxError> {
    match text {
        b"root" => Ok(0),
        [b'0'..=b'9', ..] => match number(field, text)? {
            u32::MAX => Err(SyntaxError::new(field, text, "over 4294967294")),
            id => Ok(id),
        },
        _ => Err(SyntaxError::new(field, text, "write it as a number; root is the only known name")),
    }
}

/// Parses a device number.
pub(super) fn device(major: &[u8], minor: &[u8]) -> Result<Rdev, SyntaxError> {
    checked(Rdev { major: number("major", major)?, minor: number("minor", minor)? })
}

/// Returns the device number if an image can hold it.
pub(super) fn checked(device: Rdev) -> Result<Rdev, SyntaxError> {
    let refuse = |field, value: u32, most| Err(SyntaxError::new(field, value.to_string().as_bytes(), most));
    match device {
        Rdev { major: 0x1000.., .. } => refuse("major", device.major, "over 4095"),
        Rdev { minor: 0x10_0000.., .. } => refuse("minor", device.minor, "over 1048575"),
        fits => Ok(fits),
    }
}

pub(super) fn in_radix<N: TryFrom<u64>>(
    field: &'static str,
    text: &[u8],
    radix: u32,
    otherwise: &str,
) -> Result<N, SyntaxError> {
    let digits = str::from_utf8(text).ok().filter(|text| !text.starts_with('+'));
    let value = digits.ok_or("").and_then(|digits| u64::from_str_radix(digits, radix).map_err(|_| ""));
    let value = value.map_err(|_| SyntaxError::new(field, text, otherwise))?;
    N::try_from(value).map_err(|_| SyntaxError::new(field, text, "too large"))
}

/// Returns the words separated by white space.
pub(super) fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect()
}

/// Converts a path of a definition to that of a tree: without leading, trailing and repeated
/// slashes.
pub(super) fn tree_path(path: &[u8]) -> Box<[u8]> {
    let names: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|name| !name.is_empty()).collect();
    names.join(&b'/').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_range() {
        assert_eq!(number::<u32>("n", b"4294967295").unwrap(), u32::MAX);
        for text in ["", "+1", "-1", "1x", "99999999999999999999", "4294967296", "\u{e9}"] {
            assert!(number::<u32>("n", text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!((mode(b"0755").unwrap(), mode(b"7777").unwrap()), (0o755, 0o7777));
        for text in ["10000", "8", "", "u=rw"] {
            assert!(mode(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(id("uid", b"root").unwrap(), 0);
        let error = id("uid", b"www-data").unwrap_err().to_string();
        assert_eq!(error, "uid `www-data`: write it as a number; root is the only known name");
        assert!(id("uid", b"4294967295").is_err());
        assert_eq!(device(b"4095", b"1048575").unwrap(), Rdev { major: 4095, minor: 1_048_575 });
        assert!(device(b"4096", b"0").is_err() && device(b"0", b"1048576").is_err());
    }
}
