//! Values of options, parsed like those of the original.

use crate::dropin::Stop;
use crate::dropin::getopt::{Misuse, number};
use kiln_format::BlockBits;
use kiln_format::xattr::BODY_MAX_LEN;
use kilnfs::ImageLabel;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use uuid::Uuid;

/// Most threads that may be asked for.
const WORKERS_MAX: u64 = 1024;

/// Parses a number that may be negative: decimal, `0x` hexadecimal or `0` octal.
pub fn signed(text: &OsString) -> Option<i64> {
    let digits = text.to_str()?;
    match digits.strip_prefix('-') {
        Some(digits) => 0_i64.checked_sub_unsigned(number(&digits.into())?),
        None => i64::try_from(number(text)?).ok(),
    }
}

/// Parses a number, perhaps with `k`, `m` or `g` behind it. Like the original it accepts C's `0x` and octal numbers
/// and no longer units, unlike [kiln's own options](crate::console::size::parse).
pub fn size(text: &str) -> Option<u64> {
    let shift = match text.as_bytes().last()? {
        b'k' | b'K' => 10,
        b'm' | b'M' => 20,
        b'g' | b'G' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    number(&digits.into())?.checked_mul(1 << shift)
}

/// Parses the value of `-b`.
pub fn block_bits(text: &OsString) -> Result<BlockBits, Misuse> {
    let len = text.to_str().and_then(size).filter(|len| len.is_power_of_two());
    let bits = len.and_then(|len| BlockBits::new(len.trailing_zeros() as u8));
    bits.ok_or_else(|| invalid("block size", text))
}

/// Parses the value of `--force-uid` and similar options.
pub fn id(text: &OsString) -> Option<u32> {
    // The highest number stands for no id in system calls.
    number(text).and_then(|id| u32::try_from(id).ok()).filter(|&id| id != u32::MAX)
}

/// Returns the error for an invalid value in the words of the original, which end with the value.
pub fn invalid(what: &str, value: &OsString) -> Misuse {
    Misuse::Other(format!("invalid {what} {}", value.display()))
}

pub fn flag(name: &str, value: Option<OsString>) -> Result<bool, Misuse> {
    match value.as_ref().map(|value| value.as_bytes()) {
        None | Some(b"1") => Ok(true),
        Some(b"0") => Ok(false),
        Some(other) => Err(Misuse::Other(format!("invalid --{name}={}", other.escape_ascii()))),
    }
}

pub fn label(value: &OsString) -> Result<ImageLabel, Misuse> {
    let label = value.to_str().and_then(|text| text.parse().ok());
    label.ok_or_else(|| Misuse::other("invalid volume label"))
}

pub fn uuid(value: &OsString) -> Result<[u8; 16], Stop> {
    match value.to_str() {
        Some("clear") => Ok([0; 16]),
        Some("random") => random_uuid(),
        text => {
            let uuid = text.and_then(|text| Uuid::parse_str(text).ok());
            Ok(uuid.ok_or_else(|| invalid("UUID", value))?.into_bytes())
        }
    }
}

/// Returns a UUID of version 4.
fn random_uuid() -> Result<[u8; 16], Stop> {
    let mut bytes = [0; 16];
    // So few bytes always come at once.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(std::io::Error::from)?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
}

/// Parses a longest extent. A negative one means extents that are not whole blocks, which kiln's extents of 48 bits
/// never are.
pub fn extent_max_len(value: &OsString) -> Result<u32, Misuse> {
    let digits = value.to_str().map(|text| text.strip_prefix('-').unwrap_or(text));
    let len = digits.and_then(size).filter(|len| *len > 0);
    len.map(|len| u32::try_from(len).unwrap_or(u32::MAX)).ok_or_else(|| invalid("max extent bytes", value))
}

pub fn root_xattr_len(value: &OsString) -> Result<usize, Misuse> {
    let len = number(value).and_then(|len| usize::try_from(len).ok());
    len.filter(|len| *len <= BODY_MAX_LEN).ok_or_else(|| invalid("root xattr isize", value))
}

pub fn blocks(what: &str, value: &OsString) -> Result<u64, Misuse> {
    number(value).ok_or_else(|| invalid(what, value))
}

pub fn workers(value: &OsString) -> Result<usize, Misuse> {
    let count = number(value).filter(|&count| count <= WORKERS_MAX).and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| invalid("worker number", value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_powers_of_two() {
        for (text, expected) in [("512", Some(9)), ("4k", Some(12)), ("4096", Some(12)), ("0x10000", Some(16))] {
            assert_eq!(block_bits(&text.into()).ok().map(BlockBits::bits), expected, "{text}");
        }
        for text in ["0", "256", "5000", "128k", "", "x", "18446744073709551615"] {
            assert!(block_bits(&text.into()).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_may_be_negative() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("0x10", Some(16)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9223372036854775809", None),
            ("9223372036854775808", None),
            ("--1", None),
            ("-", None),
            ("1k", None),
        ] {
            assert_eq!(signed(&text.into()), expected, "{text}");
        }
    }

    #[test]
    fn sizes_have_suffixes() {
        for (text, expected) in [
            ("4096", Some(4096)),
            ("64k", Some(65536)),
            ("1M", Some(1 << 20)),
            ("0x1g", Some(1 << 30)),
            ("", None),
            ("k", None),
            ("64kb", None),
            ("1é", None),
            ("99999999999g", None),
        ] {
            assert_eq!(size(text), expected, "{text}");
        }
    }
}
