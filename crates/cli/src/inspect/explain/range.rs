//! Parsing of byte ranges.

use crate::console::size;
use std::ops::Range;

/// Parses `4096-8192`, `1M+64k`, or `1M-` for all bytes from there on.
pub fn parse(text: &str) -> Result<Range<u64>, String> {
    let (start, end) = match (text.split_once('-'), text.split_once('+')) {
        (Some((start, "")), _) => (size::parse(start)?, u64::MAX),
        (Some((start, end)), _) => (size::parse(start)?, size::parse(end)?),
        (None, Some((start, count))) => {
            let start = size::parse(start)?;
            let end = start.checked_add(size::parse(count)?).ok_or("more than 64 bits hold")?;
            (start, end)
        }
        (None, None) => return Err("write a range as 4096-8192, 1M+64k or 1M-".into()),
    };
    match start <= end {
        true => Ok(start..end),
        false => Err(format!("ends before it starts: did you mean {start}+{end}?")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        for (text, range) in [
            ("0-0", 0..0),
            ("4096-8192", 4096..8192),
            ("1M-1028k", 1 << 20..1028 << 10),
            ("64k+4096", 65536..69632),
            ("7-", 7..u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(range), "{text}");
        }
        for bad in ["", "7", "-7", "+7", "7+", "8-7", "a-b", "1-2-3", "1+2+3", "1-2+3", "16777215T+16777216T"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
