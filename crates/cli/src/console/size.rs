//! Sizes as people write and read them.

use std::fmt;

/// Parse `4096`, `64k`, `1M`, `2GiB`: powers of 1024, in either case.
pub fn parse(text: &str) -> Result<u64, String> {
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
        _ => return Err("write a size as 4096, 64k, 1M or 2G".into()),
    };
    let number: u64 = number.parse().map_err(|_| "write a size as 4096, 64k, 1M or 2G".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "more than 64 bits hold".into())
}

/// A count of bytes for people: `0 B`, `1.2 GiB`.
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1023.96 would be shown as 1024.0.
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
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
            assert_eq!(parse(text), Ok(size), "{text}");
        }
        for bad in ["", "k", "1.5M", "-1", "4096x", "1kk", "1ib", "99999999T", "18446744073709551616"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_shown() {
        for (size, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1288490189, "1.2 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Human(size).to_string(), text);
        }
    }
}
