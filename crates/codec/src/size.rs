//! Sizes as users write them.

/// Parses `4096`, `64k`, `1M`, `2GiB`: bytes or powers of 1024, up to `t`, in either case.
///
/// # Errors
/// Text of another form, and sizes over 64 bits.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    let letter = unit.strip_suffix("ib").or(unit.strip_suffix('b').filter(|_| unit != "b")).unwrap_or(&unit);
    let shift = match letter {
        "" | "b" if unit != "ib" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(SizeError::Form),
    };
    let number: u64 = number.parse().map_err(|_| SizeError::Form)?;
    number.checked_mul(1 << shift).ok_or(SizeError::TooLarge)
}

/// Error of a text that is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// The text has another form.
    #[error("write a size as 4096, 64k, 1M or 2G")]
    Form,
    /// The size exceeds 64 bits.
    #[error("size exceeds 64 bits")]
    TooLarge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("512b", 512),
            ("64k", 65536),
            ("64K", 65536),
            ("64KiB", 65536),
            ("1M", 1 << 20),
            ("1mb", 1 << 20),
            ("2G", 2 << 30),
            ("16T", 16 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for bad in ["", "k", "+1", "1.5M", "-1", "4096x", "1kk", "1ib", "18446744073709551616"] {
            assert_eq!(parse_size(bad), Err(SizeError::Form), "{bad}");
        }
        assert_eq!(parse_size("99999999T"), Err(SizeError::TooLarge));
    }
}
